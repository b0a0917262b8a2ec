"""Ray's request router: conversations go where there is room, other requests to the less occupied of two replicas.

It runs in Ray's HTTP proxies, which get this module by value and do not import it. Ray's own limit of requests lies
above what a replica admits as conversations, so that the page and the metrics never wait for a call to end, and so that
a caller whom nobody can take is refused by a replica, in the caller's own protocol.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import random
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from server.serving.placement import Placement

_ASK_DEADLINE_S = 0.5
"""How long a replica may take to say how much it has to do. One that is dying does not."""

_UNKNOWN_CAPACITY = 1
"""Of a replica that has not reported it yet."""


class ConversationRouter(RequestRouter):
    """Chooses replicas by how many conversations they admit."""

    def initialize_state(self, **kwargs: Any) -> None:
        self._placement: Placement[ReplicaID] = Placement()
        for name in ("ray.serve", "asyncio"):
            logging.getLogger(name).addFilter(_is_not_about_closing)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
        serving = [one for one in candidate_replicas if not one.routing_stats.get("draining")] or candidate_replicas
        two = random.sample(serving, min(2, len(serving)))
        if pending_request is None or not _is_conversation(pending_request):
            return [two]
        replicas = {one.replica_id: one for one in serving}
        chosen = await self._placement.choose(
            pending_request.metadata.internal_request_id,
            replicas,
            lambda replica_id: int(replicas[replica_id].replica_metadata.get("capacity", _UNKNOWN_CAPACITY)),
            lambda replica_id: _ongoing(replicas[replica_id]),
        )
        return [two] if chosen is None else [[replicas[chosen]]]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        self._placement.sent(pending_request.metadata.internal_request_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._placement.ended(internal_request_id)


async def _ongoing(replica: RunningReplica) -> int:
    """Requests that a replica is occupied with. Raises if it does not answer."""
    return await asyncio.wait_for(replica.get_queue_len(deadline_s=_ASK_DEADLINE_S), _ASK_DEADLINE_S)


def _is_conversation(pending_request: PendingRequest) -> bool:
    """Whether a request is a websocket: all of them carry conversations."""
    argument = pending_request.args[0] if pending_request.args else None
    if not isinstance(argument, bytes):
        return False
    # Pickled by this process: Ray's proxy passes requests on like this.
    return bool(pickle.loads(argument).asgi_scope["type"] == "websocket")  # nosec B301


def _is_not_about_closing(record: logging.LogRecord) -> bool:
    """Ray's proxy takes the end of every websocket for an error, and logs two tracebacks."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, GeneratorExit) and str(error) != "async generator ignored GeneratorExit"
