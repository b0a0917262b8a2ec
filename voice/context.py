"""What the parts of one conversation share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from voice.events import SessionEvent
from voice.speech_models import SpeechModels


@dataclass(frozen=True)
class SessionContext:
    """What the parts of one conversation share.

    Attributes:
        emit: called with every session event.
        spawn: starts a task of the conversation.
        clock: seconds, monotonic.
    """

    speech_models: SpeechModels
    emit: Callable[[SessionEvent], None]
    spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    clock: Callable[[], float]
