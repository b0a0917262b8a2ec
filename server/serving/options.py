"""The options of commands: name, type, default and help, by topic. The command line (`cli/options.py`), the environment
and, for `rejoinder serve` (`settings.py`), a file are read by these models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent.credentials import credential
from agent.remote.settings import RemoteSettings, Scope, check_url
from agent.tools.server_tools import ToolSettings
from chat.types import Effort
from model.decode.effort import DenoisingSchedule, UnmaskingRule, schedule_for_effort
from model.engine.engine import DEFAULT_CONTEXT, DecodingMode
from model.engine.loader import Drafts
from model.hub import catalog
from model.nn.decoder import CacheType, Precision
from server.serving.config_file import sentence

AUTO_MODEL = "auto"
"""Stands for the model that suits this machine (`model_choice.py`)."""

DEFAULT_VOICE = catalog.PIPER_JOE.name

_FileOrKeyword = Literal["auto", "none"] | Path


def option(
    default: Any,
    help: str,
    *,
    variable: str | None = None,
    metavar: str | None = None,
    ge: float | None = None,
    le: float | None = None,
) -> Any:
    """A field that is an option, of the same name with dashes.

    Args:
        variable: the environment variable that sets it, too.
        metavar: stands for its value in the help; None for its type.
        ge, le: the least and the greatest number.
    """
    extra: Any = {"metavar": metavar} if metavar else None
    return Field(default, description=help, validation_alias=variable, json_schema_extra=extra, ge=ge, le=le)


FROM_ENVIRONMENT = SettingsConfigDict(
    env_prefix="--", env_ignore_empty=True, case_sensitive=True, enable_decoding=False
)
"""Options that are also read from the variables that they name, and from no others: none begins with --. A prefix like
REJOINDER_ would make an option of REJOINDER_PORT, which Kubernetes sets in the pods beside a service of this name."""


class OptionGroup(BaseModel):
    """Options of one topic, which is the `title` of their panel in the help."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        coerce_numbers_to_str=True,
        validate_by_name=True,
        loc_by_alias=False,
        defer_build=True,  # a command that is not run needs no validator
    )

    @classmethod
    def options(cls) -> Iterator[tuple[str, str, FieldInfo]]:
        """The topic, name and description of each option, in the order of the topics."""
        for group in cls.__mro__:
            if issubclass(group, OptionGroup):
                for name in inspect.get_annotations(group):
                    if name in cls.model_fields:
                        yield group.model_config["title"] or "", name, cls.model_fields[name]


class DiffusionOptions(OptionGroup, title="Diffusion decoding (--decoding blocks)"):
    """How blocks of text are denoised."""

    effort: Effort = option(
        "medium", "Confidence that a token of a block needs; of drafts, their denoising steps at most (1, 1, 2, 3)."
    )
    max_steps: int | None = option(
        None, "Maximum diffusion steps for each 32 tokens of a block, or of a forward pass's drafts.", ge=1, le=64
    )
    rule: UnmaskingRule = option("threshold", "How diffusion decoding selects the tokens that a step accepts.")
    block_size: int | None = option(
        None, "Tokens of a block: LLaDA, Dream and MDLM only, others have the size they were trained on.", ge=1, le=256
    )
    blocks_in_flight: int = option(
        1, "Blocks that diffusion decoding works on at once: LLaDA, Dream and MDLM only.", ge=1, le=8
    )
    edit_threshold: float | None = option(
        None,
        "Diffusion decoding replaces an accepted token when another one's probability exceeds this: I-DLM and "
        "converted models only.",
        ge=0,
        le=1,
    )

    @property
    def schedule(self) -> DenoisingSchedule:
        """What these options make of the effort's schedule."""
        return schedule_for_effort(
            self.effort, self.max_steps, self.rule, self.blocks_in_flight, self.edit_threshold, self.block_size
        )


