"""Fake models, and an event loop on a virtual clock, on which waiting takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from agent.language_model import Grammar
from chat.progress import Progress
from chat.types import Ask, Effort, Lark, Message, Opening, Tool, ToolCallDelta, ToolChoice, Truncation
from voice.asr import EncoderWindow, Segment
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.vad import WINDOW_MS, WINDOW_SAMPLES, Frame
from voice.clauses import Clause
from voice.known_names import NO_NAMES, KnownNames
from voice.lexicon import NO_LEXICON, Lexicon
from voice.speech_models import SpeechModels
from voice.speech_times import Speech, SpeechTimes, SpokenWord
from voice.tts import Voices
from voice.visemes import Viseme
from voice.word_alignment import TokenLogprob, Word

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Advances the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer. Nothing on it may wait for a thread or a socket."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_on_virtual_clock(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on a virtual clock."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


class InlineExecutor(Executor):
    """Runs work at once, in the thread that submits it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class LoudnessDetector:
    """Classifies loud audio as speech."""

    is_noisy = False

    def __init__(self, silero: object) -> None:
        self._pending: Samples = np.zeros(0, np.float32)
        self._num_windows = 0

    def push(self, samples: Samples) -> list[Frame]:
        self._pending = np.concatenate((self._pending, samples))
        frames = []
        while len(self._pending) >= WINDOW_SAMPLES:
            window, self._pending = self._pending[:WINDOW_SAMPLES], self._pending[WINDOW_SAMPLES:]
            start, self._num_windows = self._num_windows * WINDOW_MS, self._num_windows + 1
            frames.append(Frame(float(np.abs(window).mean() > 0.1), start, start + WINDOW_MS))
        return frames


class FakeRecognizer:
    """Returns `text` for loud audio and nothing for quiet audio. Records the length of the audio and the window."""

    def __init__(self, text: str = "What is the capital of France?") -> None:
        self.text, self.failing, self.language = text, False, "en"
        self.names: list[str] = []
        self.transcribed_s: list[float] = []
        self.windows: list[EncoderWindow | None] = []

    languages = ("en", "de")

    def for_language(self, language: str) -> FakeRecognizer:
        self.language = language
        return self

    def words(self, audio: Samples, text: str) -> list[Word]:
        return [Word(word, n, n + 1, (TokenLogprob(f" {word}", -0.5),)) for n, word in enumerate(text.split())]

    def timed_words(
        self,
        audio: Samples,
        window: EncoderWindow | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Word]:
        found = self.transcribe(audio, window, is_cancelled, names)
        return [word for segment in found for word in self.words(audio, segment.text)]

    def known_names(self, names: Iterable[str]) -> KnownNames:
        self.names = list(names)
        return NO_NAMES

    def transcribe(
        self,
        audio: Samples,
        window: EncoderWindow | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Segment]:
        if self.failing:
            raise RuntimeError("the recognizer broke")
        self.transcribed_s.append(len(audio) / RECOGNITION_RATE)
        self.windows.append(window)
        loud = bool(len(audio)) and float(np.abs(audio).max()) > 0.1
        return [Segment(self.text, 0, len(audio) / RECOGNITION_RATE, True)] if loud and self.text else []


