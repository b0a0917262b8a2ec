"""What a model has written, as token ids in one compressed file, so that a drafter can be trained again without writing
it anew: the states are computed from the ids in a tenth of the time.

The file is a NumPy archive, compressed by xz as a whole, with the arrays of `StateShard` without features, as
differences where they ascend, and the checksum of the weights.
"""

from __future__ import annotations

import io
import lzma
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lab.convert.corpus import KINDS
from lab.convert.generate_states import StateShard, beginning
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel
from model.nn.forward_batch import text_input
from model.nn.kv_cache import KeyValueCache

_SHARED = 16
"""Tokens that two prompts must have in common at least, for the second one to go on from the keys of the first."""


def save_text(path: Path, shards: Sequence[StateShard], base: str) -> None:
    """Write the responses of some shards and their prompts.

    Args:
        base: sha256 of the weights that wrote them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths = {
        name: torch.cat([getattr(shard, name).diff(prepend=torch.zeros(1, dtype=torch.int64)) for shard in shards])
        for name in ("ends", "prompt_ends")
    }
    joined = {name: torch.cat([getattr(shard, name) for shard in shards]) for name in ("tokens", "prompts", "kinds")}
    arrays = {name: part.numpy().astype(np.uint32) for name, part in {**lengths, **joined}.items()}
    with lzma.open(path, "wb", preset=9) as file:
        np.savez(file, base=np.array(base), **arrays)  # type: ignore[arg-type]


def load_text(path: Path, base: str) -> StateShard:
    """Read a file that `save_text` wrote; it has no features.

    Raises:
        BadModelFile: missing or damaged, or other weights wrote it.
    """
    try:
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as stored:
            found = str(stored["base"])
            parts = {
                name: torch.from_numpy(stored[name].astype(np.int64))
                for name in ("tokens", "ends", "kinds", "prompts", "prompt_ends")
            }
    except (OSError, EOFError, KeyError, ValueError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise BadModelFile(f"the text {path} cannot be read ({error})") from None
    if found != base:
        raise BadModelFile(f"the text {path} was written by other weights: generate some with these")
    ends = {name: parts[name].cumsum(0) for name in ("ends", "prompt_ends")}
    no_features = torch.empty(len(parts["tokens"]), 0, dtype=torch.float16)
    return StateShard(
        parts["tokens"].int(), no_features, ends["ends"], parts["kinds"], parts["prompts"].int(), ends["prompt_ends"]
    )


def with_states(model: LoadedModel, text: StateShard) -> Iterator[StateShard]:
    """The responses of `text` one after the other, each with the states of the rows that predicted its tokens."""
    caches = {is_program: beginning(model, "program" if is_program else "") for is_program in (False, True)}
    for number, kind in enumerate(text.kinds.tolist()):
        one, cache = text.part(number, number + 1), caches[KINDS[kind] == "program"]
        yield replace(one, features=_features(model, cache, one.prompts.tolist(), one.tokens.tolist()))


def _features(model: LoadedModel, cache: KeyValueCache, prompt: list[int], response: list[int]) -> Tensor:
    read, received = [*prompt, *response[:-1]], list[Tensor]()
    if cache.truncate_to_common_prefix(prompt[:-1]) < _SHARED:
        cache.truncate(0)
    start = len(cache.tokens)
    rows = text_input(cache, read[start:], len(response))
    model.decoder.run([replace(rows, return_hidden_states=True, on_features=received.append)])
    cache.commit(read[start:])
    return received[0].half()
