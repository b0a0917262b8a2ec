"""Fill-in-the-middle: generates what belongs between two pieces of code, for models that were trained to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from chat.progress import Progress
from chat.types import Ask
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.sampling import Sampling
from model.engine.conversation import Conversation, ResponseOptions
from model.engine.response_form import ResponseForm

_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, SmolLM
)
"""The control tokens that each family was trained with."""

_ENDS = ("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|endoftext|>", "<fim_pad>", "<file_sep>")
"""Tokens after which nothing belongs to the middle."""

_REPOSITORY, _FILE = "<|repo_name|>", "<|file_sep|>"
"""Qwen2.5-Coder was trained to read other files before the gap, each after its name (technical report, section 3)."""

_PREFIX_SHARE = 0.75
"""Share of the context that the code before the gap may take, if both sides do not fit: it says more than what
follows."""

_CUT = 256
"""Code before the gap is cut by a multiple of so many tokens, or of fewer in a small context. So it begins at the same
token while somebody types, and need not be read again."""


class FillIn(Conversation):
    """Fills gaps in code."""

    def fill_in(
        self,
        before: str,
        after: str,
        *,
        files: Sequence[tuple[str, str]] = (),
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
    ) -> AsyncIterator[Progress]:
        """Generate what belongs between `before` and `after`. Yields progress after every step. The next request of the
        same object reads only what differs.

        Of code that does not fit into the context, the parts next to the gap are read, and the last of the files.

        Args:
            files: name and text of other code to read first.

        Raises:
            ValueError: the model was not trained for this, denoises blocks, or `max_tokens` is below 1.
            RuntimeError: the request failed, or the engine was closed.
        """
        engine = self._engine
        if engine.diffusion is not None:
            raise ValueError("a model that denoises blocks cannot fill in: choose the decoding `verified`")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens} and must be 1 or more")
        tokenizer = engine.model.tokenizer
        prefix, suffix, middle = _markers(tokenizer)
        room = engine.context - 3 - min(max_tokens or engine.context, engine.context // 4)
        head, tail = tokenizer.encode(before), tokenizer.encode(after)
        most_of_tail = max(room - len(head), room - int(room * _PREFIX_SHARE))
        tail = tail[:most_of_tail]
        if (excess := len(head) - (room - len(tail))) > 0:
            step = max(1, min(_CUT, room // 8))
            head = head[-(-excess // step) * step :]
        others = self._other_files(files, room - len(head) - len(tail))
        ids = [*others, prefix, *head, suffix, *tail, middle]
        ends = frozenset(token for end in _ENDS if (token := tokenizer.token_id(end)) is not None)
        encoded = ids, engine.context - len(ids)
        options = ResponseOptions(engine.denoising_schedule, ResponseForm(), ends, encoded)
        return self._respond(Ask([], max_tokens=max_tokens, sampling=sampling), (), options)

    def _other_files(self, files: Sequence[tuple[str, str]], room: int) -> list[int]:
        """Token ids of other files, and of what separates them from the code around the gap; the first files are left
        out if not all fit."""
        tokenizer = self._engine.model.tokenizer
        repository, file = tokenizer.token_id(_REPOSITORY), tokenizer.token_id(_FILE)
        if not files or repository is None or file is None:
            texts = [tokenizer.encode(f"{text}\n") for _, text in files]
            opening, closing = list[int](), list[int]()
        else:
            texts = [[file, *tokenizer.encode(f"{name}\n{text}\n")] for name, text in files]
            opening, closing = [repository, *tokenizer.encode("repository\n")], [file, *tokenizer.encode("current\n")]
        while texts and len(opening) + sum(map(len, texts)) + len(closing) > room:
            del texts[0]
        return [*opening, *(token for text in texts for token in text), *closing] if texts else []


def _markers(tokenizer: TextTokenizer) -> tuple[int, int, int]:
    """The ids of the control tokens. Raises ValueError."""
    for names in _MARKERS:
        ids = [tokenizer.token_id(name) for name in names]
        if all(token is not None for token in ids):
            return ids[0], ids[1], ids[2]  # type: ignore[return-value]
    raise ValueError("this model was not trained to fill in the middle: it lacks the control tokens for it")
