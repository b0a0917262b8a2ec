"""Sets of tokens as bits, as llguidance makes them and as a GPU reads them: an eighth of the memory of booleans."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

TokenSet: TypeAlias = npt.NDArray[np.uint8]
"""[vocabulary / 8], up to a multiple of four bytes: bit t % 8 of byte t // 8 stands for token t."""


def num_bytes(vocabulary: int) -> int:
    """The size of a set of tokens of a vocabulary."""
    return -(-vocabulary // 32) * 4


def packed(tokens: npt.NDArray[np.bool_]) -> TokenSet:
    """The set of these tokens: [vocabulary] bool."""
    bits = np.packbits(tokens, bitorder="little")
    return np.pad(bits, (0, num_bytes(len(tokens)) - len(bits)))


def unpacked(tokens: TokenSet, vocabulary: int) -> npt.NDArray[np.bool_]:
    """Whether each token is in a set: [vocabulary] bool."""
    return np.unpackbits(tokens, bitorder="little", count=vocabulary).view(np.bool_)


_LIMITS = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1, bitorder="little"), np.inf, -np.inf)
_LIMITS = _LIMITS.astype(np.float32)
"""[256, 8], by byte: infinity for each token that is in a set, and minus infinity for the others."""


def limits(tokens: TokenSet, vocabulary: int) -> npt.NDArray[np.float32]:
    """The largest logit that each token may have: [vocabulary], infinity if it is in a set, else minus infinity."""
    return _LIMITS.take(tokens, 0).reshape(-1)[:vocabulary]


def contains(tokens: TokenSet, token: int) -> bool:
    """Whether a token is in a set."""
    return bool(tokens[token >> 3] >> (token & 7) & 1)
