"""Frees the memory of conversations that have ended.

A conversation's parts refer to each other, so only Python's cycle collector frees them, and with them the keys and
values of its tokens. By itself it looks at everything too seldom, as the objects that were loaded at the start are so
many: that took 29 MB for each conversation of 25 turns. They are set aside, so that looking at the rest takes
milliseconds.
"""

from __future__ import annotations

import asyncio
import gc

from server.access.admission import Admission

_INTERVAL_S = 2.0

_COLLECTIONS = 3
"""After conversations have ended: their connections and tasks take a while to close."""


def set_loaded_objects_aside() -> None:
    """Let the collector leave out what exists now: models and modules, which stay for as long as the process."""
    gc.collect()
    gc.freeze()


async def free_ended_conversations(admission: Admission) -> None:
    """Collect in the seconds after conversations have ended, once the loaded objects are set aside. Runs until it is
    cancelled."""
    released, collections = admission.num_released, 0
    while True:
        await asyncio.sleep(_INTERVAL_S)
        if admission.num_released != released:
            released, collections = admission.num_released, _COLLECTIONS
        if collections and gc.get_freeze_count():
            gc.collect()
        collections = max(0, collections - 1)
