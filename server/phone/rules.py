"""How a call is held: what the assistant says by itself, how long it waits, and what a call's parameters may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from voice.persona import INSTRUCTIONS

_SPEEDS = (0.25, 1.5)
"""Paces that the Realtime protocol allows."""

_EAGERNESS = ("low", "medium", "high", "auto")

_LONGEST_SAID = 600
"""Letters of a greeting: most of a minute."""

PARAMETERS = ("instructions", "persona", "greeting", "speed", "eagerness")
"""What a carrier may pass on with a call; other parameters are the carrier's own and are left alone."""


@dataclass(frozen=True)
class CallRules:
    """One call's rules.

    Attributes:
        greeting: said when the call begins; empty to let the caller begin.
        instructions: of the language model.
        speed: pace of the voice, 1 is its own.
        eagerness: how soon a turn is taken to be over, as `semantic_vad` names it.
        prompts: said one after another when nobody says anything; then the call ends.
        silence_s: how long nobody says anything before that.
        longest_s: how long a call may be. An hour is more than any wanted call, and a forgotten one costs.
        unheard: said before hanging up on silence; too_long: the same at the end of the time.
    """

    greeting: str = "Hello! How can I help you?"
    instructions: str = INSTRUCTIONS
    speed: float = 1.0
    eagerness: str = "auto"
    prompts: tuple[str, ...] = ("Are you still there?", "I cannot hear you. Are you there?")
    silence_s: float = 12.0
    longest_s: float = 3600.0
    unheard: str = "I still cannot hear you, so I will hang up now. Goodbye."
    too_long: str = "Our time is up, so I have to hang up now. Goodbye."

    def changed(self, given: Mapping[str, str]) -> tuple[CallRules, list[str]]:
        """The rules with a call's own parameters, and a sentence for each that cannot be taken."""
        faults: list[str] = []
        changes: dict[str, Any] = {}
        if "greeting" in given:
            changes["greeting"] = given["greeting"][:_LONGEST_SAID]
        if given.get("persona"):
            changes["instructions"] = f"{given['persona']} {self.instructions.partition('. ')[2]}"
        if given.get("instructions"):
            changes["instructions"] = given["instructions"]
        if "speed" in given:
            try:
                changes["speed"] = float(given["speed"])
            except ValueError:
                changes["speed"] = 0.0
            if not _SPEEDS[0] <= changes["speed"] <= _SPEEDS[1]:
                del changes["speed"]
                faults.append(f"speed is {given['speed'][:20]!r} and may be {_SPEEDS[0]} to {_SPEEDS[1]}")
        if "eagerness" in given:
            if given["eagerness"] in _EAGERNESS:
                changes["eagerness"] = given["eagerness"]
            else:
                faults.append(f"eagerness is {given['eagerness'][:20]!r} and may be {', '.join(_EAGERNESS)}")
        return replace(self, **changes), faults
