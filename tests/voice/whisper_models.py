"""Whisper models of CTranslate2 with tiny random weights, and the vocabularies and shapes of published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from ctranslate2.specs import WhisperSpec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_SIZE, _HEADS = 16, 2
_POSITIONS = {"encoder": 1500, "decoder": 448}
_TIMESTAMPS = 1501
_LANGUAGES = 99


def save_whisper(
    folder: Path, *, mels: int = 80, decoder_layers: int = 1, english: bool = False, languages: int = _LANGUAGES
) -> Path:
    """Write a model.

    Args:
        mels: 80, or 128 as large-v3 and turbo have.
        decoder_layers: distilled models have few.
        english: whether it knows English only (`.en`).
        languages: large-v3 and later have 100.
    """
    folder.mkdir(parents=True)
    tokenizer = _tokenizer(languages, english=english)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]
    spec = WhisperSpec(1, _HEADS, decoder_layers, _HEADS)
    draw = np.random.default_rng(1)

    def random(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) * 0.2).astype(np.float32)

    for part, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        part.position_encodings.encodings = random(_POSITIONS[name], _SIZE)
        norms = [part.layer_norm]
        for layer in part.layer:
            attentions = [layer.self_attention, *([layer.attention] if name == "decoder" else [])]
            norms += [layer.ffn.layer_norm, *(attention.layer_norm for attention in attentions)]
            layer.ffn.linear_0.weight, layer.ffn.linear_0.bias = random(4 * _SIZE, _SIZE), random(4 * _SIZE)
            layer.ffn.linear_1.weight, layer.ffn.linear_1.bias = random(_SIZE, 4 * _SIZE), random(_SIZE)
            for attention in attentions:
                rows = {2: (3, 1), 3: (1, 2, 1)}[len(attention.linear)]
                for linear, count in zip(attention.linear, rows, strict=True):
                    linear.weight, linear.bias = random(count * _SIZE, _SIZE), random(count * _SIZE)
        for norm in norms:
            norm.gamma, norm.beta = np.ones(_SIZE, np.float32), np.zeros(_SIZE, np.float32)
    for conv, inputs in ((spec.encoder.conv1, mels), (spec.encoder.conv2, _SIZE)):
        conv.weight, conv.bias = random(_SIZE, inputs, 3), random(_SIZE)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = random(len(tokens), _SIZE)
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [], []
    spec.config.alignment_heads = [(decoder_layers - 1, head) for head in range(_HEADS)]
    spec.config.lang_ids = [tokenizer.token_to_id("<|en|>")]
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_size": mels}))
    return folder


def _tokenizer(languages: int, *, english: bool) -> Tokenizer:
    """A vocabulary of as many tokens as Whisper has; one is empty if it is multilingual, which CTranslate2 goes by."""
    from faster_whisper.tokenizer import _LANGUAGE_CODES

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    count = 50256 if english else 50257
    text = [*letters, *(f"Ġ{number}" for number in range(count - len(letters)))]
    if not english:
        text[-1] = ""
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(text)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    codes = [*[code for code in _LANGUAGE_CODES if code != "yue"], "yue"][:languages]
    special = ["endoftext", "startoftranscript", *codes, "translate", "transcribe", "startoflm", "startofprev"]
    timestamps = [f"{0.02 * number:.2f}" for number in range(_TIMESTAMPS)]
    names = [*special, "nospeech", "notimestamps", *timestamps]
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in names])
    return tokenizer
