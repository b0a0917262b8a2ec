"""Keys and values of instructions, kept in the cache folder so that the next start need not read them. Only what the
operator has written is kept (`Conversation`, `keep_instructions`), never what users or clients have.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator

import torch
from safetensors.torch import load, save

from model.engine.loader import LoadedModel
from model.hub.computed_files import ComputedFiles
from model.nn.kv_cache import KeyValueCache

_VERSION = "1"
"""Increased when kernels compute other keys and values than before."""

_MAX_PREFIXES, _MAX_TOKENS = 4, 1024
"""Of a model: the instructions of conversations, those of programs, and others with other tools. In float32 that many
tokens take 59 MB with the 1.5B."""

_FILES = ComputedFiles("instructions", 8, 256 << 20)


class KeptPrefixes:
    """The kept prefixes of one model.

    Args:
        key: names all that their keys and values depend on, besides the tokens.
        new_cache: makes an empty cache.

    Attributes:
        caches: all of them by their tokens, the newest last.
    """

    def __init__(self, key: tuple[str, ...], new_cache: Callable[[], KeyValueCache]) -> None:
        self._key = key
        self.caches = OrderedDict((tuple(cache.tokens), cache) for cache in _read(key, new_cache))

    @staticmethod
    def of(model: LoadedModel) -> KeptPrefixes | None:
        """Those of a model; None where reading a prompt takes no time, or its result is not the same each time."""
        decoder, trained = model.decoder, model.program_prefix
        if not model.identity or decoder.kernels is None:
            return None
        begun = "" if trained is None else hashlib.sha256(trained.keys.numpy().tobytes()).hexdigest()
        dtype = str(decoder.new_cache().dtype)
        return KeptPrefixes(
            (_VERSION, model.identity, decoder.kernels, dtype, repr(decoder.scaling), begun), decoder.new_cache
        )

    def keep(self, cache: KeyValueCache) -> None:
        """Keep all tokens of a cache that nobody changes. The oldest prefixes make room for it."""
        tokens = tuple(cache.tokens)
        if tokens in self.caches or len(tokens) > _MAX_TOKENS:
            return
        while len(self.caches) >= _MAX_PREFIXES or len(tokens) + sum(map(len, self.caches)) > _MAX_TOKENS:
            self.caches.popitem(last=False)
        self.caches[tokens] = cache
        tensors = dict[str, torch.Tensor]()
        for number, (ids, one) in enumerate(self.caches.items()):
            known = torch.stack([tensor[:, : len(ids)] for tensor in one.tensors()])
            tensors |= {f"{number}.tokens": torch.tensor(ids), f"{number}.known": known}
        _FILES.write(save(tensors), *self._key)


def _read(key: tuple[str, ...], new_cache: Callable[[], KeyValueCache]) -> Iterator[KeyValueCache]:
    content = _FILES.read(*key)
    tensors = {} if content is None else load(content)
    for number in range(len(tensors) // 2):
        cache = new_cache()
        cache.load(tensors[f"{number}.tokens"].tolist(), *tensors[f"{number}.known"].chunk(2))
        yield cache.copy_prefix(len(cache.tokens))
