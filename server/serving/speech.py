"""Loads the speech models, and chooses the recognizer that suits this machine (`--asr auto`).

Candidates are the catalog's recognizer, if it is installed, and those that were pulled from the hub. With several, each
transcribes recorded questions once, the largest first, and the first that is quick enough is used. What that has shown
is kept with what is known of the language models.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from model.checkpoint.gguf import BadModelFile
from model.hub import catalog
from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable
from model.nn.cpu.team import available_cores
from server.processor import ProcessorUse
from server.serving.model_choice import open_record
from server.serving.model_record import ModelHistory, Trial
from server.serving.options import AUTO_MODEL, ModelOptions
from server.serving.runtime import hub_models, locate_model
from voice import speech_models
from voice.asr import Recognizer
from voice.audio.codec import BadAudio
from voice.lexicon import NO_LEXICON, Lexicon
from voice.speech_device import SpeechDevice, SpeechDeviceUnavailable
from voice.trial import recorded_questions

_log = logging.getLogger("rejoinder.models")

DEFAULT_RECOGNIZER = catalog.WHISPER_BASE.name

QUICK_MS = 300
"""Median time of a final transcript with which a recognizer is quick enough. It is made while the server waits for the
end of a turn, so as much is hidden there; Whisper base takes 130 ms on a core of a server."""

_SMALL_BYTES, _MAX_THREADS = 300_000_000, 4
"""With weights of up to so many bytes one thread is fastest, since every token is a chain of small matrix
multiplications (docs/benchmarks/speech-recognition.md has base, of 145 MB). Larger models get so many threads at most,
and two transcriptions leave half of the cores to others; that was not measured."""

_TRANSCRIPTS = 5
"""Of a trial. The first is discarded."""


def load_speech_models(
    model_options: ModelOptions, console: Console, data: Path | None = None
) -> speech_models.SpeechModels:
    """Load and warm up speech recognition and synthesis. Logs which recognizer `--asr auto` is, and why.

    Raises:
        ModelUnavailable, BadModelFile: there is no such model, or it cannot be obtained or read.
        ValueError: the lexicon cannot be used.
        SpeechDeviceUnavailable: the models cannot run on that device.
    """
    device = SpeechDevice.of(model_options.speech_device)
    device.recognition_options()  # what cannot run is reported before anything is downloaded
    device.synthesis_providers()
    lexicon = Lexicon.read(model_options.lexicon) if model_options.lexicon else NO_LEXICON
    recognizer = locate_model(resolve_recognizer(model_options, console, data), console, kind="transcription")
    voices = [locate_model(name, console, kind="voice") for name in model_options.voice]
    try:
        return speech_models.load_speech_models(recognizer, voices, device, lexicon, threads_for(recognizer))
    except (SpeechDeviceUnavailable, BadAudio):
        raise
    except (RuntimeError, ValueError) as error:  # CTranslate2 raises RuntimeError for a damaged model
        raise BadModelFile(f"cannot read a speech model ({error}): run `rejoinder models verify`") from error


def resolve_recognizer(model_options: ModelOptions, console: Console, data: Path | None = None) -> str:
    """What `--asr` names, with `auto` replaced by a recognizer. Raises SpeechDeviceUnavailable."""
    if model_options.asr != AUTO_MODEL:
        return model_options.asr
    return choose_recognizer(
        find_recognizers(ModelStore()), SpeechDevice.of(model_options.speech_device), console, data
    )


def find_recognizers(store: ModelStore) -> list[str]:
    """The recognizers on this machine, the largest first; the default one if there is none."""
    hub = hub_models()
    sizes = {one.name: one.size for one in hub.recorded() if one.is_recognizer and hub.is_complete(one)}
    sizes |= {
        one.name: one.size
        for one in catalog.MODELS
        if one.kind == "transcription" and store.availability(one) != "not installed"
    }
    return sorted(sizes, key=lambda name: -sizes[name]) or [DEFAULT_RECOGNIZER]


def choose_recognizer(names: Sequence[str], device: SpeechDevice, console: Console, data: Path | None = None) -> str:
    """The largest recognizer that is quick enough, or else the quickest.

    Args:
        names: of the recognizers, at least one, the largest first.
        data: the folder that keeps what is measured; None for the default one.
    """
    if len(names) == 1:
        return names[0]
    record = open_record("cpu" if device.gpu is None else f"cuda:{device.gpu}", data)
    histories, medians = record.histories(), dict[str, int]()
    for name in names:
        trial = histories.get(name, ModelHistory()).trial
        if trial is None or trial.disturbed:
            console.print(f"Trying {name} for speech recognition …", highlight=False)
            try:
                trial = _try(locate_model(name, console, kind="transcription"), device)
            except (ModelUnavailable, ValueError, RuntimeError) as error:  # CTranslate2 raises RuntimeError
                _log.warning("%s cannot be used for speech recognition: %s", name, error)
                continue
            record.save_trial(name, trial)
        medians[name] = trial.undisturbed_ms
        if trial.undisturbed_ms <= QUICK_MS:
            chosen = name
            break
    else:
        chosen = min(medians, key=lambda name: medians[name], default=DEFAULT_RECOGNIZER)
    known = ", ".join(f"{name} {median} ms" for name, median in medians.items())
    _log.info("--asr auto is %s: a transcript takes %s", chosen, known)
    return chosen


def threads_for(folder: Path) -> int:
    """The CPU threads of one transcription with the model in a folder."""
    weights = folder / "model.bin"
    is_large = weights.exists() and weights.stat().st_size > _SMALL_BYTES
    return 1 if not is_large else max(1, min(_MAX_THREADS, available_cores() // 4))


def _try(folder: Path, device: SpeechDevice) -> Trial:
    """Time the final transcripts of recorded questions."""
    recognizer = Recognizer(folder, workers=1, threads=threads_for(folder), device=device)
    before = ProcessorUse.now()
    questions, times = recorded_questions(), list[float]()
    for number in range(_TRANSCRIPTS):
        started = time.perf_counter()
        recognizer.transcribe(questions[number % len(questions)])
        times.append(1000 * (time.perf_counter() - started))
    others = round(ProcessorUse.now().share_of_others(before), 2)
    return Trial(round(statistics.median(times[1:])), 1, others)
