"""The service on Ray Serve: a replica is the whole pipeline, with its own models and its own admission. The only module
that imports Ray, with `ray_router.py`."""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch; replicas import this module first

# isort: split
import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy, RequestRouterConfig
from ray.serve.schema import LoggingConfig

from server.access.adaptive_limit import MAX_CONVERSATIONS
from server.observability.peers import ReplicaReport
from server.operator_routes import report_of
from server.serving.http_server import OwnPort
from server.serving.load_balancer import Endpoint, LoadBalancer
from server.serving.scaling import ReplicaLimits, ScaleInDelay, replicas_for
from server.serving.service import Service

_log = logging.getLogger("rejoinder.server")

NAME = "rejoinder"
"""Of the application and of its one deployment."""

_SHORT_REQUESTS = 64
"""Requests of a replica besides its conversations: the page, completions, webhooks, metrics, and callers who are told
that there is no room."""

_STOP_MARGIN_S = 60.0
"""A replica that is to stop ends with its last call, and is killed this long after the longest possible one."""

_HEALTH_CHECK_S, _STATS_PERIOD_S, _DRAIN_CHECK_S = 2.0, 1.0, 0.5

_METRICS_WINDOW_S = 2.0
"""Open conversations are averaged over this time, before the service is scaled."""

_START_ATTEMPTS = 3

_REPORT_AGE_S = 0.5
"""How old the answers to `/readyz` and `/healthz` may be."""

_FOLLOW_S, _NOTICE_S = 0.5, 3.0
"""How often a load balancer is told of the replicas, and how long one that is to end waits until it was."""

_START_CHECK_S, _PROXY_CHECKS = 0.5, 20

_ANSWER_S = 5.0
"""How long replicas may take to answer one another. One that hangs is replaced after its health check."""


@dataclass(frozen=True)
class DeploymentOptions:
    """How the replicas are run.

    Attributes:
        buffer: conversations for which there is to be room at any time; less of it starts another replica.
        scale_in_s: how long a replica must not be needed before it is drained.
        longest_call_s: after which every conversation has ended.
        cpus, gpus: of one replica.
    """

    replicas: ReplicaLimits
    buffer: float = 1.0
    scale_in_s: float = 600.0
    longest_call_s: float = 3600.0
    cpus: float = 1.0
    gpus: float = 0.0


