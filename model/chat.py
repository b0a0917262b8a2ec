"""A conversation to token ids, through the chat template that the model was trained with.

What people said is never parsed for control tokens: the template is rendered with placeholders, and what was said is
encoded as plain text in their place.
"""

from __future__ import annotations

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

_PLACE = re.compile("\ue000(\\d+)\ue001")


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
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise BadModelFile(f"the checkpoint's chat template cannot be read: {error}") from None
        self._tokenizer = tokenizer

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
        placed = [{"role": message.role, "content": f"\ue000{n}\ue001"} for n, message in enumerate(messages)]
        try:
            text = self._template.render(messages=placed, tools=list(tools) or None, add_generation_prompt=answer)
        except TemplateError as error:
            raise ValueError(f"the model's chat template refuses this conversation: {error}") from None
        ids: list[int] = []
        for n, piece in enumerate(_PLACE.split(text)):
            if n % 2:
                ids += self._tokenizer.encode(messages[int(piece)].content)
            elif piece:
                ids += self._tokenizer.encode_template(piece)
        return ids


def _refuse(reason: str) -> NoReturn:
    raise TemplateError(reason)