class FakeVoice:
    """Synthesizes 100 ms of noise per word. Records the clauses, and how they are pronounced."""

    def __init__(self, name: str = "fake") -> None:
        self.name, self.failing = name, False
        self.clauses: list[str] = []
        self.pronounced: list[str] = []

    def synthesize(self, clause: Clause, speed: float = 1.0, learned: Lexicon = NO_LEXICON) -> Samples:
        if self.failing:
            raise RuntimeError("the voice broke")
        self.clauses.append(clause.text.strip())
        self.pronounced.append(learned.apply(clause.text.strip()))
        count = int(len(clause.text.split()) * OUTPUT_RATE // 10 / speed)
        return np.random.default_rng(0).choice((-0.5, 0.5), count).astype(np.float32)

    def speak(self, clause: Clause, speed: float = 1.0, learned: Lexicon = NO_LEXICON) -> Speech:
        audio, words = self.synthesize(clause, speed, learned), clause.text.split()
        length = len(audio) * 1000 / OUTPUT_RATE / max(1, len(words))
        times = [(n * length, (n + 1) * length) for n in range(len(words))]
        spoken = tuple(SpokenWord(word, *span) for word, span in zip(words, times, strict=True))
        return Speech(audio, SpeechTimes(spoken, tuple(Viseme("aa", 2, *span) for span in times)))


@dataclass(frozen=True)
class FakeProgress(Progress):
    step: int = 1
    tokens: int = 1
    prompt_tokens: int = 30
    cached_tokens: int = 20


@dataclass
class FakeLanguageModel:
    """Generates `words`, one every `seconds_per_word`; or, if `calls` are given and the user spoke last or the choice
    requires it, these function calls (name and arguments), three characters at a time. What is in `programs` is a task
    unless there are calls, and these programs are written for it, one after the other. What is in `verdicts` ends the
    response. Records what it is asked."""

    words: list[str] = field(default_factory=lambda: ["The", " capital", " of", " France", " is", " Paris."])
    seconds_per_word: float = 0.02
    failing: bool = False
    prompts: list[list[Message]] = field(default_factory=list)
    prepared: list[list[Message]] = field(default_factory=list)
    cancelled: int = 0
    completion: float | None = None
    pauses: list[float] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    words_before_calls: int = 0
    choices: list[ToolChoice] = field(default_factory=list)
    efforts: list[Effort | None] = field(default_factory=list)
    grammars: list[Grammar | None] = field(default_factory=list)
    truncation: Truncation = field(default_factory=Truncation)
    asked: list[Ask] = field(default_factory=list)
    programs: dict[str, list[str]] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        messages, max_tokens = ask.messages, ask.max_tokens
        self.asked.append(ask)
        self.prompts.append(list(messages))
        self.choices.append(ask.tool_choice)
        self.efforts.append(ask.effort)
        self.grammars.append(ask.grammar)
        forced = ask.tool_choice not in ("auto", "none")
        if (verdict := self.verdicts.get(messages[-1].content)) in ask.verdicts:
            yield FakeProgress("", finished=verdict)
            return
        if ask.task == "maybe" and messages[-1].content in self.programs and not self.calls:
            yield FakeProgress("", finished="task")
            return
        if isinstance(ask.grammar, Lark):
            programs = self.programs.get(messages[-1].content)
            yield FakeProgress(programs.pop(0) if programs else "As the grammar says.")
            yield FakeProgress("", finished="stop")
            return
        if isinstance(ask.grammar, Opening):
            yield FakeProgress(ask.grammar.options[0])
        elif ask.tools and ask.tool_choice != "none" and self.calls and (forced or messages[-1].role == "user"):
            for word in self.words[: self.words_before_calls]:
                await asyncio.sleep(self.seconds_per_word)
                yield FakeProgress(word)
            async for progress in self._call(self.calls if ask.parallel_tool_calls else self.calls[:1]):
                yield progress
            return
        for n, word in enumerate(self.words[:max_tokens], 1):
            await asyncio.sleep(self.seconds_per_word)
            if self.failing:
                raise RuntimeError("the language model broke")
            last = n == len(self.words) or n == max_tokens
            finished = None if not last else "stop" if n == len(self.words) else "length"
            yield FakeProgress(word, "…", n, n, finished)

    async def _call(self, calls: Sequence[tuple[str, str]]) -> AsyncIterator[FakeProgress]:
        for index, (name, arguments) in enumerate(calls):
            for start in range(0, len(arguments), 3):
                await asyncio.sleep(self.seconds_per_word)
                done = start + 3 >= len(arguments)
                last = done and index == len(calls) - 1
                delta = ToolCallDelta(index, name, arguments[start : start + 3], done)
                yield FakeProgress("", finished="tool_calls" if last else None, tool_calls=(delta,))

    def prepare(self, ask: Ask) -> None:
        self.prepared.append(list(ask.messages))

    @property
    def recognizes_tasks(self) -> bool:
        return bool(self.programs)

    def limit_context(self, truncation: Truncation) -> None:
        self.truncation = truncation

    def check_tools(self, tools: Sequence[Tool]) -> None:
        for tool in tools:
            if tool.parameters.get("type", "object") != "object":
                raise ValueError(f"the parameters of {tool.name!r} are not an object")

    def check_grammar(self, grammar: Grammar) -> None:
        pass

    async def turn_completion(self, text: str) -> float | None:
        return self.completion

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def cancel(self) -> None:
        self.cancelled += 1

    def fork(self) -> FakeLanguageModel:
        return replace(self)


def fake_speech_models(recognizer: FakeRecognizer | None = None, voice: FakeVoice | None = None) -> SpeechModels:
    """Speech models that need no files."""
    voices = Voices([voice or FakeVoice(), FakeVoice("other")])  # type: ignore[list-item]
    models = (recognizer or FakeRecognizer(), None, voices, None)
    return SpeechModels(*models, InlineExecutor(), InlineExecutor(), InlineExecutor())  # type: ignore[arg-type]