class Replica:
    """One process with the whole pipeline.

    Args:
        load: loads the models, in the process of the replica.
        release: tells the replicas of one upgrade from those of the next.
    """

    async def __init__(self, load: Callable[[], Service], release: str) -> None:  # type: ignore[misc]  # Ray awaits it
        self._release = release
        self._service = await asyncio.to_thread(load)
        self._admission = self._service.context.admission
        self._service.context.peers = _Replicas()
        self._own_port = OwnPort(self._service.app, self._admission, _NOTICE_S)
        self._stop_watching = self._service.watch()

    def __serve_build_asgi_app__(self) -> Any:
        return self._own_port

    def record_replica_metadata(self) -> dict[str, Any]:
        """What Ray's routers know of this replica from its start on."""
        return {"capacity": self._admission.capacity}

    def record_routing_stats(self) -> dict[str, Any]:
        """What Ray's routers learn of this replica every second."""
        return {"draining": self._admission.draining}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What decides the number of replicas."""
        return {"conversations": len(self._admission.slots), "capacity": self._admission.capacity}

    def check_health(self) -> None:
        """Raise RuntimeError if only a new process can go on. Ray then replaces this one."""
        if self._service.failures.reason:
            raise RuntimeError(self._service.failures.reason)
        if self._own_port.failed:
            raise RuntimeError("the replica accepts no connections any more")

    def report(self, details: bool) -> ReplicaReport:
        """What this replica knows of itself. See `Peers.reports`."""
        return report_of(self._service.context, _own_name(), details=details)

    def drain(self, draining: bool) -> None:
        """Admit nobody, or admit again."""
        self._admission.drain(draining)

    async def dismiss_all(self, timeout_s: float) -> bool:
        """End all conversations after their turns. Returns whether all ended in time."""
        return await self._admission.dismiss_all(timeout_s)

    def endpoint(self) -> tuple[str, Endpoint]:
        """The release of this replica, and where a load balancer finds it."""
        return self._release, Endpoint(_own_name(), self._own_port.port, self._admission.capacity)

    def __del__(self) -> None:
        if hasattr(self, "_stop_watching"):  # otherwise the models could not be loaded
            self._stop_watching()
            self._service.close()


def _own_name() -> str:
    return str(serve.get_replica_context().replica_id.unique_id)


class _Replicas:
    """All replicas, as `Peers`. Those that take no new calls because they are to stop are not among them."""

    def __init__(self) -> None:
        self._last: list[ReplicaReport] = []
        self._asked_at = -_REPORT_AGE_S

    async def reports(self, *, details: bool) -> list[ReplicaReport]:
        if details:
            return await self._reports(details)
        now = time.monotonic()
        if now >= self._asked_at + _REPORT_AGE_S:  # anybody may ask, and a few may not keep all replicas busy
            self._asked_at = now
            self._last = await self._reports(details)
        return self._last

    async def _reports(self, details: bool) -> list[ReplicaReport]:
        return [one for one in await self._ask_all("report", details) if isinstance(one, ReplicaReport)]

    async def drain(self, draining: bool) -> None:
        await self._ask_all("drain", draining)
        self._asked_at = -_REPORT_AGE_S

    async def _ask_all(self, method: str, *arguments: object) -> list[object]:
        response = serve.get_deployment_handle(NAME, NAME).broadcast(method, *arguments)
        answers: list[object] = await response.results_async(timeout_s=_ANSWER_S, return_exceptions=True)
        return answers


class Follower:
    """Tells a load balancer which replicas take calls. A replica that is to end is no longer among them."""

    def __init__(self, balancer: LoadBalancer) -> None:
        self._balancer = balancer
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="rejoinder-follower", daemon=True)

    def __enter__(self) -> None:
        """Follow the replicas of the running service."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Leave the load balancer as it is."""
        self._stopped.set()
        self._thread.join()

    def follow(self) -> None:
        """Tell the load balancer now. Raises OSError."""
        with self._lock:
            answers = serve.get_deployment_handle(NAME, NAME).broadcast("endpoint")
            found = answers.results(timeout_s=_ANSWER_S, return_exceptions=True)
            endpoints = [one[1] for one in found if isinstance(one, tuple)]
            if endpoints or not found:  # if none of several answers, Ray itself may be slow
                self._balancer.follow(endpoints)

    def _run(self) -> None:
        error_logged = False
        while not self._stopped.wait(_FOLLOW_S):
            try:
                self.follow()
                error_logged = False
            except Exception as error:
                if not error_logged:
                    _log.error("the load balancer cannot be told of the replicas (%s); it is tried again", error)
                error_logged = True


class OpenConversations:
    """Ray's autoscaling policy: scales on open conversations, never on the load of the processor. Its arguments are
    those of `DeploymentOptions`."""

    def __init__(self, buffer: float, scale_in_s: float) -> None:
        self._buffer, self._scale_in = buffer, ScaleInDelay(scale_in_s)
        self._started = False

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """See Ray. Without a report of any replica, nothing changes."""
        metrics = context.aggregated_metrics or {}
        conversations, capacity = (list(metrics.get(name, {}).values()) for name in ("conversations", "capacity"))
        if not capacity:
            return context.target_num_replicas, {}
        now = context.current_time or time.time()
        if not self._started:  # perhaps again, after Ray's controller has died
            self._started = True
            self._scale_in.replicas(context.target_num_replicas, now)
        wanted = replicas_for(sum(conversations), sum(capacity) / len(capacity), self._buffer)
        return self._scale_in.replicas(wanted, now), {}


