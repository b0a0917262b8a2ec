"""Converts text to token ids and back, with a tokenizer from a GGUF header or a tokenizer.json.

Text of users never becomes a control token: `encode` ignores control tokens, `encode_template` recognizes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.decoders import DecodeStream

from model.checkpoint.gguf import BadModelFile

CONTROL, _USER_DEFINED = 3, 4
"""GGUF token types that are matched as whole tokens in a template."""

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def _split_by(pattern: str) -> list[pre_tokenizers.PreTokenizer]:
    return [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


_PRE_TOKENIZERS = {
    "qwen2": lambda: _split_by(_QWEN2),
    "llama-bpe": lambda: _split_by(_LLAMA3),
    "smollm": lambda: [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ],
}
"""How text is split before BPE, by the GGUF key `tokenizer.ggml.pre`."""


def _byte_characters() -> dict[str, int]:
    """The byte that each character of a token stands for in byte-level BPE: printable Latin-1 characters stand for
    themselves, the others are numbered from 256 on (GPT-2, `bytes_to_unicode`)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_characters()


class TextTokenizer:
    """A byte-level BPE tokenizer.

    Args:
        full: the tokenizer, including its control tokens.

    Attributes:
        control_tokens: the text of the tokens that are never recognized in plain text.
    """

    def __init__(self, full: Tokenizer) -> None:
        self._full = full
        self._plain, self.control_tokens = _without_control(full, None)

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any]) -> TextTokenizer:
        """Build the tokenizer from a GGUF header.

        Raises:
            BadModelFile: the kind of tokenizer is not supported.
        """
        kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
            raise BadModelFile(
                f"this GGUF has a {kind!r} tokenizer with pre-tokenizer {pre!r}; "
                f"supported is 'gpt2' with {sorted(_PRE_TOKENIZERS)}"
            )
        tokens: list[str] = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
        full = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, merges))
        if pre == "qwen2":
            full.normalizer = normalizers.NFC()
        full.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS[pre]())
        full.decoder = decoders.ByteLevel()
        kinds = metadata.get("tokenizer.ggml.token_type", [])
        whole = [
            AddedToken(token, special=kind == CONTROL, normalized=False)
            for token, kind in zip(tokens, kinds, strict=False)
            if kind in (CONTROL, _USER_DEFINED)
        ]
        full.add_tokens(whole)
        return TextTokenizer(full)

    @staticmethod
    def from_folder(folder: Path) -> TextTokenizer:
        """Build the tokenizer from `tokenizer.json` (or `vocab.json` and `merges.txt`) in a checkpoint folder.

        Raises:
            BadModelFile: the file is missing or damaged.
        """
        path = folder / "tokenizer.json"
        if not path.exists() and (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
            return TextTokenizer(_from_vocabulary(folder))
        if not path.exists():
            raise BadModelFile(f"{folder} has no tokenizer.json: download the checkpoint's tokenizer too")
        try:
            return TextTokenizer(Tokenizer.from_file(str(path)))
        except Exception as error:  # the Rust library raises bare Exception
            raise BadModelFile(f"{path} cannot be read ({error}): download it again") from None

    def add_control_token(self, token: int) -> None:
        """Treat this token as a control token although the checkpoint does not mark it as one (a mask token)."""
        self._plain, self.control_tokens = _without_control(self._full, token)

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text. Text that looks like a control token is encoded as ordinary text."""
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def encode_template(self, text: str) -> list[int]:
        """Token ids of a part of a chat template, in which control tokens are recognized."""
        return list(self._full.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without control tokens."""
        return str(self._full.decode(list(ids), skip_special_tokens=True))

    def token_id(self, token: str) -> int | None:
        """The id of the token with exactly this text, or None."""
        id_ = self._full.token_to_id(token)
        return None if id_ is None else int(id_)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for, which may be part of a character; a control token's are its name. Empty
        for an id that the tokenizer does not know: output heads are padded."""
        text = self._full.id_to_token(token)
        if text is None:
            return b""
        if token in self._added_tokens or not _BYTES.keys() >= set(text):  # decoding takes those for plain text, too
            return text.encode()
        return bytes(_BYTES[character] for character in text)

    @cached_property
    def longest_token(self) -> int:
        """The length of the longest token. No text has more characters for each of its tokens."""
        return max(map(len, self._full.get_vocab()))

    @cached_property
    def _added_tokens(self) -> frozenset[int]:
        return frozenset(self._full.get_added_tokens_decoder())

    def to_json(self) -> str:
        """The tokenizer in the form of a tokenizer.json."""
        return str(self._full.to_str())

    def detokenizer(self) -> Callable[[int], str]:
        """Turns a stream of token ids into text: what each token completes; empty while bytes of a character are
        missing."""
        stream = DecodeStream(skip_special_tokens=True)
        return lambda token: stream.step(self._full, token) or ""


def _from_vocabulary(folder: Path) -> Tokenizer:
    """Build Qwen2's tokenizer from vocabulary, merges and added tokens (Dream has no tokenizer.json)."""
    try:
        full = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
        path = folder / "added_tokens.json"
        added = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        ordered = sorted(added, key=added.__getitem__)
    except Exception as error:  # the Rust library raises bare Exception
        raise BadModelFile(f"the tokenizer in {folder} cannot be read ({error}): download it again") from None
    full.normalizer = normalizers.NFC()
    full.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS["qwen2"]())
    full.decoder = decoders.ByteLevel()
    full.add_tokens([AddedToken(token, special=True, normalized=False) for token in ordered])
    return full


def _without_control(full: Tokenizer, extra_token: int | None) -> tuple[Tokenizer, tuple[str, ...]]:
    """A tokenizer with the same model that encodes control tokens and `extra_token` as ordinary text, and the texts of
    these tokens."""
    plain = Tokenizer(full.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        setattr(plain, part, getattr(full, part))
    added = full.get_added_tokens_decoder()
    for id_, token in added.items():
        token.special = token.special or id_ == extra_token
    plain.add_tokens([added[id_] for id_ in sorted(added)])
    plain.encode_special_tokens = True
    return plain, tuple(added[id_].content for id_ in sorted(added) if added[id_].special)
