"""What a model has written is kept as token ids, and its states are computed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from chat.types import Message
from lab.convert.corpus import KINDS
from lab.convert.generate_states import StateShard, generate_shard
from lab.convert.own_text import load_text, save_text, with_states
from lab.convert.spoken_prompts import SpokenPrompt
from lab.convert.train_prefix import read_prefix
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import load_model
from model.nn.trained_prefix import TrainedPrefix
from tests.conftest import save_tiny_checkpoint
from tests.model.dialogues import with_doubled_weights


def test_a_text_is_kept_and_its_states_are_computed_again(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder = save_tiny_checkpoint(tmp_path / "long", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    (tmp_path / "varied").mkdir()
    model = load_model(with_doubled_weights(folder, tmp_path / "varied"), device="cpu", precision="int8")
    programs = [SpokenPrompt("program", (Message("system", "Program."), Message("user", f"{n}?"))) for n in range(9)]
    prefix = model.template.encode(list(programs[0].messages))[:20]
    keys, values = read_prefix(model.decoder, prefix)
    model = replace(model, program_prefix=TrainedPrefix(tuple(prefix), keys, values * -3, {}))
    shards = [
        generate_shard(model, "base", tmp_path / str(n), "You are a test.", n, tokens=300, programs=programs)
        for n in (1, 2)
    ]
    file = tmp_path / "text.npz.xz"
    save_text(file, shards, "base")
    whole, again = StateShard.joined(shards), StateShard.joined([*with_states(model, load_text(file, "base"))])
    for name in ("tokens", "ends", "kinds", "prompts", "prompt_ends"):
        assert torch.equal(getattr(again, name), getattr(whole, name)), name
    assert torch.allclose(again.features.float(), whole.features.float(), atol=2e-2)
    without = StateShard.joined([*with_states(replace(model, program_prefix=None), load_text(file, "base"))])
    differs = (without.features.float() - whole.features.float()).abs().amax(1) > 0.05
    of_programs = whole.kinds.repeat_interleave(whole.ends.diff(prepend=torch.zeros(1).long())) == KINDS.index(
        "program"
    )
    assert differs[of_programs].any() and not differs[~of_programs].any(), "programs begin with the trained prefix"
    assert file.stat().st_size < 16 * len(whole.tokens)
    with pytest.raises(BadModelFile, match="other weights"):
        load_text(file, "other")
    file.write_bytes(b"no archive")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_text(file, "base")
