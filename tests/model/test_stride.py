"""Whole passes on the device look up what to copy as the host does, and commit what one token a pass would."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.adapter import random_adapter
from model.chat import TextMessage
from model.decode.lookup import LookUp
from model.engine import Engine, load_model
from model.stride import Strider
from model.transformer import Decoder
from model.weights import open_checkpoint
from tests.model.talk import SYSTEM, all_of, text_of


@pytest.fixture(scope="module")
def strider(tiny_qwen2: Path) -> Strider:
    return Strider(Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32"), None, 0, 100, 4)


@given(tokens=st.lists(st.integers(1, 3), min_size=1, max_size=60))
def test_what_is_copied_is_what_the_host_would_look_up(strider: Strider, tokens: list[int]) -> None:
    strider._state.past.fill_(len(tokens) - 1)
    strider._state.history.zero_()
    strider._state.history[: len(tokens)].copy_(torch.tensor(tokens))
    strider._look_up(128)
    wanted = LookUp(tokens).find(4)
    assert strider._state.copied.tolist() == [*wanted, *[0] * (4 - len(wanted))]


@pytest.mark.parametrize("slots", [0, 2])
async def test_a_text_that_repeats_itself_takes_fewer_passes(tiny_qwen2: Path, slots: int) -> None:
    """This tiny model says the same again and again; the next turn lands and comes back."""
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, slots, seed=slots) if slots else None
    striding = Engine(lambda: replace(base, adapter=adapter), strides=True)
    plain = Engine(lambda: base, strides=False)
    try:
        question = TextMessage("user", "hello to you and hello to you and hello")
        conversation, talk = striding.conversation(), [SYSTEM, question]
        for _ in range(2):
            ours = await all_of(conversation, *talk, max_tokens=60)
            alone = await all_of(plain.conversation(drafting=False), *talk, max_tokens=60)
            assert text_of(ours) == text_of(alone)
            assert ours[-1].tokens == alone[-1].tokens
            assert len(ours) < 0.6 * len(alone)  # the last place is the token before: one copy a pass
            talk += [TextMessage("assistant", text_of(ours)), TextMessage("user", "Paris")]
        both = await asyncio.gather(*(all_of(striding.conversation(), *talk, max_tokens=30) for _ in range(2)))
        assert text_of(both[0]) == text_of(both[1])
    finally:
        striding.close()
        plain.close()
