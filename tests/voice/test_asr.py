"""Interim and final transcripts of a turn, and the cut of repeated phrases."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from ctranslate2 import StorageView

from tests.real_time import HANG_S
from voice.asr import (
    EncoderWindow,
    InterimTranscript,
    Recognizer,
    Segment,
    TranscriptionCancelled,
    Utterance,
)
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.compared_words import remove_repetitions
from voice.known_names import NO_NAMES, KnownNames
from voice.word_alignment import TokenLogprob, Word


def segments(text: str, start: float = 0, end: float = 1) -> list[Segment]:
    return [Segment(text, start, end, closed=True)]


def text_of(transcript: InterimTranscript | None) -> str:
    assert transcript is not None
    return transcript.text


class ScriptedRecognizer(Recognizer):
    """Returns the segments that the script has for the length of the audio in seconds."""

    def __init__(self, script: dict[float, list[Segment]]) -> None:
        self.script, self.transcribed_s = script, list[float]()

    def transcribe(
        self,
        audio: Samples,
        window: EncoderWindow | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Segment]:
        if is_cancelled():
            raise TranscriptionCancelled
        self.transcribed_s.append(len(audio) / RECOGNITION_RATE)
        return self.script[self.transcribed_s[-1]]


class InterruptedRecognizer(ScriptedRecognizer):
    """Calls `interrupt` during the first transcription."""

    interrupt: Callable[[], object]

    def transcribe(
        self,
        audio: Samples,
        window: EncoderWindow | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Segment]:
        segments = super().transcribe(audio, window, is_cancelled)
        if len(self.transcribed_s) == 1:
            self.interrupt()
        if is_cancelled():
            raise TranscriptionCancelled
        return segments


@pytest.mark.parametrize(
    ("text", "expected", "strict"),
    [
        ("to leave the conference, to leave the conference,", "to leave the conference,", True),
        ("to leave the conference, to leave the conference,", None, False),
        ("I am I am I am I am so", "I am", False),
        ("no no no", None, False),
        ("no no no no no no no", "no", False),
        ("call five five five one two one two", None, False),
        ("", None, True),
    ],
)
def test_repetitions_of_a_runaway_decoder_are_cut_and_those_of_a_person_are_not(
    text: str, expected: str | None, strict: bool
) -> None:
    assert remove_repetitions(text, strict=strict) == (text if expected is None else expected)


@pytest.mark.parametrize("later", ["partial", "final"])
def test_only_a_later_interim_request_cancels_an_interim_transcription(later: str) -> None:
    recognizer = InterruptedRecognizer({1.0: segments("One too"), 2.0: segments("One two three")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
    texts = list[object]()

    def request() -> None:
        utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
        texts.append(text_of(utterance.partial(early=True)) if later == "partial" else utterance.final())

    recognizer.interrupt = request
    interrupted = utterance.partial()
    assert texts == ["One two three"]
    assert (interrupted is None) == (later == "partial")  # a final transcript does not supersede it
    assert text_of(utterance.partial()) == "One two three"


def test_the_final_transcript_waits_for_an_early_transcription_in_progress() -> None:
    started, resume = Event(), Event()
    recognizer = InterruptedRecognizer({1.0: segments("One two")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(RECOGNITION_RATE, np.float32))

    def block() -> None:
        started.set()
        assert resume.wait(HANG_S)

    recognizer.interrupt = block
    with ThreadPoolExecutor(2) as threads:
        threads.submit(utterance.partial, early=True)
        assert started.wait(HANG_S)
        final = threads.submit(utterance.final, RECOGNITION_RATE, RECOGNITION_RATE)
        resume.set()
        assert final.result(5) == "One two"
    assert len(recognizer.transcribed_s) == 1


def test_an_outdated_final_request_does_not_block_a_newer_interim_transcript() -> None:
    recognizer = ScriptedRecognizer({1.0: segments("One"), 2.0: segments("One two")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
    old, new = utterance.new_request(), utterance.new_request()
    with pytest.raises(TranscriptionCancelled):
        utterance.final(RECOGNITION_RATE, number=old)
    utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
    assert text_of(utterance.partial(new, early=True)) == "One two"
    assert utterance.final(2 * RECOGNITION_RATE, 2 * RECOGNITION_RATE) == "One two"


def test_a_final_transcription_is_cancelled_when_the_user_keeps_talking() -> None:
    recognizer = InterruptedRecognizer({1.0: segments("One"), 2.0: segments("One two")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(RECOGNITION_RATE, np.float32))

    def keep_talking() -> None:
        utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
        assert text_of(utterance.partial()) == "One two"

    recognizer.interrupt = keep_talking
    with pytest.raises(TranscriptionCancelled):
        utterance.final(RECOGNITION_RATE)
    assert utterance.final(2 * RECOGNITION_RATE) == "One two"


def test_an_early_transcript_that_covers_the_speech_becomes_the_final_transcript() -> None:
    recognizer = ScriptedRecognizer({1.0: segments("One two"), 0.5: segments("One")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
    assert text_of(utterance.partial(early=True)) == "One two"
    assert utterance.final(RECOGNITION_RATE, RECOGNITION_RATE) == "One two"
    assert len(recognizer.transcribed_s) == 1


def test_words_that_two_interim_transcripts_agree_on_become_stable_and_stay() -> None:
    script = {
        1: segments("What is"),
        2: segments("what is the cat"),
        3: segments("What is the capital of"),
        4: segments("Whether it"),
    }
    utterance = Utterance(ScriptedRecognizer(script))
    transcripts = list[InterimTranscript]()
    for _ in range(4):
        utterance.add(np.zeros(RECOGNITION_RATE, np.float32))
        transcripts += filter(None, [utterance.partial()])
    assert [transcript.stable for transcript in transcripts] == ["", "what is", "What is the", "What is the"]
    assert [transcript.unstable for transcript in transcripts] == ["What is", "the cat", "capital of", ""]


def test_a_long_turn_is_transcribed_in_chunks_and_each_only_once() -> None:
    script = {
        20.0: [Segment("first part", 0, 12, True), Segment("cut of", 12, 20, True)],
        13.0: segments("cut off and last"),
    }
    recognizer = ScriptedRecognizer(script)
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(25 * RECOGNITION_RATE, np.float32))
    assert utterance.final() == "first part cut off and last"
    assert utterance.final() == "first part cut off and last"
    assert recognizer.transcribed_s == [20.0, 13.0, 13.0]


def test_the_final_transcript_covers_no_audio_after_the_speech() -> None:
    recognizer = ScriptedRecognizer({1.0: segments("hello")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(2 * RECOGNITION_RATE, np.float32))
    assert utterance.final(RECOGNITION_RATE) == "hello"


class AligningRecognizer(Recognizer):
    """Each word of a transcript is as probable as the script says; the others are certain."""

    def __init__(self, logprobs: dict[str, float]) -> None:
        self.logprobs, self.aligned = logprobs, list[str]()

    def _align(self, audio: Samples, encoded: StorageView, text: str) -> list[Word]:
        self.aligned.append(text)
        words = [word.strip("?") for word in text.split()]
        return [Word(word, 0, 1, (TokenLogprob(word, self.logprobs.get(word, -0.01)),)) for word in words]

    def heard(self, text: str, *names: str) -> str:
        audio, encoded = np.zeros(16000, np.float32), StorageView.from_array(np.zeros(1, np.float32))
        found = self._with_name(audio, encoded, segments(text) + segments("Tell me."), KnownNames(names))
        return " ".join(segment.text for segment in found)


@pytest.mark.parametrize(
    ("written", "name", "expected"),
    [
        (-2.0, -9.0, "Gudrun"),  # doubtful, and the name not much less probable
        (-0.1, -3.0, "good run"),  # not doubtful
        (-2.0, -13.0, "good run"),  # the audio is not the name's
    ],
)
def test_a_known_name_replaces_doubtful_words_that_sound_like_it(written: float, name: float, expected: str) -> None:
    recognizer = AligningRecognizer({"run": written, "Gudrun": name})
    assert recognizer.heard("Is good run here?", "Gudrun") == f"Is {expected} here? Tell me."


def test_nothing_is_aligned_where_nothing_sounds_like_a_name() -> None:
    recognizer = AligningRecognizer({})
    assert recognizer.heard("Is it raining?", "Gudrun") == "Is it raining? Tell me."
    assert not recognizer.aligned


def test_the_most_probable_of_several_names_is_taken() -> None:
    recognizer = AligningRecognizer({"run": -2.0, "Gudrun": -4.0, "Gudron": -3.0})
    assert recognizer.heard("Is good run here?", "Gudrun", "Gudron") == "Is Gudron here? Tell me."
