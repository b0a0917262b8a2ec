"""The memory of conversations that have ended."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from server import memory
from server.access.admission import Admission
from server.memory import free_ended_conversations, set_loaded_objects_aside
from tests.fakes import FakeLanguageModel
from tests.real_time import HANG_S
from tests.server.live_server import connected, serving, speak_one_turn


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's own collector does nothing, and nothing is set aside, as the command line does when it starts."""
    gc.disable()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_the_memory_of_a_conversation_that_has_ended_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_INTERVAL_S", 0.05)
    models = list[weakref.ref[FakeLanguageModel]]()

    def new_language_model() -> FakeLanguageModel:
        model = FakeLanguageModel(seconds_per_word=0.0)
        models.append(weakref.ref(model))
        return model

    set_loaded_objects_aside()
    monkeypatch.setattr(memory, "_COLLECTIONS", int(HANG_S / 0.05))  # closing takes as long as the machine is slow
    with serving(new_language_model=new_language_model) as address:
        async with connected(address) as client:
            await speak_one_turn(client)
            assert models[0]() is not None
        async with asyncio.timeout(HANG_S):
            while any(model() is not None for model in models):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@pytest.mark.usefixtures("no_collector")
async def test_nothing_is_collected_where_loaded_objects_would_be_looked_at_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_INTERVAL_S", 0.0)
    collections = list[None]()
    monkeypatch.setattr(gc, "collect", lambda: collections.append(None))
    admission = Admission()
    task = asyncio.create_task(free_ended_conversations(admission))

    async def pass_time() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def hold_a_conversation() -> None:
        slot = admission.reserve("realtime")
        await pass_time()
        slot.release()
        await pass_time()

    await hold_a_conversation()
    assert not collections
    gc.freeze()
    await pass_time()
    assert not collections  # nobody has left
    await hold_a_conversation()
    task.cancel()
    assert len(collections) == memory._COLLECTIONS
