"""Transcription on faster-whisper with a short encoder window: partials while the user speaks, one final text.

`WhisperModel.transcribe` pads every clip to 30 s; here the features are cut to the speech plus a margin and go
straight to `encode` and `generate`. Timestamps stay on: on a short window they are what stops the decoder from
saying the sentence again (docs/benchmarks.md has the word error rates of both).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
from ctranslate2.models import WhisperGenerationResult
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer

from voice.audio import HEARING_RATE, Samples

_POSITIONS_S = 30
"""Whisper's positions end here."""

_LONGEST_S = 28.0
"""Speech and margin must fit into the positions."""

_FRAMES_PER_S = 100
"""Frames of the mel spectrogram."""

_SETTLE_AFTER_S = 20.0
"""An utterance longer than this is transcribed in pieces, cut where Whisper itself ends a segment."""

_TOKENS_PER_SECOND = 10
"""Nobody speaks faster. Bounds what a runaway decoder can say."""

_FASTEST_WORDS_PER_SECOND = 4.5
"""Above this pace a phrase that comes twice was most likely said once."""

_END_SLACK_S = 0.7
"""A segment that closes this near the end of the speech is the last one; what follows was invented."""

_SILENT_PROBABILITY, _SILENT_LOGPROB = 0.5, -0.9
"""Above the one and below the other at once, words were invented from noise. On 239 recordings of speech no
transcript came near both; on silence, noise, hum, tones and clicks nearly every one lay beyond both."""

_TIMESTAMP_S = 0.02


@dataclass(frozen=True)
class Window:
    """How much the encoder sees.

    Attributes:
        shortest_s: whole seconds at least. Whisper was trained on 30 s and errs more the less it sees.
        margin_s: silence behind the speech; with less, the last word is often lost.
        doubtful: mean log-probability of a token below which the words are not trusted, and the second look follows.
    """

    shortest_s: int
    margin_s: float
    doubtful: float = -math.inf


FINAL_WINDOW = Window(6, 1.5, -0.65)
"""With a second look at one recording in sixteen it errs no more than ten seconds, which take twice as long, or thirty
(docs/benchmarks.md)."""

_SECOND_LOOK, _BEAMS = Window(10, 2.0), 2
"""A longer window and a beam search. faster-whisper's own five beams take a tenth of a second more."""

PARTIAL_WINDOW = Window(3, 1.0)
"""A fifth more errors: good enough for words that will be heard again."""


@dataclass(frozen=True)
class Segment:
    """A stretch that Whisper put timestamps around. Seconds from the start of the audio given."""

    text: str
    start_s: float
    end_s: float
    closed: bool
    """Whether the closing timestamp was said; without one `end_s` is the end of the audio."""


class GivenUp(Exception):
    """A transcription that nobody waits for any more was broken off."""


@dataclass(frozen=True)
class Partial:
    """What has been understood so far: `stable` only grows, `unstable` may still change."""

    stable: str
    unstable: str

    @property
    def text(self) -> str:
        """Both together."""
        return f"{self.stable} {self.unstable}".strip()


