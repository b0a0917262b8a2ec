"""What the telephone costs in recognition: word errors and detected ends of speech at 8 kHz µ-law, with line noise and
lost frames, compared with the full-band recordings; and the ends of speech without `voice.audio.telephone_band`.

    python -m lab.benchmarks.telephone [FOLDER TRANSCRIPTS [EVERY]]

Uses the report's own corpus, or the recordings of `lab.benchmarks.speech_recognition`; EVERY takes each second or third
of them. Every recording is processed under all conditions before the next one.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
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

from lab.benchmarks.speech_recognition import load_recordings
from lab.report.corpus import bounds_ms, built_in
from lab.report.corpus_voices import SINGLE_VOICE
from model.hub.store import ModelStore, cache_folder
from server.serving.runtime import locate_model
from voice.asr import Recognizer
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, TELEPHONE_RATE, Samples, decode, encode
from voice.audio.resampling import Resampler, resample
from voice.audio.telephone_band import TelephoneBandRestorer
from voice.audio.vad import Silero, SpeechDetector, bundled_silero
from voice.tts import Voice

_FRAME = TELEPHONE_RATE // 50
_SILENCE_S = 1.0


@dataclass
class Recording:
    """A recording, and the results under each condition.

    Attributes:
        audio: [T] float32 at 24 kHz.
        end_ms: where its speech ends.
        transcripts: by condition.
        end_error_ms: by condition, and whether the telephone band was restored; None if no speech was detected.
    """

    text: str
    audio: Samples
    end_ms: float
    transcripts: dict[str, str] = field(default_factory=dict)
    end_error_ms: dict[tuple[str, bool], float | None] = field(default_factory=dict)


def full_band(audio: Samples) -> Samples:
    return resample(audio, OUTPUT_RATE, RECOGNITION_RATE)


def telephone(audio: Samples, snr_db: float | None = None, loss: float = 0.0, seed: int = 0) -> Samples:
    """As in a phone call: band-limited, µ-law, in frames of 20 ms of which some are lost, resampled to 16 kHz."""
    rng = np.random.default_rng(seed)
    line = resample(audio, OUTPUT_RATE, TELEPHONE_RATE)
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
    stream = Resampler(TELEPHONE_RATE, RECOGNITION_RATE)
    return np.concatenate([stream.push(line), stream.push(line[:0], last=True)])


CONDITIONS: dict[str, Callable[[Samples], Samples]] = {
    "full band": full_band,
    "8 kHz µ-law": telephone,
    "and noise, 30 dB": lambda audio: telephone(audio, 30.0),
    "and noise, 20 dB": lambda audio: telephone(audio, 20.0),
    "and 2 % of frames lost": lambda audio: telephone(audio, 30.0, 0.02),
}


def corpus_recordings() -> list[Recording]:
    if len(sys.argv) > 2:
        loaded = []
        every = int(sys.argv[3]) if len(sys.argv) > 3 else 1
        for recording in load_recordings(Path(sys.argv[1]), Path(sys.argv[2]))[::every]:
            audio = resample(recording.audio, RECOGNITION_RATE, OUTPUT_RATE)
            loaded.append(Recording(recording.text, audio, bounds_ms(audio)[1]))
        return loaded
    path = locate_model(SINGLE_VOICE, Console())
    turns = built_in(lambda name: Voice(path), cache_folder() / "report", (SINGLE_VOICE,))
    clean = [turn for turn in turns if turn.background is None and turn.kind not in ("interruption", "backchannel")]
    return [Recording(turn.text, turn.audio, turn.speech_end_ms) for turn in clean]


def end_of_speech(silero: Silero, audio: Samples) -> float | None:
    """The end of the last window that the detector takes for speech, in ms."""
    silence = np.zeros(int(_SILENCE_S * RECOGNITION_RATE), np.float32)
    frames = SpeechDetector(silero).push(np.concatenate((audio, silence)))
    return next((float(frame.end_ms) for frame in reversed(frames) if frame.probability >= 0.5), None)


def end_errors(recordings: list[Recording], name: str, restored: bool) -> tuple[str, str, str]:
    """Error of the detected ends of speech: the median, the 10th to 90th percentile, and how many are missing."""
    errors = [recording.end_error_ms[name, restored] for recording in recordings]
    detected = [ms for ms in errors if ms is not None]
    low, high = (np.percentile(detected, q) for q in (10, 90))
    return f"{statistics.median(detected):+.0f} ms", f"{low:+.0f} to {high:+.0f} ms", str(len(errors) - len(detected))


def main() -> None:
    recognizer, silero = Recognizer(ModelStore().locate("whisper-base")), Silero(bundled_silero())
    recordings, normalize = corpus_recordings(), EnglishTextNormalizer({})
    for recording in track(recordings, "transcribing", console=Console(stderr=True)):
        for name, impair in CONDITIONS.items():
            audio = impair(recording.audio)
            tail = np.zeros(RECOGNITION_RATE // 10, np.float32)
            recording.transcripts[name] = " ".join(s.text for s in recognizer.transcribe(np.concatenate((audio, tail))))
            for restored in (False, True):
                end = end_of_speech(silero, TelephoneBandRestorer().push(audio) if restored else audio)
                recording.end_error_ms[name, restored] = None if end is None else end - recording.end_ms
    table = Table(
        "condition", "word errors", "end of speech, median", "10 to 90 %", "not detected", "not restored", "", ""
    )
    references = [normalize(r.text) for r in recordings]
    for name in CONDITIONS:
        rate = jiwer.wer(references, [normalize(r.transcripts[name]) for r in recordings])
        as_served = end_errors(recordings, name, name != "full band")
        not_restored = end_errors(recordings, name, False)
        table.add_row(name, f"{100 * rate:.1f} %", *as_served, *not_restored)
    Console().print(table)
    Console().print(f"{len(recordings)} recordings, {sum(len(text.split()) for text in references)} words")


if __name__ == "__main__":
    main()
