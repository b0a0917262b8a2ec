"""Loads a checkpoint with its tokenizer, its chat template, what drafts for it, and its classifiers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import torch

from model.checkpoint.chat_template import CHATML, ChatTemplate
from model.checkpoint.checkpoint import Checkpoint, open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.checkpoint.long_context import scaling_for
from model.checkpoint.tokenizer import TextTokenizer
from model.checkpoint.tool_call_parser import CALL_START
from model.decode.call_decision import CallThresholds
from model.decode.call_margins import CallMargins
from model.decode.draft import DraftHead
from model.decode.grammar_compiler import GrammarCompiler
from model.decode.tool_calls import CallHabit
from model.engine.bundled import (
    BUNDLED_ADAPTERS,
    BUNDLED_CALL_GATES,
    BUNDLED_CLASSIFIERS,
    BUNDLED_DRAFT_HEADS,
    BUNDLED_PROGRAM_PREFIXES,
    BUNDLED_REQUEST_CLASSIFIERS,
    Load,
    bundled,
    bundled_file,
    required_checksum,
    weights_identity,
)
from model.engine.call_gate import CallGate, load_call_gate
from model.engine.call_thresholds import call_thresholds
from model.engine.request_classifier import RequestClassifier, load_request_classifier
from model.engine.turn_completion import TurnCompletionClassifier, load_turn_completion_classifier
from model.hub.computed_files import ComputedFiles
from model.nn.adapter import Adapter, load_adapter
from model.nn.batch_drafter import BatchDrafter
from model.nn.block_drafter import BlockDrafterWeights, load_drafter
from model.nn.cpu.block_formats import FORMATS, dequantize
from model.nn.cuda import configure_cuda
from model.nn.decoder import CacheType, Decoder, Precision
from model.nn.device import find_device, is_amd, is_ampere_or_newer
from model.nn.draft_head import DraftHeadWeights, drafts_of, load_draft_head
from model.nn.gpu.selection import gpu_operations
from model.nn.linear import cpu_kernels_installed
from model.nn.peft import LINEAR_SPEC_FOLDER, load_lora_adapter
from model.nn.trained_prefix import TrainedPrefix, load_trained_prefix

T = TypeVar("T")

_SCORING_ROWS = ComputedFiles("scoring_rows", 4, 64 << 20)
"""Of draft heads: half a second of reading and multiplying. Those of the 1.5B take 13 MB."""

_MIN_KEPT_BYTES = 1 << 20
"""Smaller ones are computed in a moment."""

Drafts = Literal["auto", "diffusion", "recurrent", "masked", "none"]
"""What drafts: a block drafter, a recurrent head, an adapter's masked rows in the forward pass itself, or nothing but
copies of the conversation."""

_SOURCES = {"diffusion": "block drafter", "recurrent": "draft head", "masked": "adapter"}


_MAX_DRAFTS = 8
"""Maximum drafts of a branch, whatever a configuration says: (8 + 1)² rows."""


@dataclass(frozen=True)
class LoadedModel:
    """Everything that an engine runs.

    Attributes:
        stop_tokens: ids that end a response.
        adapter: drafts tokens. Without one, models that have a mask token of their own draft with that. Others copy
            from the conversation, or generate one token per forward pass.
        draft_head: drafts tokens in place of the adapter.
        turn_completion: estimates whether a user's turn is complete; None if no classifier was trained for these
            weights.
        call_thresholds: when a response is a tool call.
        request_classifier: recognizes requests that the assistant cannot fulfil; None if none was trained for these
            weights.
        call_gate: tells which calls a response needs, of the functions on offer; None if none was trained for
            these weights.
        program_prefix: what prompts for programs begin with; None if it was not trained for these weights.
        may_draft: whether anything but guesses of a grammar and copies of the conversation may be drafted.
        identity: names the weights (`weights_identity`), for what is kept of them; empty to keep nothing.
    """

    decoder: Decoder
    tokenizer: TextTokenizer
    template: ChatTemplate
    stop_tokens: frozenset[int]
    adapter: Adapter | None = None
    turn_completion: TurnCompletionClassifier | None = None
    draft_head: DraftHead | None = None
    call_thresholds: CallThresholds = field(default_factory=CallThresholds)
    request_classifier: RequestClassifier | None = None
    call_gate: CallGate | None = None
    program_prefix: TrainedPrefix | None = None
    may_draft: bool = True
    identity: str = ""

    @property
    def max_drafts(self) -> int:
        """How many drafts a branch may hold."""
        family = self.decoder.config.diffusion
        if family is not None:
            if not self.may_draft:
                return 0
            trained = self.adapter.num_drafts if self.adapter else family.block_size
            return min(trained, _MAX_DRAFTS) if family.verification == "branches" else 0
        if isinstance(self.draft_head, BatchDrafter):
            return self.draft_head.max_drafts
        return self.adapter.num_drafts if self.adapter else 0

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles grammars for this model."""
        return GrammarCompiler(self.tokenizer, self.decoder.config.vocab_size, self.stop_tokens)

    @cached_property
    def call_margins(self) -> CallMargins:
        """Makes the choices within calls."""
        named = map(self.tokenizer.token_id, self.tokenizer.control_tokens)
        control = {*self.stop_tokens, *(token for token in named if token is not None)}
        known = [token for token in control if token < self.grammars.vocabulary]
        return CallMargins(self.grammars.structure, known, self.call_thresholds)

    @cached_property
    def call_habit(self) -> CallHabit:
        """How this model writes its calls."""
        return CallHabit()

    @property
    def notes_outputs(self) -> bool:
        """Whether prompts say what functions returned in notes of the system: this model was not taught the template's
        form, as it writes its calls in another."""
        taught = self.call_habit.start in (None, self.tokenizer.token_id(CALL_START))
        return not taught and self.template.takes_notes


