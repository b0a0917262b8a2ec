"""Tries language models before a server is ready: which one `--model auto` is, and how many conversations it holds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from filelock import FileLock, Timeout

from agent.language_model import LanguageModel
from model.checkpoint.gguf import BadModelFile
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import ModelEntry
from model.hub.store import cache_folder
from model.hub.transfer import ModelUnavailable
from server.access.admission import Admission
from server.processor import ProcessorUse
from server.serving.model_choice import PATIENT_MS, choose, describe, limit_ms, with_model
from server.serving.model_record import ModelHistory, ModelRecord, Trial
from server.serving.options import ModelOptions
from voice.speech_models import SpeechModels
from voice.trial import BUDGET_S, Latencies, TrialFailed, TrialInterrupted, measure_latencies

_log = logging.getLogger("rejoinder.models")

_LOCK_S = 0.5
"""How long another server's trial is waited for, before it is looked whether somebody wants to talk."""

_IDLE_S, _IDLE = 60.0, 0.1
"""A trial is repeated when nobody has been connected for so long and others use less than this of the processor."""

_LOOK_S = 5.0


@dataclass
class Start:
    """What a server that is not ready yet does, and whether somebody waits for it. Shared by threads.

    Attributes:
        doing: for the page.
        visited: set when somebody wants to talk.
    """

    doing: str = "The models are loading."
    visited: threading.Event = field(default_factory=threading.Event)


@dataclass
class Candidate:
    """A language model that is loaded, and the options with its name."""

    options: ModelOptions
    engine: Engine


class ModelTrials:
    """Tries models one after the other. One is in memory at a time.

    Args:
        record: what is known of the models on this machine.
        target_ms: p95 of the turn latency that more conversations may not exceed.
        candidates: the models that `--model auto` may be, the largest first; empty for a model that was named.
        load: loads a model. Raises as `load_engine` does.
    """

    def __init__(
        self,
        record: ModelRecord,
        target_ms: float,
        candidates: Sequence[ModelEntry],
        load: Callable[[ModelOptions], Engine],
    ) -> None:
        self._record, self._target_ms, self._candidates, self._load = record, target_ms, list(candidates), load
        self._tried: dict[str, ModelHistory] = {}

    @property
    def histories(self) -> dict[str, ModelHistory]:
        """What is known now, whether or not it could be saved."""
        return {**self._record.histories(), **self._tried}

    def run(self, loaded: Candidate, speech_models: SpeechModels, start: Start) -> Candidate:
        """Try the model that is loaded if that is needed, and then others. Returns the one to be used. Servers that
        start together do so one after the other, unless somebody waits for them.

        Raises:
            ModelUnavailable, BadModelFile: no model can be loaded.
        """
        cache_folder().mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache_folder() / "trial.lock")
        while not start.visited.is_set():
            with suppress(Timeout), lock.acquire(timeout=_LOCK_S):
                return self._run(loaded, speech_models, start)
        return loaded

    def _run(self, loaded: Candidate, speech_models: SpeechModels, start: Start) -> Candidate:
        over_at = time.monotonic() + BUDGET_S
        while True:
            loaded = self._chosen(loaded, start)  # another server may have tried it meanwhile
            model = loaded.options.model
            if not self._needs_trial(model):
                return loaded
            start.doing = f"The language model {model} is tried on this machine. You can start talking at any time."
            _log.info("trying %s on this machine, for %.0f s at most", model, BUDGET_S)
            try:
                asyncio.run(self._try(loaded, speech_models, start, over_at - time.monotonic()))
            except TrialInterrupted:
                _log.info("somebody wants to talk: the trial of %s is repeated later", model)
                return loaded
            except TrialFailed as error:
                _log.warning("%s could not be tried, because a response failed: %s", model, error)
                return loaded

    def _chosen(self, loaded: Candidate, start: Start) -> Candidate:
        """What is to be used or tried by what is known now, in place of what is loaded."""
        is_open = True
        while self._candidates:
            choice = choose(self._candidates, self.histories)
            if is_open and choice.model.name == loaded.options.model:
                break
            if is_open:
                loaded.engine.close()
                is_open = False
            start.doing = f"The language model {choice.model.name} is loading."
            options = with_model(loaded.options, choice)
            try:
                return Candidate(options, self._load(options))
            except (ModelUnavailable, BadModelFile) as error:
                self._candidates = [one for one in self._candidates if one != choice.model]
                if not self._candidates:
                    raise
                _log.warning("%s", error)
        return loaded

    def _needs_trial(self, model: str) -> bool:
        if model in self._tried:
            return False
        history = self.histories.get(model, ModelHistory())
        if history.trial is None or history.trial.disturbed:
            return True
        return bool(self._candidates) and not choose(self._candidates, self.histories).known

    async def _try(self, loaded: Candidate, speech_models: SpeechModels, start: Start, budget_s: float) -> None:
        model = loaded.options.model
        entry = next((one for one in self._candidates if one.name == model), None)
        limit = PATIENT_MS if entry is None else limit_ms(entry, self._candidates)
        smaller = () if entry is None else tuple(one.name for one in self._candidates if one.size < entry.size)

        def progress(asked: int) -> None:
            start.doing = (
                f"The language model {model} is tried on this machine, question {asked + 1}. "
                "You can start talking at any time."
            )

        measuring = measure_latencies(
            partial(Conversation, loaded.engine),
            speech_models,
            limit_ms=limit,
            target_ms=self._target_ms,
            budget_s=budget_s,
            is_interrupted=start.visited.is_set,
            on_progress=progress,
        )
        trial = await _trial_of(measuring, self._target_ms)
        self._record.save_trial(model, trial, reconsider=smaller)
        # Now it counts, although a disturbed trial is repeated at the next start.
        self._tried[model] = ModelHistory(replace(trial, median_ms=trial.undisturbed_ms, others=0.0))
        _log.info("%s: %s; answers %d at once in time", model, describe(ModelHistory(trial)), trial.conversations)


