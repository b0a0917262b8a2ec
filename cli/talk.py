"""`rejoinder talk`: a conversation through this machine's microphone and loudspeaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

import typer

from agent.documents.evidence import DocumentEvidence
from agent.tools.server_tools import ServerTools
from cli.console import say, stderr, stdout, user_errors
from cli.first_start import confirm_downloads
from cli.options import YesOption, with_options
from model.engine.conversation import Conversation
from server.serving.model_choice import resolve_model
from server.serving.options import AssistantOptions
from server.serving.runtime import load_engine, open_documents, open_remote_llm
from server.serving.speech import load_speech_models
from voice.events import SessionEvent
from voice.local import LocalConversation, find_device
from voice.playback import SessionSettings
from voice.session import VoiceSession

app = typer.Typer(add_completion=False)


@app.command("talk")
@with_options
def talk(
    headphones: Annotated[
        bool, typer.Option(help="With headphones: keep the microphone open while the assistant speaks.")
    ] = False,
    microphone: Annotated[str | None, typer.Option(help="Name or number of the microphone.")] = None,
    loudspeaker: Annotated[str | None, typer.Option(help="Name or number of the loudspeaker.")] = None,
    yes: YesOption = False,
    *,
    options: AssistantOptions,
) -> None:
    """Talk to the assistant through this machine's microphone and loudspeaker."""
    with user_errors():
        devices = find_device("input", microphone), find_device("output", loudspeaker)
        confirm_downloads(options, yes=yes)
        server_tools = ServerTools(options.tool_settings)
        documents = open_documents(options.docs, options.data, stderr)
        model_options = resolve_model(options, options.data)
        speech_models = load_speech_models(model_options, stderr, options.data)
        engine, remote_llm = load_engine(model_options, stderr), open_remote_llm(options.remote_llm, stderr)

        async def converse() -> None:
            async with server_tools.running():
                tools = server_tools.local_conversation()

                def new_session(on_event: Callable[[SessionEvent], None]) -> VoiceSession:
                    session = VoiceSession(
                        Conversation(engine),
                        speech_models,
                        on_event,
                        SessionSettings(tools=tools.declarations),
                        tools=tools,
                        documents=None if documents is None else DocumentEvidence(documents),
                        remote=remote_llm,
                    )
                    tools.connect(session.announce)
                    return session

                await LocalConversation(new_session, *devices, full_duplex=headphones, show_line=say).run()

        stdout.print(
            "Start speaking; press Ctrl-C to quit."
            + ("" if headphones else " The microphone is off while the assistant speaks.")
        )
        asyncio.run(converse())
