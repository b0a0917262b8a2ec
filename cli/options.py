"""The options that select models and how they run, shared by every command that loads models; options that have been
renamed keep working under their old names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from model.decode.effort import schedule_for_effort
from model.engine.engine import DEFAULT_CONTEXT
from server.serving.runtime import AUTO_MODEL, DEFAULT_VOICE, ModelOptions

RENAMED_OPTIONS = {
    "--call-minutes": "--max-call-minutes",
    "--edit": "--edit-threshold",
    "--ending": "--turn-completion",
    "--lanes": "--batch-size",
    "--live": "--turn-log",
    "--own": "--extra-conversations",
    "--rows": "--positions-per-text",
    "--shipped": "--bundled",
    "--texts": "--batch-size",
    "--timelines": "--turn-log",
}
"""Old name: current name. Commands accept both; their help shows only the current one."""


ToolsOption = Annotated[
    list[Path] | None,
    typer.Option("--tools", help="Python file whose functions the assistant may call; repeatable."),
]
McpConfigOption = Annotated[
    Path | None, typer.Option("--mcp-config", help='MCP servers to use: a JSON file with "mcpServers".')
]
NoBuiltinToolsOption = Annotated[
    bool, typer.Option("--no-builtin-tools", help="Without clock, calculator, timers and notes.")
]
DocsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--docs", help="Answer from these documents: a name or folder from `rejoinder docs list`, or all; repeatable."
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", envvar="REJOINDER_DATA", help="Folder for keys, usage, timers, notes and documents."),
]


OPTIONAL_VALUES = {"--cluster": "local"}
"""Options whose value may be left out, and what it then is."""


class Command(TyperCommand):
    """A command that accepts the old names of its options, too, and options whose value is left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for parameter in self.params for name in parameter.opts}
        following = [*args[1:], "-"]
        args = [
            f"{argument}={OPTIONAL_VALUES[argument]}"
            if argument in OPTIONAL_VALUES and argument in own and next_argument.startswith("-")
            else argument
            for argument, next_argument in zip(args, following, strict=False)
        ]

        def current_name(argument: str) -> str:
            name, equals, value = argument.partition("=")
            renamed = RENAMED_OPTIONS.get(name)
            return f"{renamed}{equals}{value}" if renamed in own and name not in own else argument

        return super().parse_args(ctx, [current_name(argument) for argument in args])


class Precision(StrEnum):
    """Number format of the language model's weights."""

    int8 = "int8"
    float32 = "float32"
    bfloat16 = "bfloat16"


class CacheDtype(StrEnum):
    """Number format of keys and values."""

    auto = "auto"
    int8 = "int8"


class Decoding(StrEnum):
    """Whether the base model verifies drafted tokens."""

    verified = "verified"
    blocks = "blocks"


class Effort(StrEnum):
    """How confident diffusion decoding must be to accept a token."""

    instant = "instant"
    low = "low"
    medium = "medium"
    high = "high"


class Rule(StrEnum):
    """How diffusion decoding selects the tokens of a block that a step accepts."""

    threshold = "threshold"
    factor = "factor"
    entropy = "entropy"


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="auto (the largest installed one that is fast enough), a name from `rejoinder models list`, a GGUF file, "
        "a safetensors folder, or a model on the Hugging Face hub: org/repo[@revision][:file or quantization].",
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]


