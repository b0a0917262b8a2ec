"""What the telephone costs the hearing: word errors and detected ends of speech at 8 kHz µ-law, with line noise and
lost frames, beside the same recordings in full; and the ends of speech again without `voice.lowband`.

    python -m tests.bench.telephone [FOLDER TRANSCRIPTS [EVERY]]

Speaks the report's own corpus, or the recordings of `tests.bench.hearing`, every second or third of them with EVERY.
The sides hear every recording in turns.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jiwer
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from model.store import Store, cache_folder
from server.loading import DEFAULT_VOICE, locate
from server.report.corpus import bounds_ms, built_in
from tests.bench.hearing import load
from voice.asr import Recognizer
from voice.audio import HEARING_RATE, SPEAKING_RATE, TELEPHONE_RATE, Resampler, Samples, decode, encode, resample
from voice.lowband import LowBand
from voice.tts import Voice
from voice.vad import Silero, SpeechDetector, bundled_silero

_FRAME = TELEPHONE_RATE // 50
_SILENCE_S = 1.0


@dataclass
class Recording:
    """[T] float32 at 24 kHz, its words, and where its speech ends."""

    text: str
    audio: Samples
    end_ms: float
    heard: dict[str, str] = field(default_factory=dict)
    end_error_ms: dict[tuple[str, bool], float | None] = field(default_factory=dict)


def wide(audio: Samples) -> Samples:
    return resample(audio, SPEAKING_RATE, HEARING_RATE)


def telephone(audio: Samples, snr_db: float | None = None, loss: float = 0.0, seed: int = 0) -> Samples:
    """As a call brings it: band-limited, µ-law, in frames of 20 ms of which some are lost, doubled for the detector."""
    rng = np.random.default_rng(seed)
    line = resample(audio, SPEAKING_RATE, TELEPHONE_RATE)
    spectrum = np.fft.rfft(line)
    hertz = np.fft.rfftfreq(len(line), 1 / TELEPHONE_RATE)
    spectrum[(hertz < 300) | (hertz > 3400)] = 0
    line = np.fft.irfft(spectrum, len(line)).astype(np.float32)
    if snr_db is not None:
        loud = line[np.abs(line) > 0.01 * np.abs(line).max()]
        level = float(np.sqrt(np.mean(loud**2))) * 10 ** (-snr_db / 20)
        line = line + rng.normal(0, level, len(line)).astype(np.float32)
    line = decode(encode(line, "pcmu"), "pcmu").copy()
    for start in range(0, len(line), _FRAME):
        if rng.random() < loss:
            line[start : start + _FRAME] = 0
    stream = Resampler(TELEPHONE_RATE, HEARING_RATE)
    return np.concatenate([stream.push(line), stream.push(line[:0], last=True)])


SIDES: dict[str, Callable[[Samples], Samples]] = {
    "full band": wide,
    "8 kHz µ-law": telephone,
    "and noise, 30 dB": lambda audio: telephone(audio, 30.0),
    "and noise, 20 dB": lambda audio: telephone(audio, 20.0),
    "and 2 % of frames lost": lambda audio: telephone(audio, 30.0, 0.02),
}


def recordings() -> list[Recording]:
    if len(sys.argv) > 2:
        found = []
        every = int(sys.argv[3]) if len(sys.argv) > 3 else 1
        for one in load(Path(sys.argv[1]), Path(sys.argv[2]))[::every]:
            audio = resample(one.audio, HEARING_RATE, SPEAKING_RATE)
            found.append(Recording(one.text, audio, bounds_ms(audio)[1]))
        return found
    turns = built_in(lambda: Voice(locate(DEFAULT_VOICE, Console())), cache_folder() / "report", DEFAULT_VOICE)
    clean = [turn for turn in turns if turn.background is None and turn.kind not in ("interruption", "backchannel")]
    return [Recording(turn.text, turn.audio, turn.speech_end_ms) for turn in clean]


def end_of_speech(silero: Silero, audio: Samples) -> float | None:
    """Where the last window ends that the detector takes for speech, ms."""
    frames = SpeechDetector(silero).push(np.concatenate((audio, np.zeros(int(_SILENCE_S * HEARING_RATE), np.float32))))
    return next((float(frame.end_ms) for frame in reversed(frames) if frame.probability >= 0.5), None)


def ends(found: list[Recording], name: str, low_band: bool) -> tuple[str, str, str]:
    """How far the detected ends of speech are from the true ones: the median, the spread, and how many are missing."""
    errors = [recording.end_error_ms[name, low_band] for recording in found]
    known = [ms for ms in errors if ms is not None]
    low, high = (np.percentile(known, q) for q in (10, 90))
    return f"{statistics.median(known):+.0f} ms", f"{low:+.0f} to {high:+.0f} ms", str(len(errors) - len(known))


def main() -> None:
    recognizer, silero = Recognizer(Store().locate("whisper-base")), Silero(bundled_silero())
    found, normalize = recordings(), EnglishTextNormalizer({})
    for recording in track(found, "listening", console=Console(stderr=True)):
        for name, side in SIDES.items():
            audio = side(recording.audio)
            tail = np.zeros(HEARING_RATE // 10, np.float32)
            recording.heard[name] = " ".join(s.text for s in recognizer.transcribe(np.concatenate((audio, tail))))
            for low_band in (False, True):
                end = end_of_speech(silero, LowBand().push(audio) if low_band else audio)
                recording.end_error_ms[name, low_band] = None if end is None else end - recording.end_ms
    table = Table("line", "word errors", "end of speech, median", "10 to 90 %", "not heard", "as it came", "", "")
    said = [normalize(r.text) for r in found]
    for name in SIDES:
        rate = jiwer.wer(said, [normalize(r.heard[name]) for r in found])
        used, other = ends(found, name, name != "full band"), ends(found, name, False)
        table.add_row(name, f"{100 * rate:.1f} %", *used, *other)
    Console().print(table)
    Console().print(f"{len(found)} recordings, {sum(len(text.split()) for text in said)} words")


if __name__ == "__main__":
    main()
