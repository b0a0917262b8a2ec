"""Captions: the words of a turn with their times, those that have settled apart from those that may still change.

`CaptionedUtterance` hears the newest seconds again and again, and lets go of the audio of words that have settled, so
that neither its work nor its memory grows with a turn. `CaptionTrack` says what changes on a screen that shows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np

from voice.asr import (
    FINAL_WINDOW,
    EncoderWindow,
    InterimTranscript,
    Recognizer,
    TranscriptionCancelled,
    Utterance,
)
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.compared_words import common_prefix, normalized, same_words
from voice.known_names import NO_NAMES
from voice.timing import Timing
from voice.word_alignment import Word

_WINDOW = EncoderWindow(6, 1.0)
"""Of interim transcripts. With those of a conversation (3 s), words were on the screen 40 ms sooner, and twice as many
stable ones had to be corrected."""

_PENDING_S = 6.0
"""With more audio than this, what precedes a settled word is let go of: an interim transcript of a longer stretch takes
too long."""

_MAX_PENDING_S = 15.0
"""With more than this, words settle that no two transcripts agree on."""

_PIECE_S, _PIECE_OVERLAP_S = 20.0, 2.0
"""A longer stretch, of a client that sends faster than real time, is heard in pieces. Each begins with the words that
were in the last seconds of the one before it."""

_STEADY_S = 0.55
"""A word settles when transcripts have agreed on it during this much new audio: the first and three more, where they
come as often as they should. Two in a row share many mistakes, and 5 % of the words that settled were corrected on
recordings that are not held out; with this, 1.4 % (docs/benchmarks/speech-recognition.md)."""

_CUT_WORD_S = 0.2
"""A word that ends this close to the end of the audio may be the beginning of a longer one, and does not settle yet."""

_MIN_STRETCH_S = 1.0
"""Less audio than this is not worth letting go of."""

_SENTENCE_ENDS, _SENTENCE_END_S = (".", "?", "!"), 1.0
"""Audio is cut where the pause between two words is longest. The end of a sentence counts as a pause of this length."""


_INTERVAL_MS, _INTERVAL_FACTOR = 200, 1.0
"""New speech before the next interim transcript. Nobody waits for a response, so the recognizer need not be free at the
end of a turn."""


def caption_timing(timing: Timing) -> Timing:
    """The timing of a session with captions: they are on the screen sooner than interim transcripts for a language
    model."""
    return replace(timing, partial_interval_ms=_INTERVAL_MS, partial_interval_factor=_INTERVAL_FACTOR)


class CaptionedUtterance(Utterance):
    """A turn whose interim transcripts have words with times. Words that consecutive transcripts agree on for a while
    settle (LocalAgreement with a duration), and stay as they are until the turn has ended."""

    def __init__(self, recognizer: Recognizer, names: Callable[[], Sequence[str]] = tuple) -> None:
        super().__init__(recognizer, names)
        self._start = 0  # samples that were let go of
        self._settled: list[Word] = []  # the words in them
        self._agreed: list[Word] = []
        self._provisional: list[Word] = []
        self._since_s: list[float] = []  # how much audio there was when each of them was first transcribed
        self._heard: list[Word] = []  # the newest transcript of what was not let go of
        self._final: list[Word] = []

    def add(self, samples: Samples) -> None:
        """Append audio of the turn, at 16 kHz."""
        with self._state_lock:
            super().add(samples)

    def partial(self, number: int | None = None, *, early: bool = False) -> InterimTranscript | None:
        """As `Utterance.partial`, with words."""
        number = number or self.new_request()
        with self._final_lock if early else nullcontext():
            try:
                until, heard = self._hear(FINAL_WINDOW if early else _WINDOW, None, number)
            except TranscriptionCancelled:
                return None
            with self._state_lock:
                if number != self.latest_request:
                    return None
                self._early_samples = until if early else 0
                self._agree(heard, until / RECOGNITION_RATE, in_silence=early)
                self._let_go(until / RECOGNITION_RATE)
                stable = [*self._settled, *self._agreed]
                words = (*stable, *self._provisional)
                return InterimTranscript(_text(stable), _text(self._provisional), words, len(stable))

    def final(self, until: int | None = None, voiced: int | None = None, number: int | None = None) -> str:
        """As `Utterance.final`."""
        number = self.latest_request if number is None else number
        with self._final_lock:
            if voiced is None or self._early_samples < voiced:
                _, heard = self._hear(FINAL_WINDOW, until, number)
            else:
                heard = self._heard
            with self._state_lock:
                self._final = [*self._settled, *heard]
            return _text(self._final)

    def words(self, text: str, until: int) -> list[Word]:
        """The words of the final transcript, whose times are known."""
        return self._final

    def _hear(self, window: EncoderWindow, until: int | None, number: int) -> tuple[int, list[Word]]:
        """Where the audio ends that was transcribed, in samples, and the words of what was not let go of.

        Raises:
            TranscriptionCancelled: there is a newer request.
        """
        with self._state_lock:
            audio = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.float32)
            self._blocks = [audio]
            start, until = self._start, self.samples if until is None else until
        audio, names = audio[: max(0, until - start)], NO_NAMES if window is _WINDOW else self._known_names
        position, words = 0, list[Word]()
        while True:
            piece = audio[position : position + int(_PIECE_S * RECOGNITION_RATE)]
            found = self._recognizer.timed_words(piece, window, lambda: number != self.latest_request, names)
            offset_s, rest = (start + position) / RECOGNITION_RATE, len(audio) - position - len(piece)
            if rest <= 0:
                return until, [*words, *(word.shifted(offset_s) for word in found)]
            complete = [word for word in found if word.end_s <= _PIECE_S - _PIECE_OVERLAP_S]
            end_s = max(_MIN_STRETCH_S, complete[-1].end_s) if complete else _PIECE_S - _PIECE_OVERLAP_S
            words += (word.shifted(offset_s) for word in complete)
            position += int(end_s * RECOGNITION_RATE)

    def _agree(self, heard: list[Word], until_s: float, *, in_silence: bool) -> None:
        """Settle the words that transcripts have agreed on for long enough."""
        new = self._after_agreed(heard)
        same = len(common_prefix(_texts(new), _texts(self._provisional)))
        since_s = [*self._since_s[:same], *[until_s] * (len(new) - same)]
        last_s = math.inf if in_silence else until_s - _CUT_WORD_S
        count = sum(
            until_s - first_s >= _STEADY_S and word.end_s <= last_s for word, first_s in zip(new, since_s, strict=True)
        )
        self._agreed += new[:count]
        self._provisional, self._since_s, self._heard = new[count:], since_s[count:], heard

    def _after_agreed(self, words: list[Word]) -> list[Word]:
        """The words of a transcript after those that have settled, even if it has others in their place."""
        agreed = self._agreed
        if same_words(_texts(words[: len(agreed)]), _texts(agreed)):
            return words[len(agreed) :]
        return [word for word in words if (word.start_s + word.end_s) / 2 > agreed[-1].end_s]

    def _let_go(self, until_s: float) -> None:
        """Forget the audio of words that have settled, up to the longest pause after one of them."""
        start_s = self._start / RECOGNITION_RATE
        if until_s - start_s <= _PENDING_S:
            return
        if not self._agreed and until_s - start_s > _MAX_PENDING_S:
            count = sum(word.end_s <= until_s - _PIECE_OVERLAP_S for word in self._provisional)
            self._agreed, self._provisional = self._provisional[:count], self._provisional[count:]
            self._since_s = self._since_s[count:]
            if not self._agreed:
                self._forget_audio(until_s - _PIECE_OVERLAP_S)
                return
        following = [*self._agreed[1:], *self._provisional[:1]]
        pauses = [
            (after.start_s - word.end_s + _SENTENCE_END_S * word.text.endswith(_SENTENCE_ENDS), number)
            for number, (word, after) in enumerate(zip(self._agreed, following, strict=False))
            if word.end_s > start_s + _MIN_STRETCH_S
        ]
        if not pauses:
            return
        count = max(pauses)[1] + 1
        last, after = self._agreed[count - 1], following[count - 1]
        self._settled += self._agreed[:count]
        self._agreed = self._agreed[count:]
        self._forget_audio(max(last.end_s, (last.end_s + after.start_s) / 2))

    def _forget_audio(self, before_s: float) -> None:
        cut = int(before_s * RECOGNITION_RATE)
        self._blocks = [np.concatenate(self._blocks)[cut - self._start :].copy()]
        self._start = cut
        self._heard = [word for word in self._heard if (word.start_s + word.end_s) / 2 > before_s]


@dataclass(frozen=True)
class CaptionChange:
    """What changes on a screen that shows the captions of a turn. Times are seconds on the session's audio clock.

    Attributes:
        first: the screen keeps so many of the turn's stable words, and drops the ones after them and all provisional
            ones.
        stable: follow those.
        provisional: follow these, and may still change.
        corrected: stable words of the turn that turned out to be wrong by now.
    """

    first: int
    stable: tuple[Word, ...]
    provisional: tuple[Word, ...] = ()
    final: bool = False
    corrected: int = 0


class CaptionTrack:
    """What is shown of one turn.

    Args:
        start_s: where its audio begins, in seconds on the session's audio clock.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s, self._shown, self._provisional = start_s, list[Word](), tuple[Word, ...]()
        self._corrected, self._final = 0, False

    def update(self, words: Sequence[Word], num_stable: int) -> CaptionChange:
        """An interim transcript of the turn; its first `num_stable` words are stable."""
        return self._show(words, num_stable, final=False)

    def finish(self, words: Sequence[Word]) -> CaptionChange:
        """The final transcript of the turn."""
        return self._show(words, len(words), final=True)

    def abandon(self) -> CaptionChange:
        """The turn could not be transcribed: what is stable remains."""
        self._provisional, self._final = (), True
        return replace(self.whole, first=len(self._shown), stable=())

    @property
    def whole(self) -> CaptionChange:
        """For a screen that shows nothing of the turn yet."""
        return CaptionChange(0, tuple(self._shown), self._provisional, self._final, self._corrected)

    def _show(self, words: Sequence[Word], num_stable: int, *, final: bool) -> CaptionChange:
        timed = [word.shifted(self._start_s) for word in words]
        stable = timed[:num_stable]
        first = _num_equal(self._shown, stable)
        self._corrected += _corrections(_texts(self._shown), _texts(stable))
        self._shown, self._provisional = [*self._shown[:first], *stable[first:]], tuple(timed[num_stable:])
        self._final = final
        return CaptionChange(first, tuple(stable[first:]), self._provisional, final, self._corrected)


def _num_equal(a: Sequence[Word], b: Sequence[Word]) -> int:
    """How many of the first words are spelled the same."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (one, other) in pairs if one.text != other.text), min(len(a), len(b)))


def _corrections(shown: Sequence[str], final: Sequence[str]) -> int:
    """How many words of a text that was shown are not those of the text that followed, which may be longer."""
    old, new = [normalized(word) for word in shown], [normalized(word) for word in final]
    if old == new[: len(old)]:
        return 0
    kept = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    inserted = max((block.b - block.a for block in kept if block.size), default=0)
    return max(len(old) - sum(block.size for block in kept), inserted)


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]


def _text(words: Sequence[Word]) -> str:
    return " ".join(_texts(words))
