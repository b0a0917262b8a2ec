"""What every client asks. It imports nothing, so that any environment can."""

from __future__ import annotations

from typing import Any

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
PERSON: Any = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
EXTRACT: Any = [{"role": "user", "content": "Extract the person: Mary Smith is 42 years old."}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city now",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ASK_WEATHER: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
SENTENCE = "The quick brown fox jumps over the lazy dog."
SEARCH = "How do I turn the heating on?"
PASSAGES = ["Rent is due on the third.", "The boiler is started with the red handle.", "Dogs are welcome."]
"""The second one answers the query."""
