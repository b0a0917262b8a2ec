"""What may differ from one response to the next."""

from __future__ import annotations

from dataclasses import dataclass

from voice.language_model import Effort, Grammar, Tool, ToolChoice
from voice.tts import DEFAULT_VOICE


@dataclass(frozen=True)
class ResponseOptions:
    """Options of one response.

    Attributes:
        speak: spoken; otherwise written.
        voice: name of the voice that speaks.
        speed: speaking rate of the voice, 1 is its own.
        max_tokens: maximum length, None for what the context leaves.
        tools: the functions that it may call.
        parallel_tool_calls: whether it may make more than one call.
        effort: how much work the language model puts into it; None for its own measure.
        grammar: what it must follow; None for any text.
    """

    speak: bool = True
    voice: str = DEFAULT_VOICE
    speed: float = 1.0
    max_tokens: int | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = False
    effort: Effort | None = None
    grammar: Grammar | None = None


def choice_after_output(choice: ToolChoice) -> ToolChoice:
    """The choice for what follows a call: where one was required, it has been made, and its output is to be spoken."""
    return "auto" if choice == "auto" else "none"
