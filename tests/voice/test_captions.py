"""Captions: what settles, what is corrected, and long sessions."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.fakes import (
    FakeLanguageModel,
    FakeRecognizer,
    InlineExecutor,
    LoudnessDetector,
    fake_speech_models,
    run_on_virtual_clock,
)
from voice import events
from voice.asr import EncoderWindow, Recognizer
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.captions import CaptionChange, CaptionedUtterance, CaptionTrack, caption_timing
from voice.known_names import NO_NAMES, KnownNames
from voice.playback import SessionSettings
from voice.session import VoiceSession
from voice.timing import Timing
from voice.turn_machine import TurnRules
from voice.word_alignment import TokenLogprob, Word

WORD_S, GAP_S = 0.3, 0.1
_STEP = RECOGNITION_RATE // 100


def spoken(numbers: Sequence[int]) -> Samples:
    """Words that are numbers from 0 to 499: each has its own loudness."""
    word, gap = int(WORD_S * RECOGNITION_RATE), np.zeros(int(GAP_S * RECOGNITION_RATE), np.float32)
    return np.concatenate([part for n in numbers for part in (np.full(word, 0.2 + n / 1000, np.float32), gap)])


class ReadingRecognizer(FakeRecognizer):
    """Reads the words of `spoken`. One that its audio cuts is another word."""

    longest_s = 0.0

    def timed_words(
        self,
        audio: Samples,
        window: EncoderWindow | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Word]:
        self.longest_s = max(self.longest_s, len(audio) / RECOGNITION_RATE)
        levels = audio[_STEP // 2 :: _STEP]
        edges = np.flatnonzero(np.diff(levels, prepend=0, append=0))
        words = []
        for start, end in pairwise(edges):
            if levels[start] == 0:
                continue
            number = round((float(levels[start]) - 0.2) * 1000)
            text = f"n{number}" if end - start >= 100 * WORD_S - 2 else "cut"
            words.append(Word(text, start / 100, end / 100, (TokenLogprob(text, -0.1),)))
        return words


def utterance(recognizer: ReadingRecognizer) -> CaptionedUtterance:
    assert not isinstance(recognizer, Recognizer)
    return CaptionedUtterance(recognizer)  # type: ignore[arg-type]


def test_words_settle_when_transcripts_agree_and_a_cut_word_does_not() -> None:
    heard, audio = utterance(ReadingRecognizer()), spoken(range(5))
    heard.add(audio[: int(1.0 * RECOGNITION_RATE)])  # two words, and half of the third
    first = heard.partial()
    assert first is not None and (first.stable, first.unstable) == ("", "n0 n1 cut")
    heard.add(audio[int(1.0 * RECOGNITION_RATE) :])
    second = heard.partial()
    assert second is not None and (second.stable, second.unstable) == ("n0 n1", "n2 n3 n4")
    assert [word.text for word in second.words[: second.num_stable]] == ["n0", "n1"]
    assert heard.final() == "n0 n1 n2 n3 n4"
    assert heard.words("", heard.samples)[3].start_s == pytest.approx(1.2, abs=0.02)


def test_a_word_settles_when_transcripts_have_agreed_on_it_for_a_while() -> None:
    heard, audio = utterance(ReadingRecognizer()), spoken(range(5))
    stable = []
    for end_s in (1.2, 1.4, 1.6, 1.8, 2.0):  # the third word ends at 1.1 s
        heard.add(audio[heard.samples : int(end_s * RECOGNITION_RATE)])
        transcript = heard.partial()
        assert transcript is not None
        stable.append(transcript.num_stable)
    assert stable == [0, 0, 0, 3, 3]


def test_audio_of_settled_words_is_let_go_of_and_times_stay_right() -> None:
    recognizer = ReadingRecognizer()
    heard, audio = utterance(recognizer), spoken(range(200))
    block = RECOGNITION_RATE // 4
    for start in range(0, len(audio), block):
        heard.add(audio[start : start + block])
        heard.partial()
    assert recognizer.longest_s < 7
    assert heard.final() == " ".join(f"n{number}" for number in range(200))
    starts = [word.start_s for word in heard.words("", heard.samples)]
    assert np.allclose(starts, np.arange(200) * (WORD_S + GAP_S), atol=0.02)


def test_a_minute_that_arrives_at_once_is_heard_whole() -> None:
    recognizer = ReadingRecognizer()
    heard = utterance(recognizer)
    heard.add(spoken(range(150)))
    assert heard.final() == " ".join(f"n{number}" for number in range(150))
    assert recognizer.longest_s <= 20


def test_what_no_two_transcripts_agree_on_does_not_grow() -> None:
    recognizer = ReadingRecognizer()
    heard, silence = utterance(recognizer), np.zeros(RECOGNITION_RATE, np.float32)
    for _ in range(60):  # sound without words
        heard.add(silence)
        heard.partial()
    assert recognizer.longest_s <= 16


def words(text: str) -> list[Word]:
    return [Word(word, n, n + 0.5, ()) for n, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("stable", "final", "first", "corrected"),
    [
        ("we meet at nine", "we meet at nine", 4, 0),
        ("we meet at nine", "We meet at nine.", 0, 0),  # a capital letter is no correction
        ("we meet at nine", "we meet at five", 3, 1),
        ("we meat at nine", "we meet at nine o'clock", 1, 1),
        ("we meet nine", "we meet at nine", 2, 1),
        ("we meet", "we meet at nine", 2, 0),
        ("we we meet", "we meet", 1, 1),
    ],
)
def test_corrections_of_stable_words_are_counted(stable: str, final: str, first: int, corrected: int) -> None:
    track = CaptionTrack(10.0)
    track.update(words(stable), len(stable.split()))
    change = track.finish(words(final))
    assert (change.first, change.corrected, change.final) == (first, corrected, True)
    kept = stable.split()[: change.first]
    assert [*kept, *(word.text for word in change.stable)] == final.split()
    assert track.whole.stable[0].start_s == 10.0


def test_a_long_session_neither_drifts_nor_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of ten words with pauses, and a stretch of three minutes without any. `lab.benchmarks.captions --hour`
    has an hour with the real recognizer."""
    monkeypatch.setattr("voice.session.SpeechDetector", LoudnessDetector)
    recognizer = ReadingRecognizer()
    pause = np.zeros(RECOGNITION_RATE, np.float32)
    num_sentences = 180
    tracks: dict[str, CaptionTrack] = {}
    shown: dict[str, list[Word]] = {}
    corrected, peak_mb = 0, dict[int, int]()

    def follow(item_id: str, change: CaptionChange) -> None:
        shown[item_id] = [*shown.get(item_id, [])[: change.first], *change.stable]

    def on_event(event: events.SessionEvent) -> None:
        nonlocal corrected
        match event:
            case events.SpeechStarted():
                tracks[event.item_id] = CaptionTrack(event.audio_start_ms / 1000)
            case events.PartialTranscript():
                follow(event.item_id, tracks[event.item_id].update(event.words, event.num_stable))
            case events.FinalTranscript():
                change = tracks.pop(event.item_id).finish(event.words)
                follow(event.item_id, change)
                corrected += change.corrected

    async def talk() -> None:
        rules = TurnRules(caption_timing(Timing()), create_response=False, silence_only=True)
        settings = SessionSettings(rules=rules, word_details=True, captions=True, read_ahead=False)
        clock = asyncio.get_running_loop().time
        session = VoiceSession(FakeLanguageModel(), fake_speech_models(recognizer), on_event, settings, clock)
        for number in range(num_sentences):
            said = spoken([(10 * number + n) % 500 for n in range(10)])
            no_pause = number % 180 < 48
            audio = said if no_pause else np.concatenate((said, pause))
            for start in range(0, len(audio), RECOGNITION_RATE // 10):
                session.append(audio[start : start + RECOGNITION_RATE // 10], RECOGNITION_RATE)
                await asyncio.sleep(0.1)
            if number in (60, num_sentences - 1):
                peak_mb[number] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        await session.close()

    run_on_virtual_clock(talk)
    said = [word for turn in shown.values() for word in turn]
    assert [word.text for word in said].count("cut") <= 2  # where a turn of two minutes ends without a pause
    last = [word for word in said if word.text == f"n{(10 * num_sentences - 1) % 500}"][-1]
    seconds = sum(10 * (WORD_S + GAP_S) + (0 if n % 180 < 48 else 1) for n in range(num_sentences))
    assert last.start_s == pytest.approx(seconds - 1 - WORD_S - GAP_S, abs=0.1)
    assert abs(len(said) - 10 * num_sentences) <= 4
    assert recognizer.longest_s <= 20
    assert corrected <= 2
    assert max(peak_mb.values()) - min(peak_mb.values()) <= 30


class SlowExecutor(InlineExecutor):
    """Work takes 0.3 s on the loop's clock. Notes how much was under way at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        done, later = super().submit(fn, *args, **kwargs), Future[Any]()

        def finish() -> None:
            self.running -= 1
            later.set_result(done.result())

        asyncio.get_running_loop().call_later(0.3, finish)
        return later


def test_the_captions_of_several_speakers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice.session.SpeechDetector", LoudnessDetector)
    executor, partials = SlowExecutor(), [0, 0, 0]

    async def talk() -> None:
        models = replace(fake_speech_models(ReadingRecognizer()), recognition_executor=executor)
        rules = TurnRules(caption_timing(Timing()), create_response=False)
        settings = SessionSettings(rules=rules, word_details=True, captions=True, read_ahead=False)

        def new_session(number: int) -> VoiceSession:
            def on_event(event: events.SessionEvent) -> None:
                partials[number] += isinstance(event, events.PartialTranscript)

            return VoiceSession(FakeLanguageModel(), models, on_event, settings, asyncio.get_running_loop().time)

        sessions = [new_session(number) for number in range(len(partials))]
        audio = np.full(9 * RECOGNITION_RATE, 0.3, np.float32)
        for start in range(0, len(audio), RECOGNITION_RATE // 50):
            for session in sessions:
                session.append(audio[start : start + RECOGNITION_RATE // 50], RECOGNITION_RATE)
            await asyncio.sleep(0.02)
        for session in sessions:
            await session.close()

    run_on_virtual_clock(talk)
    assert executor.most == 1
    assert sum(partials) > 25 and max(partials) - min(partials) <= 2
