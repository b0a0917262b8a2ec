"""What requests of several endpoints have in common: the model's name, messages and sampling."""

from __future__ import annotations

from dataclasses import replace

from model.decode.sampling import Sampling
from server.chat_completions.errors import APIError
from server.chat_completions.schema import ChatCompletionRequest, SamplingFields
from voice.language_model import Message

ANY_MODEL = "rejoinder"
"""A name for the server's model, whatever it is."""

_MAX_SEED = 1 << 63
"""Seeds of clients may be negative or larger; torch takes 64 bits."""


def check_model(name: str | None, served: str) -> None:
    """Raise APIError if `name` is not the model that this server has."""
    if name not in (None, ANY_MODEL, served):
        raise APIError(
            404,
            f"the model {name!r} does not exist here: this server has {served!r} (or {ANY_MODEL!r})",
            "model",
            "model_not_found",
        )


def conversation_messages(body: ChatCompletionRequest) -> list[Message]:
    """The conversation, with `developer` messages as instructions."""
    roles = {"developer": "system"}
    return [Message(roles.get(message.role, message.role), message.text) for message in body.messages]


def samplings(body: SamplingFields, default: Sampling, choices: int) -> list[Sampling]:
    """The sampling of each choice. Choices of a seeded request have seeds of their own, which follow from its seed."""
    given = {name: value for name in ("temperature", "top_p") if (value := getattr(body, name)) is not None}
    if body.top_k is not None:
        given["top_k"] = max(0, body.top_k)
    sampling = replace(default, **given)
    if body.seed is None:
        return [sampling] * choices
    return [replace(sampling, seed=(body.seed + choice) % _MAX_SEED) for choice in range(choices)]
