"""Speech recognition on faster-whisper with a short encoder window: interim transcripts while the user speaks, then one
final transcript.

`WhisperModel.transcribe` pads every clip to 30 s. Here the features are cut to the speech plus a margin and go straight
to `encode` and `generate`. Timestamps stay enabled: on a short window they keep the decoder from repeating the sentence
(docs/benchmarks/speech-recognition.md has the word error rates with and without them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.compared_words import common_prefix, remove_repetitions, same_words
from voice.known_names import NO_NAMES, KnownNames, Replacement
from voice.speech_device import CPU, SpeechDevice
from voice.word_alignment import Word, align_words, without_pauses

if TYPE_CHECKING:
    from ctranslate2 import StorageView
    from ctranslate2.models import WhisperGenerationResult
    from faster_whisper.tokenizer import Tokenizer

_MAX_WINDOW_S = 30
"""Whisper has position embeddings for 30 s."""

_MAX_SPEECH_S = 28.0
"""Speech and margin must fit into the window."""

_MEL_FRAMES_PER_S = 100
"""Frames of the mel spectrogram per second."""

_MAX_PENDING_S = 20.0
"""A longer utterance is transcribed in chunks, cut where Whisper itself ends a segment."""

_MAX_TOKENS_PER_SECOND = 10
"""Nobody speaks faster. Limits the output of a runaway decoder."""

_MAX_WORDS_PER_SECOND = 4.5
"""At a faster rate, a phrase that appears twice was most likely said once."""

_END_SLACK_S = 0.7
"""A segment that ends this close to the end of the speech is the last one. Text after it is hallucinated."""

_NO_SPEECH_PROBABILITY, _NO_SPEECH_LOGPROB = 0.5, -0.9
"""A transcript above the first and below the second was hallucinated from noise. On 239 recordings of speech no
transcript came near both; on silence, noise, hum, tones and clicks nearly every one was beyond both."""

_NAME_BIAS, _DOUBTFUL_LOGPROB = 8.0, -0.5
"""A known name takes the place of words that sound like it, unless the log-probability of the transcript falls by more
than the first, or every token of these words has more than the second."""

_TIMESTAMP_S = 0.02
"""Resolution of Whisper's timestamp tokens."""


@dataclass(frozen=True)
class EncoderWindow:
    """How much audio the encoder sees.

    Attributes:
        min_s: minimum length in whole seconds. Whisper was trained on 30 s, and errors rise as the window shrinks.
        margin_s: silence after the speech. With less, the last word is often lost.
        retry_below_logprob: if the mean log-probability per token is lower, the audio is transcribed again with
            `_RETRY_WINDOW`.
    """

    min_s: int
    margin_s: float
    retry_below_logprob: float = -math.inf


FINAL_WINDOW = EncoderWindow(6, 1.5, -0.65)
"""One recording in sixteen is transcribed again. The error rate is then no higher than with a window of 10 s, which
takes twice as long, or of 30 s (docs/benchmarks/speech-recognition.md)."""

_RETRY_WINDOW, _RETRY_BEAMS = EncoderWindow(10, 2.0), 2
"""A longer window and a beam search. faster-whisper's default of five beams takes 100 ms more."""

INTERIM_WINDOW = EncoderWindow(3, 1.0)
"""Has 20 % more errors: good enough for words that will be transcribed again."""


@dataclass(frozen=True)
class Segment:
    """Text between two of Whisper's timestamps. Times are seconds from the start of the audio."""

    text: str
    start_s: float
    end_s: float
    closed: bool
    """Whether the decoder produced the closing timestamp. Without one, `end_s` is the end of the audio."""


class TranscriptionCancelled(Exception):
    """The transcription was superseded and has stopped."""


@dataclass(frozen=True)
class InterimTranscript:
    """The transcript so far: `stable` only grows, `unstable` may still change.

    Attributes:
        words: all of it with times, for captions; the first `num_stable` are stable.
    """

    stable: str
    unstable: str
    words: tuple[Word, ...] = ()
    num_stable: int = 0

    @property
    def text(self) -> str:
        """The whole transcript so far."""
        return f"{self.stable} {self.unstable}".strip()


