"""What a local tool adds to a spoken turn: the same session and models, with and without a call.

    python -m lab.benchmarks.local_tool [--model NAME] [--rounds 10]

Closed forms, requests and sums for which the model writes a program, and questions that need no tool alternate, in a
fresh conversation each, streamed in real time. A fourth series asks the latter in conversations without tools, which
shows what the choice costs.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich.console import Console

from agent.tools.server_tools import ServerTools, ToolSettings
from lab.benchmarks.session_turn import ask_aloud
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.app import read_ahead
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from server.serving.speech import load_speech_models
from voice.audio.codec import Samples
from voice.clauses import Clause
from voice.history import FunctionCall
from voice.playback import SessionSettings
from voice.speech_models import SpeechModels

CLOSED_FORMS = (
    "What time is it in Tokyo?", "What is seventeen times twenty three?", "What day is it today?",
    "How many kilometers are five miles?", "What is twenty percent of ninety?",
)  # fmt: skip
PROGRAMS = (
    "Set a timer for one minute.", "Wake me at seven tomorrow morning.", "Remind me to call Anna at five.",
    "Put milk and eggs on my shopping list.", "We are five people and the bill is eighty euros. How much is that each?",
)  # fmt: skip
WITHOUT_TOOL = (
    "What is the capital of France?", "Who wrote Romeo and Juliet?", "Why is the sky blue?",
    "What is the largest planet?", "How do I boil an egg?",
)  # fmt: skip


async def ask(
    engine: Engine, models: SpeechModels, question: Samples, tools: ServerTools | None
) -> tuple[float | None, str]:
    """Ask one question aloud. Returns the turn's latency in ms, and the calls and the response."""
    own = tools.local_conversation() if tools is not None else None
    settings = SessionSettings(tools=own.declarations if own is not None else ())
    response = await ask_aloud(Conversation(engine), models, question, settings, own)
    calls = [f"{item.name}({item.arguments})" for item in response.items if isinstance(item, FunctionCall)]
    return response.metrics.latency_ms(), " ".join([*calls, response.item.text.strip()])


async def measure(options: argparse.Namespace) -> None:
    """Ask, and print the figures."""
    console = Console(stderr=True)
    engine = load_engine(ModelOptions(model=options.model), console)
    models = load_speech_models(ModelOptions(model=options.model), console)
    voice = models.voices.find(options.voice)
    tools = ServerTools(ToolSettings(data=Path(tempfile.mkdtemp())))
    latencies: dict[str, list[float]] = defaultdict(list)
    await read_ahead(engine, tools)
    await ask(engine, models, voice.synthesize(Clause(CLOSED_FORMS[0], True)), tools)  # the first turn is slower
    for number in range(options.rounds):
        series = (
            ("closed form", CLOSED_FORMS[number % len(CLOSED_FORMS)], tools),
            ("program", PROGRAMS[number % len(PROGRAMS)], tools),
            ("no tool needed", WITHOUT_TOOL[number % len(WITHOUT_TOOL)], tools),
            ("no tools at all", WITHOUT_TOOL[number % len(WITHOUT_TOOL)], None),
        )
        for name, text, offered in series:
            question = voice.synthesize(Clause(text, True))
            latency, answer = await ask(engine, models, question, offered)
            print(f"{name}: {text} {latency:.0f} ms → {answer}" if latency is not None else f"{name}: {text} no answer")
            if latency is not None:
                latencies[name].append(latency)
    engine.close()
    for name, values in latencies.items():
        print(f"{name}: median {np.median(values):.0f} ms, p95 {np.percentile(values, 95):.0f} ms, {len(values)} turns")


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_05B.name)
    parser.add_argument("--voice", default="default")
    parser.add_argument("--rounds", type=int, default=10)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
