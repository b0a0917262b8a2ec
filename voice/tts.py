"""Speech synthesis: one interface to Piper and Kokoro voices, and the voices that a server has. The silence around each
clause is trimmed to what a listener expects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voice.audio.codec import OUTPUT_RATE, Samples, without_silence
from voice.audio.resampling import resample
from voice.clauses import Clause
from voice.lexicon import NO_LEXICON, Lexicon
from voice.phoneme_alignment import aligned
from voice.speech_device import CPU, SpeechDevice
from voice.speech_times import NO_SPEECH, Speech, speech_times
from voice.voice_file import Sessions

if TYPE_CHECKING:
    from voice.kokoro_voice import KokoroSynthesizer
    from voice.piper_voice import PiperSynthesizer

_MAX_DOTS = 40
"""Of a clause. With about 100 letters that each have a dot ("w.w.w."), espeak-ng crashes and takes the process with it.
Ordinary clauses have a few dots."""

_LEAD_MS = 4.0
"""Silence kept before a clause. Piper adds 20 to 150 ms and Kokoro about 300, which would delay the response."""

_CLAUSE_TAIL_MS, _SENTENCE_TAIL_MS = 40.0, 220.0
"""Silence kept after a clause within a sentence, and after a sentence: the pauses of an unhurried speaker."""


OPENAI_VOICES = frozenset("alloy ash ballad coral echo fable nova onyx sage shimmer verse marin cedar".split())
"""Names that clients of OpenAI send without being told to. They stand for the default voice."""

DEFAULT_VOICE = "default"
"""Another name of the default voice."""


class UnknownVoice(ValueError):
    """There is no voice of this name."""


class Voice:
    """A loaded voice. Blocking, and used by one thread at a time.

    Args:
        path: a Piper voice's `.onnx` file or a Kokoro voice's `.bin` file.
        device: where it runs.
        loaded: models that other voices have loaded. Kokoro voices in one folder share theirs.
        lexicon: how some words are said.

    Raises:
        BadAudio: the voice's files are missing or damaged.
        SpeechDeviceUnavailable: it cannot run there.
    """

    def __init__(
        self,
        path: Path,
        *,
        device: SpeechDevice = CPU,
        loaded: Sessions | None = None,
        lexicon: Lexicon = NO_LEXICON,
    ) -> None:
        self._synthesizer: KokoroSynthesizer | PiperSynthesizer
        if path.suffix == ".bin":
            from voice.kokoro_voice import KokoroSynthesizer  # most servers have no such voice

            self._synthesizer = KokoroSynthesizer(path, device, loaded)
        else:
            from voice.piper_voice import PiperSynthesizer  # late: it imports onnxruntime

            self._synthesizer = PiperSynthesizer(path, device)
        self.name, self._lexicon = path.stem, lexicon

    def synthesize(self, clause: Clause, speed: float = 1.0, learned: Lexicon = NO_LEXICON) -> Samples:
        """The audio of `speak`."""
        return self.speak(clause, speed, learned).audio

    def speak(self, clause: Clause, speed: float = 1.0, learned: Lexicon = NO_LEXICON) -> Speech:
        """Synthesize one clause; silence, of no length, if the clause has nothing to pronounce.

        Args:
            speed: 1 is the voice's own speed, 2 twice as fast.
            learned: what the conversation has learned, which takes precedence over the voice's lexicon.
        """
        text = self._lexicon.including(learned).apply(clause.spoken(english=self._synthesizer.speaks_english))
        if text.count(".") > _MAX_DOTS:
            text = " ".join(text.replace(".", " ").split())
        if not text:
            return NO_SPEECH
        spoken, rate = self._synthesizer.pronounce(text, speed), self._synthesizer.sample_rate
        tail = _SENTENCE_TAIL_MS if clause.ends_sentence else _CLAUSE_TAIL_MS
        sound = without_silence(spoken.samples, rate, lead_ms=_LEAD_MS, tail_ms=tail)
        if spoken.lengths is None:
            spoken = aligned(spoken, rate)
        times = speech_times(clause.text, text, spoken.phonemes(sound, rate))
        return Speech(resample(spoken.samples[sound], rate, OUTPUT_RATE), times)


class Voices:
    """The voices that conversations choose from. All of them are loaded, and shared.

    Args:
        voices: at least one; the first is the default.

    Raises:
        ValueError: two have the same name.
    """

    def __init__(self, voices: Sequence[Voice]) -> None:
        self.default = voices[0]
        self._by_name = {voice.name: voice for voice in voices}
        if len(self._by_name) < len(voices):
            names = [voice.name for voice in voices]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(
                f"two voices are called {twice!r}: rename the files of one, because clients choose by name"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all voices, the default first."""
        return tuple(self._by_name)

    def find(self, name: str) -> Voice:
        """The voice of this name; the default for `default` and OpenAI's names. Raises UnknownVoice."""
        if name in self._by_name:
            return self._by_name[name]
        if name == DEFAULT_VOICE or name in OPENAI_VOICES:
            return self.default
        raise UnknownVoice(f"the voice {name!r} does not exist here: this server has {', '.join(self.names)}")


def load_voices(paths: Sequence[Path], device: SpeechDevice = CPU, lexicon: Lexicon = NO_LEXICON) -> Voices:
    """Load voices; those of one Kokoro model share it.

    Raises:
        BadAudio, SpeechDeviceUnavailable, ValueError: see `Voice` and `Voices`.
    """
    loaded: Sessions = {}
    return Voices([Voice(path, device=device, loaded=loaded, lexicon=lexicon) for path in dict.fromkeys(paths)])
