"""How soon captions appear and settle after a word was spoken, and how often they are corrected.

    python -m lab.benchmarks.captions [--sessions 2] [--turns 40] [--conversation] [--server-option=--model=…]
    python -m lab.benchmarks.captions --simulated
    python -m lab.benchmarks.captions --hour

The sentences of the held-out corpus, in real time, to a server of their own. The moments at which their words end are
found by the recognizer's alignment of what was said. With `--conversation`, somebody talks to the assistant meanwhile.
`--simulated` runs sessions on a virtual clock, one after the other. A transcription takes the processor time there that
it used: what a core of its own would give, on a machine that others use as well. `--hour` sends an hour to one such
session. `--built-in` takes the report's own corpus, to tune with.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import base64
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from websockets.asyncio.client import connect

from lab.benchmarks.soak import resident_mb
from lab.report.corpus import SpokenTurn, built_in, select_turns
from lab.report.corpus_voices import default_voices
from lab.report.own_server import own_server
from lab.report.realtime_client import connect_realtime, speak_turns
from lab.report.recordings import HELD_OUT, from_folder
from model.hub.store import ModelStore, cache_folder
from server.processor import ProcessorUse, cpu_name
from server.serving.options import ModelOptions
from server.serving.runtime import locate_model
from server.serving.speech import load_speech_models
from tests.fakes import FakeLanguageModel, run_on_virtual_clock
from voice import events
from voice.asr import Recognizer
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples, to_pcm16
from voice.audio.resampling import resample
from voice.captions import CaptionChange, CaptionTrack, caption_timing
from voice.compared_words import normalized
from voice.playback import SessionSettings
from voice.session import VoiceSession
from voice.speech_models import SpeechModels
from voice.timing import Timing
from voice.tts import Voice
from voice.turn_machine import TurnRules

_BLOCK_S, _PAUSE_S = 0.02, 1.2
_NEAR_S = 0.7
"""A caption this close to a word of the same text is that word's."""


@dataclass(frozen=True)
class SpokenWord:
    """A word of the recording; `end_s` from its start."""

    text: str
    end_s: float


@dataclass
class Figures:
    """Of one session: ms from the end of a word until it was shown, and until it was stable for good."""

    appeared_ms: list[float] = field(default_factory=list)
    settled_ms: list[float] = field(default_factory=list)
    spoken: int = 0
    stable: int = 0
    corrected: int = 0


def script(turns: Sequence[SpokenTurn], recognizer: Recognizer) -> tuple[Samples, list[SpokenWord]]:
    """The turns one after the other at 24 kHz, and their words."""
    audio, words, start_s = [np.zeros(OUTPUT_RATE, np.float32)], list[SpokenWord](), 1.0
    for turn in turns:
        speech = resample(turn.audio, OUTPUT_RATE, RECOGNITION_RATE)
        if len(speech) > 28 * RECOGNITION_RATE:
            continue
        words += (SpokenWord(normalized(w.text), start_s + w.end_s) for w in recognizer.words(speech, turn.text))
        audio += [turn.audio, np.zeros(int(_PAUSE_S * OUTPUT_RATE), np.float32)]
        start_s += len(turn.audio) / OUTPUT_RATE + _PAUSE_S
    return np.concatenate(audio), words


async def watch(url: str, audio: Samples, words: Sequence[SpokenWord]) -> Figures:
    """Speak in real time, and measure the captions."""
    received: list[tuple[float, dict[str, Any]]] = []
    async with connect(url, max_size=None, compression=None) as socket:
        session = {"type": "transcription", "include": ["rejoinder.caption"]}
        await socket.send(json.dumps({"type": "session.update", "session": session}))

        async def read() -> None:
            async for frame in socket:
                event = json.loads(frame)
                if event["type"] == "rejoinder.caption":
                    received.append((time.monotonic(), event))
                elif event["type"] == "error":
                    raise SystemExit(event["error"]["message"])

        reading = asyncio.create_task(read())
        began, size = time.monotonic(), int(_BLOCK_S * OUTPUT_RATE)
        for number, start in enumerate(range(0, len(audio), size)):
            await asyncio.sleep(max(0.0, began + number * _BLOCK_S - time.monotonic()))
            data = base64.b64encode(to_pcm16(audio[start : start + size])).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": data}))
        await asyncio.sleep(4)
        reading.cancel()
    return figures(received, words, began)


def figures(received: Sequence[tuple[float, dict[str, Any]]], words: Sequence[SpokenWord], began: float) -> Figures:
    """What the received events say of the words."""
    shown: dict[str, list[dict[str, Any]]] = {}
    appeared, settled, last = dict[int, float](), dict[int, float](), dict[str, Any]()
    for at, event in received:
        stable = shown.setdefault(event["item_id"], [])
        stable[event["first"] :] = event["stable"]
        found = matches(words, [*stable, *event["provisional"]])
        now_stable = matches(words, stable)
        for index in found:
            appeared.setdefault(index, at)
        for index in now_stable:
            settled.setdefault(index, at)
        last = event
    final = matches(words, [word for turn in shown.values() for word in turn])
    result = Figures(spoken=len(words), stable=sum(map(len, shown.values())), corrected=last.get("corrected", 0))
    for index in final:
        spoken_at = began + words[index].end_s
        result.appeared_ms.append(1000 * (appeared[index] - spoken_at))
        result.settled_ms.append(1000 * (settled[index] - spoken_at))
    return result