def _model_options(
    model: ModelOption = AUTO_MODEL,
    voice: Annotated[
        list[str] | None,
        typer.Option(
            "--voice",
            help="A name from `rejoinder models list`, a Piper .onnx file or a Kokoro voice's .bin file. Repeatable: "
            f"conversations choose, and the first is the default. Without it: {DEFAULT_VOICE}.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    precision: Annotated[
        Precision | None, typer.Option("--precision", help="Default: int8 on the CPU, bfloat16 on a GPU.")
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, max=2, help="0 is greedy decoding; higher values sample.")
    ] = 0.0,
    adapter: Annotated[
        str,
        typer.Option("--adapter", help="What drafts: a file from `rejoinder convert`, auto (the bundled one) or none."),
    ] = "auto",
    turn_completion: Annotated[
        str,
        typer.Option(
            "--turn-completion",
            help="Turn completion classifier: a file from `rejoinder convert`, auto (the bundled one) or none.",
        ),
    ] = "auto",
    request_classifier: Annotated[
        str,
        typer.Option(
            "--request-classifier",
            help="Recognizes requests that the assistant must decline: a file from `rejoinder convert`, auto (the "
            "bundled one) or none.",
        ),
    ] = "auto",
    decoding: Annotated[
        Decoding | None,
        typer.Option(
            "--decoding",
            help="verified: speculative decoding, with the base model's exact output. blocks: diffusion decoding of "
            "whole blocks, unverified.",
        ),
    ] = None,
    effort: Annotated[
        Effort, typer.Option("--effort", help="Confidence that diffusion decoding requires of a token.")
    ] = Effort.medium,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", min=1, max=64, help="Maximum diffusion steps per block.")
    ] = None,
    rule: Annotated[
        Rule, typer.Option("--rule", help="How diffusion decoding selects the tokens that a step accepts.")
    ] = Rule.threshold,
    blocks_in_flight: Annotated[
        int, typer.Option("--blocks-in-flight", min=1, max=8, help="Blocks that diffusion decoding works on at once.")
    ] = 1,
    edit_threshold: Annotated[
        float | None,
        typer.Option(
            "--edit-threshold",
            min=0,
            max=1,
            help="Diffusion decoding replaces an accepted token when another one's probability exceeds this.",
        ),
    ] = None,
    context_length: Annotated[
        int, typer.Option("--context", min=512, help="Tokens that a conversation or a completion may span.")
    ] = DEFAULT_CONTEXT,
    kv_cache_dtype: Annotated[
        CacheDtype,
        typer.Option(
            "--kv-cache-dtype",
            help="Format of keys and values: auto, or int8, which takes about a quarter of the "
            "memory (CPU with int8 weights).",
        ),
    ] = CacheDtype.auto,
    family: Annotated[
        str | None,
        typer.Option(
            "--family", help="Architecture of a model folder (list: docs/design); default: from its config.json."
        ),
    ] = None,
    speech_device: Annotated[
        str,
        typer.Option(
            "--speech-device",
            help="Device of speech recognition and synthesis: cpu, cuda, cuda:N, or auto (a GPU where possible).",
        ),
    ] = "cpu",
) -> ModelOptions:
    return ModelOptions(
        model,
        tuple(voice or [DEFAULT_VOICE]),
        device,
        precision.value if precision else None,
        temperature,
        _path_or_keyword(adapter),
        decoding.value if decoding else None,
        schedule_for_effort(effort.value, max_steps, rule.value, blocks_in_flight, edit_threshold),
        _path_or_keyword(turn_completion),
        family,
        speech_device,
        context_length,
        kv_cache_dtype.value,
        _path_or_keyword(request_classifier),
    )


def _path_or_keyword(value: str) -> Path | Literal["auto", "none"]:
    return "auto" if value == "auto" else "none" if value == "none" else Path(value)


def with_option_group(command: Callable[..., None], group: Callable[..., Any], name: str) -> Callable[..., None]:
    """Add the options of a group to a command, which receives what the group makes of them as the argument `name`."""
    options = inspect.signature(group, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def run(**arguments: Any) -> None:
        of_group = {option: arguments.pop(option) for option in options}
        command(**arguments, **{name: group(**of_group)})

    own = [parameter for parameter in signature.parameters.values() if parameter.name != name]
    combined = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *options.values())]
    run.__signature__ = signature.replace(parameters=combined)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in combined}
    return run


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the model options to a command, which receives them as `model_options`."""
    return with_option_group(command, _model_options, "model_options")


def explicit_model_options(context: typer.Context) -> list[str]:
    """The model options that the user set, as arguments for another command."""
    names = inspect.signature(_model_options).parameters
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in names and source is not None and source.name != "DEFAULT":
            value = context.params[name]
            for one in value if isinstance(value, list | tuple) else [value]:
                arguments += [parameter.opts[0], str(one.value if isinstance(one, StrEnum) else one)]
    return arguments