class Recognizer:
    """A loaded Whisper. Blocking, and safe to share between threads.

    Args:
        folder: a CTranslate2 Whisper model.
        workers: transcriptions at a time, with a processor thread each: two threads for one are slower, since every
            word is a chain of small products (docs/benchmarks.md).
    """

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, num_workers=workers)
        self._tokenizer = Tokenizer(
            self._model.hf_tokenizer, self._model.model.is_multilingual, task="transcribe", language="en"
        )

    def transcribe(
        self, audio: Samples, window: Window = FINAL_WINDOW, unwanted: Callable[[], bool] = lambda: False
    ) -> list[Segment]:
        """What is said in `audio`, [T] float32 at 16 kHz of at most 28 s (longer audio is cut there). Silence
        gives no segments.

        Args:
            unwanted: asked on the way whether it should be given up.

        Raises:
            GivenUp: it was.
        """
        audio = audio[: int(_LONGEST_S * HEARING_RATE)]
        if not len(audio):
            return []
        seconds = len(audio) / HEARING_RATE
        heard = self._listen(audio, window, 1, unwanted)
        if heard.scores[0] < window.doubtful:
            heard = self._listen(audio, _SECOND_LOOK, _BEAMS, unwanted)
        if heard.no_speech_prob > _SILENT_PROBABILITY and heard.scores[0] < _SILENT_LOGPROB:
            return []
        return self._segments(heard.sequences_ids[0], seconds)

    def _listen(
        self, audio: Samples, window: Window, beams: int, unwanted: Callable[[], bool]
    ) -> WhisperGenerationResult:
        """Words and timestamps; the score is the mean log-probability of a token."""
        if unwanted():
            raise GivenUp
        encoded = self._model.encode(self._features(audio, window))
        if unwanted():
            raise GivenUp
        return self._model.model.generate(
            encoded,
            [self._tokenizer.sot_sequence],
            beam_size=beams,
            max_length=16 + math.ceil(_TOKENS_PER_SECOND * len(audio) / HEARING_RATE),
            return_scores=True,
            return_no_speech_prob=True,
        )[0]

    def _features(self, audio: Samples, window: Window) -> np.ndarray:
        seconds = max(window.shortest_s, math.ceil(len(audio) / HEARING_RATE + window.margin_s))
        seconds = min(seconds, _POSITIONS_S)
        padded = np.zeros(seconds * HEARING_RATE, np.float32)
        padded[: len(audio)] = audio
        features: np.ndarray = self._model.feature_extractor(padded)[..., : seconds * _FRAMES_PER_S]
        return features

    def _segments(self, ids: list[int], seconds: float) -> list[Segment]:
        """Cut the token stream at its timestamps, up to the segment that closes near the end of the speech."""
        segments: list[Segment] = []
        words: list[int] = []
        start = 0.0
        for token in ids:
            if token < self._tokenizer.timestamp_begin:
                if token < self._tokenizer.eot:
                    words.append(token)
                continue
            at = (token - self._tokenizer.timestamp_begin) * _TIMESTAMP_S
            if not words:
                start = at
                continue
            segments.append(self._segment(words, start, at, closed=True))
            words, start = [], at
            if at >= seconds - _END_SLACK_S:
                break
        if words and start < seconds:
            segments.append(self._segment(words, start, seconds, closed=False))
        return [segment for segment in segments if segment.text and segment.start_s < seconds]

    def _segment(self, words: list[int], start: float, end: float, *, closed: bool) -> Segment:
        text = self._tokenizer.decode(words).strip()
        hasty = len(text.split()) > _FASTEST_WORDS_PER_SECOND * (end - start)
        return Segment(without_loops(text, strict=hasty or not closed), start, end, closed)


