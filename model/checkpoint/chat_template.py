"""Encodes a conversation as token ids, using the chat template that the model was trained with.

Message text is never parsed for control tokens: the template is rendered with placeholders, and the text of each
message is encoded as plain text in their place. The same is done for control tokens in tool declarations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model.checkpoint.gguf import BadModelFile
from model.checkpoint.tokenizer import TextTokenizer

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For checkpoints without a chat template that have the ChatML tokens."""

_OPEN, _CLOSE = "\ue000", "\ue001"
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class Message(Protocol):
    """A message of a conversation."""

    @property
    def role(self) -> str:
        """`system`, `user` or `assistant`."""
        ...

    @property
    def content(self) -> str:
        """The text."""
        ...


@dataclass(frozen=True)
class TextMessage:
    """A `Message` with plain values."""

    role: str
    content: str


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

        escaped_messages = [{"role": message.role, "content": placeholder(message.content)} for message in messages]
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
                ids += self._tokenizer.encode_template(part)
        return ids


def _to_json(value: Any, indent: int | None = None) -> str:
    """The `tojson` filter as in transformers. Jinja's own filter sorts keys and writes ' and < as \\u0027 and \\u003c,
    which no model was trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(reason: str) -> NoReturn:
    raise TemplateError(reason)
