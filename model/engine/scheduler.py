"""Active requests, and which of them take part in the next forward pass.

Generating requests come first, the one that has gone longest without committing a token at the front. Prompt chunks
join the same forward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.engine.cuda_graph import Attachment
from model.nn.forward_batch import ForwardInput

BACKGROUND_DELAY_S = 0.5
"""How long background requests wait after a speaker's request. The words of a speaker are read ahead about twice a
second, so while somebody speaks, the background waits."""

RequestSteps = Generator[ForwardInput | Attachment, Any, None]
"""The steps of a request. It yields its input for the next forward pass and is sent the logits (or hidden states), or
yields an attachment and is sent the result of the step that a CUDA graph runner takes for it."""


@dataclass
class Request:
    """An active request. `on_error` and `on_done` are called on the engine's thread."""

    steps: RequestSteps
    on_error: Callable[[Exception], None]
    on_done: Callable[[], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    next_input: ForwardInput | Attachment | None = None
    last_progress_step: int = 0
    """Number of the forward pass in which it last committed tokens or read a prompt chunk. Before that: the number of
    the last forward pass before it arrived."""
    paused_until: float = 0.0
    """It takes part in no forward pass before this time, on `time.monotonic`."""
    background: bool = False
    """Nobody is listening: it runs only while no other request is active, and has not been for `BACKGROUND_DELAY_S`."""
    bulk: bool = False
    """Nobody is waiting either: of the requests in the background, it runs only while there is no other."""

    @property
    def num_rows(self) -> int:
        """Rows that it needs in the next forward pass. 0 if it is attached: the steps of all attached conversations
        are a forward pass of their own."""
        return len(self.next_input.tokens) if isinstance(self.next_input, ForwardInput) else 0

    @property
    def is_prefill(self) -> bool:
        """Whether its next forward pass reads a prompt chunk."""
        return isinstance(self.next_input, ForwardInput) and self.next_input.is_prefill

    @property
    def is_generating(self) -> bool:
        """Whether it generates tokens in the next forward pass, which it shares with others unless it is attached."""
        if not isinstance(self.next_input, ForwardInput):
            return False
        return not self.next_input.is_prefill and not self.next_input.return_hidden_states


def ready_requests(active: Sequence[Request], now: float, last_spoken: float) -> list[Request]:
    """The requests that may take part in a forward pass now.

    A speaker's processor time goes to recognition and synthesis as well, so background requests wait while a speaker's
    request is paused, and for a moment after each. Bulk requests wait for all others.

    Args:
        now: on `time.monotonic`.
        last_spoken: when the last request that is not in the background ended.
    """
    spoken = [request for request in active if not request.background]
    if spoken:
        return [request for request in spoken if request.paused_until <= now]
    if now < last_spoken + BACKGROUND_DELAY_S:
        return []
    return [request for request in active if not request.bulk] or list(active)


def next_ready_time(active: Sequence[Request], last_spoken: float) -> float:
    """When `ready_requests` will return one, as far as is known, on `time.monotonic`. There must be a request."""
    paused = [request.paused_until for request in active if not request.background]
    return min(paused) if paused else last_spoken + BACKGROUND_DELAY_S


def schedule(requests: Sequence[Request], max_rows: int) -> list[Request]:
    """Choose the requests of the next forward pass.

    Requests that do not prefill are taken as long as they fit, the one with the oldest progress first. One prompt chunk
    is added, or as many as fit, the one that has waited longest first. So prompts delay the next tokens of another
    request by at most one forward pass, however long the prompts are and however many arrive. Attached conversations
    always take part.

    Args:
        max_rows: rows of a forward pass. A single request, and a single prompt chunk, may be larger.
    """
    attached = [request for request in requests if not request.num_rows]
    others = [request for request in requests if request.num_rows]
    chosen: list[Request] = []
    for request in sorted(others, key=lambda request: (request.is_prefill, request.last_progress_step)):
        first_of_kind = all(other.is_prefill != request.is_prefill for other in chosen)
        if first_of_kind or sum(other.num_rows for other in chosen) + request.num_rows <= max_rows:
            chosen.append(request)
    return [*attached, *chosen]
