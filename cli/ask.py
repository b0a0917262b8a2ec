"""`rejoinder ask`: one turn without a server, through the same session that the server uses."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from agent.documents.evidence import DocumentEvidence
from agent.language_model import Source
from agent.tools.protocol import Announcement
from agent.tools.server_tools import ServerTools
from agent.tools.user_data import Alarm
from cli.console import say, stderr, stdout, user_errors
from cli.first_start import confirm_downloads
from cli.options import YesOption, with_options
from model.engine.conversation import Conversation
from server.serving.model_choice import resolve_model
from server.serving.options import AssistantOptions, option
from server.serving.runtime import load_engine, open_documents, open_remote_llm
from server.serving.speech import load_speech_models
from voice import events
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, BadAudio
from voice.audio.wav import read_wav, write_wav
from voice.history import FunctionCall, Item
from voice.playback import SessionSettings
from voice.session import VoiceSession
from voice.speech_models import UnloadedSpeechModels

app = typer.Typer(add_completion=False)

_BLOCK = RECOGNITION_RATE
"""Samples of the audio blocks that the session receives: 1 s."""

_RINGS_LATER = "(It is announced by `rejoinder talk`, or by the next `rejoinder ask` once it is due.)"


class AskOptions(AssistantOptions, title="Options"):
    """A question as a WAV file, where the response goes, and whether to say what was decided."""

    wav: Path | None = option(None, "The question as a WAV file.")
    out: Path | None = option(None, "Write the spoken response to this WAV file.")
    explain: bool = option(False, "Print what was decided, and why.")


async def run(text: str | None, options: AskOptions, *, as_json: bool) -> None:
    """Ask the question, as text or as a WAV file, and print the response.

    Raises:
        BadAudio: the WAV file cannot be read or contains no speech.
        ValueError: the transcription or the response failed.
    """
    recording = read_wav(options.wav) if options.wav else None
    server_tools = ServerTools(options.tool_settings)
    documents = open_documents(options.docs, options.data, stderr)
    model_options = resolve_model(options, options.data)
    load = partial(load_speech_models, model_options, stderr, options.data)
    spoken = recording is not None or options.out is not None
    speech_models, engine = load() if spoken else UnloadedSpeechModels(load), load_engine(model_options, stderr)
    remote_llm = open_remote_llm(options.remote_llm, stderr)
    session_events: asyncio.Queue[events.SessionEvent] = asyncio.Queue()
    async with server_tools.running():
        tools = server_tools.local_conversation()
        settings = SessionSettings(detect_turns=False, speak=options.out is not None, tools=tools.declarations)
        session = VoiceSession(
            Conversation(engine, keep_instructions=True),
            speech_models,
            session_events.put_nowait,
            settings,
            tools=tools,
            documents=None if documents is None else DocumentEvidence(documents),
            remote=remote_llm,
        )
        alarms = _Alarms()
        tools.connect(alarms.due.append, alarms.report)
        try:
            if recording is None:
                session.history.add(Item("question", "user", text or "", spoken=False, complete=True))
            else:
                for start in range(0, len(recording), _BLOCK):
                    session.append(recording[start : start + _BLOCK], RECOGNITION_RATE)
                session.commit()
            session.respond()
            await _print_response(text or "", options, session_events, alarms, as_json=as_json)
        finally:
            await session.close()
            engine.close()
            if documents is not None:
                documents.close()


class _Alarms:
    """The user's timers, alarms and reminders: those that are due, and whether one was added."""

    def __init__(self) -> None:
        self.due: list[Announcement] = []
        self.added = False
        self._known: set[int] | None = None

    def report(self, ahead: list[Alarm], now: float) -> None:
        """Those that are not due yet, at the beginning and when they change."""
        ids = {alarm.id for alarm in ahead}
        self.added = self.added or (self._known is not None and bool(ids - self._known))
        self._known = ids


async def _print_response(
    transcript: str,
    options: AskOptions,
    session_events: asyncio.Queue[events.SessionEvent],
    alarms: _Alarms,
    *,
    as_json: bool,
) -> None:
    audio = [events.NO_SAMPLES]
    sources: tuple[Source, ...] = ()
    show = (lambda *_: None) if as_json else say
    while True:
        match await session_events.get():
            case events.FinalTranscript(text=text):
                if not text:
                    raise BadAudio(f"no speech was found in {options.wav}")
                transcript = text
                show(text, "dim")
            case events.TranscriptionFailed(reason=reason):
                raise ValueError(reason)
            case events.WordsSent(request=request):
                show(f"(sent to {request.model} at {request.host}: {request.reason})", "dim")
            case events.ResponseText(text=text):
                show(text, None, "")
            case events.ResponseSources(passages=passages):
                sources = passages
            case events.ResponseAudio(samples=samples):
                audio.append(samples)
            case events.ResponseDone() as done:
                break
    if done.status == "failed":
        raise ValueError(f"the response failed: {done.reason}")
    if options.out is not None:
        write_wav(options.out, np.concatenate(audio), OUTPUT_RATE)
    calls = [f"{item.name}({item.arguments})" for item in done.items if isinstance(item, FunctionCall)]
    if as_json:
        result = {
            "question": transcript,
            "answer": done.item.text.strip(),
            "sent_to": [request.host for request in done.metrics.remote],
            "decided": [{"policy": one.policy, "reason": one.reason} for one in done.metrics.decided],
            "tools": calls,
            "sources": [asdict(source) for source in sources],
            "announced": [announcement.text for announcement in alarms.due],
            "stages_ms": done.metrics.stages_ms(),
            "steps": done.metrics.steps,
            "tokens": done.metrics.tokens,
        }
        stdout.print_json(json.dumps(result))
    else:
        _print_details(options, done, sources, calls, alarms)
    for announcement in alarms.due:
        announcement.on_heard()


def _print_details(
    options: AskOptions, done: events.ResponseDone, sources: tuple[Source, ...], calls: list[str], alarms: _Alarms
) -> None:
    decisions = [f"{one.policy}: {one.reason}" for one in done.metrics.decided]
    found = [f"[{source.title}: {source.location}] {source.text}" for source in sources]
    say("")
    for line in [*(decisions + calls if options.explain else ()), *found]:
        say(line, "dim")
    for announcement in alarms.due:
        say(announcement.text)
    if alarms.added:
        say(_RINGS_LATER, "dim")


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """Without lines about calls within the answer, unless all is logged."""
    log = logging.getLogger("rejoinder.agent")
    level = log.level
    if not log.isEnabledFor(logging.DEBUG):
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


@app.command("ask")
@with_options
def ask_command(
    text: Annotated[str | None, typer.Argument(help="The question as text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    yes: YesOption = False,
    *,
    options: AskOptions,
) -> None:
    """Ask one question without a server."""
    if (text is None) == (options.wav is None):
        raise typer.BadParameter("give the question either as text or with --wav FILE")
    if text is not None and not text.strip():
        raise typer.BadParameter("the question is empty")
    with user_errors(), _quiet_agent():
        confirm_downloads(options, yes=yes, speech=bool(options.wav or options.out))
        asyncio.run(run(text, options, as_json=as_json))
