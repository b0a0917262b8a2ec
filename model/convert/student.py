"""What is learned from one batch of texts: blocks of noise rows behind every reach of a text, and how far their
guesses are from what the base model says there.

Layout (Uno, I-DLM): a block that starts at position p has B noise rows at p … p+B-1; row s sees the clean tokens
before p and the rows of its own block up to itself, and guesses the token at p+s+1. The teacher is the clean row at
p+s: the base model, which has read everything before. In `decode/verify.py` the branch behind r accepted drafts is
the block that starts one past the token that this pass will settle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from model.adapter import Adapter
from model.attention import attend_many
from model.convert.corpus import Text
from model.convert.lanes import Lanes
from model.transformer import MASK, Decoder

_LOSS_ROWS = 256
"""Rows whose logits are made at a time: they are the largest thing in memory."""


@dataclass(frozen=True)
class Blocks:
    """Noise rows of a batch of texts, [texts, rows] each; rows of a block follow each other.

    Attributes:
        size: rows of a block.
        starts: [texts, blocks], the position of each block's first row.
        tokens: what each row holds: MASK, or a token.
        counts: whether the token a row guesses is still the base model's own.
    """

    size: int
    starts: Tensor
    tokens: Tensor
    counts: Tensor

    @property
    def positions(self) -> Tensor:
        """Place of each row in its text."""
        return (self.starts[..., None] + torch.arange(self.size, device=self.starts.device)).flatten(1)


def draw_blocks(texts: Sequence[Text], size: int, blocks: int, draw: torch.Generator) -> Blocks:
    """`blocks` fully masked blocks a text, spread over what the base model wrote."""
    starts, ends = [], []
    for text in texts:
        places = [(p, end) for begin, end in text.spans for p in range(begin, end - 1)]
        picked = torch.randperm(len(places), generator=draw)[:blocks].tolist()
        picked = [picked[n % len(picked)] for n in range(blocks)]
        starts.append([places[n][0] for n in picked])
        ends.append([places[n][1] for n in picked])
    at = torch.tensor(starts)
    guessed = at[..., None] + torch.arange(1, size + 1)
    counts = guessed < torch.tensor(ends)[..., None]
    # A start that was taken twice because the text is short counts once.
    repeats = torch.tensor([[row.index(p) != n for n, p in enumerate(row)] for row in starts])
    counts &= ~repeats[..., None]
    return Blocks(size, at, torch.full((len(texts), blocks * size), MASK), counts.flatten(1))


def first_blocks(blocks: Blocks, count: int) -> Blocks:
    """The first `count` blocks of each text."""
    rows = count * blocks.size
    return Blocks(blocks.size, blocks.starts[:, :count], blocks.tokens[:, :rows], blocks.counts[:, :rows])


def refined(blocks: Blocks, drafts: Tensor, texts: Tensor, draw: torch.Generator) -> Blocks:
    """The same blocks, the first of each text at lower noise, as a second pass meets them: their first row holds the
    settled token or (where that is what this pass finds out) the mask, the others the student's own draft (half), the
    true token (a quarter) or the mask.

    Args:
        drafts: [texts, rows], what the student guessed in the first blocks with everything masked.
        texts: [texts, tokens], padded.
    """
    rows = drafts.shape[1]
    shape = (len(drafts), -1, blocks.size)
    places = blocks.positions[:, :rows].clamp(max=texts.shape[1] - 1)
    truth = texts.gather(1, places).view(shape)
    own = drafts.view(shape).roll(1, dims=-1)  # what row s guesses stands at row s+1
    chance = torch.rand(truth.shape, generator=draw).to(truth.device)
    held = torch.where(chance < 0.5, own, torch.where(chance < 0.75, truth, MASK))
    held[..., 0] = torch.where(chance[..., 0] < 0.5, truth[..., 0], MASK)
    tokens = torch.cat((held.flatten(1), blocks.tokens[:, rows:]), dim=1)
    return Blocks(blocks.size, blocks.starts, tokens, blocks.counts)


def noise_mask(blocks: Blocks, seen: int) -> Tensor:
    """Who sees whom: [texts, rows, seen + rows] bool, clean tokens first."""
    rows = torch.arange(blocks.tokens.shape[1], device=blocks.starts.device)
    block = rows // blocks.size
    prefix = torch.arange(seen, device=rows.device) < blocks.starts[:, block, None]
    own = (block[:, None] == block) & (rows <= rows[:, None])
    return torch.cat((prefix, own.expand(len(prefix), -1, -1)), dim=-1)


def noise_states(decoder: Decoder, adapter: Adapter, clean: Lanes, seen: int, blocks: Blocks) -> Tensor:
    """Run the noise rows of each text over its clean keys: [texts, rows, hidden], ready for the head.

    Args:
        clean: lane n holds text n.
        seen: positions of the longest text.
    """
    positions = blocks.positions.clamp(max=decoder.config.context_length - 1)
    turns = decoder.turns(positions)
    mask = noise_mask(blocks, seen)
    texts = blocks.tokens.shape[0]
    x = torch.where((blocks.tokens == MASK)[..., None], adapter.mask, decoder.embedding(blocks.tokens.clamp(min=0)))
    for number, layer in enumerate(decoder.layers):
        keys, values = clean.keys[number][:texts, :, :seen], clean.values[number][:texts, :, :seen]

        def attention(
            query: Tensor, key: Tensor, value: Tensor, keys: Tensor = keys, values: Tensor = values
        ) -> Tensor:
            both = torch.cat((keys, key.transpose(1, 2)), 2), torch.cat((values, value.transpose(1, 2)), 2)
            return attend_many(query, *both, mask)

        def change(out: Tensor, names: str, inner: Tensor, number: int = number) -> Tensor:
            return out + adapter.change(number, names, inner)

        x = decoder.run_layer(layer, x, turns, attention, change)
    return decoder.normalize(x, decoder.norm)


@dataclass(frozen=True)
class Loss:
    """How the student is told apart from its teacher.

    Attributes:
        cross_entropy: weight of -Σ p_T log p_S.
        variation: weight of the total variation ½ Σ |p_T - p_S| (Uno, eq. 5), which is what rejection costs, but tells
            nothing while the two have no token in common.
        decay: weight of a row against the one before it: only an accepted row makes the next one count.
        vocabulary: [n] ids that probabilities are compared over; all when None.
    """

    cross_entropy: float
    variation: float = 1.0
    decay: float = 0.8
    vocabulary: Tensor | None = None


def learn(
    decoder: Decoder, student: Tensor, teacher: Tensor, blocks: Blocks, loss: Loss
) -> tuple[Tensor, float, float]:
    """The gradient of the loss by the student's states, made in pieces so that few logits exist at a time.

    Args:
        student: [texts, rows, hidden], with gradients.
        teacher: the base model's states at the same positions.

    Returns:
        The gradient, the loss and the total variation.
    """
    weight = decoder.head_weight if loss.vocabulary is None else decoder.head_weight[loss.vocabulary]
    slot = torch.arange(blocks.tokens.shape[1], device=student.device) % blocks.size
    each = (loss.decay**slot * blocks.counts).flatten()
    each = each / each.sum().clamp(min=1)
    taught, learning = teacher.flatten(0, 1), student.detach().flatten(0, 1)
    gradient = torch.zeros_like(learning)
    total = apart = 0.0
    for at in range(0, len(learning), _LOSS_ROWS):
        piece = slice(at, at + _LOSS_ROWS)
        states = learning[piece].requires_grad_()
        with torch.no_grad():
            wanted = linear(taught[piece], weight).float().softmax(-1)
        guess = linear(states, weight).float().log_softmax(-1)
        variation = (wanted - guess.exp()).abs().sum(-1) / 2
        entropy = -(wanted * guess).sum(-1)
        value = ((loss.variation * variation + loss.cross_entropy * entropy) * each[piece]).sum()
        (gradient[piece],) = torch.autograd.grad(value, states)
        total += float(value.detach())
        apart += float((variation.detach() * each[piece]).sum())
    return gradient.view_as(student), total, apart