def _application(load: Callable[[], Service], release: str, options: DeploymentOptions) -> Any:
    """The application that Ray Serve runs."""
    limits = options.replicas
    fixed = limits.minimum == limits.maximum
    scaling: dict[str, Any] = {"num_replicas": limits.minimum}
    if not fixed:
        policy = AutoscalingPolicy(
            policy_function=f"{__name__}:{OpenConversations.__name__}",
            policy_kwargs={"buffer": options.buffer, "scale_in_s": options.scale_in_s},
        )
        scaling = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=limits.minimum,
                max_replicas=limits.maximum,
                upscale_delay_s=0,
                downscale_delay_s=0,
                metrics_interval_s=_METRICS_WINDOW_S / 2,
                look_back_period_s=_METRICS_WINDOW_S,
                policy=policy,
            )
        }
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name=NAME,
        max_ongoing_requests=MAX_CONVERSATIONS + _SHORT_REQUESTS,
        graceful_shutdown_timeout_s=options.longest_call_s + _STOP_MARGIN_S,
        graceful_shutdown_wait_loop_s=_DRAIN_CHECK_S,
        health_check_period_s=_HEALTH_CHECK_S,
        max_constructor_retry_count=_START_ATTEMPTS,
        # Where every GPU has its replica, an upgrade has to stop one before it can start another.
        max_surge_percent=0 if options.gpus else 100,
        ray_actor_options={"num_cpus": options.cpus, "num_gpus": options.gpus},
        request_router_config=RequestRouterConfig(
            request_router_class="server.serving.ray_router.ConversationRouter",
            request_routing_stats_period_s=_STATS_PERIOD_S,
        ),
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
        **scaling,
    )
    return deployment.bind(load, release)


def start(
    load: Callable[[], Service],
    options: DeploymentOptions,
    http_options: Mapping[str, Any],
    *,
    every_node: bool = False,
    follower: Follower | None = None,
) -> list[int]:
    """Start the service, or upgrade it if it runs, and wait until new replicas take calls. Old ones may still finish
    theirs.

    Args:
        load: loads the models of a replica. It is pickled.
        http_options: of Ray's HTTP proxies.
        every_node: whether each machine with a replica accepts connections, or only the first one.
        follower: of the load balancer that takes the place of Ray's proxies; None for none.

    Returns:
        How many conversations each replica carries.

    Raises:
        OSError: it could not be started.
    """
    release = secrets.token_hex(4)
    application = serve.RunTarget(_application(load, release, options), name=NAME, route_prefix="/")
    serve.start(
        proxy_location="Disabled" if follower is not None else "EveryNode" if every_node else "HeadOnly",
        http_options=dict(http_options),
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
    )
    # Ray itself would wait until old replicas have ended, which takes as long as their calls.
    (handle,) = serve.run_many([application], wait_for_applications_running=False)
    while len(capacities := _capacities(handle, release)) < options.replicas.minimum:
        status = serve.status().applications[NAME]
        if status.status == "DEPLOY_FAILED":
            reasons = [deployment.message for deployment in status.deployments.values() if deployment.message]
            raise OSError(f"the cluster could not start the service: {' '.join(reasons) or status.message}")
        time.sleep(_START_CHECK_S)
    if follower is not None:
        follower.follow()
    _wait_for_answer(http_options)
    return capacities


def _capacities(handle: serve.handle.DeploymentHandle, release: str) -> list[int]:
    """The conversations that each replica of a release carries; empty while older ones take calls as well."""
    deployments = serve.status().applications[NAME].deployments
    if NAME not in deployments or not deployments[NAME].replica_states.get("RUNNING"):
        return []
    answers = handle.broadcast("endpoint").results(timeout_s=_ANSWER_S, return_exceptions=True)
    if not all(isinstance(one, tuple) and one[0] == release for one in answers):
        return []
    return [endpoint.capacity for _, endpoint in answers]


def _wait_for_answer(http_options: Mapping[str, Any]) -> None:
    """Wait until callers reach the service. A machine of a larger cluster may not accept connections."""
    scheme = "https" if http_options.get("ssl_certfile") else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(http_options["host"], http_options["host"])
    for _ in range(_PROXY_CHECKS):
        with suppress(httpx.HTTPError):
            url = f"{scheme}://{host}:{http_options['port']}/healthz"
            # Of this server: its certificate is for another name.
            if httpx.get(url, verify=False, timeout=_ANSWER_S).status_code == httpx.codes.OK:  # nosec B501
                return
        time.sleep(_START_CHECK_S)


def stop(drain_s: float) -> bool:
    """Let conversations finish their turns, then end the service. Returns whether all ended in time."""
    handle = serve.get_deployment_handle(NAME, NAME)
    ended = handle.broadcast("dismiss_all", drain_s).results(return_exceptions=True)
    serve.shutdown()
    ray.shutdown()
    return all(one is True for one in ended)
