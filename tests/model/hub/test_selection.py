"""Which files of a repository are downloaded."""

from __future__ import annotations

import pytest

from model.hub.selection import QUANTIZATIONS, HubFile, quantization, select_files
from model.hub.transfer import ModelUnavailable
from model.nn.cpu.block_formats import FORMATS


def files(*paths: str) -> list[HubFile]:
    return [HubFile(path, 1, "") for path in paths]


def selected(wanted: str, *paths: str) -> list[str]:
    return [file.path for file in select_files(files(*paths), wanted, "org/repo").files]


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Meta-Llama-3-8B.Q8_0.gguf", "Q8_0"),
        ("Qwen3-4B-UD-Q4_K_XL.gguf", "Q4_K_XL"),
        ("SmolLM2-1.7B-IQ4_XS.gguf", "IQ4_XS"),
        ("model-Q4_0_4_4.gguf", "Q4_0_4_4"),
        ("model-fp16.gguf", "F16"),
        ("BF16/Qwen3-BF16-00001-of-00003.gguf", "BF16"),
        ("gpt-MXFP4.gguf", "MXFP4"),
        ("model-Q6_K-imat.gguf", "Q6_K"),
        ("Qwen3-4B.gguf", ""),
    ],
)
def test_a_file_name_states_its_quantization(path: str, label: str) -> None:
    assert quantization(path) == label


def test_every_format_of_the_kernels_can_be_selected() -> None:
    for name in FORMATS:
        assert any(label.startswith(name) for label in QUANTIZATIONS)


def test_q4_k_m_is_preferred_then_the_order_of_the_list() -> None:
    assert selected("", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q4_0.gguf") == ["m-Q4_K_M.gguf"]
    assert selected("", "m-F16.gguf", "m-Q8_0.gguf", "m-Q5_K_M.gguf", "m-Q2_K.gguf") == ["m-Q5_K_M.gguf"]
    assert selected("", "m-UD-Q4_K_XL.gguf", "m-Q8_0.gguf") == ["m-UD-Q4_K_XL.gguf"]
    assert selected("", "model.gguf", "mmproj-F16.gguf") == ["model.gguf"]


def test_a_quantization_or_a_file_selects_one_model() -> None:
    paths = ("m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "big/m-Q8_0.gguf")
    assert selected("q4_k_m", *paths) == ["m-Q4_K_M.gguf"]
    assert selected("UD-Q4_K_M", *paths) == ["m-UD-Q4_K_M.gguf"]
    assert selected("Q8_0", *paths) == ["big/m-Q8_0.gguf"]
    assert selected("m-Q8_0.gguf", *paths) == selected("big/m-Q8_0.gguf", *paths) == ["big/m-Q8_0.gguf"]


def test_a_split_file_is_downloaded_whole() -> None:
    parts = [f"m-Q4_K_M-0000{n}-of-00002.gguf" for n in (1, 2)]
    for wanted in ("", "Q4_K_M", parts[0], parts[1], "m-Q4_K_M.gguf"):
        chosen = select_files(files(*reversed(parts)), wanted, "org/repo")
        assert [file.path for file in chosen.files] == parts
        assert chosen.main_file == parts[0]
    with pytest.raises(ModelUnavailable, match="only 1 of the 2 parts"):
        selected("", parts[0])


@pytest.mark.parametrize(
    ("wanted", "paths", "message"),
    [
        ("Q5_K_M", ["m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q2_K.gguf"], "has no Q5_K_M: it offers Q4_0, Q8_0$"),
        ("Q3_K_M", ["m-Q3_K_M.gguf", "m-Q8_0.gguf"], "Q3_K_M is not supported, .*: it offers Q8_0$"),
        ("m-IQ2_XS.gguf", ["m-IQ2_XS.gguf", "m-Q8_0.gguf"], "IQ2_XS is not supported, .*: it offers Q8_0$"),
        ("other.gguf", ["m-Q8_0.gguf"], "has no other.gguf: it offers Q8_0"),
        ("", ["m-Q3_K_M.gguf"], "has no GGUF file that can be read: it has m-Q3_K_M.gguf, and supported are Q4_K_M"),
        ("", ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], "several models .* one of a-Q4_K_M.gguf, b-Q4_K_M.gguf"),
        ("Q8_0", ["config.json", "model.safetensors"], "has no GGUF files; leave out what follows the colon"),
        ("", ["config.json", "pytorch_model.bin", "modeling_x.py"], "only pickled weights"),
        ("", ["adapter_config.json", "adapter_model.safetensors"], "only an adapter"),
        ("", ["README.md"], "no language model that can be read"),
        ("safetensors", ["m-Q8_0.gguf"], "no language model that can be read"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_alternatives(
    wanted: str, paths: list[str], message: str
) -> None:
    with pytest.raises(ModelUnavailable, match=message):
        selected(wanted, *paths)


CHECKPOINT = [
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "linear_spec_lora/adapter_config.json",
    "linear_spec_lora/adapter_model.safetensors",
    "merges.txt",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
]


def test_a_safetensors_checkpoint_needs_no_code_and_no_copies_of_its_weights() -> None:
    others = ["README.md", "modeling_sdar.py", "pytorch_model.bin", "consolidated.safetensors", "onnx/model.onnx"]
    assert selected("", *CHECKPOINT, *others, "tokenizer.model", "runs/model.safetensors") == CHECKPOINT
    assert selected("safetensors", *CHECKPOINT, "m-Q4_K_M.gguf") == CHECKPOINT
    assert selected("", *CHECKPOINT, "m-Q4_K_M.gguf") == ["m-Q4_K_M.gguf"]