class Recognizer:
    """A loaded Whisper model. Blocking, and safe to share between threads.

    Args:
        folder: a CTranslate2 Whisper model.
        workers: concurrent transcriptions.
        threads: CPU threads of each.
        device: where it runs.

    Raises:
        SpeechDeviceUnavailable: it cannot run there.
    """

    def __init__(self, folder: Path, *, workers: int = 2, threads: int = 1, device: SpeechDevice = CPU) -> None:
        from faster_whisper import WhisperModel  # late: a text conversation needs none

        options = device.recognition_options()
        self._model = WhisperModel(str(folder), cpu_threads=threads, num_workers=workers, **options)
        self._tokenizer = self._tokenizer_for("en")

    def _tokenizer_for(self, language: str) -> Tokenizer:
        from faster_whisper.tokenizer import Tokenizer

        return Tokenizer(
            self._model.hf_tokenizer, self._model.model.is_multilingual, task="transcribe", language=language
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that can be transcribed, as two-letter codes."""
        from faster_whisper.tokenizer import _LANGUAGE_CODES

        return tuple(_LANGUAGE_CODES) if self._model.model.is_multilingual else ("en",)

    def for_language(self, language: str) -> Recognizer:
        """A recognizer of another language; both share the model."""
        other = copy(self)
        other._tokenizer = self._tokenizer_for(language)
        return other

    def known_names(self, names: Iterable[str]) -> KnownNames:
        """Those of some names that the recognizer has hardly read, for which it has no token. None unless it
        transcribes English, as only English is known by its sound.

        Args:
            names: the most important ones first.
        """

        def may_be_missed(name: str) -> bool:
            return all(len(self._tokenizer.encode(f" {each}")) > 1 for each in (name, name.lower()))

        return KnownNames(names, may_be_missed) if self._tokenizer.language_code == "en" else NO_NAMES

    def words(self, audio: Samples, text: str) -> list[Word]:
        """The words of the transcript `text` of `audio`, [T] float32 at 16 kHz and at most 28 s, with their times and
        probabilities."""
        return without_pauses(self._align(audio, self._encode(audio, FINAL_WINDOW), text), audio)

    def _align(self, audio: Samples, encoded: StorageView, text: str) -> list[Word]:
        frames = min(len(audio) * _MEL_FRAMES_PER_S // RECOGNITION_RATE, _MAX_WINDOW_S * _MEL_FRAMES_PER_S)
        return align_words(self._model, self._tokenizer, encoded, text, frames)

    def transcribe(
        self,
        audio: Samples,
        window: EncoderWindow = FINAL_WINDOW,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Segment]:
        """Transcribe `audio`, [T] float32 at 16 kHz. Audio beyond 28 s is ignored. Silence yields no segments.

        Args:
            is_cancelled: polled during the work.
            names: what is listened for.

        Raises:
            TranscriptionCancelled: `is_cancelled` returned true.
        """
        return self._transcribe(audio, window, is_cancelled, names)[1]

    def timed_words(
        self,
        audio: Samples,
        window: EncoderWindow = FINAL_WINDOW,
        is_cancelled: Callable[[], bool] = lambda: False,
        names: KnownNames = NO_NAMES,
    ) -> list[Word]:
        """The transcript of `audio` as words with times and probabilities: `transcribe` and `words` with one run of the
        encoder."""
        encoded, segments = self._transcribe(audio, window, is_cancelled, names)
        text = " ".join(segment.text for segment in segments)
        return without_pauses(self._align(audio, encoded, text), audio) if text and encoded is not None else []

    def _transcribe(
        self, audio: Samples, window: EncoderWindow, is_cancelled: Callable[[], bool], names: KnownNames
    ) -> tuple[StorageView | None, list[Segment]]:
        """The encoded audio, and its transcript."""
        audio = audio[: int(_MAX_SPEECH_S * RECOGNITION_RATE)]
        if not len(audio):
            return None, []
        seconds = len(audio) / RECOGNITION_RATE
        encoded, result = self._generate(audio, window, 1, is_cancelled)
        if result.scores[0] < window.retry_below_logprob:
            encoded, result = self._generate(audio, _RETRY_WINDOW, _RETRY_BEAMS, is_cancelled)
        if result.no_speech_prob > _NO_SPEECH_PROBABILITY and result.scores[0] < _NO_SPEECH_LOGPROB:
            return None, []
        segments = self._segments(result.sequences_ids[0], seconds)
        return encoded, self._with_name(audio, encoded, segments, names)

    def _with_name(
        self, audio: Samples, encoded: StorageView, segments: list[Segment], names: KnownNames
    ) -> list[Segment]:
        """A transcript of the audio, in which a name may take the place of doubtful words that sound like it."""
        text = " ".join(segment.text for segment in segments)
        replacements = names.replacements(text)
        aligned = self._align(audio, encoded, text) if replacements else []
        words, best = text.split(), None
        if len(aligned) != len(words):
            return segments
        least = _logprob(aligned) - _NAME_BIAS
        for each in replacements:
            if (
                min(token.logprob for word in aligned[each.start : each.end] for token in word.tokens)
                > _DOUBTFUL_LOGPROB
            ):
                continue
            logprob = _logprob(self._align(audio, encoded, each.within(words)))
            if logprob > least:
                best, least = each, logprob
        return segments if best is None else _replaced(segments, best)

    def _generate(
        self, audio: Samples, window: EncoderWindow, beams: int, is_cancelled: Callable[[], bool]
    ) -> tuple[StorageView, WhisperGenerationResult]:
        """Encode the audio, and decode text and timestamp tokens. The score is the mean log-probability per token."""
        if is_cancelled():
            raise TranscriptionCancelled
        encoded = self._encode(audio, window)
        if is_cancelled():
            raise TranscriptionCancelled
        (result,) = self._model.model.generate(
            encoded,
            [self._tokenizer.sot_sequence],
            beam_size=beams,
            max_length=16 + math.ceil(_MAX_TOKENS_PER_SECOND * len(audio) / RECOGNITION_RATE),
            return_scores=True,
            return_no_speech_prob=True,
        )
        return encoded, result

    def _encode(self, audio: Samples, window: EncoderWindow) -> StorageView:
        seconds = max(window.min_s, math.ceil(len(audio) / RECOGNITION_RATE + window.margin_s))
        seconds = min(seconds, _MAX_WINDOW_S)
        padded = np.zeros(seconds * RECOGNITION_RATE, np.float32)
        padded[: len(audio)] = audio
        return self._model.encode(self._model.feature_extractor(padded)[..., : seconds * _MEL_FRAMES_PER_S])

    def _segments(self, ids: list[int], seconds: float) -> list[Segment]:
        """Split the token stream at its timestamps, up to the segment that ends near the end of the speech."""
        segments: list[Segment] = []
        words: list[int] = []
        start = 0.0
        for token in ids:
            if token < self._tokenizer.timestamp_begin:
                if token < self._tokenizer.eot:
                    words.append(token)
                continue
            time = (token - self._tokenizer.timestamp_begin) * _TIMESTAMP_S
            if not words:
                start = time
                continue
            segments.append(self._segment(words, start, time, closed=True))
            words, start = [], time
            if time >= seconds - _END_SLACK_S:
                break
        if words and start < seconds:
            segments.append(self._segment(words, start, seconds, closed=False))
        return [segment for segment in segments if segment.text and segment.start_s < seconds]

    def _segment(self, words: list[int], start: float, end: float, *, closed: bool) -> Segment:
        text = self._tokenizer.decode(words).strip()
        too_fast = len(text.split()) > _MAX_WORDS_PER_SECOND * (end - start)
        return Segment(remove_repetitions(text, strict=too_fast or not closed), start, end, closed)


@dataclass(frozen=True)
class _Chunk:
    """Part of an utterance and its transcript. `start` and `end` are samples."""

    text: str
    start: int
    end: int


class Utterance:
    """Transcribes one user turn: audio in, interim transcripts out, then one final transcript. Transcription may run on
    any thread; requests for it come from one thread.

    Args:
        recognizer: the shared Whisper model.
        names: delivers those that the user may say, the most likely ones first. Called on a thread that
            transcribes.

    Attributes:
        samples: number of samples received so far.
        latest_request: number of the newest interim request.
    """

    def __init__(self, recognizer: Recognizer, names: Callable[[], Sequence[str]] = tuple) -> None:
        self._recognizer, self._names = recognizer, names
        self._blocks: list[Samples] = []
        self.samples = self.latest_request = 0
        self._finished: list[_Chunk] = []
        self._stable: list[str] = []
        self._last_words: list[str] = []
        self._early_samples = 0
        self._state_lock, self._chunk_lock, self._final_lock = Lock(), Lock(), Lock()

    def add(self, samples: Samples) -> None:
        """Append audio of the turn, at 16 kHz."""
        self._blocks.append(samples)
        self.samples += len(samples)

    def new_request(self) -> int:
        """Number of a new interim request. It supersedes all earlier requests."""
        self.latest_request += 1
        return self.latest_request

    def partial(self, number: int | None = None, *, early: bool = False) -> InterimTranscript | None:
        """Transcribe the audio received so far. Returns None if a newer request has superseded this one.

        Words that two consecutive interim transcripts agree on become stable (LocalAgreement-2, Macháček et al.,
        arXiv 2307.14743).

        Args:
            number: from `new_request`; a new number by default.
            early: transcribe with the accuracy of the final transcript. The user is silent, so this may become it.
        """
        number = number or self.new_request()
        with self._final_lock if early else nullcontext():
            until = self.samples
            try:
                words = self._words(FINAL_WINDOW if early else INTERIM_WINDOW, until, number)
            except TranscriptionCancelled:
                return None
            with self._state_lock:
                if number != self.latest_request:
                    return None
                self._early_samples = until if early else 0
                self._update_stable(words)
                return self._interim_transcript()

    def final(self, until: int | None = None, voiced: int | None = None, number: int | None = None) -> str:
        """Transcribe the whole turn, or its first `until` samples: the silence that ended it need not be transcribed.

        Args:
            voiced: sample where the speech ended. An early transcript that reaches this far is the final transcript.
            number: the newest interim request when this was requested; the current one by default.

        Raises:
            TranscriptionCancelled: an interim transcript was requested later, so the turn continues.
        """
        number = self.latest_request if number is None else number
        with self._final_lock:
            if voiced is not None and self._early_samples >= voiced:
                return " ".join(self._last_words)
            return " ".join(self._words(FINAL_WINDOW, until, number))

    def words(self, text: str, until: int) -> list[Word]:
        """The words of `text`, the final transcript of the first `until` samples, with their times and
        probabilities."""
        with self._chunk_lock:
            finished, start = tuple(self._finished), self._finished_samples
        rest = text.removeprefix(" ".join(" ".join(chunk.text for chunk in finished).split())).strip()
        audio = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.float32)
        words: list[Word] = []
        for chunk in (*finished, _Chunk(rest, start, until)):
            if chunk.text and chunk.end > chunk.start:
                aligned = self._recognizer.words(audio[chunk.start : chunk.end], chunk.text)
                words += [word.shifted(chunk.start / RECOGNITION_RATE) for word in aligned]
        return words

    @cached_property
    def _known_names(self) -> KnownNames:
        names = self._names()
        return self._recognizer.known_names(names) if names else NO_NAMES

    @property
    def _finished_samples(self) -> int:
        return self._finished[-1].end if self._finished else 0

    def _update_stable(self, words: list[str]) -> None:
        prefix = common_prefix(words, self._last_words)
        self._last_words = words
        if len(prefix) > len(self._stable) and same_words(prefix[: len(self._stable)], self._stable):
            self._stable = prefix

    def _interim_transcript(self) -> InterimTranscript:
        num_stable = len(self._stable)
        unstable = self._last_words[num_stable:] if same_words(self._last_words[:num_stable], self._stable) else []
        return InterimTranscript(" ".join(self._stable), " ".join(unstable))

    def _words(self, window: EncoderWindow, until: int | None, number: int) -> list[str]:
        def is_cancelled() -> bool:
            return number != self.latest_request

        with self._chunk_lock:
            received = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.float32)
            audio = received[self._finished_samples : until]
            while len(audio) > _MAX_PENDING_S * RECOGNITION_RATE:
                audio = audio[self._finish_chunk(audio, is_cancelled) :]
            finished = tuple(chunk.text for chunk in self._finished)
        names = NO_NAMES if window is INTERIM_WINDOW else self._known_names
        tail = [segment.text for segment in self._recognizer.transcribe(audio, window, is_cancelled, names)]
        return " ".join([*finished, *tail]).split()

    def _finish_chunk(self, audio: Samples, is_cancelled: Callable[[], bool]) -> int:
        """Make the complete segments of the first 20 s final; returns the number of samples they cover."""
        chunk = audio[: int(_MAX_PENDING_S * RECOGNITION_RATE)]
        segments = self._recognizer.transcribe(chunk, is_cancelled=is_cancelled, names=self._known_names)
        complete = [s for s in segments if s.closed and s.end_s < _MAX_PENDING_S - _END_SLACK_S] or segments
        num_samples = int(complete[-1].end_s * RECOGNITION_RATE) if complete else len(chunk)
        num_samples = max(num_samples, RECOGNITION_RATE)  # always advance, even if Whisper ends everything at 0 s
        start, text = self._finished_samples, " ".join(segment.text for segment in complete)
        self._finished.append(_Chunk(text, start, start + num_samples))
        return num_samples


def _logprob(words: list[Word]) -> float:
    return sum(token.logprob for word in words for token in word.tokens)


def _replaced(segments: list[Segment], by: Replacement) -> list[Segment]:
    """The segments with a name in one of them; without it if its words are in two."""
    replaced, start = [], 0
    for segment in segments:
        words = segment.text.split()
        if start <= by.start and by.end <= start + len(words):
            moved = replace(by, start=by.start - start, end=by.end - start)
            segment = replace(segment, text=moved.within(words))
        replaced.append(segment)
        start += len(words)
    return replaced
