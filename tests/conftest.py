"""Which tests run, what a failed one says beside the failure, and shared fixtures: tiny random checkpoints and their
tokenizer."""

from __future__ import annotations

import os

# Workers of `pytest -n` have a core each.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# isort: split
import server.openmp  # noqa: F401  # before torch

# isort: split
import json
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from model.engine.engine import Engine
from model.engine.loader import load_model
from tests.fakes import LoudnessDetector
from tests.real_time import speed_of_the_machine
from voice import session

# Triton's kernels run in its interpreter where there is no GPU; it reads this when they are defined.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Tables on a terminal that is wide enough for them. Consoles read this when they are made.
os.environ["COLUMNS"] = "200"

os.environ["REJOINDER_DATA"] = tempfile.mkdtemp(prefix="rejoinder-tests-")
"""Timers and notes of tests are not the developer's."""

REAL_SPEECH = "e2e"
"""The folder of tests that hear real speech. All others detect it by its loudness."""

QUICK = "not slow and not real_time and not proof"
"""What `pytest` without a path or a mark runs."""

# The first call of a kernel may take a second on a busy machine, so there is no deadline.
hypothesis.settings.register_profile("ours", deadline=None, max_examples=25)
hypothesis.settings.load_profile("ours")

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def pytest_configure(config: pytest.Config) -> None:
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = QUICK


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`tests/e2e` has no quick tests, and takes long to import."""
    return True if config.option.markexpr == QUICK and collection_path.name == REAL_SPEECH else None


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.option.markexpr == QUICK:
        return "the quick tests only; `pytest tests` runs all (20 minutes on two cores)"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and item.get_closest_marker("real_time"):
        report.sections.append(("if the machine is busy", speed_of_the_machine(item.nodeid)))
    return report


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if REAL_SPEECH not in request.path.parts:
        monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@pytest.fixture(scope="session", autouse=True)
def _no_data_of_this_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["REJOINDER_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with ChatML's control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["the capital of France is Paris and hello to you"] * 20, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
"""RoPE scaling of Ministral 3 for long contexts, with an original context short enough that a test exceeds it."""


def save_tiny_checkpoint(folder: Path, tokenizer: Tokenizer, family: str, **settings: object) -> Path:
    """Save a tiny random checkpoint to a folder, as transformers writes it."""
    import transformers

    class_prefixes = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "ministral3": "Ministral3"}
    config_class = getattr(transformers, f"{class_prefixes[family]}Config")
    model_class = getattr(transformers, f"{class_prefixes[family]}ForCausalLM")
    if family in ("qwen3", "ministral3"):
        settings = {"head_dim": 16, **settings}
    if family == "ministral3":
        settings = {"rope_parameters": YARN, **settings}
    settings = {"max_position_embeddings": 512, "num_hidden_layers": 3, **settings}
    torch.manual_seed(7)
    config = config_class(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=112,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        **settings,
    )
    model = model_class(config).eval()
    for parameter in model.parameters():  # biases and norms start as constants, which would hide mistakes
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.dim() == 1 else 0.0, std=0.1)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokenizer.token_to_id("<|im_end|>")]}))
    return folder


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A tiny random Qwen2 checkpoint."""
    return save_tiny_checkpoint(tmp_path_factory.mktemp("qwen2"), tiny_tokenizer, "qwen2")


@pytest.fixture(scope="session")
def tiny_chat_checkpoint(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that can fill in the middle, and whose context holds declarations of tools."""
    from tests.model.dialogues import with_doubled_weights

    tokenizer = Tokenizer.from_str(tiny_tokenizer.to_str())
    fill_in = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in fill_in])
    plain = save_tiny_checkpoint(tmp_path_factory.mktemp("plain"), tokenizer, "qwen2", max_position_embeddings=2048)
    return with_doubled_weights(plain, tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="session")
def tiny_engine(tiny_chat_checkpoint: Path) -> Iterator[Engine]:
    """An engine with `tiny_chat_checkpoint`."""
    engine = Engine(lambda: load_model(tiny_chat_checkpoint, device="cpu", precision="float32"))
    yield engine
    engine.close()
