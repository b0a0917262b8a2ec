"""Loads the models that a command needs, with a progress bar for what has to be assembled first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from model import catalog
from model.decode.schedule import EFFORTS, Schedule
from model.engine import Decoding, Engine, load_model
from model.gguf_file import BadModelFile
from model.sampling import Sampling
from model.store import Report, Store
from model.transformer import Precision
from voice.stages import Stages, load_stages

TRANSCRIPTION_MODEL = catalog.WHISPER_BASE.name
DEFAULT_MODEL = catalog.QWEN_05B.name
DEFAULT_VOICE = catalog.JOE.name

TOP_P = 0.9
"""With a temperature, the unlikely tenth is never drawn: a small model says odd things there."""


@dataclass(frozen=True)
class Choice:
    """Which models, and where they run."""

    model: str = DEFAULT_MODEL
    voice: str = DEFAULT_VOICE
    device: str = "auto"
    precision: Precision | None = None
    temperature: float = 0.0
    adapter: Path | Literal["auto", "none"] = "auto"
    decoding: Decoding | None = None
    schedule: Schedule = EFFORTS["medium"]
    ending: Path | Literal["auto", "none"] = "auto"
    family: str | None = None


class Bars:
    """Shows one progress bar a file while models are assembled or read; nothing when all is in place."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> Report:
        self._progress.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _report(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = int(self._progress.add_task(name, total=total))
        self._progress.update(self._progress.task_ids[self._tasks[name]], completed=done)


def locate(name: str, console: Console, store: Store | None = None) -> Path:
    """The files of a model, assembled if need be. Raises ModelUnavailable."""
    with Bars(console) as report:
        return (store or Store()).locate(name, report)


def load_engine(choice: Choice, console: Console) -> Engine:
    """The language model, warmed up. Raises ModelUnavailable, BadModelFile, ValueError."""
    path = locate(choice.model, console)
    return Engine(
        lambda: load_model(
            path,
            device=choice.device,
            precision=choice.precision,
            adapter=choice.adapter,
            ending=choice.ending,
            family=choice.family,
        ),
        sampling=Sampling(temperature=choice.temperature, top_p=TOP_P),
        decoding=choice.decoding,
        schedule=choice.schedule,
    )


def load_voice_stages(choice: Choice, console: Console) -> Stages:
    """Hearing and speaking, warmed up. Raises ModelUnavailable, BadModelFile."""
    recognizer, voice = locate(TRANSCRIPTION_MODEL, console), locate(choice.voice, console)
    try:
        return load_stages(recognizer, voice)
    except (RuntimeError, ValueError) as error:  # CTranslate2 raises RuntimeError for a damaged model
        raise BadModelFile(f"a speech model cannot be read ({error}): run `rejoinder models verify`") from error
