"""`rejoinder serve --cluster`: several replicas of the server on Ray Serve, on this machine or on a cluster of them."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from rich.console import Console

from agent.storage import data_folder
from server.auth import LOCAL_NAMES
from server.serving.load_balancer import LoadBalancer, find_haproxy
from server.serving.run import bind, certificate_files, listens_on_loopback, print_ready
from server.serving.scaling import CORES_PER_REPLICA, ReplicaLimits, replicas_that_fit
from server.serving.service import Service, checked_access, load_service
from server.serving.settings import LOCAL_CLUSTER, ServeSettings

_log = logging.getLogger("rejoinder.server")

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do from its next version on; it warns otherwise
}
"""What Ray reads when it is imported, unless the operator has set it."""

RECORDS_FILE = "records.sqlite"
"""Its name in the data folder."""

_OBJECT_STORE_BYTES = 100 << 20
"""Of shared memory for Ray's objects, which carry requests only. Ray's default is 30 % of the machine's memory."""

_UMASK = 0o077
"""Ray's token, logs and records of its ports are for this user only. Its processes inherit the mask."""

_PASSED_ON = ("REJOINDER_", "HF_")
"""Prefixes of environment variables that replicas on other machines get."""


def load_replica(settings: ServeSettings, loopback: bool, folder: Path, set_up_logging: Callable[[], None]) -> Service:
    """Load the models of a replica, in its process. See `load_service`.

    Args:
        folder: where the command was started, to which its paths are relative.
    """
    set_up_logging()
    if folder.is_dir():  # on another machine of the cluster it may be missing
        os.chdir(folder)
    return load_service(settings, Console(stderr=True), loopback=loopback)


def run_cluster(settings: ServeSettings, console: Console, set_up_logging: Callable[[], None]) -> None:
    """Serve from a cluster of this machine until the process is told to stop; or start the service on another cluster,
    or upgrade it there, and return.

    Args:
        set_up_logging: called in every replica.

    Raises:
        ValueError: Ray is not installed, an option does not work in a cluster, or the cluster is open to everybody.
        OSError: the cluster cannot be reached, the port cannot be used, or the models cannot be loaded.
    """
    if settings.audiosocket is not None:
        raise ValueError("AudioSocket calls do not pass Ray's HTTP proxies: leave out --audiosocket or --cluster")
    limits, listener = ReplicaLimits.parse(settings.replicas), None
    if settings.cluster == LOCAL_CLUSTER:
        listener = bind(settings.host, settings.port)  # Ray would not say that the port is in use
        loopback = listens_on_loopback(listener)
        records = settings.records or str((settings.data or data_folder()) / RECORDS_FILE)
        settings = settings.model_copy(update={"port": listener.getsockname()[1], "records": records})
    else:  # there, the service may be running on the port already
        loopback = settings.host in LOCAL_NAMES
        if not settings.port:
            raise ValueError("choose a --port for the cluster: its machines cannot agree on a free one")
    settings = checked_access(settings, loopback=loopback)
    if listener is None:
        check_ray_authentication(os.environ)
    load = partial(load_replica, settings, loopback, Path.cwd(), set_up_logging)
    _start(load, settings, limits, listener, console, on_gpus=_on_gpus(settings))


def check_ray_authentication(environment: Mapping[str, str]) -> None:
    """Raise ValueError unless Ray is told to authenticate. Whoever reaches a cluster without that runs programs on it.

    Ray reads this before it connects, and never from the cluster. Clusters of this machine make a token themselves.
    """
    if environment.get("RAY_AUTH_MODE", "").lower() != "token":
        raise ValueError(
            "a Ray cluster needs token authentication: set RAY_AUTH_MODE=token here and where the cluster is started, "
            "and share a token (`ray get-auth-token --generate`, or RAY_AUTH_TOKEN_PATH)"
        )


