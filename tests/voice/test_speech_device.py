"""Where recognition and synthesis run, with libraries that have a GPU and ones that have none. No GPU is needed: what
the libraries are asked for is tested, not what they do."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import faster_whisper
import onnxruntime
import pytest

import voice.piper_voice
from voice.asr import Recognizer
from voice.speech_device import SpeechDevice, SpeechDeviceUnavailable
from voice.tts import Voice

CPU_RECOGNITION = {"device": "cpu", "compute_type": "int8"}
CUDA = "CUDAExecutionProvider"


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    gpus, providers = request.param
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: gpus)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [*providers, "CPUExecutionProvider"])


@pytest.mark.parametrize("libraries", [(2, [CUDA])], indirect=True)
@pytest.mark.parametrize(("name", "index"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_a_gpu_is_used_where_the_libraries_have_one(libraries: None, name: str, index: int) -> None:
    device = SpeechDevice.of(name)
    assert device.recognition_options() == {"device": "cuda", "device_index": index, "compute_type": "float16"}
    assert device.synthesis_providers() == [(CUDA, {"device_id": index}), "CPUExecutionProvider"]


@pytest.mark.parametrize("libraries", [(2, [CUDA])], indirect=True)
def test_the_cpu_is_used_when_it_is_chosen(libraries: None) -> None:
    device = SpeechDevice.of("cpu")
    assert device.recognition_options() == CPU_RECOGNITION
    assert device.synthesis_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("libraries", [(0, [])], indirect=True)
def test_auto_takes_the_cpu_where_there_is_no_gpu(libraries: None) -> None:
    device = SpeechDevice.of("auto")
    assert device.recognition_options() == CPU_RECOGNITION
    assert device.synthesis_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("libraries", [(1, [])], indirect=True)
def test_a_gpu_that_is_required_and_cannot_be_used_is_an_error(libraries: None) -> None:
    with pytest.raises(SpeechDeviceUnavailable, match="install onnxruntime-gpu"):
        SpeechDevice.of("cuda").synthesis_providers()
    with pytest.raises(SpeechDeviceUnavailable, match="finds no GPU 1 for speech recognition: choose cpu"):
        SpeechDevice.of("cuda:1").recognition_options()


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "mps", ""])
def test_other_names_are_rejected(name: str) -> None:
    with pytest.raises(SpeechDeviceUnavailable, match="is not a device for speech: choose auto, cpu, cuda or cuda:N"):
        SpeechDevice.of(name)


@pytest.mark.parametrize("libraries", [(1, [CUDA])], indirect=True)
def test_the_models_are_loaded_onto_the_device(
    libraries: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def whisper(folder: str, **options: Any) -> SimpleNamespace:
        asked["recognition"] = options
        return SimpleNamespace(hf_tokenizer=None, model=SimpleNamespace(is_multilingual=True))

    def session(path: str, options: Any, providers: list[Any]) -> SimpleNamespace:
        asked["synthesis"] = providers
        return SimpleNamespace(get_providers=lambda: loaded)

    loaded = [CUDA]
    monkeypatch.setattr(faster_whisper, "WhisperModel", whisper)
    monkeypatch.setattr(faster_whisper.tokenizer, "Tokenizer", lambda *_, **__: None)
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(
        voice.piper_voice.PiperConfig, "from_dict", lambda _: SimpleNamespace(sample_rate=22_050, espeak_voice="en-us")
    )
    monkeypatch.setattr(voice.piper_voice, "PiperVoice", lambda **_: SimpleNamespace())
    path = tmp_path / "voice.onnx"
    path.touch()
    Path(f"{path}.json").write_text(json.dumps({}))
    device = SpeechDevice.of("cuda")
    Recognizer(tmp_path, device=device)
    Voice(path, device=device)
    assert (asked["recognition"]["device"], asked["recognition"]["device_index"]) == ("cuda", 0)
    assert asked["synthesis"][0] == (CUDA, {"device_id": 0})
    loaded = ["CPUExecutionProvider"]
    with pytest.raises(SpeechDeviceUnavailable, match="could not load CUDA's libraries"):
        Voice(path, device=device)
    Voice(path, device=SpeechDevice.of("auto"))
