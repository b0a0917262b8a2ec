"""The options that name services on other machines, shared by every command that holds conversations."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent.remote.language_model import RemoteLLM
from agent.remote.settings import RemoteSettings, check_url
from agent.tools.server_tools import ToolSettings
from agent.tools.weather import WeatherSettings
from cli.options import with_option_group


class Units(StrEnum):
    """Units of the weather."""

    metric = "metric"
    imperial = "imperial"


class Questions(StrEnum):
    """Which questions the bigger model answers."""

    hard = "hard"
    all = "all"


@dataclass(frozen=True)
class Services:
    """What conversations may use of other machines.

    Attributes:
        remote_llm: a bigger language model; None if there is none.
        weather: where the weather comes from; None without it.
        search_url: a SearXNG server; empty without web search.
    """

    remote_llm: RemoteSettings | None = None
    weather: WeatherSettings | None = None
    search_url: str = ""

    def open_remote_llm(self, console: Console) -> RemoteLLM | None:
        """The bigger model. Says what is sent to it."""
        if self.remote_llm is None:
            return None
        remote_llm = RemoteLLM(self.remote_llm)
        console.print(remote_llm.notice, highlight=False)
        return remote_llm

    def tool_settings(
        self, files: tuple[Path, ...], mcp_config: Path | None, builtin: bool, data: Path | None
    ) -> ToolSettings:
        """The server's tools, with those that use services."""
        return ToolSettings(files, mcp_config, builtin, data, self.weather, self.search_url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be logged."""
        return (self.remote_llm.api_key,) if self.remote_llm is not None and self.remote_llm.api_key else ()


def _services(
    llm_url: Annotated[
        str,
        typer.Option(
            "--llm-url", help="A bigger language model: an OpenAI-compatible server, like https://llm.example.org/v1."
        ),
    ] = "",
    llm_model: Annotated[str, typer.Option("--llm-model", help="Name of the model there.")] = "",
    llm_key_env: Annotated[
        str, typer.Option("--llm-key-env", help="Environment variable that holds its API key.")
    ] = "REJOINDER_LLM_KEY",
    llm_for: Annotated[
        Questions, typer.Option("--llm-for", help="Which questions it answers: hard ones, or all.")
    ] = Questions.hard,
    llm_first_token_seconds: Annotated[
        float,
        typer.Option(
            "--llm-first-token-seconds",
            min=0.1,
            max=120,
            help="The local model answers when nothing has come from it after this time.",
        ),
    ] = RemoteSettings.first_token_s,
    llm_seconds: Annotated[
        float, typer.Option("--llm-seconds", min=1, max=600, help="How long one of its answers may take.")
    ] = RemoteSettings.total_s,
    weather_url: Annotated[
        str,
        typer.Option(
            "--weather-url", help="A server with Open-Meteo's API for the weather, like https://api.open-meteo.com."
        ),
    ] = "",
    weather_places_url: Annotated[
        str,
        typer.Option(
            "--weather-places-url",
            help="A server with Open-Meteo's geocoding API; default: theirs, or the same server as --weather-url.",
        ),
    ] = "",
    weather_home: Annotated[
        str, typer.Option("--weather-home", help="The place whose weather is meant if the user names none.")
    ] = "",
    weather_units: Annotated[Units, typer.Option("--weather-units", help="metric or imperial.")] = Units.metric,
    search_url: Annotated[
        str,
        typer.Option("--search-url", help="A SearXNG server to search the web with, like https://searx.example.org."),
    ] = "",
) -> Services:
    if bool(llm_url) != bool(llm_model):
        raise typer.BadParameter("--llm-url, the server, and --llm-model, the name of a model there, belong together")
    if not weather_url and (weather_places_url or weather_home):
        raise typer.BadParameter("--weather-places-url and --weather-home need --weather-url")
    try:
        remote_llm, weather = None, None
        if llm_url:
            key = os.environ.get(llm_key_env, "")
            remote_llm = RemoteSettings(llm_url, llm_model, key, llm_for.value, llm_first_token_seconds, llm_seconds)
        if weather_url:
            check_url(weather_url, "--weather-url", "https://api.open-meteo.com")
            if weather_places_url:
                check_url(weather_places_url, "--weather-places-url", "https://geocoding-api.open-meteo.com")
            weather = WeatherSettings(weather_url, weather_places_url, weather_home, weather_units.value)
        if search_url:
            check_url(search_url, "--search-url", "https://searx.example.org")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return Services(remote_llm, weather, search_url)


def with_service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of services to a command, which receives them as `services`."""
    return with_option_group(command, _services, "services")
