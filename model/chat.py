"""A conversation to token ids, through the chat template that the model was trained with.

What people said is never parsed for control tokens: the template is rendered with placeholders, and what was said is
encoded as plain text in their place. So is whatever looks like a control token in the declaration of a tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model.gguf_file import BadModelFile
from model.tokenizer import TextTokenizer

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For checkpoints that carry no template of their own but know the ChatML tokens."""

_OPENING = "\ue000"
_PLACE = re.compile(f"{_OPENING}(\\d+)\ue001")


class Message(Protocol):
    """One thing that was said."""

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
    """A `Message` of plain values."""

    role: str
    content: str


class ChatTemplate:
    """A checkpoint's chat template.

    Args:
        source: Jinja source.
        tokenizer: the same checkpoint's.
        tokens: spellings that templates refer to by name, `bos_token` and the like.

    Raises:
        BadModelFile: the template cannot be compiled.
    """

    def __init__(self, source: str, tokenizer: TextTokenizer, tokens: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals.update({"bos_token": "", "eos_token": "", **(tokens or {}), "raise_exception": _refuse})
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise BadModelFile(f"the checkpoint's chat template cannot be read: {error}") from None
        self._tokenizer = tokenizer
        control = sorted(tokenizer.spelled_out, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, (_OPENING, *control))))

    def encode(
        self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = (), answer: bool = True
    ) -> list[int]:
        """Token ids of a conversation, up to where the assistant's next words begin.

        Args:
            tools: function declarations, in the template's own form.
            answer: whether the opening of an assistant message follows.

        Raises:
            ValueError: the template refuses the conversation (an unknown role, say).
        """
        plain: list[str] = []

        def place(text: str) -> str:
            plain.append(text)
            return f"{_OPENING}{len(plain) - 1}\ue001"

        def spelled_out(value: Any) -> Any:
            if isinstance(value, str):
                return self._control.sub(lambda found: place(found[0]), value)
            if isinstance(value, Mapping):
                return {spelled_out(key): spelled_out(part) for key, part in value.items()}
            return [spelled_out(part) for part in value] if isinstance(value, (list, tuple)) else value

        placed = [{"role": message.role, "content": place(message.content)} for message in messages]
        declared = [spelled_out(tool) for tool in tools] or None
        try:
            text = self._template.render(messages=placed, tools=declared, add_generation_prompt=answer)
        except TemplateError as error:
            raise ValueError(f"the model's chat template refuses this conversation: {error}") from None
        ids: list[int] = []
        for n, piece in enumerate(_PLACE.split(text)):
            if n % 2:
                ids += self._tokenizer.encode(plain[int(piece)])
            elif piece:
                ids += self._tokenizer.encode_template(piece)
        return ids


def _to_json(value: Any, indent: int | None = None) -> str:
    """As transformers' templates have it: Jinja's own filter sorts keys and writes ' and < as \\u0027 and \\u003c,
    which no model was trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> NoReturn:
    raise TemplateError(reason)
