"""Sessions whose voice writes down what it would pronounce."""

from __future__ import annotations

from lab.benchmarks.conversation.asking import asking
from model.engine.engine import Engine


async def test_what_the_voice_gets_of_an_answer_is_written_down(tiny_engine: Engine) -> None:
    async with asking(tiny_engine) as ask:
        said = await ask(["Hello.", "Good morning."], ["Say that again."])
    assert [(one.text, " ".join(one.spoken)) for one in said] == [("Good morning.", "Good morning.")]
