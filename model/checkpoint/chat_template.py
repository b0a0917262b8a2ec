"""Encodes a conversation as token ids, using the chat template that the model was trained with.

Message text is never parsed for control tokens: the template is rendered with placeholders, and the text of each
message is encoded as plain text in their place. The same is done for control tokens in tool declarations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chat.types import Message, ToolCall
from model.checkpoint.gguf import BadModelFile
from model.checkpoint.tokenizer import TextTokenizer

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For checkpoints without a chat template that have the ChatML tokens."""

_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML "
    'tags:\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)
"""How Qwen's and Hermes's templates declare tools, for templates that know none."""

_ANSWER_WITH_OUTPUTS = "Answer the user with this in one short sentence."

_CACHED_PARTS = 64
"""Texts between messages whose tokens are remembered. The first has the declarations of all tools, and every prompt of
a conversation begins with it."""

_MAX_DEPTH = 100
"""Levels of a call's arguments. Deeper ones are text in the prompt: what escapes and renders them is recursive."""

_OPEN, _CLOSE = "\ue000", "\ue001"
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class ChatTemplate:
    """A checkpoint's chat template.

    Args:
        source: the template's Jinja source.
        tokenizer: the tokenizer of the same checkpoint.
        tokens: the text of tokens that templates refer to by name, such as `bos_token`.

    Raises:
        BadModelFile: the template cannot be compiled.
    """

    def __init__(self, source: str, tokenizer: TextTokenizer, tokens: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals.update({"bos_token": "", "eos_token": "", **(tokens or {}), "raise_exception": _raise})
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise BadModelFile(f"the checkpoint's chat template cannot be read: {error}") from None
        self._tokenizer = tokenizer
        self._encode_part = lru_cache(_CACHED_PARTS)(tokenizer.encode_template)
        self._knows_tools = "tools" in source
        control = sorted(tokenizer.control_tokens, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, (_OPEN, *control))))

    def encode(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Return the token ids of a conversation.

        Args:
            tools: function declarations, in the form that the template expects.
            add_generation_prompt: whether to add the tokens that open an assistant message.

        Raises:
            ValueError: the template rejects the conversation, for example because of an unknown role.
        """
        plain_texts: list[str] = []

        def placeholder(text: str) -> str:
            plain_texts.append(text)
            return f"{_OPEN}{len(plain_texts) - 1}{_CLOSE}"

        def escape(value: Any) -> Any:
            if isinstance(value, str):
                return self._control.sub(lambda match: placeholder(match[0]), value)
            if isinstance(value, Mapping):
                return {escape(key): escape(item) for key, item in value.items()}
            return [escape(item) for item in value] if isinstance(value, (list, tuple)) else value

        if not self._knows_tools:
            messages, tools = without_tools(messages, tools), ()
        escaped_messages = [_rendered(message, placeholder, escape) for message in messages]
        escaped_tools = [escape(tool) for tool in tools] or None
        try:
            text = self._template.render(
                messages=escaped_messages,
                tools=escaped_tools,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=False,  # Qwen3 and others would write their reasoning first, which nobody wants to hear
            )
        except TemplateError as error:
            raise ValueError(f"the model's chat template rejects this conversation: {error}") from None
        ids: list[int] = []
        for n, part in enumerate(_PLACEHOLDER.split(text)):
            if n % 2:
                ids += self._tokenizer.encode(plain_texts[int(part)])
            elif part:
                ids += self._encode_part(part)
        return ids

    @cached_property
    def takes_notes(self) -> bool:
        """Whether a conversation may have a system message after the first message of the user."""
        asked, note = Message("user", "a"), Message("system", "b")
        try:
            return self.encode([asked, note]) != self.encode([asked])
        except ValueError:
            return False


def _rendered(message: Message, placeholder: Callable[[str], str], escape: Callable[[Any], Any]) -> dict[str, Any]:
    """A message as templates expect it."""
    rendered: dict[str, Any] = {
        "role": message.role,
        "content": placeholder(message.content) if message.content else "",
    }
    if message.tool_calls:
        rendered["tool_calls"] = [
            {
                "id": escape(call.id),
                "type": "function",
                "function": {"name": escape(call.name), "arguments": escape(_arguments(call))},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        rendered["tool_call_id"] = escape(message.tool_call_id)
    return rendered


def _arguments(call: ToolCall) -> Any:
    """A call's arguments as an object, or as text if a client's history holds something else."""
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    return call.arguments if _is_deeper(given, _MAX_DEPTH) else given


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether JSON is nested more deeply than so many levels."""
    if not isinstance(value, (dict, list)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return not levels or any(_is_deeper(item, levels - 1) for item in items)


def without_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The same conversation for a template that knows no tools: in text, as Qwen's template puts it."""
    plain: list[Message] = []
    for message in messages:
        if message.role == "tool":
            plain.append(Message("user", f"<tool_response>\n{message.content}\n</tool_response>"))
        elif message.tool_calls:
            calls = (
                f'<tool_call>\n{{"name": "{call.name}", "arguments": {_to_json(_arguments(call))}}}\n</tool_call>'
                for call in message.tool_calls
            )
            plain.append(Message("assistant", "\n".join([message.content, *calls]).strip()))
        else:
            plain.append(message)
    if tools:
        text = _TOOLS.format("\n".join(map(_to_json, tools)))
        instructions = plain.pop(0).content + "\n\n" if plain and plain[0].role == "system" else ""
        plain.insert(0, Message("system", instructions + text))
    return plain


def with_noted_outputs(messages: Sequence[Message]) -> list[Message]:
    """The same conversation for a model that was not taught the template's form of calls and outputs: what functions
    returned since the last message of the user, as notes of the system. Calls that followed one another have one note
    together. In the template's form such a model talks about functions and JSON, instead of answering with the result.
    Earlier outputs keep that form: where the model sees notes after questions, it writes notes with results that it
    makes up, instead of calling."""
    last = max((place for place, message in enumerate(messages) if message.role == "user"), default=0)
    noted = list(messages[:last])
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    remaining = [message for message in messages[last:] if message.content or not message.tool_calls]
    for returned, group in groupby(remaining, lambda message: message.role == "tool"):
        if returned:
            results = [
                f"Result of {names.get(each.tool_call_id or '', 'the function')}: {each.content}" for each in group
            ]
            noted.append(Message("system", "\n".join([*results, _ANSWER_WITH_OUTPUTS])))
            continue
        for message in group:
            noted.append(Message(message.role, message.content) if message.tool_calls else message)
    return noted


def _to_json(value: Any, indent: int | None = None) -> str:
    """The `tojson` filter as in transformers. Jinja's own filter sorts keys and writes ' and < as \\u0027 and \\u003c,
    which no model was trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(reason: str) -> NoReturn:
    raise TemplateError(reason)
