"""`rejoinder serve --cluster`: several replicas of the server on Ray Serve, on this machine or on a cluster of them."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from server.deploy.run import bind, certificate_files, is_loopback, print_ready
from server.deploy.runtime import ModelOptions
from server.deploy.scaling import CORES_PER_REPLICA, ReplicaLimits, replicas_that_fit
from server.deploy.service import ServeSettings, Service, check_access, load_service

_log = logging.getLogger("rejoinder.server")

LOCAL = "local"
"""The address that stands for a cluster of this machine only."""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do from its next version on; it warns otherwise
}
"""What Ray reads when it is imported, unless the operator has set it."""

RECORDS_FILE = "records.sqlite"
"""Its name in the data folder."""

_OBJECT_STORE_BYTES = 100 << 20
"""Of shared memory for Ray's objects, which carry requests only. Ray's default is 30 % of the machine's memory."""

_PASSED_ON = ("REJOINDER_", "HF_")
"""Prefixes of environment variables that replicas on other machines get."""


@dataclass(frozen=True)
class ClusterSettings:
    """How many replicas run, and where.

    Attributes:
        address: of a Ray cluster that is running, or `LOCAL`.
        replicas: how many; None for as many as fit on this machine.
        buffer: conversations for which there is to be room at any time.
        scale_in_s: how long a replica must not be needed before it is drained.
        dashboard: whether Ray's dashboard runs, which only this machine can reach.
    """

    address: str = LOCAL
    replicas: ReplicaLimits | None = None
    buffer: float = 1.0
    scale_in_s: float = 600.0
    dashboard: bool = True


def load_replica(
    model_options: ModelOptions, settings: ServeSettings, local: bool, folder: Path, set_up_logging: Callable[[], None]
) -> Service:
    """Load the models of a replica, in its process. See `load_service`.

    Args:
        folder: where the command was started, to which its paths are relative.
    """
    set_up_logging()
    if folder.is_dir():  # on another machine of the cluster it may be missing
        os.chdir(folder)
    return load_service(model_options, settings, Console(stderr=True), local=local)


def run_cluster(
    model_options: ModelOptions,
    settings: ServeSettings,
    cluster: ClusterSettings,
    console: Console,
    set_up_logging: Callable[[], None],
) -> None:
    """Serve from a cluster of this machine until the process is told to stop; or start the service on another cluster,
    or upgrade it there, and return.

    Args:
        set_up_logging: called in every replica.

    Raises:
        ValueError: Ray is not installed, or an option does not work in a cluster.
        OSError: the cluster cannot be reached, the port cannot be used, or the models cannot be loaded.
    """
    if settings.audiosocket is not None:
        raise ValueError("AudioSocket calls do not pass Ray's HTTP proxies: leave out --audiosocket or --cluster")
    http_socket = bind(settings.host, settings.port)
    settings, local = replace(settings, port=http_socket.getsockname()[1]), is_loopback(http_socket)
    http_socket.close()
    check_access(settings, local)
    if cluster.address == LOCAL and settings.data is not None and not settings.records:
        settings = replace(settings, records=str(settings.data / RECORDS_FILE))
    certificate, key = certificate_files(settings)
    load = partial(load_replica, model_options, settings, local, Path.cwd(), set_up_logging)
    http_options = {
        "host": settings.host, "port": settings.port, "ssl_certfile": certificate, "ssl_keyfile": key,
        "keep_alive_timeout_s": 75,
    }  # fmt: skip
    start_cluster(load, settings, cluster, http_options, console)


def start_cluster(
    load: Callable[[], Service],
    settings: ServeSettings,
    cluster: ClusterSettings,
    http_options: dict[str, object],
    console: Console,
) -> None:
    """`run_cluster`, with what loads a replica."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray

        from server.deploy import ray_deployment
    except ImportError as error:
        raise ValueError(f'a cluster needs another package ({error.name}): pip install "rejoinder[cluster]"') from None
    on_this_machine = cluster.address == LOCAL
    cores, memory = float(os.cpu_count() or 1), float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    gpus = _gpus() if on_this_machine else 0.0
    limits = cluster.replicas or ReplicaLimits(*[replicas_that_fit(cores, memory, gpus)] * 2)
    cpus = max(1.0, cores // limits.maximum) if on_this_machine else float(CORES_PER_REPLICA)
    longest_s = max(settings.session_limits.max_duration_s, settings.telephony.call_settings.max_duration_s)
    options = ray_deployment.DeploymentOptions(
        limits,
        cluster.buffer,
        cluster.scale_in_s,
        longest_s,
        cpus,
        1.0 if gpus else 0.0,
        # Where every GPU has its replica, an upgrade has to stop one before it starts another.
        surge=not gpus,
    )
    try:
        if on_this_machine:
            # Processors are counted twice, so that an upgrade finds room for new replicas beside the old ones.
            ray.init(
                num_cpus=int(2 * cpus * limits.maximum) + 1, include_dashboard=cluster.dashboard,
                dashboard_host="127.0.0.1", object_store_memory=_OBJECT_STORE_BYTES, log_to_driver=True,
                logging_level=logging.WARNING,
            )  # fmt: skip
        else:
            passed_on = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
            ray.init(cluster.address, runtime_env={"env_vars": passed_on}, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise OSError(f"the Ray cluster {cluster.address} cannot be reached or started: {error}") from None
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())  # Ray has set its own
    try:
        with console.status("Starting the replicas…"):
            handle = ray_deployment.start(
                ray_deployment.application(load, options), http_options, every_node=not on_this_machine
            )
        capacities = handle.broadcast("capacity").results(timeout_s=60)
        replicas = f"{len(capacities)} replica{'s' if len(capacities) > 1 else ''}"
        carried = f"Up to {sum(capacities)} conversations at the same time, on {replicas}."
        print_ready(settings, [settings.port], console, carried)
        if on_this_machine:
            while not stopped.wait(1.0):
                pass
            _log.info("shutting down: nobody is admitted any more, and conversations finish their turns")
            if not ray_deployment.stop(settings.drain_s):
                _log.warning("some conversations did not finish in time and are cut off")
    finally:
        ray.shutdown()


def _gpus() -> float:
    import torch

    return float(torch.cuda.device_count())
