"""Keys in a conversation."""

from __future__ import annotations

from agent.capture.keys import keys_message, pressed_keys


def test_keys_become_a_message_and_come_back() -> None:
    assert keys_message("12*#") == "The caller pressed 1 2 star hash on the telephone's keys."
    assert pressed_keys(keys_message("12*#")) == "12*#"
    assert pressed_keys("You are a helpful assistant.") == ""