async def _trial_of(measuring: Awaitable[Latencies], target_ms: float) -> Trial:
    """What is measured, and what others used of the processor meanwhile."""
    before, latencies = ProcessorUse.now(), await measuring
    others = round(ProcessorUse.now().share_of_others(before), 2)
    return Trial(latencies.median, latencies.conversations(target_ms), others)


async def repeat_when_idle(
    record: ModelRecord,
    model: str,
    new_language_model: Callable[[], LanguageModel],
    speech_models: SpeechModels,
    admission: Admission,
    target_ms: float,
) -> None:
    """Try a model again whose trial was interrupted or disturbed, when nobody is connected and the processor is idle.
    What it shows counts at the next start; the limit of conversations changes now."""
    history = record.histories().get(model)
    while history is None or history.trial is None or history.trial.disturbed:
        await _wait_until_idle(admission)
        try:
            measuring = measure_latencies(
                new_language_model,
                speech_models,
                limit_ms=PATIENT_MS,
                target_ms=target_ms,
                is_interrupted=lambda: bool(admission.slots),
            )
            trial = await _trial_of(measuring, target_ms)
        except TrialInterrupted:
            continue
        except TrialFailed as error:
            _log.warning("%s could not be tried, because a response failed: %s", model, error)
            return
        if not trial.disturbed:
            record.save_trial(model, trial)
            admission.restart(trial.conversations)
            history = ModelHistory(trial)
            _log.info("%s, again: %s; answers %d at once in time", model, describe(history), trial.conversations)


async def _wait_until_idle(admission: Admission) -> None:
    idle_s, before = 0.0, ProcessorUse.now()
    while idle_s < _IDLE_S:
        await asyncio.sleep(_LOOK_S)
        now = ProcessorUse.now()
        idle = not admission.slots and now.share_of_others(before) < _IDLE
        idle_s, before = (idle_s + _LOOK_S if idle else 0.0), now