def matches(words: Sequence[SpokenWord], captions: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The spoken words that captions show, by their text and time, and which caption."""
    if not captions:
        return {}
    low, high = captions[0]["end"] - _NEAR_S, captions[-1]["end"] + _NEAR_S
    near = [index for index, word in enumerate(words) if low <= word.end_s <= high]
    texts = [normalized(caption["word"]) for caption in captions]
    blocks = SequenceMatcher(None, [words[n].text for n in near], texts, autojunk=False).get_matching_blocks()
    pairs = [(near[block.a + n], captions[block.b + n]) for block in blocks for n in range(block.size)]
    return {index: caption for index, caption in pairs if abs(words[index].end_s - caption["end"]) <= _NEAR_S}


async def converse(url: str, turns: Sequence[SpokenTurn]) -> list[float]:
    """Talk to the assistant; returns the latency of its responses in ms."""
    measured = await speak_turns(partial(connect_realtime, url), turns)
    return [turn.latency_ms for turn in measured if turn.latency_ms is not None]


async def measure(arguments: argparse.Namespace, turns: Sequence[SpokenTurn], scripts: list[Any]) -> None:
    """Print a row for each kind of session."""
    async with own_server(arguments.server_option) as url:
        before = ProcessorUse.now()
        sessions = [watch(url, audio, words) for audio, words in scripts]
        talks = [converse(url, turns)] if arguments.conversation else []
        *found, latencies = await asyncio.gather(*sessions, *(talks or [asyncio.sleep(0, [])]))
        # The server is a process of its own, so its time counts as others'.
        busy = ProcessorUse.now().share_of_others(before)
    print(f"{cpu_name()}, {len(scripts)} sessions; they and others used {100 * busy:.0f} % of the processor")
    report(found)
    if latencies:
        print(f"conversation: {_percentiles(latencies)} ({len(latencies)} responses)")


def report(found: Sequence[Figures]) -> None:
    """Print the figures of some sessions together."""
    together = Figures()
    for one in found:
        for name, value in vars(one).items():
            setattr(together, name, getattr(together, name) + value)
    print(f"{together.spoken} words were spoken")
    for name, values in (("appeared", together.appeared_ms), ("settled", together.settled_ms)):
        print(f"{name}: {_percentiles(values)} ({len(values)} words)")
    print(f"corrected: {together.corrected} of {together.stable} stable words")


def captioned_session(
    models: SpeechModels, on_caption: Callable[[str, CaptionChange], None], clock: Callable[[], float]
) -> VoiceSession:
    """A session of this process that transcribes."""
    tracks = dict[str, CaptionTrack]()

    def on_event(event: events.SessionEvent) -> None:
        match event:
            case events.SpeechStarted():
                tracks[event.item_id] = CaptionTrack(event.audio_start_ms / 1000)
            case events.PartialTranscript():
                on_caption(event.item_id, tracks[event.item_id].update(event.words, event.num_stable))
            case events.FinalTranscript():
                on_caption(event.item_id, tracks.pop(event.item_id).finish(event.words))

    rules = TurnRules(caption_timing(Timing()), create_response=False)
    settings = SessionSettings(rules=rules, word_details=True, captions=True, read_ahead=False)
    return VoiceSession(FakeLanguageModel(), models, on_event, settings, clock)


class ProcessorTimeExecutor(Executor):
    """Runs work at once. Its result comes on the loop's clock when so much time has passed as it used the processor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._busy_until = loop, 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        began = time.process_time()
        try:
            done = partial(future.set_result, fn(*args, **kwargs))
        except Exception as error:
            done = partial(future.set_exception, error)
        self._busy_until = max(self._busy_until, self._loop.time()) + time.process_time() - began
        self._loop.call_at(self._busy_until, lambda: future.cancelled() or done())
        return future


def simulated_session(models: SpeechModels, on_caption: Callable[[str, CaptionChange], None]) -> VoiceSession:
    """A session of this process on a virtual clock, with a core of its own for each kind of work."""
    loop = asyncio.get_running_loop()
    recognition, turn_detection = ProcessorTimeExecutor(loop), ProcessorTimeExecutor(loop)
    models = replace(models, recognition_executor=recognition, turn_detection_executor=turn_detection)
    return captioned_session(models, on_caption, loop.time)


async def simulate(models: SpeechModels, audio: Samples, words: Sequence[SpokenWord]) -> Figures:
    """Speak to a session of this process on a virtual clock."""
    loop, received = asyncio.get_running_loop(), list[tuple[float, dict[str, Any]]]()
    corrected = 0

    def on_caption(item_id: str, change: CaptionChange) -> None:
        nonlocal corrected
        corrected += change.corrected if change.final else 0
        stable, provisional = (
            [{"word": word.text, "end": word.end_s} for word in part] for part in (change.stable, change.provisional)
        )
        event = {"item_id": item_id, "first": change.first, "stable": stable, "provisional": provisional}
        received.append((loop.time(), event | {"corrected": corrected}))

    session, size = simulated_session(models, on_caption), int(_BLOCK_S * OUTPUT_RATE)
    began = loop.time()
    for start in range(0, len(audio), size):
        await asyncio.sleep(_BLOCK_S)
        session.append(audio[start : start + size], OUTPUT_RATE)
    await asyncio.sleep(4)
    await session.close()
    return figures(received, words, began)


async def hour(models: SpeechModels, audio: Samples, words: Sequence[SpokenWord], seconds: float) -> None:
    """Transcribe a long session on a virtual clock, and print every five minutes how it went in them: how many words
    there were, and by how much the recognizer finds their ends later than in a recording of its own."""
    size = int(_BLOCK_S * OUTPUT_RATE)
    repeated = len(audio) - size  # the recording again and again
    length_s = repeated / OUTPUT_RATE
    num_words, corrected, offsets_ms = 0, 0, list[float]()

    def on_caption(item_id: str, change: CaptionChange) -> None:
        nonlocal num_words, corrected
        if not change.final or not change.stable:
            return
        num_words, corrected = num_words + change.first + len(change.stable), corrected + change.corrected
        begin_s = change.stable[0].end_s // length_s * length_s
        shown = [{"word": word.text, "end": word.end_s - begin_s} for word in change.stable]
        offsets_ms.extend(1000 * (caption["end"] - words[n].end_s) for n, caption in matches(words, shown).items())

    session = simulated_session(models, on_caption)
    began, report_s = time.process_time(), 0.0
    for number in range(int(seconds / _BLOCK_S) + 1):
        if number * _BLOCK_S >= report_s:
            late = "none found"
            if offsets_ms:
                low, median, high = np.percentile(offsets_ms, (5, 50, 95))
                late = f"{len(offsets_ms)} found, {median:+.0f} ms ({low:+.0f} to {high:+.0f})"
            print(f"{report_s / 60:.0f} min: {resident_mb():.0f} MB, {num_words} words, {corrected} corrected, {late}; "
                  f"{time.process_time() - began:.0f} s of processor time", flush=True)  # fmt: skip
            report_s += min(300, seconds / 3)
            num_words, corrected, offsets_ms = 0, 0, []
        start = number * size % repeated
        await asyncio.sleep(_BLOCK_S)
        session.append(audio[start : start + size], OUTPUT_RATE)
    await session.close()


def own_corpus() -> list[SpokenTurn]:
    """The report's corpus, in the voices that are installed."""
    voices = default_voices(ModelStore())
    return built_in(lambda name: Voice(locate_model(name, Console(stderr=True), kind="voice")),
                    cache_folder() / "report", voices)  # fmt: skip


def _percentiles(values: Sequence[float]) -> str:
    p50, p95 = np.percentile(values, (50, 95)) if values else (float("nan"), float("nan"))
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms"


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.captions", description="Delay of captions.")
    parser.add_argument("--sessions", type=int, default=2, help="speakers at the same time")
    parser.add_argument("--turns", type=int, default=40, help="sentences of each")
    parser.add_argument("--conversation", action="store_true", help="and a conversation next to them")
    parser.add_argument("--seconds", type=float, default=3600, help="length of the hour")
    parser.add_argument("--simulated", action="store_true", help="processor time instead of a clock")
    parser.add_argument("--built-in", action="store_true", help="the report's own corpus")
    parser.add_argument("--hour", action="store_true", help="one simulated session of an hour")
    parser.add_argument("--server-option", action="append", default=[], help="of the server, such as --model=NAME")
    arguments = parser.parse_args()
    turns = from_folder(HELD_OUT) if not arguments.built_in else own_corpus()
    corpus = [turn for turn in turns if turn.text and turn.background is None]
    models = load_speech_models(ModelOptions(), Console(stderr=True))
    chosen = [select_turns(corpus, (), arguments.turns, seed) for seed in range(arguments.sessions)]
    scripts = [script(turns, models.recognizer) for turns in chosen]
    if arguments.hour:
        run_on_virtual_clock(partial(hour, models, *scripts[0], arguments.seconds))
        return
    if arguments.simulated:
        report([run_on_virtual_clock(partial(simulate, models, *one)) for one in scripts])
        return
    questions = [turn for turn in corpus if turn.expected == "answer" and turn.overlap is None]
    asyncio.run(measure(arguments, select_turns(questions, (), arguments.turns // 2, 7), scripts))


if __name__ == "__main__":
    main()