def load_model(
    path: Path,
    *,
    device: str = "auto",
    precision: Precision | None = None,
    adapter: Path | Literal["auto", "none"] = "auto",
    drafts: Drafts = "auto",
    turn_completion: Path | Literal["auto", "none"] = "auto",
    request_classifier: Path | Literal["auto", "none"] = "auto",
    call_gate: Path | Literal["auto", "none"] = "auto",
    program_prefix: Path | Literal["auto", "none"] = "auto",
    family: str | None = None,
    kv_cache_dtype: CacheType = "auto",
    context: int = 0,
) -> LoadedModel:
    """Open a GGUF file or a safetensors folder.

    Args:
        device: as `find_device` takes it.
        precision: when not given, int8 on the CPU, on a GPU what its kernels read: `stored`, or without them bfloat16
            on GPUs that have it and float32 on others.
        adapter: what drafts: the file of an adapter or of a draft head, `auto` for what is bundled for these weights or
            lies in their folder, or `none`.
        drafts: which of what is bundled drafts. `auto` is `diffusion`, or `recurrent` where there is no block drafter,
            or `masked`, or nothing where there is no adapter either.
        turn_completion, request_classifier, call_gate: a classifier's file, `auto` for the bundled one, or `none`.
        program_prefix: the file of a prefix for programs, `auto` for the bundled one, or `none`.
        family: name of the folder's family in `architectures.py`; found from its configuration when not given.
        kv_cache_dtype: how keys and values are kept.
        context: tokens that a conversation may span. If the model was trained on fewer, and its card describes how to
            scale its positions (`long_context.py`), they are scaled.

    Raises:
        BadModelFile: the model, the adapter or the classifier cannot be read, or was made for other weights.
        ValueError: the device does not exist, its memory is too small, it cannot keep int8 keys and values, or nothing
            drafts as `drafts` or the file says.
    """
    target = find_device(device)
    if target.type == "cuda":
        configure_cuda()
    default: Precision = "int8" if target.type == "cpu" and cpu_kernels_installed() else "float32"
    if target.type == "cuda" and (is_amd() or is_ampere_or_newer(target)):
        default = "bfloat16" if gpu_operations(target) is None else "stored"
    try:
        checkpoint = open_checkpoint(path, family)
        scaling = scaling_for(checkpoint.config, context)
        tokenizer = checkpoint.tokenizer()
        decoder = Decoder(checkpoint, target, precision or default, kv_cache_dtype, scaling)
        if decoder.mask_token is not None:
            tokenizer.add_control_token(decoder.mask_token)
        template = ChatTemplate(checkpoint.chat_template() or CHATML, tokenizer, checkpoint.template_tokens())
    except (RuntimeError, KeyError, TypeError, ArithmeticError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise ValueError(f"{path.name} does not fit into the memory of {target}: choose a smaller model") from None
        raise BadModelFile(f"{path} is not a model that can be run ({type(error).__name__}: {error})") from error
    if isinstance(adapter, Path):
        drafts = drafts_of(adapter)
    elif adapter == "none":
        drafts = "none"
    draft_head = _draft_head(path, decoder, checkpoint, adapter, drafts)
    masked = drafts == "masked" or (drafts == "auto" and draft_head is None)
    loaded_adapter = _adapter(path, decoder, adapter) if masked else None
    found = draft_head.origin if draft_head else "masked" if loaded_adapter or decoder.mask_token is not None else ""
    if drafts not in ("auto", "none", found):
        raise ValueError(f"there is no {_SOURCES[drafts]} for this model here: {_possible_drafts(path, decoder)}")
    return LoadedModel(
        decoder,
        tokenizer,
        template,
        checkpoint.stop_tokens(),
        loaded_adapter,
        _of_weights(path, decoder, turn_completion, BUNDLED_CLASSIFIERS, load_turn_completion_classifier),
        draft_head,
        call_thresholds(path),
        _of_weights(path, decoder, request_classifier, BUNDLED_REQUEST_CLASSIFIERS, load_request_classifier),
        _of_weights(path, decoder, call_gate, BUNDLED_CALL_GATES, load_call_gate),
        # Its keys were rotated for positions as they are.
        None if scaling else _of_weights(path, decoder, program_prefix, BUNDLED_PROGRAM_PREFIXES, load_trained_prefix),
        drafts != "none",
        weights_identity(path),
    )


def _adapter(path: Path, decoder: Decoder, choice: Path | Literal["auto", "none"]) -> Adapter | None:
    lora_folder = path / LINEAR_SPEC_FOLDER
    adapter: Adapter | None
    if choice == "auto" and lora_folder.is_dir() and decoder.mask_token is not None:
        mask_embedding = decoder.embedding(torch.tensor([decoder.mask_token], device=decoder.device))[0]
        adapter = load_lora_adapter(lora_folder, decoder.config, mask_embedding)
    else:
        adapter = _of_weights(path, decoder, choice, BUNDLED_ADAPTERS, load_adapter)
    return None if adapter is None else adapter.to(decoder.device, decoder.dtype)


def _draft_head(
    path: Path, decoder: Decoder, checkpoint: Checkpoint, choice: Path | Literal["auto", "none"], drafts: Drafts
) -> DraftHead | None:
    if drafts in ("masked", "none"):
        return None
    if decoder.mask_token is not None:
        return None  # its states are those of a model that fills masks
    load: Load[DraftHeadWeights | BlockDrafterWeights] = load_draft_head if drafts == "recurrent" else load_drafter
    weights = _of_weights(path, decoder, choice, BUNDLED_DRAFT_HEADS, load)
    if weights is None:
        return None
    head = weights.head if isinstance(weights, BlockDrafterWeights) else weights
    scoring_rows = _scoring_rows(head, checkpoint)
    if decoder.precision != "int8":
        return BatchDrafter(weights, scoring_rows, decoder.embedding, decoder.device, decoder.dtype)
    # Late: conversion runs on machines without llvmlite.
    from model.nn.cpu.block_drafter import BlockQuantizedDrafter
    from model.nn.cpu.draft_head import BlockQuantizedDraftHead

    if isinstance(weights, BlockDrafterWeights):
        return BlockQuantizedDrafter(weights, scoring_rows, decoder.embedding)
    return BlockQuantizedDraftHead(weights, scoring_rows, decoder.embedding)


def _possible_drafts(path: Path, decoder: Decoder) -> str:
    """Says which drafts are possible for a model with what is bundled."""
    possible = ["none"]
    if bundled_file(path, BUNDLED_ADAPTERS) is not None or decoder.mask_token is not None:
        possible.insert(0, "masked")
    head = bundled_file(path, BUNDLED_DRAFT_HEADS) if decoder.mask_token is None else None
    if head is not None:
        possible = [*dict.fromkeys((drafts_of(head), "recurrent")), *possible]
    said = f"choose --drafts {' or '.join(possible)}"
    if decoder.mask_token is not None:
        return said
    return f"{said}, or train one with `rejoinder convert`"


def _scoring_rows(head: DraftHeadWeights, checkpoint: Checkpoint) -> torch.Tensor:
    """The product of the output head, for the tokens of a draft head, and its O: [n, size] float32. It is kept as
    float16."""
    output = head.matrices["output"]
    read = hashlib.sha256(output.numpy().tobytes() + head.vocabulary.numpy().tobytes()).hexdigest()
    key = (weights_identity(checkpoint.path), read)
    if (known := _SCORING_ROWS.read(*key)) is not None:
        return torch.frombuffer(bytearray(known), dtype=torch.float16).view(-1, output.shape[1]).float()
    rows = (output_rows(checkpoint, head.vocabulary) @ output).half()
    if rows.nbytes >= _MIN_KEPT_BYTES:
        _SCORING_ROWS.write(rows.numpy().tobytes(), *key)
    return rows.float()


def output_rows(checkpoint: Checkpoint, tokens: torch.Tensor) -> torch.Tensor:
    """The rows of the output head for some tokens [n] int64: [n, hidden] float32."""
    name = "lm_head.weight" if checkpoint.has_tensor("lm_head.weight") else "embed_tokens.weight"
    stored = checkpoint.blocks(name)
    if stored is None or stored.format not in FORMATS:
        return checkpoint.tensor(name)[tokens]
    return torch.from_numpy(dequantize(FORMATS[stored.format], stored.blocks[tokens.numpy()]))


def _of_weights(
    path: Path, decoder: Decoder, choice: Path | Literal["auto", "none"], folder: Path, load: Load[T]
) -> T | None:
    """What was trained for a model's weights: what is bundled, a file of the user's, or nothing."""
    if choice == "none":
        return None
    if isinstance(choice, Path):
        return load(choice, decoder.config, required_checksum(path, choice))
    return bundled(path, decoder.config, folder, load)
