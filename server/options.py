"""The options that pick models and say how they run; every command that needs them takes the same ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from model.decode.schedule import schedule_for
from server.loading import DEFAULT_MODEL, DEFAULT_VOICE, Choice


class Precision(StrEnum):
    """Number format of the language model's weights."""

    int8 = "int8"
    float32 = "float32"
    bfloat16 = "bfloat16"


class Decoding(StrEnum):
    """Whether drafts are checked."""

    verified = "verified"
    blocks = "blocks"


class Effort(StrEnum):
    """How sure a token must be in block denoising."""

    instant = "instant"
    low = "low"
    medium = "medium"
    high = "high"


class Rule(StrEnum):
    """What tells which tokens of a block are settled in a pass."""

    threshold = "threshold"
    factor = "factor"
    entropy = "entropy"


ModelOption = Annotated[
    str, typer.Option("--model", help="A name from `rejoinder models list`, a GGUF file or a safetensors folder.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]


def _model_options(
    model: ModelOption = DEFAULT_MODEL,
    voice: Annotated[
        str, typer.Option("--voice", help="A name from `rejoinder models list`, or a Piper .onnx file.")
    ] = DEFAULT_VOICE,
    device: DeviceOption = "auto",
    precision: Annotated[
        Precision | None, typer.Option("--precision", help="int8 on the CPU and bfloat16 on a GPU unless said.")
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, max=2, help="0 always takes the likeliest word; 1 draws freely.")
    ] = 0.0,
    adapter: Annotated[
        str,
        typer.Option("--adapter", help="What drafts: a file from `rejoinder convert`, auto (the shipped one) or none."),
    ] = "auto",
    ending: Annotated[
        str,
        typer.Option("--ending", help="What tells a whole sentence: a file from `rejoinder convert`, auto or none."),
    ] = "auto",
    decoding: Annotated[
        Decoding | None,
        typer.Option("--decoding", help="verified: the base model's own words. blocks: denoised and not checked."),
    ] = None,
    effort: Annotated[
        Effort, typer.Option("--effort", help="How sure a token must be in blocks; verified needs none.")
    ] = Effort.medium,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", min=1, max=64, help="Passes of a block at most.")
    ] = None,
    rule: Annotated[
        Rule, typer.Option("--rule", help="What tells which tokens of a block are settled in a pass.")
    ] = Rule.threshold,
    blocks_in_flight: Annotated[
        int, typer.Option("--blocks-in-flight", min=1, max=8, help="Blocks that are denoised at a time.")
    ] = 1,
    edit: Annotated[
        float | None,
        typer.Option("--edit", min=0, max=1, help="In blocks, replace settled words by likelier ones above this."),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option("--family", help="What a folder's model is (docs/families.md); its configuration says."),
    ] = None,
) -> Choice:
    return Choice(
        model,
        voice,
        device,
        precision.value if precision else None,
        temperature,
        _file_or_word(adapter),
        decoding.value if decoding else None,
        schedule_for(effort.value, max_steps, rule.value, blocks_in_flight, edit),
        _file_or_word(ending),
        family,
    )


def _file_or_word(said: str) -> Path | Literal["auto", "none"]:
    return "auto" if said == "auto" else "none" if said == "none" else Path(said)


def with_choice(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the options that pick models; it is handed them as `choice`."""
    options = inspect.signature(_model_options, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run(**given: Any) -> None:
        picked = {name: given.pop(name) for name in options}
        command(**given, choice=_model_options(**picked))

    kept = [parameter for name, parameter in own.parameters.items() if name != "choice"]
    every = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*kept, *options.values())]
    run.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return run


def chosen_options(context: typer.Context) -> list[str]:
    """The model options that were given to a command, as they can be given to another one."""
    ours = inspect.signature(_model_options).parameters
    said: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in ours and source is not None and source.name != "DEFAULT":
            value = context.params[name]
            said += [parameter.opts[0], str(value.value if isinstance(value, StrEnum) else value)]
    return said
