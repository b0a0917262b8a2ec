"""Loads the models that a command needs, with progress bars for those that must be assembled first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from agent.program.prompt import INSTRUCTIONS
from chat.types import Message
from model.checkpoint.architectures import detect_family
from model.checkpoint.chat_template import ChatTemplate
from model.checkpoint.gguf import BadModelFile
from model.checkpoint.long_context import RopeScaling
from model.decode.sampling import Sampling
from model.engine.engine import DEFAULT_CONTEXT, Engine
from model.engine.loader import load_model
from model.hub import catalog
from model.hub.download import HubModels
from model.hub.reference import parse_reference
from model.hub.selection import is_recognizer
from model.hub.store import ModelStore
from model.hub.transfer import ProgressCallback
from server.serving.options import ModelOptions

if TYPE_CHECKING:  # features that are off are not imported
    from agent.documents.search import SharedDocuments
    from agent.remote.remote_llm import RemoteLLM
    from agent.remote.settings import RemoteSettings

TOP_P = 0.9
"""Nucleus sampling, when a temperature is set: small models produce nonsense in the least likely tenth."""

_RECOGNIZER = "recognizes speech: choose it with --asr"
_NOT_A_RECOGNIZER = (
    "is not a Whisper model of CTranslate2, which has model.bin, config.json, tokenizer.json and a vocabulary: choose "
    "one like Systran/faster-whisper-small"
)


@contextmanager
def progress_bars(console: Console) -> Iterator[ProgressCallback]:
    """Shows one progress bar per file while models are assembled or read, and nothing when they are ready."""
    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done)

        yield report


def locate_model(name: str, console: Console, family: str | None = None, kind: catalog.Kind | None = None) -> Path:
    """Path of a model's files, which are assembled or downloaded if necessary.

    Args:
        name: a path, a name in the catalog, or a hub reference.
        family: the architecture of a hub model; None reads its config.json.
        kind: which models `name` may mean, unless it is a path; None for all.

    Raises:
        ModelUnavailable: there is no such model, or it cannot be obtained.
        BadModelFile: the architecture of a hub model is not supported, or the model is of another kind.
    """
    reference = None if os.path.exists(os.path.expanduser(name)) else parse_reference(name)
    with progress_bars(console) as report:
        if reference is not None:
            path = hub_models(family, kind).locate(reference, report)
        else:
            path = ModelStore().locate(name, report, kind)
    recognizes = path.is_dir() and is_recognizer(file.name for file in path.iterdir())
    if kind == "transcription" and not recognizes:
        raise BadModelFile(f"{name} {_NOT_A_RECOGNIZER}")
    if kind == "language" and recognizes:
        raise BadModelFile(f"{name} {_RECOGNIZER}")
    return path


def hub_models(family: str | None = None, kind: catalog.Kind | None = None) -> HubModels:
    """The hub models on this machine; what cannot be run is rejected before it is downloaded. For `family` and `kind`
    see `locate_model`."""

    def check(config: Mapping[str, Any]) -> None:
        if "suppress_ids" in config:  # only CTranslate2's Whisper models have it
            if kind not in (None, "transcription"):
                raise BadModelFile(f"the model {_RECOGNIZER}")
            return
        if kind == "transcription":
            raise BadModelFile(f"the model {_NOT_A_RECOGNIZER}")
        detect_family(config, "this model", family)
        quantized = config.get("quantization_config") or config.get("quantization")
        if quantized:
            raise BadModelFile(
                f"the model's safetensors are quantized ({quantized.get('quant_method', 'MLX')}), which cannot be "
                "read: choose a repository with bfloat16 weights or GGUF files"
            )

    return HubModels(check_config=check)


def program_prefix_tokens(template: ChatTemplate) -> list[int]:
    """The tokens that all prompts for programs begin with, whichever functions there are."""
    prompts = [
        template.encode([Message("system", f"{INSTRUCTIONS}{rest}"), Message("user", said)])
        for rest, said in (("", "a"), (", b()", "b"), (" without a", "c"))
    ]
    different = next(n for n, tokens in enumerate(zip(*prompts, strict=False)) if len(set(tokens)) > 1)
    return prompts[0][:different]


def load_engine(model_options: ModelOptions, console: Console) -> Engine:
    """Load and warm up the language model, and say how much memory a long context takes and how it is reached.

    Raises:
        ModelUnavailable, BadModelFile: the model cannot be loaded.
        ValueError: an option does not suit the model, such as a context that is longer than it was trained on.
    """
    path = locate_model(model_options.model, console, family=model_options.family, kind="language")
    engine = Engine(
        lambda: load_model(
            path,
            device=model_options.device,
            precision=model_options.precision,
            adapter=model_options.adapter,
            drafts="masked" if model_options.decoding == "blocks" else model_options.drafts,  # the adapter denoises
            turn_completion=model_options.turn_completion,
            request_classifier=model_options.request_classifier,
            call_gate=model_options.call_gate,
            program_prefix=model_options.program_prefix,
            family=model_options.family,
            kv_cache_dtype=model_options.kv_cache_dtype,
            context=model_options.context,
        ),
        context=model_options.context,
        sampling=Sampling(temperature=model_options.temperature, top_p=TOP_P),
        decoding=model_options.decoding,
        denoising_schedule=model_options.schedule,
    )
    decoder, prefix = engine.model.decoder, engine.model.program_prefix
    if prefix is not None and list(prefix.tokens) != program_prefix_tokens(engine.model.template):
        engine.close()
        raise BadModelFile(
            "the prefix for programs was trained for other instructions: train it again with `rejoinder convert "
            "programs`, or choose --program-prefix none"
        )
    if model_options.context > max(engine.context, DEFAULT_CONTEXT):
        engine.close()
        how = "was trained on" if decoder.scaling is None else "spans, with its positions scaled,"
        raise ValueError(f"this model {how} {engine.context:,} tokens: choose a --context of at most {engine.context}")
    if decoder.scaling is not None:
        console.print(_scaling_sentence(decoder.scaling), highlight=False)
    if engine.context > DEFAULT_CONTEXT:
        size = decoder.new_cache().bytes_for(engine.context)
        console.print(
            f"A conversation that fills its context of {engine.context:,} tokens takes {size / 1e9:.1f} GB of memory.",
            highlight=False,
        )
    return engine


def _scaling_sentence(scaling: RopeScaling) -> str:
    trained = f"This model was trained on {scaling.original:,} tokens"
    if scaling.promised:
        return f"{trained}; its positions are scaled with YaRN as its card describes, which may cost short texts."
    return (
        f"{trained}, and its card promises no more. Its positions are scaled with YaRN as those of its family's larger "
        "models are; expect mistakes in long texts."
    )


def open_documents(names: Sequence[str], data: Path | None, console: Console) -> SharedDocuments | None:
    """Open the documents that responses are based on; None without names. Raises ModelUnavailable, and as
    `SharedDocuments` does."""
    if not names:
        return None
    from agent.documents.embedding import EMBEDDING_MODEL
    from agent.documents.search import SharedDocuments

    documents = SharedDocuments(names, data, locate_model(EMBEDDING_MODEL, console))
    if not documents.names:
        raise ValueError("there are no documents: run `rejoinder docs add FOLDER`, or leave out --docs")
    console.print(f"Documents: {', '.join(documents.names)}, {documents.num_passages} passages.", highlight=False)
    return documents


def open_remote_llm(settings: RemoteSettings | None, console: Console) -> RemoteLLM | None:
    """The bigger model; None without one. Says what is sent to it."""
    if settings is None:
        return None
    from agent.remote.remote_llm import RemoteLLM

    remote_llm = RemoteLLM(settings)
    console.print(remote_llm.notice, highlight=False)
    return remote_llm
