"""What may differ from one response to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from agent.language_model import Grammar, LanguageModel, Progress, RemoteRequest
from chat.types import Effort, Message, OfferedTools, Tool, ToolChoice
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

    @property
    def may_take_parts(self) -> bool:
        """Whether a request for several things may be taken part by part: what follows a grammar is one text."""
        return self.tool_choice == "auto" and self.grammar is None

    def ask(
        self,
        language_model: LanguageModel,
        messages: Sequence[Message],
        deadline: float | None,
        offered: OfferedTools | None,
        *,
        first: bool,
        last: bool,
    ) -> AsyncIterator[Progress | RemoteRequest]:
        """Ask the language model for one step of a response with these options.

        Args:
            deadline, offered: see `LanguageModel.reply`.
            first: whether it is the first step.
            last: whether it is the last step that the response may take, which calls nothing.
        """
        tool_choice = self.tool_choice if first else choice_after_output(self.tool_choice)
        return language_model.reply(
            messages,
            max_tokens=self.max_tokens,
            deadline=deadline,
            tools=self.tools,
            tool_choice="none" if last else tool_choice,
            offered=offered,
            parallel_tool_calls=self.parallel_tool_calls,
            effort=self.effort,
            grammar=self.grammar,
        )


def choice_after_output(choice: ToolChoice) -> ToolChoice:
    """The choice for what follows a call: where one was required, it has been made, and its output is to be spoken."""
    return "auto" if choice == "auto" else "none"
