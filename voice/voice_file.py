"""Opens the ONNX model of a voice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from voice.audio.codec import BadAudio
from voice.onnx_graph import with_output
from voice.speech_device import CPU, SpeechDevice, SpeechDeviceUnavailable

if TYPE_CHECKING:
    import onnxruntime

Sessions = dict[Path, "onnxruntime.InferenceSession"]
"""The ONNX models that are loaded, by their file: voices of one model share it."""

_THREADS = 2
"""Processor threads for one clause."""


def open_session(
    path: Path, device: SpeechDevice = CPU, loaded: Sessions | None = None, *, exposed: str = ""
) -> onnxruntime.InferenceSession:
    """Load an ONNX model.

    Args:
        exposed: operator whose result is a further output, if the model has exactly one node of it.
        loaded: models that need not be loaded again; this one is added.

    Raises:
        FileNotFoundError: there is no such file.
        SpeechDeviceUnavailable: it cannot run on that device.
        Exception: the file is damaged; onnxruntime has a type of its own for each kind of damage.
    """
    if loaded is not None and path in loaded:
        return loaded[path]
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    import onnxruntime  # late: a text conversation needs none

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = _THREADS, 1
    # Idle ONNX threads spin by default and would take cores from the language model.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = with_output(path, exposed) if exposed else None
    session = onnxruntime.InferenceSession(model or str(path), options, providers=device.synthesis_providers())
    if model is not None:
        session._model_bytes = None  # otherwise it keeps the whole file in memory as long as it lives
    device.check_synthesis(session)
    if loaded is not None:
        loaded[path] = session
    return session


@contextmanager
def voice_errors(path: Path, consists_of: str) -> Iterator[None]:
    """Turn whatever loading the voice at `path` raises into BadAudio.

    Args:
        consists_of: which files make up such a voice, for the message about a missing one.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise BadAudio(f"the voice {path} lacks {error.filename}: {consists_of}") from None
    except (BadAudio, SpeechDeviceUnavailable):
        raise
    except Exception as error:  # onnxruntime raises its own exception type for each kind of damage
        raise BadAudio(f"the voice {path} cannot be read ({error}): run `rejoinder models verify`") from error