class ClassifierOptions(DiffusionOptions, title="Classifiers and programs"):
    """What decides when a turn is over, what is declined, and how tasks are done."""

    turn_completion: _FileOrKeyword = option(
        "auto", "Turn completion classifier: a file from `rejoinder convert`, auto (the bundled one) or none."
    )
    request_classifier: _FileOrKeyword = option(
        "auto",
        "Recognizes requests that the assistant must decline: a file from `rejoinder convert`, auto (the "
        "bundled one) or none.",
    )
    call_gate: _FileOrKeyword = option(
        "auto",
        "Tells whether a function on offer does what was asked for: a file from `rejoinder convert`, auto (the bundled "
        "one) or none.",
    )
    program_prefix: _FileOrKeyword = option(
        "auto",
        "What prompts for programs begin with: a file from `rejoinder convert programs`, auto (the bundled one) or "
        "none (then the model calls the tools itself).",
    )


class DecodingOptions(ClassifierOptions, title="Drafts and decoding"):
    """How text is generated."""

    adapter: _FileOrKeyword = option(
        "auto", "What drafts: a file from `rejoinder convert`, auto (the bundled one) or none."
    )
    drafts: Drafts = option(
        "auto",
        "What drafts: diffusion (a block drafter), recurrent (a draft head), masked (an adapter), none, or auto "
        "(the first of these that there is for the model).",
    )
    decoding: DecodingMode | None = option(
        None,
        "verified: speculative decoding, with the base model's exact output. blocks: diffusion decoding of "
        "whole blocks, unverified.",
    )
    temperature: float = option(0.0, "0 is greedy decoding; higher values sample.", ge=0, le=2)


class HardwareOptions(DecodingOptions, title="Devices and memory"):
    """Where models run, and how much memory they take."""

    device: str = option("auto", "auto, cpu, cuda or cuda:N.")
    speech_device: str = option(
        "cpu", "Device of speech recognition and synthesis: cpu, cuda, cuda:N, or auto (a GPU where possible)."
    )
    precision: Precision | None = option(None, "Default: int8 on the CPU, as stored in the file on a GPU.")
    context: int = option(DEFAULT_CONTEXT, "Tokens that a conversation or a completion may span.", ge=512)
    kv_cache_dtype: CacheType = option(
        "auto",
        "Format of keys and values: auto, or int8, which takes about a quarter of the memory (CPU with int8 weights).",
    )


class ModelOptions(HardwareOptions, title="Models"):
    """Which models to load, and how they run. `model` is `auto` until `resolve_model` has replaced it; which recognizer
    `asr` stands for is decided when it is loaded (`speech.py`)."""

    model: str = option(
        AUTO_MODEL,
        "auto (the largest installed one that is fast enough), a name from `rejoinder models list`, a GGUF "
        "file, a safetensors folder, or a model on the Hugging Face hub: org/repo[@revision][:file or quantization].",
    )
    voice: Annotated[tuple[str, ...], BeforeValidator(lambda names: names or (DEFAULT_VOICE,))] = option(
        (DEFAULT_VOICE,),
        "A name from `rejoinder models list`, a Piper .onnx file or a Kokoro voice's .bin file. "
        "Repeatable: conversations choose, and the first is the default.",
    )
    asr: str = option(
        AUTO_MODEL,
        "Speech recognition: auto (the largest installed model that is quick enough), a name from `rejoinder models "
        "list`, a folder with a Whisper model of CTranslate2, or one on the hub, like Systran/faster-whisper-small.",
    )
    lexicon: Path | None = option(None, 'How words are said: a TOML file of lines like: Siobhan = "/ʃɪˈvɔːn/".')
    family: str | None = option(
        None, "Architecture of a model folder (list: docs/design); default: from its config.json."
    )


class ToolOptions(OptionGroup, title="Tools and documents"):
    """What the assistant may call and read."""

    tools: tuple[Path, ...] = option((), "Python file whose functions the assistant may call; repeatable.")
    mcp_config: Path | None = option(None, 'MCP servers to use: a JSON file with "mcpServers".')
    no_builtin_tools: bool = option(False, "Without clock, calculator, timers and notes.")
    docs: tuple[str, ...] = option(
        (), "Answer from these documents: a name or folder from `rejoinder docs list`, or all; repeatable."
    )
    data: Path | None = option(None, "Folder for keys, usage, timers, notes and documents.", variable="REJOINDER_DATA")


