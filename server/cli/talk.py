"""`rejoinder talk`: a conversation through this machine's microphone and loudspeaker."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from model.engine.conversation import Conversation
from server.cli.errors import user_errors
from server.cli.options import with_model_options
from server.deploy.model_choice import resolve_model
from server.deploy.runtime import ModelOptions, load_engine, load_speech_models
from voice.local import AudioDevices, LocalConversation

_out = Console()
_err = Console(stderr=True)


@with_model_options
def talk(
    headphones: Annotated[
        bool, typer.Option(help="With headphones: keep the microphone open while the assistant speaks.")
    ] = False,
    microphone: Annotated[str | None, typer.Option(help="Name or number of the microphone.")] = None,
    loudspeaker: Annotated[str | None, typer.Option(help="Name or number of the loudspeaker.")] = None,
    *,
    model_options: ModelOptions,
) -> None:
    """Talk to the assistant through this machine's microphone and loudspeaker."""
    with user_errors():
        devices = AudioDevices.find(microphone, loudspeaker)
        model_options = resolve_model(model_options)
        speech_models, engine = load_speech_models(model_options, _err), load_engine(model_options, _err)
        _out.print(
            "Start speaking; press Ctrl-C to quit."
            + ("" if headphones else " The microphone is off while the assistant speaks.")
        )
        asyncio.run(
            LocalConversation(
                Conversation(engine), speech_models, devices, full_duplex=headphones, show_line=_print_line
            ).run()
        )


def _print_line(line: str) -> None:
    _out.print(line, markup=False, highlight=False, soft_wrap=True)
