"""Keys of a telephone in a conversation: what the language model reads of them, and the keys in that text."""

from __future__ import annotations

import re

_NAMES = {"*": "star", "#": "hash"}
_KEYS = {name: key for key, name in _NAMES.items()}
_MESSAGE = re.compile(r"The caller pressed ((?:\w+ )+)on the telephone's keys\.")


def keys_message(keys: str) -> str:
    """Keys as a message of the conversation."""
    return f"The caller pressed {' '.join(_NAMES.get(key, key) for key in keys)} on the telephone's keys."


def pressed_keys(message: str) -> str:
    """The keys that such a message is about; empty if it is another message."""
    match = _MESSAGE.fullmatch(message)
    return "".join(_KEYS.get(key, key) for key in match[1].split()) if match else ""
