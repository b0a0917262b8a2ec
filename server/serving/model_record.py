"""What this machine has shown of each language model: the trial of its first start, and the turns since then. A file in
the data folder, which several servers may share."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from filelock import FileLock
from pydantic import TypeAdapter

from model.hub.store import write_atomically

_log = logging.getLogger("rejoinder.models")

RECORD_FILE = "models.json"
"""Its name in the data folder."""

ENOUGH_TURNS = 200
"""Turns that say more than a trial does. So many are kept."""

_DISTURBED = 0.25
"""Share of the processor that other processes use from which on a trial counts as disturbed."""

_UNSAVED = 20
"""Turns between two writes."""

_VERSION = 1


@dataclass(frozen=True)
class Trial:
    """What a trial has measured.

    Attributes:
        median_ms: turn latency of one conversation.
        conversations: that may ask at the same moment and are answered in time, on average.
        others: share of the processor that other processes used meanwhile, 0 to 1.
    """

    median_ms: int
    conversations: int
    others: float = 0.0

    @property
    def disturbed(self) -> bool:
        """Whether other processes kept the processor from it. It is then to be repeated."""
        return self.others > _DISTURBED

    @property
    def undisturbed_ms(self) -> int:
        """The median to expect at best when nothing else runs."""
        return round(self.median_ms * (1 - self.others)) if self.disturbed else self.median_ms


@dataclass(frozen=True)
class ModelHistory:
    """What is known of one model.

    Attributes:
        trial: None if it was not tried.
        turns_ms: latencies of the last turns, the newest last.
    """

    trial: Trial | None = None
    turns_ms: tuple[int, ...] = field(default=())

    @property
    def turns_tell(self) -> bool:
        """Whether there are enough turns to go by."""
        return len(self.turns_ms) >= ENOUGH_TURNS

    @property
    def median_ms(self) -> int | None:
        """Turn latency, by the turns or else by the trial; None if it was not tried."""
        if self.turns_tell:
            return self.turn_percentile(0.5)
        return self.trial.undisturbed_ms if self.trial else None

    def turn_percentile(self, share: float) -> int:
        """Of the turns, ms."""
        return round(float(np.quantile(self.turns_ms, share)))


_Histories = dict[str, dict[str, ModelHistory]]


class ModelRecord:
    """The file. A damaged one is as good as missing.

    Args:
        machine: the processor or GPU, with its cores: latencies are those of one machine.
    """

    def __init__(self, folder: Path, machine: str) -> None:
        self._path, self.machine = folder / RECORD_FILE, machine
        self._adapter = TypeAdapter(_Histories)
        self._unsaved: dict[str, list[int]] = {}
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def histories(self) -> Mapping[str, ModelHistory]:
        """What is known, by the name of the model."""
        return self._read().get(self.machine, {})

    def save_trial(self, model: str, trial: Trial, *, reconsider: tuple[str, ...] = ()) -> None:
        """Keep what a trial has measured.

        Args:
            reconsider: other models whose turns were a reason for this trial. They and those of this model are deleted.
        """
        with self._writing:
            self._change({model: trial}, {model, *reconsider})

    def add_turn(self, model: str, latency_ms: float) -> None:
        """Count a turn. It is written with others, or by `save`."""
        with self._lock:
            self._unsaved.setdefault(model, []).append(round(latency_ms))
            due = sum(map(len, self._unsaved.values())) >= _UNSAVED
        if due:
            threading.Thread(target=self.save, name="rejoinder-model-record", daemon=True).start()

    def save(self) -> None:
        """Write the turns that are not written yet."""
        with self._writing:
            if self._unsaved:
                self._change({}, set())

    def _change(self, trials: Mapping[str, Trial], emptied: set[str]) -> None:
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self._path.with_suffix(".lock")):
                stored = self._read()
                known = stored.setdefault(self.machine, {})
                for name in {*trials, *emptied, *unsaved}:
                    history = known.get(name, ModelHistory())
                    turns = () if name in emptied else (*history.turns_ms, *unsaved.get(name, ()))[-ENOUGH_TURNS:]
                    known[name] = replace(history, trial=trials.get(name, history.trial), turns_ms=turns)
                content = {"version": _VERSION, "machines": self._adapter.dump_python(stored, mode="json")}
                text = json.dumps(content) + "\n"
                write_atomically(self._path, lambda partial: partial.write_text(text, encoding="utf-8"))
        except OSError as error:
            _log.warning("what was learned about the models could not be saved (%s)", error)

    def _read(self) -> _Histories:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            return self._adapter.validate_python(stored["machines"]) if stored["version"] == _VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
