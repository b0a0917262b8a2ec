"""A replica of a cluster with fake models. Replicas run in processes of their own, which import this module."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import partial

from chat.types import Ask
from server.access.admission import Admission
from server.app import build_app
from server.context import ServerContext, SessionLimits
from server.serving.service import Service
from tests.fakes import FakeLanguageModel, FakeProgress, LoudnessDetector, fake_speech_models
from voice import session


class RecallingLanguageModel(FakeLanguageModel):
    """Says in which process it is, and how many messages it has read."""

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        yield FakeProgress(f"Process {os.getpid()} has read {len(ask.messages)} ask.messages.", finished="stop")


def load_fake_replica(capacity: int, session_limits: SessionLimits | None = None) -> Service:
    """A replica that admits so many conversations."""
    session.SpeechDetector = LoudnessDetector  # type: ignore[misc, assignment]
    context = ServerContext(
        RecallingLanguageModel,
        fake_speech_models(),
        "tiny",
        Admission(capacity),
        session_limits=session_limits or SessionLimits(),
    )
    return Service(context, build_app(context))


def fake_replica(capacity: int) -> partial[Service]:
    """What loads such a replica; it can be pickled."""
    return partial(load_fake_replica, capacity)
