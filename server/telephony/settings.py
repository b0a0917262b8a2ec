"""Settings of a phone call: what the assistant says unprompted, its timeouts, and what call parameters may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.instructions import IDENTITY, INSTRUCTIONS
from voice.tts import DEFAULT_VOICE, UnknownVoice, Voices

_SPEED_RANGE = (0.25, 1.5)
"""Speeds that the Realtime protocol allows."""

_EAGERNESS = ("low", "medium", "high", "auto")

_MAX_GREETING_CHARACTERS = 600
"""Most of a minute of speech."""

PARAMETERS = ("instructions", "persona", "greeting", "voice", "speed", "eagerness")
"""Parameters that a carrier may pass with a call. Other parameters belong to the carrier and are ignored."""


@dataclass(frozen=True)
class CallSettings:
    """Settings of one call.

    Attributes:
        greeting: spoken when the call begins; empty to let the caller speak first.
        instructions: for the language model.
        voice: name of the voice.
        speed: speech rate of the voice, 1 is its normal rate.
        report_functions: whether function calls are reported to the other side. A simulated phone asks for it.
        eagerness: how soon a turn counts as complete, as in `semantic_vad`.
        silence_prompts: spoken one after another while nobody speaks; then the call ends.
        silence_timeout_s: silence before each prompt.
        max_duration_s: maximum length of a call. An hour is longer than any intended call, and a forgotten one costs
            money.
        silence_farewell: spoken before hanging up because of silence.
        time_limit_farewell: spoken before hanging up because of `max_duration_s`.
        busy_farewell: spoken to callers for whom no line is free.
        dismissal_farewell: spoken before hanging up because the server shuts down, or the key is used up.
        continued_greeting: spoken when the call continues on another replica after its own has died.
    """

    greeting: str = "Hello! How can I help you?"
    instructions: str = INSTRUCTIONS
    voice: str = DEFAULT_VOICE
    speed: float = 1.0
    eagerness: str = "auto"
    report_functions: bool = False
    silence_prompts: tuple[str, ...] = ("Are you still there?", "I cannot hear you. Are you there?")
    silence_timeout_s: float = 12.0
    max_duration_s: float = 3600.0
    silence_farewell: str = "I still cannot hear you, so I will hang up now. Goodbye."
    time_limit_farewell: str = "Our time is up, so I have to hang up now. Goodbye."
    busy_farewell: str = "All lines are busy. Please call again in a few minutes. Goodbye."
    dismissal_farewell: str = "I have to hang up now. Please call again later. Goodbye."
    continued_greeting: str = "Sorry, I was gone for a moment. Please go on."

    def with_parameters(self, parameters: Mapping[str, str], voices: Voices) -> tuple[CallSettings, list[str]]:
        """Apply a call's own parameters. Returns the new settings and a message for each invalid parameter.

        Args:
            voices: those that the call may choose from.
        """
        errors: list[str] = []
        changes: dict[str, Any] = {}
        if "greeting" in parameters:
            changes["greeting"] = parameters["greeting"][:_MAX_GREETING_CHARACTERS]
        if parameters.get("persona"):
            rules = self.instructions.removeprefix(IDENTITY)
            if rules == self.instructions:
                rules = rules.partition(". ")[2]
            changes["instructions"] = f"{parameters['persona']} {rules}"
        if parameters.get("instructions"):
            changes["instructions"] = parameters["instructions"]
        if "voice" in parameters:
            try:
                changes["voice"] = voices.find(parameters["voice"]).name
            except UnknownVoice as error:
                errors.append(str(error))
        if "speed" in parameters:
            try:
                changes["speed"] = float(parameters["speed"])
            except ValueError:
                changes["speed"] = 0.0
            low, high = _SPEED_RANGE
            if not low <= changes["speed"] <= high:
                del changes["speed"]
                errors.append(f"speed is {parameters['speed'][:20]!r}, but must be from {low} to {high}")
        if "eagerness" in parameters:
            if parameters["eagerness"] in _EAGERNESS:
                changes["eagerness"] = parameters["eagerness"]
            else:
                value = parameters["eagerness"][:20]
                errors.append(f"eagerness is {value!r}, but must be one of {', '.join(_EAGERNESS)}")
        if parameters.get("functions") == "report":
            changes["report_functions"] = True
        return replace(self, **changes), errors