class RemoteModelOptions(OptionGroup, title="A bigger model"):
    """A language model on another server."""

    llm_url: str = option("", "A bigger language model: an OpenAI-compatible server, like https://llm.example.org/v1.")
    llm_model: str = option("", "Name of the model there.")
    llm_key_env: str = option("REJOINDER_LLM_KEY", "Environment variable or credential that holds its API key.")
    llm_for: Scope = option("hard", "Which questions it answers: hard ones, or all.")
    llm_first_token_seconds: float = option(
        RemoteSettings.first_token_s,
        "The local model answers when nothing has come from it after this time.",
        ge=0.1,
        le=120,
    )
    llm_seconds: float = option(RemoteSettings.total_s, "How long one of its answers may take.", ge=1, le=600)
    _remote_llm: RemoteSettings | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _read_key(self) -> Self:
        """Read the key in this process: replicas on other machines do not have the variable."""
        if bool(self.llm_url) != bool(self.llm_model):
            raise ValueError("--llm-url, the server, and --llm-model, the name of a model there, belong together")
        if self.llm_url:
            key = credential(self.llm_key_env) or ""
            self._remote_llm = RemoteSettings(
                self.llm_url, self.llm_model, key, self.llm_for, self.llm_first_token_seconds, self.llm_seconds
            )
        return self

    @property
    def remote_llm(self) -> RemoteSettings | None:
        """The server, with its key; None without one."""
        return self._remote_llm


class WebOptions(OptionGroup, title="Weather and web search"):
    """Servers that tools ask."""

    weather_url: str = option("", "A server with Open-Meteo's API for the weather, like https://api.open-meteo.com.")
    weather_places_url: str = option(
        "", "A server with Open-Meteo's geocoding API; default: theirs, or the same server as --weather-url."
    )
    weather_home: str = option("", "The place whose weather is meant if the user names none.")
    weather_units: Literal["metric", "imperial"] = option("metric", "metric or imperial.")
    search_url: str = option("", "A SearXNG server to search the web with, like https://searx.example.org.")

    @model_validator(mode="after")
    def _check_urls(self) -> Self:
        if not self.weather_url and (self.weather_places_url or self.weather_home):
            raise ValueError("--weather-places-url and --weather-home need --weather-url")
        for url, option, example in (
            (self.weather_url, "--weather-url", "https://api.open-meteo.com"),
            (self.weather_places_url, "--weather-places-url", "https://geocoding-api.open-meteo.com"),
            (self.search_url, "--search-url", "https://searx.example.org"),
        ):
            if url:
                check_url(url, option, example)
        return self


class AssistantOptions(ToolOptions, RemoteModelOptions, WebOptions, ModelOptions, BaseSettings):
    """The options of every command that holds conversations."""

    model_config = FROM_ENVIRONMENT

    @property
    def tool_settings(self) -> ToolSettings:
        """The server's own tools."""
        weather = None
        if self.weather_url:
            from agent.tools.weather import WeatherSettings

            weather = WeatherSettings(self.weather_url, self.weather_places_url, self.weather_home, self.weather_units)
        return ToolSettings(self.tools, self.mcp_config, not self.no_builtin_tools, self.data, weather, self.search_url)


Options = TypeVar("Options", bound=OptionGroup)


def load(options: type[Options], given: Mapping[str, Any]) -> Options:
    """What was given on the command line, with what the environment and the file add to it.

    Raises:
        ValueError: an option, a variable or a line of the file is wrong; a sentence that names it.
        OSError: the file cannot be read.
    """
    try:
        return options(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        origin = "" if name in given or not name else f"{options.model_fields[name].validation_alias}: "
        raise ValueError(origin + sentence(first, f"--{name.replace('_', '-')}")) from None