def _start(
    load: Callable[[], Service],
    settings: ServeSettings,
    limits: ReplicaLimits | None,
    listener: socket.socket | None,
    console: Console,
    *,
    on_gpus: bool,
) -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray

        from server.serving import ray_deployment
    except ImportError as error:
        raise ValueError(f'a cluster needs another package ({error.name}): pip install -e ".[cluster]"') from None
    on_this_machine, cores = settings.cluster == LOCAL_CLUSTER, float(os.cpu_count() or 1)
    os.umask(_UMASK)
    try:
        if on_this_machine:
            # Processors are counted twice, so that an upgrade finds room for new replicas beside the old ones.
            ray.init(
                LOCAL_CLUSTER, num_cpus=2 * int(cores), include_dashboard=True, dashboard_host="127.0.0.1",
                object_store_memory=_OBJECT_STORE_BYTES, logging_level=logging.WARNING,
            )  # fmt: skip
        else:
            passed_on = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
            ray.init(settings.cluster, runtime_env={"env_vars": passed_on}, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise OSError(f"the Ray cluster {settings.cluster} cannot be reached or started: {error}") from None
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    found = ray.cluster_resources()
    if limits is None:
        gpus, memory = found.get("GPU", 0.0) if on_gpus else 0.0, found.get("memory", math.inf)
        fit = replicas_that_fit(cores if on_this_machine else found.get("CPU", 1.0), memory, gpus)
        limits = ReplicaLimits(fit, fit)
    longest_s = 60 * max(settings.max_session_minutes, settings.max_call_minutes)
    options = ray_deployment.DeploymentOptions(
        limits,
        settings.spare_conversations,
        60 * settings.scale_in_minutes,
        longest_s,
        cpus=max(1.0, cores // limits.maximum) if on_this_machine else float(CORES_PER_REPLICA),
        gpus=1.0 if on_gpus else 0.0,
    )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())  # Ray has set its own
    certificate, key = certificate_files(settings)
    http_options = {
        "host": settings.host, "port": settings.port, "ssl_certfile": certificate, "ssl_keyfile": key,
        "keep_alive_timeout_s": 75,
    }  # fmt: skip
    with ExitStack() as stack:
        stack.callback(ray.shutdown)
        follower = None
        if listener is not None and (balancer := _load_balancer(listener, certificate, key, longest_s)) is not None:
            stack.callback(balancer.close)
            follower = ray_deployment.Follower(balancer)
        with console.status("Starting the replicas…"):
            capacities = ray_deployment.start(
                load, options, http_options, every_node=not on_this_machine, follower=follower
            )
        replicas = f"{len(capacities)} replica{'s' if len(capacities) > 1 else ''}"
        carried = f"Up to {sum(capacities)} conversations at the same time, on {replicas}."
        print_ready(settings, [settings.port], console, carried)
        if on_this_machine:
            with follower or nullcontext():
                while not stopped.wait(1.0):
                    pass
            _log.info("shutting down: nobody is admitted any more, and conversations finish their turns")
            if not ray_deployment.stop(settings.drain_seconds):
                _log.warning("some conversations did not finish in time and are cut off")


def _load_balancer(
    listener: socket.socket, certificate: str | None, key: str | None, longest_s: float
) -> LoadBalancer | None:
    """HAProxy; None, and the port is free for Ray's proxy, if it cannot be used."""
    haproxy, reason = find_haproxy(), "HAProxy is not installed"
    if haproxy is not None:
        try:
            return LoadBalancer(haproxy, listener, certificate, key, longest_s)
        except OSError as error:
            reason = str(error)
    listener.close()
    _log.warning("%s: audio goes through Ray's proxy, which carries fewer conversations", reason)
    return None


def _on_gpus(settings: ServeSettings) -> bool:
    """Whether each replica gets a GPU. What other machines have, this one cannot know."""
    from model.nn.device import auto_device

    device = settings.device
    return device.startswith("cuda") or (
        device == "auto" and settings.cluster == LOCAL_CLUSTER and auto_device()[0].type == "cuda"
    )
