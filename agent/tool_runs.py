"""The calls of one conversation's tools: each runs in a task of its own, apart from the response that made it, so that
an interruption loses no result and starts nothing twice."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from agent.capture.form_runner import Dialogue, FormRunner
from agent.confirmation import reply_to_question
from agent.matched_text import for_patterns
from agent.plan import MakeCall, Say
from agent.tools.conversation_tools import ConversationTools
from agent.tools.invented_arguments import invented_argument
from agent.tools.protocol import PENDING_OUTPUT, ToolOutput, ToolTraits
from agent.tools.said_words import said_words
from chat.types import Message, Tool, ToolCall

_log = logging.getLogger("rejoinder.agent")

NOT_CONFIRMED = "Not done yet: the user has to agree first, and was asked."
"""The output of a consequential call before the user has agreed."""

REPEATED = "This call was already made in this turn: its result is above. Answer the user with it."
"""The output of a call that the same turn has made before."""

INVENTED = "{name} was not called: nobody has said {value!r}. Ask the user for it, or look it up."
"""The output of a call with a number or an address that the language model made up."""

DECLINED = "All right, I won't."
"""Said when the user refuses a consequential call."""

_MAX_SPEECHES = 64
"""Outputs with words to say that are remembered: those of the newest calls."""


class ToolRuns:
    """The calls of one conversation.

    Args:
        spawn: starts a task of the conversation, which is cancelled when it ends.
        on_late_output: called when the conversation has an output that no response has read.
        forms: runs the forms that calls ask the user to fill in.

    Attributes:
        tools, forms: as given.
    """

    def __init__(
        self,
        tools: ConversationTools,
        spawn: Callable[[Coroutine[Any, Any, ToolOutput]], asyncio.Task[ToolOutput]],
        on_late_output: Callable[[], None],
        forms: FormRunner | None = None,
    ) -> None:
        self.tools, self._spawn, self._on_late_output = tools, spawn, on_late_output
        self.forms = forms or FormRunner(tuple, on_late_output)
        self._opening = ""
        self._running: dict[tuple[str, str], asyncio.Task[ToolOutput]] = {}
        self._newest: dict[tuple[str, str], str] = {}
        self._speeches: dict[str, str] = {}

    def may_start_early(self, name: str) -> bool:
        """Whether a call may start before it is certain that the turn is over: it changes nothing, or only asks the
        user."""
        traits = self.tools.traits(name)
        return traits is not None and (traits.read_only or traits.consequential)

    def start(
        self, call: ToolCall, prompt: Sequence[Message], declared: Sequence[Tool] = (), *, confirmed: bool = False
    ) -> asyncio.Task[ToolOutput]:
        """Start a call. A call with the same arguments that is still running is not started again: both get its
        output. Nor is one that was made since the user last spoke, or one with a number or an address that was made up,
        or one that would send only words that nobody has said.

        Args:
            prompt: the conversation before the call.
            declared: the functions that could be called.
            confirmed: the user has agreed to it.
        """
        traits = self.tools.traits(call.name)
        assert traits is not None
        if _was_made(prompt, call):
            return self._spawn(_returned(ToolOutput(REPEATED)))
        schema = next((tool.parameters for tool in declared if tool.name == call.name), {})
        heard = "\n".join(message.content for message in prompt)
        if (invented := invented_argument(call.arguments, schema, heard)) is not None:
            _log.warning("%s was not called: the language model made up an argument", call.name)
            return self._spawn(_returned(ToolOutput(INVENTED.format(name=call.name, value=invented))))
        sent = json.loads(call.arguments) if traits.outgoing else {}
        # Names that a schema leaves open carry words, too.
        own, outgoing = schema.get("properties", {}), traits.outgoing
        leaving = {name: one for name, one in sent.items() if (one if name in outgoing else name not in own)}
        kept = said_words(leaving, prompt, [schema, {"properties": dict.fromkeys(outgoing)}])
        for name, value in leaving.items():
            if name in outgoing and name not in kept:
                _log.warning("%s was not called: nobody has said what it would send", call.name)
                return self._spawn(_returned(ToolOutput(INVENTED.format(name=call.name, value=value))))
        sent = {name: kept.get(name, one) for name, one in sent.items() if name in kept or name not in leaving}
        made = replace(call, arguments=json.dumps(sent)) if traits.outgoing else call
        if traits.consequential and not confirmed:
            # Of what leaves: what the assistant says aloud may leave from then on.
            question = ToolOutput(NOT_CONFIRMED, self.tools.question(call.name, made.arguments))
            return self._spawn(_returned(self._remember(call, question)))
        key = call_key(call)
        self._newest[key] = call.id
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = self._spawn(self._run(made, traits))
            running.add_done_callback(lambda _: self._running.pop(key, None))
        return self._spawn(self._output(call, running))

    async def wait_for(self, output: asyncio.Task[ToolOutput]) -> bool:
        """Wait until a call has returned, or a form takes the conversation over. Whether it has returned."""
        form = asyncio.ensure_future(self.forms.active.wait())
        try:
            await asyncio.wait((output, form), return_when=asyncio.FIRST_COMPLETED)
        finally:
            form.cancel()
        return output.done()

    def open_with(self, name: str) -> None:
        """Begin the conversation with a call of this tool, before the language model is asked for anything."""
        self._opening = name
        self._on_late_output()

    def returned_late(self, call: ToolCall) -> None:
        """The output of a call has joined the conversation after its response ended. It is reported, unless the same
        call was made again: then that one's response has the output."""
        if self._newest.get(call_key(call)) == call.id:
            self._on_late_output()

    async def _output(self, call: ToolCall, running: asyncio.Task[ToolOutput]) -> ToolOutput:
        return self._remember(call, await asyncio.shield(running))

    def _remember(self, call: ToolCall, output: ToolOutput) -> ToolOutput:
        if output.speech:
            self._speeches[call.id] = output.speech
            if len(self._speeches) > _MAX_SPEECHES:
                del self._speeches[next(iter(self._speeches))]
        return output

    async def _run(self, call: ToolCall, traits: ToolTraits) -> ToolOutput:
        _log.info("calling %s", call.name)
        try:
            async with asyncio.timeout(traits.timeout_s) as limit:
                dialogue = Dialogue(self.forms, limit, traits.timeout_s)
                return await self.tools.call(call.name, call.arguments, dialogue)
        except TimeoutError:
            _log.warning("%s was stopped after %.0f s", call.name, traits.timeout_s)
            text = f"The call failed: {call.name} took longer than {traits.timeout_s:.0f} seconds and was stopped."
            return ToolOutput(text, failed=True)
        except Exception as error:
            # Not its message, which may quote the user. Of what the tool did not expect it says where.
            where = "" if isinstance(error, ValueError) else "".join(traceback.format_tb(error.__traceback__))
            _log.warning("%s failed (%s)%s", call.name, type(error).__name__, where and f":\n{where.rstrip()}")
            return ToolOutput(f"The call failed: {error or type(error).__name__}", failed=True)

    def opening(self, messages: Sequence[Message]) -> str:
        """The tool that opens the conversation, if it is yet to be called."""
        called = any(call.name == self._opening for message in messages for call in message.tool_calls)
        return "" if called else self._opening

    def words_of_outputs(self, messages: Sequence[Message], *, verbatim: bool) -> str:
        """The words that the newest outputs came with, if all of them did and nothing else is to be read, or if one of
        them asks the user before a consequential call: only that question may be answered with yes.

        Args:
            verbatim: whether the words of outputs are said. Otherwise a language model reads them, and may go on to
                another call; only the question before a consequential call is always said.
        """
        outputs = _trailing_outputs(messages)
        speeches = [self._speeches.get(message.tool_call_id or "", "") for message in outputs]
        asks = any(message.content == NOT_CONFIRMED for message in outputs)
        verbatim = verbatim and not self._has_unsaid(messages[: len(messages) - len(outputs)])
        if asks or (verbatim and speeches and all(speeches)):
            return " ".join(filter(None, dict.fromkeys(speeches)))
        return ""

    def _has_unsaid(self, messages: Sequence[Message]) -> bool:
        """Whether a call of this turn has returned what has no words of its own, and nothing was said since. The
        language model answers with all results then."""
        for message in reversed(messages):
            if message.role == "user" or (message.role == "assistant" and message.content):
                return False
            if message.role == "tool" and not self._speeches.get(message.tool_call_id or ""):
                return True
        return False

    def confirmation(self, messages: Sequence[Message]) -> Say | MakeCall | None:
        """The user's reply to the question before a consequential call. It must be the newest message, and the tool's
        own question must have been heard to its end."""
        if len(messages) < 4 or [message.role for message in messages[-3:]] != ["tool", "assistant", "user"]:
            return None
        output, question, reply = messages[-3:]
        calls = [call for message in messages for call in message.tool_calls if call.id == output.tool_call_id]
        if output.content != NOT_CONFIRMED or not calls:
            return None
        asked = self._speeches.get(calls[-1].id, "")
        if not asked or not " ".join(question.content.split()).endswith(" ".join(asked.split())):
            return None
        traits = self.tools.traits(calls[-1].name)
        if traits is None or not traits.consequential:
            return None
        match reply_to_question(for_patterns(reply.content)):
            case "yes":
                return MakeCall(calls[-1].name, calls[-1].arguments, confirmed=True)
            case "no":
                return Say(DECLINED)
        return None


def call_key(call: ToolCall) -> tuple[str, str]:
    """What equal calls have in common."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.name, call.arguments


def _trailing_outputs(messages: Sequence[Message]) -> list[Message]:
    """The outputs at the end of a conversation, if all of the calls have returned."""
    outputs = list(takewhile(lambda message: message.role == "tool", reversed(messages)))[::-1]
    return [] if any(output.content == PENDING_OUTPUT for output in outputs) else outputs


def _was_made(prompt: Sequence[Message], call: ToolCall) -> bool:
    """Whether this call was made, and has returned, since the user last spoke."""
    pending = {message.tool_call_id for message in prompt if message.content == PENDING_OUTPUT}
    since = takewhile(lambda message: message.role != "user", reversed(prompt))
    made = [each for message in since for each in message.tool_calls if each.id not in pending]
    return any(call_key(each) == call_key(call) for each in made)


async def _returned(output: ToolOutput) -> ToolOutput:
    return output
