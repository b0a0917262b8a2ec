"""The call's parameters in Plivo's extra headers, whose values may hold only letters and digits: other values are
written as `hex` and the hexadecimal digits of their UTF-8.

Source: plivo.com/docs/voice-agents/audio-streaming/concepts/audio-streaming-reference.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

_log = logging.getLogger("rejoinder.telephony")

_MAX_BYTES = 512
"""Of all extra headers."""

_MARK = "hex"


def write_headers(parameters: Mapping[str, str]) -> str:
    """`name=value,…`. Parameters that do not fit are left out, and a warning names them."""
    words: list[str] = []
    for name, value in parameters.items():
        plain = value.isascii() and value.isalnum() and read_value(value) == value
        word = f"{name}={value if plain else _MARK + value.encode().hex()}"
        if len(",".join([*words, word])) > _MAX_BYTES:
            _log.warning("Plivo's extra headers have no room for %s (%d bytes at most)", name, _MAX_BYTES)
        else:
            words.append(word)
    return ",".join(words)


def read_value(value: str) -> str:
    """A header's value; one that is not written in hexadecimal digits is returned as it is."""
    digits = value.removeprefix(_MARK)
    if digits == value:
        return value
    try:
        return bytes.fromhex(digits).decode()
    except ValueError:
        return value
