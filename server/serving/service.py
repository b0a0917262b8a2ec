"""One server process without its sockets: the models, the records, and the application that serves them. `run.py`
gives it a port; a replica of a cluster has none."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from starlette.applications import Starlette

from agent.storage import data_folder
from agent.tools.server_tools import ServerTools
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import ModelEntry
from server.access.adaptive_limit import AdaptiveLimit
from server.access.admission import Admission
from server.access.keys import KEYS_FILE, ApiKeys, KeyStore, new_secret
from server.access.usage import USAGE_FILE, UsageLog
from server.app import build_app
from server.batch_store import BATCHES_FILE, BatchStore
from server.context import ServerContext, SessionLimits
from server.memory import set_loaded_objects_aside
from server.observability.metrics import Reading, stage_readings
from server.observability.observers import TurnObservers
from server.observability.stages import StageExecutor
from server.observability.tracing import otlp_tracer
from server.observability.turn_log import TurnLog, TurnRecord
from server.serving.failures import Failures, Heartbeat, engine_heartbeat, watch, with_accounts
from server.serving.model_choice import choose, find_candidates, open_record, warn_of_wrong_answers, with_model
from server.serving.model_record import ModelHistory, ModelRecord
from server.serving.options import AUTO_MODEL, ModelOptions
from server.serving.runtime import load_engine, open_documents, open_remote_llm
from server.serving.settings import ServeSettings
from server.serving.speech import load_speech_models
from server.serving.trial import Candidate, ModelTrials, Start, repeat_when_idle
from server.shared_store import SharedRecords, open_store
from server.telephony.routes import TelephonySettings
from server.telephony.settings import CallSettings

_log = logging.getLogger("rejoinder.server")

_SWITCH_INTERVAL_S = 0.001
"""How long the engine's thread may hold the GIL. The event loop needs the GIL several times per 32 ms audio window; at
Python's default of 5 ms, voice activity detection falls behind while a response is generated."""


@dataclass(frozen=True)
class Service:
    """What one server process serves, and what watches over it.

    Attributes:
        context: what all connections share.
        failures: what only a new process can mend.
        watched: what may hang.
        hang_s: for how long, before the process counts as hung; 0 for ever.
        closers: called by `close`, in order.
    """

    context: ServerContext
    app: Starlette
    failures: Failures = field(default_factory=Failures)
    watched: Sequence[StageExecutor | Heartbeat] = ()
    hang_s: float = 0.0
    closers: Sequence[Callable[[], None]] = ()

    def watch(self) -> Callable[[], None]:
        """Report it as a failure if anything hangs. Called on the event loop. Returns what ends that."""
        if not self.hang_s:
            return lambda: None
        event_loop = Heartbeat("the event loop", asyncio.get_running_loop().call_soon_threadsafe)
        return watch([*self.watched, event_loop], self.hang_s, self.failures.report_hang)

    def close(self) -> None:
        """Free the models, and write what is left to the records. One that fails stops none of the others; its error is
        raised afterwards."""
        with ExitStack() as stack:
            for closer in reversed(self.closers):
                stack.callback(closer)


