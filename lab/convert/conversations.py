"""Reads conversations of your own (JSONL), and encodes them as texts whose responses are trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat.types import Message
from lab.convert.corpus import TrainingText
from model.checkpoint.chat_template import ChatTemplate
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel

_ROLES = ("system", "user", "assistant")

_SHOWN = 10
"""Bad lines that are reported; a file of another format would fill the screen."""


@dataclass(frozen=True)
class Conversation:
    """A conversation, and the line of the file that it is in."""

    line: int
    messages: tuple[Message, ...]

    @property
    def digest(self) -> str:
        """Identifies its content."""
        content = [(message.role, message.content) for message in self.messages]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_conversations(path: Path, *, answered: bool) -> list[Conversation]:
    """The conversations of a file with `{"messages": [{"role": "user", "content": "…"}, …]}` on each line, which may
    be empty.

    Args:
        answered: whether each must have an assistant's message.

    Raises:
        BadModelFile: lines are not conversations; the message names each. None is left out silently.
    """
    conversations, problems = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            messages = tuple(map(_message, _messages(line)))
            if answered and not any(message.role == "assistant" for message in messages):
                raise ValueError("the assistant says nothing")
            conversations.append(Conversation(number, messages))
        except ValueError as error:
            problems.append(f"line {number} is not a conversation: {error}")
    if problems:
        more = f"\nand {len(problems) - _SHOWN} more lines" if len(problems) > _SHOWN else ""
        raise BadModelFile(
            f'{path} has lines that cannot be used; expected {{"messages": [{{"role": "user", "content": "…"}}, …]}}\n'
            + "\n".join(problems[:_SHOWN])
            + more
        )
    return conversations


def _messages(line: str) -> list[Any]:
    try:
        messages = json.loads(line)["messages"]
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    except (KeyError, TypeError):
        raise ValueError("it has no `messages`") from None
    if not isinstance(messages, list) or not messages:
        raise ValueError("`messages` is not a list of messages")
    return messages


def _message(value: Any) -> Message:
    role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
    if role not in _ROLES:
        raise ValueError(f"a message has the role {role!r}, and not one of {', '.join(_ROLES)}")
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"a message of the {role} has no text")
    return Message(role, content.strip())


def with_instructions(conversation: Conversation, instructions: str) -> tuple[Message, ...]:
    """The messages of a conversation; if it has no instructions of its own, with those that a server gives."""
    own = conversation.messages[0].role == "system"
    return conversation.messages if own else (Message("system", instructions), *conversation.messages)


def encode_conversations(
    conversations: Sequence[Conversation], instructions: str, model: LoadedModel
) -> list[TrainingText]:
    """The texts of conversations (`encode_responses`).

    Raises:
        ValueError: a conversation cannot be encoded, or exceeds the model's context; the message names its line.
    """
    context, texts = model.decoder.config.context_length, []
    for one in conversations:
        try:
            texts += encode_responses(with_instructions(one, instructions), model.template, model.stop_tokens)
        except ValueError as error:
            raise ValueError(f"the conversation in line {one.line} cannot be used: {error}") from None
        length = len(texts[-1].tokens)
        if length > context:
            raise ValueError(
                f"the conversation in line {one.line} has {length} tokens, more than the model's context of {context}"
            )
    return texts


def split_held_out(conversations: Sequence[Conversation]) -> tuple[list[Conversation], list[Conversation]]:
    """(those to train on, a held-out tenth). Only their content decides, so the order of the lines does not matter, and
    equal conversations are on the same side."""
    digests = sorted({conversation.digest for conversation in conversations})
    held_out = set(digests[: max(1, len(digests) // 10)])
    return (
        [one for one in conversations if one.digest not in held_out],
        [one for one in conversations if one.digest in held_out],
    )


def encode_responses(
    messages: Sequence[Message], template: ChatTemplate, stop_tokens: frozenset[int]
) -> list[TrainingText]:
    """A conversation as token ids, with the responses as spans, each of which ends with a token that ends a response.

    It is one text if the template writes earlier messages as it wrote them before. Otherwise, as where a template
    removes the reasoning of earlier responses, there is a text for each response, because the prompts differ.

    Raises:
        ValueError: the template rejects the conversation, or does not write responses after its own prompts.
    """
    texts: list[TrainingText] = []
    for n, message in enumerate(messages):
        if message.role != "assistant":
            continue
        prompt = template.encode(messages[:n])
        ids = template.encode(messages[: n + 1], add_generation_prompt=False)
        begin = len(prompt)
        end = next((end for end in range(begin + 1, len(ids) + 1) if ids[end - 1] in stop_tokens), None)
        if ids[:begin] != prompt or end is None:
            raise ValueError("the model's chat template does not write responses as it prompts for them")
        spans: tuple[tuple[int, int], ...] = ((begin, end),)
        if texts and tuple(ids[: len(texts[-1].tokens)]) == texts[-1].tokens:
            spans = (*texts.pop().spans, *spans)
        texts.append(TrainingText(tuple(ids[:end]), spans, "own"))
    return texts
