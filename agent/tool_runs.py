"""The calls of one conversation's tools: each runs in a task of its own, apart from the response that made it, so that
an interruption loses no result and starts nothing twice."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from agent.capture.form import Form
from agent.capture.form_runner import FormRunner
from agent.confirmation import reply_to_question
from agent.matched_text import for_patterns, is_cut
from agent.request_parts import RequestParts
from agent.tools.invented_arguments import invented_argument
from agent.tools.protocol import PENDING_OUTPUT, ToolOutput, Tools, ToolTraits, canonical
from agent.tools.words import describing_stems, stems
from chat.types import Message, OfferedTools, Tool, ToolCall

_log = logging.getLogger("rejoinder.voice")

NOT_CONFIRMED = "Not done yet: the user has to agree first, and was asked."
"""The output of a consequential call before the user has agreed."""

REPEATED = "This call was already made in this turn: its result is above. Answer the user with it."
"""The output of a call that the same turn has made before."""

INVENTED = "{name} was not called: nobody has said {value!r}. Ask the user for it, or look it up."
"""The output of a call with a number or an address that the language model made up."""

DECLINED = "All right, I won't."
"""Said when the user refuses a consequential call."""

_FOLLOW_UP = re.compile(r"(?i)(and|or|also|what about|how about|the same)\b")
"""What takes up the user's last request."""

_ABOUT_ABILITIES = re.compile(
    r"(?i)\bwhat (?:else |all )?can you (?:do|help)\b|\bhow can you help\b|\bwhat are you (?:able|capable)\b|"
    r"\byour (?:abilities|skills|features|functions)\b"
)
"""What asks for what the tools do, without asking for any of it."""

_MAX_TURNS = 64
"""Messages that a call may be certain by."""

_MAX_SPEECHES = 64
"""Outputs with words to say that are remembered: those of the newest calls."""


@dataclass(frozen=True)
class Say:
    """The next step of a response is to say this."""

    text: str


@dataclass(frozen=True)
class MakeCall:
    """The next step of a response is this call, which the language model need not decide on.

    Attributes:
        said: what the user asked for; None for all that they said.
        confirmed: the user has agreed to it.
    """

    name: str
    arguments: str
    said: str | None = None
    confirmed: bool = True


