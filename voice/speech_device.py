"""The device of speech recognition and synthesis. The CPU is the default; a GPU is an option where CTranslate2 and
onnxruntime were built for it. The two are independent: one may run on the GPU without the other."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime

_log = logging.getLogger("rejoinder.voice")

_CUDA_PROVIDER = "CUDAExecutionProvider"
_CPU_PROVIDER = "CPUExecutionProvider"


class SpeechDeviceUnavailable(ValueError):
    """Speech models cannot run on a device."""


@dataclass(frozen=True)
class SpeechDevice:
    """Where the speech models run.

    Attributes:
        gpu: index of the GPU; None for the CPU.
        required: whether it is an error if a library cannot use that GPU. Otherwise the CPU does.
    """

    gpu: int | None = None
    required: bool = False

    @staticmethod
    def of(name: str) -> SpeechDevice:
        """The device of a name: `auto` (the first GPU where a library can use one), `cpu`, `cuda` or `cuda:N`.

        Raises:
            SpeechDeviceUnavailable: no such device.
        """
        if name == "cpu":
            return SpeechDevice()
        if name == "auto":
            return SpeechDevice(0)
        match = re.fullmatch(r"cuda(?::(\d+))?", name)
        if match is None:
            raise SpeechDeviceUnavailable(f"{name!r} is not a device for speech: choose auto, cpu, cuda or cuda:N")
        return SpeechDevice(int(match[1] or 0), required=True)

    def recognition_options(self) -> dict[str, Any]:
        """Arguments for faster-whisper's `WhisperModel`.

        Raises:
            SpeechDeviceUnavailable: the GPU is required, and CTranslate2 finds none.
        """
        if self.gpu is not None:
            import ctranslate2

            if self.gpu < ctranslate2.get_cuda_device_count():
                return {"device": "cuda", "device_index": self.gpu, "compute_type": "float16"}
            if self.required:
                raise SpeechDeviceUnavailable(f"CTranslate2 finds no GPU {self.gpu} for speech recognition: choose cpu")
            _log.info("speech recognition runs on the CPU: CTranslate2 finds no GPU")
        return {"device": "cpu", "compute_type": "int8"}

    def synthesis_providers(self) -> list[Any]:
        """Execution providers for onnxruntime.

        Raises:
            SpeechDeviceUnavailable: the GPU is required, and onnxruntime was built for the CPU.
        """
        if self.gpu is not None:
            import onnxruntime

            if _CUDA_PROVIDER in onnxruntime.get_available_providers():
                return [(_CUDA_PROVIDER, {"device_id": self.gpu}), _CPU_PROVIDER]
            if self.required:
                raise SpeechDeviceUnavailable(
                    "onnxruntime was built for the CPU, so it cannot synthesize speech on a GPU: uninstall it and "
                    "install onnxruntime-gpu, or choose auto"
                )
            _log.info("speech synthesis runs on the CPU: onnxruntime was built for it")
        return [_CPU_PROVIDER]

    def check_synthesis(self, session: onnxruntime.InferenceSession) -> None:
        """Whether a session runs where it should: onnxruntime takes the CPU if CUDA's libraries do not load.

        Raises:
            SpeechDeviceUnavailable: the GPU is required, and the session runs on the CPU.
        """
        if self.gpu is not None and session.get_providers()[0] != _CUDA_PROVIDER:
            if self.required:
                raise SpeechDeviceUnavailable(
                    "onnxruntime could not load CUDA's libraries, so it cannot synthesize speech on a GPU: install "
                    "those that its log names, or choose auto"
                )
            _log.info("speech synthesis runs on the CPU")


CPU = SpeechDevice()
