"""Speech synthesis with Kokoro v1.0 (StyleTTS 2, 82M parameters): one model speaks with many voices, each of which is a
file of style vectors. It takes several times as long as Piper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import BadAudio
from voice.kokoro_phonemes import SPACE, Accent, phoneme_ids, symbols
from voice.pronunciation import BEGINNING, END, Pronunciation, joined
from voice.speech_device import CPU, SpeechDevice
from voice.voice_file import Sessions, open_session, voice_errors

MODEL_FILE = "kokoro-v1.0.int8.onnx"

_ACCENTS: dict[str, Accent] = {"a": "en-us", "b": "en-gb"}
"""By the first letter of a voice's name. Kokoro's other languages need phonemes that nobody here has listened to."""

_DURATIONS = "Clip"
"""Operator of the only node that computes how many frames each phoneme lasts: at least one."""

_FRAME = 600
"""Samples of such a frame, 25 ms."""

_EARLY = 960
"""Samples by which everything is heard before the durations say, 40 ms: where an s and a vowel meet, the sound changes
52 ms before that in the median, with Piper 10 ms."""

_MAX_PHONEMES, _STYLE_SIZE = 510, 256
"""The model's longest input without its padding, and the length of a style vector. There is one for each length of
input."""


class KokoroSynthesizer:
    """A loaded Kokoro voice.

    Args:
        path: the voice's `.bin` file, [510, 1, 256] little-endian float32. The model must be in the same folder.
        loaded: models that other voices have loaded; this voice shares its own with them.

    Raises:
        BadAudio: a file is missing or damaged, or the voice speaks a language that is not supported.
    """

    sample_rate = 24_000
    speaks_english = True

    def __init__(self, path: Path, device: SpeechDevice = CPU, loaded: Sessions | None = None) -> None:
        if path.stem[:1] not in _ACCENTS:
            raise BadAudio(
                f"the Kokoro voice {path.stem} does not speak English: names of American voices begin with a, of "
                "British ones with b"
            )
        self._accent = _ACCENTS[path.stem[:1]]
        with voice_errors(path, f"a Kokoro voice is a .bin file with {MODEL_FILE} in the same folder"):
            self._styles = _read_styles(path)
            self._session = open_session(path.with_name(MODEL_FILE), device, loaded, exposed=_DURATIONS)

    def pronounce(self, text: str, speed: float) -> Pronunciation:
        """The sound of a text at 24 kHz, with silence around it, and its phonemes in Kokoro's notation."""
        return joined([self._speak(ids, speed) for ids in _split(phoneme_ids(text, self._accent))])

    def _speak(self, ids: list[int], speed: float) -> Pronunciation:
        inputs = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": self._styles[len(ids) - 1],
            "speed": np.array([speed], np.float32),
        }
        audio, *frames = self._session.run(None, inputs)
        # Some voices exceed full scale, by a quarter at most in what was heard of them.
        audio = audio / np.float32(max(1.0, np.abs(audio).max(initial=0.0)))
        spoken = Pronunciation(audio, [BEGINNING, *symbols(ids), END], None)
        if not frames:
            return spoken
        lengths = frames[0].ravel().astype(np.float64) * _FRAME
        early = min(_EARLY, lengths[0])
        lengths[0] -= early
        lengths[-1] += early
        return replace(spoken, lengths=lengths).with_quiet_pauses()


def _read_styles(path: Path) -> NDArray[np.float32]:
    """Published voices are float32, those of the package float16: half the size, and no ear can tell."""
    content, count = path.read_bytes(), _MAX_PHONEMES * _STYLE_SIZE
    if len(content) not in (2 * count, 4 * count):
        raise BadAudio(f"{path} is not a Kokoro voice, which is {4 * count} bytes long, or {2 * count} in 16 bits")
    styles = np.frombuffer(content, "<f2" if len(content) == 2 * count else "<f4")
    return styles.astype(np.float32).reshape(_MAX_PHONEMES, 1, _STYLE_SIZE)


def _split(ids: list[int]) -> list[list[int]]:
    """Inputs that the model can take, cut between words where possible."""
    chunks = []
    while len(ids) > _MAX_PHONEMES:
        spaces = [n for n, symbol in enumerate(ids[:_MAX_PHONEMES]) if symbol == SPACE]
        cut = spaces[-1] if spaces and spaces[-1] else _MAX_PHONEMES
        chunks.append(ids[:cut])
        ids = ids[cut:]
    return [*chunks, ids] if ids else chunks
