"""The process that decodes one recording: the file comes in on standard input, 16-bit mono PCM goes out on standard
output. `decoder.py` runs it as a script, so it imports nothing of the server and no model runtime."""

from __future__ import annotations

import math
import os
import resource
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain, groupby
from typing import IO, Any

READY, TAKEN = b"\n", b"\r"
"""Written when the process can decode, and when it has read the file."""

UNREADABLE, NO_AUDIO, OUT_OF_MEMORY = 3, 4, 5
"""Exit statuses."""

LENGTH = struct.Struct("<I")
"""The length of the file, which comes before it. The pipe stays open after the file: its end is the server's end."""

_CODECS = (
    "aac,adpcm_ima_wav,adpcm_ms,alac,amrnb,amrwb,flac,gsm_ms,mp2float,mp3float,opus,pcm_alaw,pcm_f32be,pcm_f32le,"
    "pcm_f64be,pcm_f64le,pcm_mulaw,pcm_s16be,pcm_s16le,pcm_s24be,pcm_s24le,pcm_s32be,pcm_s32le,pcm_s8,pcm_u8,speex,"
    "vorbis"
)

_OPTIONS = {
    "format_whitelist": "wav,mp3,mov,matroska,ogg,flac,aac",
    "protocol_whitelist": "",
    "codec_whitelist": _CODECS,
}
"""For FFmpeg. Containers that name other files or addresses are not among these, and without a protocol nothing but the
file itself can be opened. Without the list of codecs, FFmpeg decodes videos and cover pictures to learn their size."""

_NICENESS = 5
"""Conversations come first."""

_WRITE_BYTES = 1 << 16


def main(packages: str, rate: int, memory_bytes: int, cpu_s: int) -> int:
    """Decode one recording. Returns the exit status.

    Args:
        packages: the folder that PyAV is installed in.
        rate: of the PCM, in Hz.
        memory_bytes: limit of the address space. macOS does not enforce it.
        cpu_s: limit of the processor time.
    """
    os.nice(_NICENESS)
    sys.path.append(packages)
    decode(_silent_wav(), rate, BytesIO())  # loads what PyAV would load on first use
    output = os.fdopen(1, "wb", _WRITE_BYTES)
    output.write(READY)
    output.flush()
    header = sys.stdin.buffer.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return 0  # the server has ended
    data = sys.stdin.buffer.read(LENGTH.unpack(header)[0])
    output.write(TAKEN)
    output.flush()
    threading.Thread(target=_end_with_server, daemon=True).start()
    _set_limits(memory_bytes, cpu_s)
    status = decode(data, rate, output)
    output.flush()
    return status


def decode(data: bytes, rate: int, output: IO[bytes]) -> int:
    """Write the first audio stream of a file. Returns the exit status."""
    import av  # `main` says where it is

    try:
        written = 0
        with av.open(BytesIO(data), "r", metadata_errors="ignore", options=_OPTIONS) as container:
            if not container.streams.audio:
                return NO_AUDIO
            codec = container.streams.audio[0].codec_context
            if codec is None or codec.name not in _CODECS.split(","):
                return UNREADABLE
            codec.thread_count = 1
            for part in _resampled(container.decode(audio=0), rate):
                written += output.write(memoryview(part.planes[0])[: 2 * part.samples])
        return 0 if written else NO_AUDIO
    except MemoryError:
        return OUT_OF_MEMORY
    except (av.error.FFmpegError, EOFError, ValueError):
        return UNREADABLE


def _resampled(frames: Iterable[Any], rate: int) -> Iterator[Any]:
    """The frames in 16 bits, mono, at a rate. Where their format changes, as between two recordings that were joined,
    another resampler is needed."""
    import av

    for _, alike in groupby(frames, lambda frame: (frame.format.name, frame.layout.name, frame.sample_rate)):
        resampler = av.AudioResampler("s16", "mono", rate)
        for frame in chain(alike, [None]):  # None flushes it
            yield from resampler.resample(frame)


def _silent_wav() -> bytes:
    """A millisecond at 8 kHz."""
    return b"RIFF\x34\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\x10\0\0\0" + bytes(16)


def _set_limits(memory_bytes: int, cpu_s: int) -> None:
    """Limit this process. From now on it cannot open a file or a socket, start a process or write to a file."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_limit = math.ceil(usage.ru_utime + usage.ru_stime) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 1))  # at the second value it is SIGKILL
    if sys.platform != "darwin":
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for nothing in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(nothing, (0, 0))


def _end_with_server() -> None:
    """End this process when the other end of the pipe is closed, as when the server was killed."""
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    os._exit(main(folder, *map(int, numbers)))
