"""Is greedy text the base model's own, whatever drafts are made and whoever shares the pass?

    python -m tests.bench.identical [PROMPTS] [CONVERSATIONS] [DRAFTS] [MODEL]

Every prompt is answered one token a pass by a conversation that is alone, and with drafts in passes that so many
conversations share: with so many drafts in each, or with as many as pay (`pays`). Prints how many answers are the same
to the letter, and where others part.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from rich.console import Console
from rich.progress import track

from model.chat import TextMessage
from model.convert.evaluate import questions
from model.convert.prompts import PERSONAS
from model.decode.pace import Pace
from model.engine import Engine
from server.loading import DEFAULT_MODEL, Choice, load_engine
from voice.persona import INSTRUCTIONS

MOST_TOKENS = 32


class Always(Pace):
    """So many drafts a pass, whether or not they pay."""

    def __init__(self, pace: Pace, drafts: int) -> None:
        super().__init__({1: 1.0}, drafts, pace.acceptance)
        self._drafts = drafts

    def slots(self, conversations: int = 1, copied: int = 0) -> int:
        return self._drafts


def prompts(count: int) -> list[list[TextMessage]]:
    """The evaluation's questions, asked of one persona after the other."""
    asked = itertools.product((INSTRUCTIONS, *PERSONAS), (q for q in questions() if not q.tools))
    return [
        [TextMessage("system", persona), TextMessage("user", question.said)]
        for persona, question in itertools.islice(asked, count)
    ]


async def answer(engine: Engine, messages: list[TextMessage], drafting: bool) -> tuple[str, int, int]:
    """The text, its tokens and its passes."""
    text, tokens, steps = "", 0, 0
    async for progress in engine.conversation(drafting=drafting).reply(messages, max_tokens=MOST_TOKENS):
        text, tokens, steps = text + progress.committed, progress.tokens, progress.step
    return text, tokens, steps


async def run(engine: Engine, count: int, together: int) -> None:
    """Ask everything both ways, in turn, so that neither side has the quieter machine."""
    asked = prompts(count)
    same = tokens = steps = 0
    seconds = [0.0, 0.0]
    for start in track(range(0, len(asked), together), console=Console(stderr=True)):
        group = asked[start : start + together]
        began = time.perf_counter()
        ours = await asyncio.gather(*(answer(engine, messages, True) for messages in group))
        middle = time.perf_counter()
        alone = [await answer(engine, messages, False) for messages in group]
        seconds[0] += middle - began
        seconds[1] += time.perf_counter() - middle
        for messages, one, other in zip(group, ours, alone, strict=True):
            same += one[0] == other[0]
            tokens, steps = tokens + one[1], steps + one[2]
            if one[0] != other[0]:
                print(f"differs: {messages[-1].content!r}\n  drafted {one[0]!r}\n  alone   {other[0]!r}", flush=True)
        print(f"so far {same} of {start + len(group)}", file=sys.stderr, flush=True)
    print(f"identical: {same} of {len(asked)}; tokens per forward {tokens / steps:.3f}; {together} at a time")
    print(f"tokens/s: {tokens / seconds[0]:.1f} drafted, prompts read among them; {tokens / seconds[1]:.1f} alone")


def main() -> None:
    """Run with the command line's numbers."""
    count, together, drafts, model = [*sys.argv[1:], *("500", "4", "pays", DEFAULT_MODEL)[len(sys.argv) - 1 :]]
    engine = load_engine(Choice(model), Console(stderr=True))
    if drafts != "pays":
        engine.pace = Always(engine.pace, int(drafts))
    try:
        asyncio.run(run(engine, int(count), int(together)))
    finally:
        engine.close()


if __name__ == "__main__":
    main()
