"""The prompts with which the base model generates training text (`prompts.toml`): system prompts, topics and requests.

Conversations with tools are in `tool_prompts.py`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

PERSONAS: tuple[str, ...] = tuple(_DATA["personas"])
"""System prompts, in addition to the assistant's own instructions."""

TOPICS = tuple(" ".join(_DATA["topics"].split()).split("; "))

QUESTIONS: dict[str, str] = _DATA["questions"]
"""Requests for the user's side of a conversation, by kind."""

PASSAGE: str = _DATA["passage"]
PASSAGE_QUESTIONS: str = _DATA["passage_questions"]
PASSAGE_TURN: str = _DATA["passage_turn"]
TOOL_REQUESTS: str = _DATA["tool_requests"]
JSON_TURNS: tuple[str, ...] = tuple(_DATA["json_turns"])