def load_service(
    settings: ServeSettings,
    console: Console,
    *,
    loopback: bool,
    audiosocket: socket.socket | None = None,
    start: Start | None = None,
) -> Service:
    """Load the models, try what is not known of them on this machine, and open the records.

    Args:
        loopback: whether the server listens on this machine only.
        audiosocket: a bound socket for AudioSocket calls, or None.
        start: is told what is being done. None: the server is one of several, and tries nothing later either.

    Raises:
        ValueError: clients beyond this machine could connect without a key, which is raised before any model is loaded;
            or see below.
        OSError: a file cannot be used.
        ModelUnavailable, BadModelFile, ValueError: a model cannot be loaded.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    data = settings.data or data_folder()
    keys, usage = _open_accounts(data)
    api_keys = ApiKeys(settings.api_keys, keys, settings.start_key)
    _check_exposure(settings, api_keys, loopback=loopback)
    records = SharedRecords(open_store(settings.records) if settings.records else None)
    tools = ServerTools(settings.tool_settings)
    if unknown := set(settings.tool_access.keys) - api_keys.names:
        raise ValueError(
            f"[tools.keys] has lists for {', '.join(sorted(unknown))}, but no key is called so: `rejoinder keys list` "
            "shows the names"
        )
    documents = open_documents(settings.docs, data, console)
    record, candidates = open_record(settings.device, data), list[ModelEntry]()
    model_options: ModelOptions = settings
    if settings.model == AUTO_MODEL:
        candidates = find_candidates(settings.device)
        model_options = with_model(settings, choose(candidates, record.histories()))
    turn_log = None
    if settings.turn_log is not None:
        turn_log = TurnLog(settings.turn_log, keep_days=settings.keep_days, keep_text=not settings.no_text)
    engine = load_engine(model_options, console)
    # It holds the interpreter's lock for a second, so it must not happen while anybody speaks.
    grammars = threading.Thread(target=engine.model.grammars.preload, name="rejoinder-grammars", daemon=True)
    grammars.start()
    failures = Failures()
    speech_models, stages = with_accounts(load_speech_models(model_options, console, data), failures.report)
    grammars.join()
    target_ms, adaptive = 1000 * settings.target_p95, settings.max_conversations == "auto"
    loaded = Candidate(model_options, engine)
    if candidates or adaptive:
        trials = ModelTrials(record, target_ms, candidates, partial(_load_with_grammars, console))
        loaded = trials.run(loaded, speech_models, start or Start())
        trial = trials.histories.get(loaded.options.model, ModelHistory()).trial
    model_options, engine = loaded.options, loaded.engine
    warn_of_wrong_answers(model_options.model)
    new_language_model = partial(Conversation, engine)
    if adaptive:
        admission = Admission(1, api_keys, usage, limit=AdaptiveLimit(1, 1, target_ms))
        admission.restart(1 if trial is None else trial.conversations)
    else:
        admission = Admission(int(settings.max_conversations), api_keys, usage)
    tracer = otlp_tracer(settings.otlp_endpoint) if settings.otlp_endpoint else None
    more = [*([turn_log.record] if turn_log else []), *([tracer.record_turn] if tracer else [])]
    observers = TurnObservers([partial(_learn, record, model_options.model, admission), *more])
    readings = stage_readings(stages)
    if turn_log is not None:
        missing = "Turns missing from the turn log."
        readings.append(Reading("dropped_turn_records_total", missing, lambda: {"": turn_log.dropped}))
    if tracer is not None:
        untaken = "Spans that the collector did not take."
        readings.append(Reading("dropped_spans_total", untaken, lambda: {"": tracer.dropped}))
    observers.metrics.add_readings(readings)
    if settings.allow_mcp_server:
        import agent.tools.mcp_client  # noqa: F401  # takes a second: now, not in a conversation
    context = ServerContext(
        new_language_model,
        speech_models,
        model_options.model,
        admission,
        frozenset(settings.allow_origin),
        settings.local_access(loopback=loopback),
        settings.allow_anyone,
        engine,
        frozenset(settings.allow_mcp_server),
        SessionLimits(60 * settings.idle_minutes, 60 * settings.max_session_minutes),
        observers,
        tools,
        open_remote_llm(settings.remote_llm, console),
        records=records,
        documents=documents,
        tool_access=settings.tool_access,
        batches=_open_batches(data),
    )
    engine.failure.add_done_callback(lambda failure: failures.report(str(failure.result())))
    closers = [
        engine.close,
        record.save,
        records.close,
        context.batches.close,
        context.embedder.close,
        *(log.close for log in (turn_log, usage, tracer, documents) if log is not None),
    ]
    call_settings = CallSettings(greeting=settings.greeting, max_duration_s=60 * settings.max_call_minutes)
    telephony = TelephonySettings(call_settings, settings.carrier_auth, settings.public_url)
    background = []
    if (adaptive or candidates) and start is not None:
        background.append(
            partial(
                repeat_when_idle, record, model_options.model, new_language_model, speech_models, admission, target_ms
            )
        )
    app = build_app(context, telephony, audiosocket, background)
    set_loaded_objects_aside()
    return Service(context, app, failures, [*stages, engine_heartbeat(engine)], settings.hang_seconds, closers)


def checked_access(settings: ServeSettings, *, loopback: bool) -> ServeSettings:
    """Check, before any model is loaded, that the server is not open to people who were not meant.

    Where nobody counts as local and there are no keys, the settings get a key for the one who starts the server.

    Raises:
        ValueError: clients beyond this machine could connect without a key.
        OSError: the keys cannot be read.
    """
    with _keys(settings) as keys:
        _check_exposure(settings, keys, loopback=loopback)
        needs_key = not (keys.required or settings.allow_anyone or settings.local_access(loopback=loopback).enabled)
        return settings.with_start_key(new_secret()) if needs_key else settings


def keys_required(settings: ServeSettings) -> bool:
    """Whether every client needs a key, on this machine as well. Raises OSError."""
    with _keys(settings) as keys:
        return keys.required


@contextmanager
def _keys(settings: ServeSettings) -> Iterator[ApiKeys]:
    store, usage = _open_accounts(settings.data or data_folder())
    try:
        yield ApiKeys(settings.api_keys, store, settings.start_key)
    finally:
        usage.close()
        if store is not None:
            store.close()


def _load_with_grammars(console: Console, model_options: ModelOptions) -> Engine:
    """Load another language model, with what its first grammar would wait for."""
    engine = load_engine(model_options, console)
    engine.model.grammars.preload()
    return engine


def _learn(record: ModelRecord, model: str, admission: Admission, turn: TurnRecord) -> None:
    """Record how long a turn took. What waited for a tool or another server says nothing about this machine, and what
    shared it with other conversations says nothing about the model."""
    waited = turn.details.get("remote") or turn.details.get("tools")
    if turn.latency_ms is None or turn.status != "completed" or waited:
        return
    admission.record_turn(turn.latency_ms)
    if admission.active <= 1:
        record.add_turn(model, turn.latency_ms)


def _open_accounts(data: Path) -> tuple[KeyStore | None, UsageLog]:
    """The keys and the record of usage in a folder. Raises OSError if there are keys and they cannot be read."""
    try:
        return KeyStore(data / KEYS_FILE), UsageLog(data / USAGE_FILE)
    except OSError as error:
        if (data / KEYS_FILE).exists():
            raise
        _log.warning("%s; keys of `rejoinder keys` are unknown, and usage is not recorded", error)
        return None, UsageLog()


def _open_batches(data: Path) -> BatchStore:
    """The files and batches in a folder, or some in memory if it cannot be used."""
    try:
        return BatchStore(data / BATCHES_FILE)
    except OSError as error:
        _log.warning("%s; batches end with the server", error)
        return BatchStore()


def _check_exposure(settings: ServeSettings, keys: ApiKeys, *, loopback: bool) -> None:
    """Raise ValueError if anyone who can reach the server could use it, and the operator has not asked for that."""
    no_uuid = settings.carrier_auth.audiosocket_uuid is None
    if settings.allow_anyone:
        return
    if not (loopback or keys.required):
        raise ValueError(
            f"anyone who can reach {settings.host} could use the assistant: make a key with `rejoinder keys add NAME` "
            "(or set --api-key), or add --allow-anyone"
        )
    if settings.audiosocket is not None and no_uuid and not settings.local_access(loopback=loopback).enabled:
        raise ValueError("AudioSocket calls carry no key: set --phone-secret, or add --allow-anyone")