class ToolRuns:
    """The calls of one conversation.

    Args:
        spawn: starts a task of the conversation, which is cancelled when it ends.
        on_late_output: called when the conversation has an output that no response has read.
        forms: runs the forms that calls ask the user to fill in.
    """

    def __init__(
        self,
        tools: Tools,
        spawn: Callable[[Coroutine[Any, Any, ToolOutput]], asyncio.Task[ToolOutput]],
        on_late_output: Callable[[], None],
        forms: FormRunner | None = None,
    ) -> None:
        self._tools, self._spawn, self._on_late_output = tools, spawn, on_late_output
        self._forms = forms or FormRunner(tuple, on_late_output)
        self._opening = ""
        self._running: dict[tuple[str, str], asyncio.Task[ToolOutput]] = {}
        self._newest: dict[tuple[str, str], str] = {}
        self._speeches: dict[str, str] = {}

    def traits(self, name: str) -> ToolTraits | None:
        """How a tool is called; None for a function of the client."""
        return self._tools.traits(name)

    def offered(self, tools: Sequence[Tool], messages: Sequence[Message], *, suiting: bool = False) -> OfferedTools:
        """The functions that a response to `messages` may call: all but the tools that have nothing to do with what the
        user said. A call is likely where a tool has.

        Args:
            suiting: only the tools for such words in particular.
        """
        said, names, expected, acts = _said(messages), list[str](), False, False
        for tool in tools:
            traits = self._tools.traits(tool.name)
            if self._suits(tool, said) if suiting else traits is None or traits.is_for(said):
                names.append(tool.name)
                expected = expected or (traits is not None and bool(traits.said))
                acts = acts or traits is None or not traits.read_only
        return OfferedTools(tuple(names), expected, acts)

    def declared(self, tools: Sequence[Tool], messages: Sequence[Message]) -> tuple[Tool, ...]:
        """The functions that the prompt of a response to `messages` declares: none if it may call none, unless the user
        asks what the assistant can do. Small models talk about the functions that they read of, where none helps."""
        suits = self.offered(tools, messages).names or _ABOUT_ABILITIES.search(_said(messages))
        return tuple(tools) if suits else ()

    def parts(self, tools: Sequence[Tool], messages: Sequence[Message]) -> RequestParts:
        """The parts of what the user said last, by the tools that suit them."""
        by_name = {tool.name: tool for tool in tools}

        def suits(name: str, text: str) -> bool:
            return name in by_name and self._suits(by_name[name], text)

        return RequestParts(messages, list(by_name), suits)

    def _suits(self, tool: Tool, text: str) -> bool:
        """Whether a tool is for such words in particular. One that does not say which is for those that describe it."""
        traits = self._tools.traits(tool.name)
        if traits is None:
            return False
        if not traits.said:
            return not describing_stems(tool).keys().isdisjoint(stems(text))
        return traits.is_for(text) or self._tools.certain_call([tool.name], [(text, "")]) is not None

    def may_start_early(self, name: str) -> bool:
        """Whether a call may start before it is certain that the turn is over: it changes nothing, or only asks the
        user."""
        traits = self._tools.traits(name)
        return traits is not None and (traits.read_only or traits.consequential)

    def start(
        self,
        call: ToolCall,
        prompt: Sequence[Message],
        *,
        confirmed: bool = False,
        said: str | None = None,
        known: str = "",
    ) -> asyncio.Task[ToolOutput]:
        """Start a call. A call with the same arguments that is still running is not started again: both get its
        output. Nor is one that was made since the user last spoke, or one with an argument that was made up.

        Args:
            prompt: the conversation before the call.
            confirmed: the user has agreed to it.
            said: the part of the user's request that it is about; None for all that they said.
            known: what earlier calls of the response returned.
        """
        traits = self._tools.traits(call.name)
        assert traits is not None
        if _was_made(prompt, call):
            return self._spawn(_refuse(REPEATED))
        heard = "\n".join([*(message.content for message in prompt), said or "", known])
        if (invented := invented_argument(call.arguments, heard)) is not None:
            _log.warning("%s was not called: the language model made up an argument", call.name)
            return self._spawn(_refuse(INVENTED.format(name=call.name, value=invented)))
        if traits.consequential and not confirmed:
            return self._spawn(self._ask(call))
        key = _key(call)
        self._newest[key] = call.id
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._spawn(self._run(call, traits, said or _said(prompt), known))
            running.add_done_callback(lambda _: self._running.pop(key, None))
        return self._spawn(self._output(call, running))

    async def wait_for(self, output: asyncio.Task[ToolOutput]) -> bool:
        """Wait until a call has returned, or a form takes the conversation over. Whether it has returned."""
        form = asyncio.ensure_future(self._forms.active.wait())
        await asyncio.wait((output, form), return_when=asyncio.FIRST_COMPLETED)
        form.cancel()
        return output.done()

    def open_with(self, name: str) -> None:
        """Begin the conversation with a call of this tool, before the language model is asked for anything."""
        self._opening = name
        self._on_late_output()

    def returned_late(self, call: ToolCall) -> None:
        """The output of a call has joined the conversation after its response ended. It is reported, unless the same
        call was made again: then that one's response has the output."""
        if self._newest.get(_key(call)) == call.id:
            self._on_late_output()

    async def _ask(self, call: ToolCall) -> ToolOutput:
        return self._remember(call, ToolOutput(NOT_CONFIRMED, self._tools.question(call.name, call.arguments)))

    async def _output(self, call: ToolCall, running: asyncio.Task[ToolOutput]) -> ToolOutput:
        return self._remember(call, await asyncio.shield(running))

    def _remember(self, call: ToolCall, output: ToolOutput) -> ToolOutput:
        if output.speech:
            self._speeches[call.id] = output.speech
            if len(self._speeches) > _MAX_SPEECHES:
                del self._speeches[next(iter(self._speeches))]
        return output

    async def _run(self, call: ToolCall, traits: ToolTraits, said: str, known: str) -> ToolOutput:
        _log.info("calling %s", call.name)
        try:
            async with asyncio.timeout(traits.timeout_s) as limit:
                dialogue = _CallDialogue(self._forms, limit, traits.timeout_s)
                return await self._tools.call(call.name, call.arguments, said, dialogue, known)
        except TimeoutError:
            _log.warning("%s was stopped after %.0f s", call.name, traits.timeout_s)
            text = f"The call failed: {call.name} took longer than {traits.timeout_s:.0f} seconds and was stopped."
            return ToolOutput(text, failed=True)
        except Exception as error:
            _log.warning("%s failed: %s", call.name, error, exc_info=not isinstance(error, ValueError))
            return ToolOutput(f"The call failed: {error or type(error).__name__}", failed=True)

    def next_step(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, verbatim: bool = True
    ) -> Say | MakeCall | None:
        """What a response to `messages` does next without the language model: say what a form asks, or the words that
        the last outputs came with, or make the call that opens the conversation, to which the user has just agreed, or
        which their words need for certain. None to ask the language model.

        Args:
            tools: those that may be called.
            verbatim: whether the words of outputs are said. Otherwise the language model reads them, and may go on to
                another call; only the question before a consequential call is always said.
        """
        if (reply := self._forms.reply(messages)) is not None:
            return Say(reply)
        if self._opening and not any(call.name == self._opening for message in messages for call in message.tool_calls):
            return MakeCall(self._opening, "{}")
        outputs = _trailing_outputs(messages)
        speeches = [self._speeches.get(message.tool_call_id or "", "") for message in outputs]
        asks = any(message.content == NOT_CONFIRMED for message in outputs)
        verbatim = verbatim and not self._has_unsaid(messages[: len(messages) - len(outputs)])
        if (verbatim or asks) and speeches and all(speeches):
            return Say(" ".join(dict.fromkeys(speeches)))
        return self._answered_question(messages) or (self._certain_call(messages, tools) if verbatim else None)

    def _certain_call(self, messages: Sequence[Message], tools: Sequence[Tool]) -> MakeCall | None:
        if not tools or not messages or messages[-1].role != "user":
            return None
        names, turns = [tool.name for tool in tools], _turns(messages)
        if not turns or not turns[-1][0]:
            return None
        call = self._tools.certain_call(names, turns)
        if call is None and (first := self.parts(tools, messages).first) is not None:
            call = self._tools.certain_call(names, [*turns[:-1], (first, "")])
        return None if call is None else MakeCall(call.name, call.arguments, call.said, confirmed=False)

    def _has_unsaid(self, messages: Sequence[Message]) -> bool:
        """Whether a call of this turn has returned what has no words of its own, and nothing was said since. The
        language model answers with all results then."""
        for message in reversed(messages):
            if message.role == "user" or (message.role == "assistant" and message.content):
                return False
            if message.role == "tool" and not self._speeches.get(message.tool_call_id or ""):
                return True
        return False

    def _answered_question(self, messages: Sequence[Message]) -> Say | MakeCall | None:
        """The user's reply to the question before a consequential call. It must be the newest message, and the
        question must have been heard to its end."""
        if len(messages) < 4 or [message.role for message in messages[-3:]] != ["tool", "assistant", "user"]:
            return None
        output, question, reply = messages[-3:]
        calls = [call for message in messages for call in message.tool_calls if call.id == output.tool_call_id]
        if output.content != NOT_CONFIRMED or not calls or not question.content.endswith("?"):
            return None
        traits = self._tools.traits(calls[-1].name)
        if traits is None or not traits.consequential:
            return None
        match reply_to_question(for_patterns(reply.content)):
            case "yes":
                return MakeCall(calls[-1].name, calls[-1].arguments)
            case "no":
                return Say(DECLINED)
        return None


