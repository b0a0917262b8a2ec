"""What was measured on this machine, kept in the cache folder, which several machines may share."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TypeVar

from pydantic import TypeAdapter

from model.hub.store import cache_folder, write_atomically

T = TypeVar("T")

_log = logging.getLogger("rejoinder.models")


def measured_once(
    file: str, version: int, kind: type[T], name: str, measure: Callable[[], T], *, again: bool = False
) -> T:
    """A measurement, made now if it is not in the file.

    Args:
        file: its name in the cache folder.
        version: of the measurement. A file with another one is as good as missing, and so is a damaged one.
        kind: a dataclass.
        name: of the machine, and of whatever else the measurement depends on.
        again: measure even if there is a measurement.
    """
    path, adapter = cache_folder() / file, TypeAdapter(dict[str, kind])  # type: ignore[valid-type]

    def known() -> dict[str, T]:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return adapter.validate_python(stored["measured"]) if stored["version"] == version else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    if not again and name in (before := known()):
        return before[name]
    result = measure()
    content = {"version": version, "measured": adapter.dump_python({**known(), name: result}, mode="json")}
    text = json.dumps(content, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))
    except OSError as error:
        _log.warning("%s could not be saved (%s); it will be measured again", path, error)
    return result