class Utterance:
    """One user turn being transcribed: audio in, partials out, one final text. Transcribing may happen on any thread,
    asking for it on one.

    Args:
        recognizer: the shared Whisper.

    Attributes:
        samples: taken so far.
        newest: number of the partial that was asked for last.
    """

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self._blocks: list[Samples] = []
        self.samples = self.newest = 0
        self._settled: list[str] = []
        self._settled_until = 0
        self._stable: list[str] = []
        self._before: list[str] = []
        self._covered = 0
        self._state, self._settling, self._careful = Lock(), Lock(), Lock()

    def add(self, samples: Samples) -> None:
        """Take more of the turn's audio, at 16 kHz."""
        self._blocks.append(samples)
        self.samples += len(samples)

    def ask(self) -> int:
        """Number of a partial to come, for which everything asked for before is given up."""
        self.newest += 1
        return self.newest

    def partial(self, number: int | None = None, *, ahead: bool = False) -> Partial | None:
        """Transcribe what is there. Words that two partials in a row agree on become stable (LocalAgreement-2,
        Macháček et al., arXiv 2307.14743). None when another has been asked for meanwhile.

        Args:
            number: from `ask`, which is called here when it is not given.
            ahead: as carefully as the final text: the user has fallen silent, and this may be it.
        """
        number = number or self.ask()
        with self._careful if ahead else nullcontext():
            until = self.samples
            try:
                words = self._words(FINAL_WINDOW if ahead else PARTIAL_WINDOW, until, number)
            except GivenUp:
                return None
            with self._state:
                if number != self.newest:
                    return None
                self._covered = until if ahead else 0
                self._agree(words)
                return self._understood()

    def final(self, until: int | None = None, voiced: int | None = None, number: int | None = None) -> str:
        """Transcribe the whole turn, or its first `until` samples: the silence that ended it is not worth hearing.

        Args:
            voiced: where the speech ended. What was transcribed ahead and went so far is the final text.
            number: of the newest partial when this was asked for; now, when it is not given.

        Raises:
            GivenUp: a partial has been asked for since, so the turn goes on.
        """
        number = self.newest if number is None else number
        with self._careful:
            if voiced is not None and self._covered >= voiced:
                return " ".join(self._before)
            return " ".join(self._words(FINAL_WINDOW, until, number))

    def _agree(self, words: list[str]) -> None:
        agreed = _common_prefix(words, self._before)
        self._before = words
        if len(agreed) > len(self._stable) and _same(agreed[: len(self._stable)], self._stable):
            self._stable = agreed

    def _understood(self) -> Partial:
        known = len(self._stable)
        rest = self._before[known:] if _same(self._before[:known], self._stable) else []
        return Partial(" ".join(self._stable), " ".join(rest))

    def _words(self, window: Window, until: int | None, number: int) -> list[str]:
        def unwanted() -> bool:
            return number != self.newest

        with self._settling:
            sound = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.float32)
            audio = sound[self._settled_until : until]
            while len(audio) > _SETTLE_AFTER_S * HEARING_RATE:
                audio = audio[self._settle(audio, unwanted) :]
            settled = tuple(self._settled)
        tail = [segment.text for segment in self._recognizer.transcribe(audio, window, unwanted)]
        return " ".join([*settled, *tail]).split()

    def _settle(self, audio: Samples, unwanted: Callable[[], bool]) -> int:
        """Make the first 20 s final as far as whole segments go; returns the samples that are done with."""
        piece = audio[: int(_SETTLE_AFTER_S * HEARING_RATE)]
        segments = self._recognizer.transcribe(piece, unwanted=unwanted)
        whole = [s for s in segments if s.closed and s.end_s < _SETTLE_AFTER_S - _END_SLACK_S] or segments
        done = int(whole[-1].end_s * HEARING_RATE) if whole else len(piece)
        done = max(done, HEARING_RATE)  # always on, even if Whisper puts everything into the first instant
        self._settled += [segment.text for segment in whole]
        self._settled_until += done
        return done


def without_loops(text: str, *, strict: bool = False) -> str:
    """Cut a phrase that is said over and over, as a runaway decoder does, to its first saying.

    Args:
        strict: two sayings of a phrase of three or more words are a loop already: for text that the decoder never
            closed, or that came faster than people speak. Otherwise people may repeat themselves: three sayings, or
            six of a single word.
    """
    words = text.split()
    plain = [_bare(word) for word in words]
    for length in range(1, len(words) // 2 + 1):
        needed = 6 if length == 1 else 2 if strict and length >= 3 else 3
        for start in range(len(words) - length * needed + 1):
            unit = plain[start : start + length]
            if all(plain[start + n * length : start + (n + 1) * length] == unit for n in range(1, needed)):
                return " ".join(words[: start + length])
    return text


def _bare(word: str) -> str:
    return re.sub(r"[^\w']", "", word.lower())


def _same(a: list[str], b: list[str]) -> bool:
    return [_bare(word) for word in a] == [_bare(word) for word in b]


def _common_prefix(new: list[str], old: list[str]) -> list[str]:
    count = 0
    for a, b in zip(new, old, strict=False):
        if _bare(a) != _bare(b):
            break
        count += 1
    return new[:count]
