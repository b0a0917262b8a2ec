"""`rejoinder talk`: a conversation through this machine's microphone and loudspeaker."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from agent.documents.evidence import DocumentEvidence
from agent.language_model import LanguageModel
from agent.remote.remote_llm import RemoteLLM
from agent.tools.server_tools import ServerTools
from cli.errors import user_errors
from cli.options import with_options
from model.engine.conversation import Conversation
from server.serving.model_choice import resolve_model
from server.serving.options import AssistantOptions
from server.serving.runtime import load_engine, open_documents, open_remote_llm
from server.serving.speech import load_speech_models
from voice.local import AudioDevices, LocalConversation
from voice.playback import SessionSettings
from voice.speech_models import SpeechModels

app = typer.Typer(add_completion=False)

_out = Console()
_err = Console(stderr=True)


@app.command("talk")
@with_options
def talk(
    headphones: Annotated[
        bool, typer.Option(help="With headphones: keep the microphone open while the assistant speaks.")
    ] = False,
    microphone: Annotated[str | None, typer.Option(help="Name or number of the microphone.")] = None,
    loudspeaker: Annotated[str | None, typer.Option(help="Name or number of the loudspeaker.")] = None,
    *,
    options: AssistantOptions,
) -> None:
    """Talk to the assistant through this machine's microphone and loudspeaker."""
    with user_errors():
        devices = AudioDevices.find(microphone, loudspeaker)
        server_tools = ServerTools(options.tool_settings)
        documents = open_documents(options.docs, options.data, _err)
        model_options = resolve_model(options, options.data)
        speech_models, engine = load_speech_models(model_options, _err, options.data), load_engine(model_options, _err)
        remote_llm = open_remote_llm(options.remote_llm, _err)
        _out.print(
            "Start speaking; press Ctrl-C to quit."
            + ("" if headphones else " The microphone is off while the assistant speaks.")
        )
        asyncio.run(
            _talk(
                Conversation(engine),
                speech_models,
                devices,
                server_tools,
                full_duplex=headphones,
                documents=None if documents is None else DocumentEvidence(documents),
                remote=remote_llm,
            )
        )


async def _talk(
    language_model: LanguageModel,
    speech_models: SpeechModels,
    devices: AudioDevices,
    server_tools: ServerTools,
    *,
    full_duplex: bool,
    documents: DocumentEvidence | None,
    remote: RemoteLLM | None,
) -> None:
    async with server_tools.running():
        tools = server_tools.local_conversation()
        await LocalConversation(
            language_model,
            speech_models,
            devices,
            full_duplex=full_duplex,
            show_line=_print_line,
            settings=SessionSettings(tools=tools.declarations),
            tools=tools,
            documents=documents,
            remote=remote,
            on_start=lambda session: tools.connect(session.announce),
        ).run()


def _print_line(line: str) -> None:
    _out.print(line, markup=False, highlight=False, soft_wrap=True)
