"""What may differ from one response to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.language_model import Grammar
from chat.types import Ask, Effort, Message, Tool, ToolChoice
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

    def ask(
        self, messages: Sequence[Message], deadline: float | None = None, *, first: bool = True, last: bool = False
    ) -> Ask:
        """What a language model is asked for one step of a response with these options.

        Args:
            deadline: when the first speakable clause is needed, on `time.monotonic`.
            first: whether it is the first step.
            last: whether it is the last step that the response may take, which calls nothing.
        """
        tool_choice = self.tool_choice if first else choice_after_output(self.tool_choice)
        return Ask(
            messages,
            tools=self.tools,
            tool_choice="none" if last else tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            grammar=self.grammar,
            max_tokens=self.max_tokens,
            deadline=deadline,
            effort=self.effort,
            spoken=self.speak,
            assistant=True,
        )


def choice_after_output(choice: ToolChoice) -> ToolChoice:
    """The choice for what follows a call: where one was required, it has been made, and its output is to be spoken."""
    return "auto" if choice == "auto" else "none"