class _CallDialogue:
    """The conversation, for one call. While a form runs, the call's time limit does not."""

    def __init__(self, forms: FormRunner, limit: asyncio.Timeout, timeout_s: float) -> None:
        self._forms, self._limit, self._timeout_s = forms, limit, timeout_s

    async def fill_in(self, form: Form) -> dict[str, Any]:
        """See `Dialogue`."""
        loop = asyncio.get_running_loop()
        self._limit.reschedule(None)
        try:
            return await self._forms.fill_in(form)
        finally:
            self._limit.reschedule(loop.time() + self._timeout_s)


def _said(messages: Sequence[Message]) -> str:
    """What the user said last, for patterns; with what they said before, if it answers a question of the assistant or
    takes up their last request ("and in Berlin?")."""
    spoken = [message for message in messages if message.role in ("user", "assistant") and message.content]
    while spoken and spoken[-1].role != "user":
        spoken.pop()
    said = for_patterns(spoken[-1].whole or spoken[-1].content) if spoken else ""
    if len(spoken) < 3 or spoken[-2].role != "assistant" or spoken[-3].role != "user":
        return said
    continues = spoken[-2].content.endswith("?") or _FOLLOW_UP.match(said)
    return for_patterns(f"{for_patterns(spoken[-3].content)} {said}") if continues else said


def _turns(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """What the user said and what the assistant answered, for patterns, the oldest first. A text that is too long for
    them is empty: half of it may mean something else."""
    turns: list[tuple[str, str]] = []
    for message in messages[-_MAX_TURNS:]:
        if message.role == "user":
            said = for_patterns(message.content)
            turns.append(("" if is_cut(said) else said, ""))
        elif message.role == "assistant" and turns:
            said, answer = turns.pop()
            turns.append((said, for_patterns(f"{answer} {message.content}".strip(), end=True)))
    return turns


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, canonical(call.arguments)


def _trailing_outputs(messages: Sequence[Message]) -> list[Message]:
    """The outputs at the end of a conversation, if all of the calls have returned."""
    outputs: list[Message] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        outputs.insert(0, message)
    return [] if any(output.content == PENDING_OUTPUT for output in outputs) else outputs


def _was_made(prompt: Sequence[Message], call: ToolCall) -> bool:
    """Whether this call was made, and has returned, since the user last spoke."""
    pending = {message.tool_call_id for message in prompt if message.content == PENDING_OUTPUT}
    for message in reversed(prompt):
        if message.role == "user":
            return False
        for made in message.tool_calls:
            if _key(made) == _key(call) and made.id not in pending:
                return True
    return False


async def _refuse(reason: str) -> ToolOutput:
    return ToolOutput(reason)
