"""Recognition and synthesis on the GPU: the words that a CPU recognizes, and how long both take."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.benchmarks.gpu_acceptance.answers import holds
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere

_TEXT = "You could take the train at half past nine, which arrives shortly before noon."


def run(context: Context) -> None:
    """Run the stage."""
    context.check("recognition", lambda: recognition(context))
    context.check("synthesis", lambda: synthesis(context))


def located() -> tuple[Path, Path]:
    """The installed recognizer and voice.

    Raises:
        NotPossibleHere: there are none.
    """
    try:
        from model.hub.catalog import PIPER_JOE, WHISPER_BASE
        from model.hub.store import ModelStore
        from model.hub.transfer import ModelUnavailable
    except ImportError as error:
        raise NotPossibleHere(f"the catalog needs a package that is not installed ({error})") from None
    store = ModelStore(hub=False)
    try:
        return store.locate(WHISPER_BASE.name), store.locate(PIPER_JOE.name)
    except ModelUnavailable as error:
        raise NotPossibleHere(f"the speech models are not installed ({error})") from None


def recognition(context: Context) -> Mapping[str, Any]:
    """ms of a question, and whether its words are a CPU's."""
    recognizer, _ = located()
    try:
        from voice.asr import Recognizer
        from voice.speech_device import CPU, SpeechDevice, SpeechDeviceUnavailable
        from voice.trial import recorded_questions
    except ImportError as error:
        raise NotPossibleHere(f"recognition needs a package that is not installed ({error})") from None
    questions = recorded_questions()[: None if context.on_gpu else 1]
    words: dict[str, list[str]] = {}
    figures: dict[str, Any] = {}
    for name, device in (("CPU", CPU), *([("GPU", SpeechDevice.of("cuda"))] if context.on_gpu else [])):
        try:
            model = Recognizer(recognizer, device=device)
        except SpeechDeviceUnavailable as error:
            raise NotPossibleHere(str(error)) from None

        def transcribe(audio: Any, model: Recognizer = model) -> str:
            return "".join(segment.text for segment in model.transcribe(audio)).strip()

        transcribe(questions[0])
        times = [_seconds(lambda a=audio: transcribe(a)) for audio in questions]
        words[name] = [transcribe(audio) for audio in questions]
        figures[f"{name} ms a question"] = sorted(times)[len(times) // 2] * 1e3
        holds(all(words[name]), lambda: "a question has no words")
    same = sum(one == other for one, other in zip(words["CPU"], words.get("GPU", words["CPU"]), strict=True))
    holds(2 * same > len(questions), lambda: f"only {same} of {len(questions)} transcripts are a CPU's: {words}")
    return {**figures, "questions": len(questions), "equal transcripts": same}


def synthesis(context: Context) -> Mapping[str, Any]:
    """ms of a sentence, and of its audio."""
    _, voice = located()
    try:
        from voice.audio.codec import OUTPUT_RATE
        from voice.clauses import Clause
        from voice.speech_device import CPU, SpeechDevice, SpeechDeviceUnavailable
        from voice.tts import Voice
    except ImportError as error:
        raise NotPossibleHere(f"synthesis needs a package that is not installed ({error})") from None
    figures: dict[str, Any] = {}
    for name, device in (("CPU", CPU), *([("GPU", SpeechDevice.of("cuda"))] if context.on_gpu else [])):
        try:
            model = Voice(voice, device=device)
        except SpeechDeviceUnavailable as error:
            raise NotPossibleHere(str(error)) from None
        audio = model.synthesize(Clause(_TEXT, True))
        seconds = len(audio) / OUTPUT_RATE
        holds(2.0 < seconds < 10.0, lambda s=seconds: f"a sentence takes {s:.1f} s to say")
        figures[f"{name} ms a sentence"] = _seconds(lambda m=model: m.synthesize(Clause(_TEXT, True))) * 1e3
        figures["audio s"] = seconds
    return figures


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
