"""What a step does besides layers and head, in two kernels: where its rows are, and what is accepted. The plain PyTorch
of `BatchStep` and `DeviceState` says what they compute; `BatchStep.bookkeeping_agrees` compares both before the
kernels are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.engine.device_state import CONFIDENCE_UNIT, DeviceState
from model.nn.step_pass import RowPlaces, StepShape

Launch = Callable[..., None]
"""Starts a kernel: see `TritonOperations.launch`."""

_SEARCH_BLOCK, _EMBEDDING_BLOCK = 1024, 512
"""Tokens of the text that look-up compares at a time, and columns of an embedding that are copied at a time."""


@dataclass(frozen=True)
class Begun:
    """The rows of a step.

    Attributes:
        tokens, positions: [rows] int64. The token of a noise row is the last one.
        places: where their keys and values go.
        past: [batch] int64, the length of each text before the step.
        x: [rows, hidden], their embeddings.
    """

    tokens: Tensor
    positions: Tensor
    places: RowPlaces
    past: Tensor
    x: Tensor


class FusedBookkeeping:
    """The kernels for the steps of one shape.

    Args:
        launch: starts them.
        shape: of the steps.
        num_drafts, num_copies: of a conversation.
        offsets: of a conversation's clean rows, and of its noise rows, from the position of its last token.
        table: [vocabulary, hidden], the embeddings.
        mask: [hidden], the embedding of noise rows; None without any.
    """

    def __init__(
        self,
        launch: Launch,
        state: DeviceState,
        shape: StepShape,
        num_drafts: int,
        num_copies: int,
        offsets: tuple[Sequence[int], Sequence[int]],
        table: Tensor,
        mask: Tensor | None,
    ) -> None:
        self._launch, self._state, self._shape, self._table = launch, state, shape, table
        self._k, self._c, self._mask = num_drafts, num_copies, table if mask is None else mask
        self._branches = mask is not None and bool(offsets[1])
        numbers, device = list(range(shape.num_clean)), table.device
        batch, noise = range(shape.batch), len(offsets[1])

        def of_rows(clean: Sequence[int], drafted: Sequence[int]) -> list[int]:
            return [*clean] * shape.batch + [*drafted] * shape.batch

        def tensor(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        self._token_of = tensor(of_rows(numbers, [-1] * noise))
        self._offset_of = tensor(of_rows(*offsets))
        self._place_of = tensor(of_rows(numbers, [shape.num_clean + n for n in range(noise)]))
        self._conversation_of = tensor([b for b in batch for _ in numbers] + [b for b in batch for _ in range(noise)])

    def begin(self, slots: Tensor) -> Begun:
        """The rows of a step of these conversations."""
        from model.nn.gpu import step_kernels

        state, rows, hidden = self._state, self._shape.num_rows, self._table.shape[1]
        tokens, positions, row_slots, cells = (slots.new_empty(rows) for _ in range(4))
        past, x = torch.empty_like(slots), self._table.new_empty(rows, hidden)
        self._launch(
            step_kernels.begin, (rows,),
            slots, state.past_length, state.last, state.drafts, state.copied, self._conversation_of, self._place_of,
            self._token_of, self._offset_of, self._table, self._mask, tokens, positions, row_slots, cells, past, x,
            hidden, state.max_drafts, state.num_copies, self._k, self._shape.rows_each, BLOCK=_EMBEDDING_BLOCK,
        )  # fmt: skip
        return Begun(tokens, positions, RowPlaces(row_slots, cells), past, x)

    def settle(self, slots: Tensor, begun: Begun, predicted: Tensor, confidence: Tensor, result: Tensor) -> Tensor:
        """What `DeviceState.accept` and `.look_up` do. Writes `Accepted.result` to `result`.

        Returns:
            [batch] int64, the row of the step that predicted each conversation's newest token.
        """
        from model.nn.gpu import step_kernels

        state, shape, keys_values = self._state, self._shape, self._shape.keys_values
        _, layers, num_slots, kv_heads, capacity, head_dim = keys_values.shape
        newest, width = torch.empty_like(slots), max(state.max_tokens, state.max_drafts, self._k + 1, self._c + 1)
        parts = 1 + (2 * layers * kv_heads if self._c and self._k else 0)
        self._launch(
            step_kernels.settle, (shape.batch, parts),
            slots, begun.past, begun.tokens, predicted, confidence, state.drafting, state.past_length, state.last,
            state.drafts, state.copied, state.history, keys_values, result, newest,
            shape.batch, num_slots, capacity, state.history.shape[1], float(CONFIDENCE_UNIT),
            K=self._k, C=self._c, MAX_DRAFTS=state.max_drafts, MAX_COPIES=state.num_copies,
            MAX_TOKENS=state.max_tokens, BRANCHES=self._branches, KV_HEADS=kv_heads, HEAD_DIM=head_dim,
            DEPTH=_power_of_two(head_dim), WIDTH=_power_of_two(width), BLOCK=_SEARCH_BLOCK,
        )  # fmt: skip
        return newest


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()
