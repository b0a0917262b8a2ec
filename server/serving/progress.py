"""Progress bars for assembling and downloading models."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from model.hub.store import ProgressCallback


class ProgressBars:
    """Shows one progress bar per file while models are assembled or read, and nothing when they are ready."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> ProgressCallback:
        self._progress.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _report(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = int(self._progress.add_task(name, total=total))
        self._progress.update(self._progress.task_ids[self._tasks[name]], completed=done)
