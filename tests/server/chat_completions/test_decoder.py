"""Recordings are decoded by processes with limits, which neither outlive the server nor take it with them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from server.api_errors import APIError
from server.chat_completions import decoder_process
from server.chat_completions.decoder import RecordingDecoder, RecordingTooLong
from tests.real_time import HANG_S, wait_until
from tests.recordings import encoded, overcounting_m4a, silent_flac, slow_flac

RATE, HOUR = 16_000, 3600.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
async def decoder() -> AsyncIterator[RecordingDecoder]:
    decoder = RecordingDecoder(RATE)
    async with decoder.running():
        yield decoder


async def refusal(decoder: RecordingDecoder, data: bytes) -> APIError:
    with pytest.raises(APIError) as error:
        await decoder.decode(data, 2 * HOUR)
    return error.value


async def process_of(decoder: RecordingDecoder) -> int:
    """The id of the process that decodes the next recording."""
    assert decoder._spare is not None
    return (await decoder._spare).pid


def read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def status(pid: int, field: str) -> str:
    lines = read(pid, "status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}[field]


def has_ended(pid: int) -> bool:
    try:
        return status(pid, "State").startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def peak_memory(pid: int) -> int | None:
    """In kB; nothing once the process has ended, also when it ends between two looks at it."""
    try:
        return int(status(pid, "VmHWM").split()[0])
    except (FileNotFoundError, ProcessLookupError, LookupError):
        return None


@pytest.mark.parametrize(
    ("container", "codec", "video"),
    [
        ("wav", "pcm_s16le", ""),
        ("wav", "pcm_f32le", ""),
        ("mp3", "mp3", ""),
        ("mp4", "aac", ""),
        ("adts", "aac", ""),
        ("mov", "alac", ""),
        ("ogg", "libopus", ""),
        ("flac", "flac", ""),
        ("webm", "libopus", ""),
        ("mp4", "aac", "mpeg4"),
        ("webm", "libopus", "libvpx"),
    ],
)
async def test_recordings_and_the_sound_of_videos_are_decoded(
    decoder: RecordingDecoder, container: str, codec: str, video: str
) -> None:
    audio = await decoder.decode(encoded(container, codec, 1.0, video), 60.0)
    assert abs(len(audio) / RATE - 1.0) < 0.1  # codecs pad their last frame
    assert abs(audio.astype(int)).max() > 5_000


async def test_other_containers_and_codecs_are_refused(decoder: RecordingDecoder) -> None:
    for container, codec in (("avi", "mp3"), ("mpegts", "aac"), ("au", "pcm_s16be"), ("matroska", "ac3")):
        assert "cannot be read" in (await refusal(decoder, encoded(container, codec))).message


async def test_a_recording_that_takes_too_much_processor_time_is_given_up() -> None:
    error = await refusal(RecordingDecoder(RATE, cpu_s=1), slow_flac())
    assert (error.status, error.code) == (400, "decoding_limit")
    assert "1 s of processor time" in error.message


async def test_a_recording_that_takes_too_long_is_given_up() -> None:
    error = await refusal(RecordingDecoder(RATE, wall_s=0.5), slow_flac())
    assert (error.status, error.code) == (503, "decoding_timeout")


@linux
async def test_decoding_ends_when_a_recording_has_too_many_seconds(decoder: RecordingDecoder) -> None:
    """The recording lasts 20 hours in 120 kB."""
    pid = await process_of(decoder)
    with pytest.raises(RecordingTooLong):
        await decoder.decode(silent_flac(20 * HOUR), 60.0)
    assert has_ended(pid)


@linux
async def test_a_recording_that_needs_too_much_memory_is_refused(decoder: RecordingDecoder) -> None:
    """The first one is 10 KB long, and takes 1.8 GB without a limit."""
    pid, peak = await process_of(decoder), 0
    decoding = asyncio.create_task(refusal(decoder, overcounting_m4a()))
    while not decoding.done():
        peak = peak_memory(pid) or peak
        await asyncio.sleep(0.001)
    assert (await decoding).status == 400
    assert 0 < peak < 400_000  # kB
    small = RecordingDecoder(RATE, memory_bytes=64 << 20)
    error = await refusal(small, encoded("wav", "pcm_s16le", 60.0))
    assert (error.status, error.code) == (400, "decoding_limit")
    assert "64 MiB" in error.message


@linux
@pytest.mark.parametrize("decoding", [True, False])
async def test_a_recording_after_one_whose_process_was_killed_is_decoded(
    decoder: RecordingDecoder, decoding: bool
) -> None:
    pid = await process_of(decoder)
    if decoding:
        broken = asyncio.create_task(refusal(decoder, slow_flac()))
        await wait_until(lambda: cpu_ticks(pid) > 40)
        os.kill(pid, signal.SIGKILL)
        assert ((await broken).status, (await broken).code) == (503, "decoder_killed")
    else:
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: has_ended(pid))
    assert len(await decoder.decode(encoded("wav", "pcm_s16le"), 60.0)) == RATE


def cpu_ticks(pid: int) -> int:
    fields = read(pid, "stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@linux
async def test_the_process_is_small_and_has_neither_models_nor_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEY", "secret")
    decoder = RecordingDecoder(RATE)
    async with decoder.running():
        pid = await process_of(decoder)
        assert int(status(pid, "VmRSS").split()[0]) < 64_000  # kB
        loaded = read(pid, "maps")
        assert "libavformat" in loaded
        assert not any(name in loaded for name in ("torch", "ctranslate2", "numpy", "onnxruntime"))
        assert "REJOINDER" not in read(pid, "environ")


async def test_two_recordings_are_decoded_by_two_processes(decoder: RecordingDecoder) -> None:
    first = await process_of(decoder)
    await decoder.decode(encoded("wav", "pcm_s16le"), 60.0)
    assert await process_of(decoder) != first


async def test_a_client_that_leaves_ends_its_decoding(decoder: RecordingDecoder) -> None:
    pid = await process_of(decoder)
    decoding = asyncio.create_task(decoder.decode(slow_flac(), 2 * HOUR))
    await asyncio.sleep(0.2)
    decoding.cancel()
    await asyncio.gather(decoding, return_exceptions=True)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_threads_that_all_share_are_not_used(decoder: RecordingDecoder) -> None:
    class Refusing(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("decoding uses the default executor")

    asyncio.get_running_loop().set_default_executor(Refusing())
    assert len(await decoder.decode(encoded("wav", "pcm_s16le"), 60.0)) == RATE


SERVER = """
    import asyncio, sys
    from server.chat_completions.decoder import RecordingDecoder
    from tests.recordings import slow_flac

    async def main():
        decoder = RecordingDecoder(16_000)
        async with decoder.running():
            busy = (await decoder._spare).pid
            decoding = asyncio.create_task(decoder.decode(slow_flac(), 7200.0))
            await asyncio.sleep(0.5)
            print(busy, (await decoder._start()).pid, flush=True)
            if sys.argv[1] == "stop":
                decoding.cancel()
                return
            await decoding

    asyncio.run(main())
"""


@linux
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_processes_end_with_the_server(end: str) -> None:
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(SERVER), end], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        pids = [int(word) for word in server.stdout.readline().split()]
        assert len(pids) == 2
        if end == "kill":
            assert not any(has_ended(pid) for pid in pids)
            server.kill()
        server.wait(HANG_S)
        deadline = time.monotonic() + HANG_S
        while not all(has_ended(pid) for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_recording_whose_format_changes_is_decoded_to_its_end() -> None:
    """As where two were joined; coverage-guided fuzzing found it."""

    def frame(layout: str, channels: int, rate: int) -> av.AudioFrame:
        made = av.AudioFrame.from_ndarray(np.zeros((1, channels * rate // 10), np.int16), format="s16", layout=layout)
        made.sample_rate = rate
        return made

    frames = [frame("mono", 1, 8000), frame("stereo", 2, 48_000), frame("mono", 1, 8000)]
    parts = decoder_process._resampled(frames, 16_000)
    assert sum(part.samples for part in parts) == pytest.approx(3 * 1600, abs=40)
