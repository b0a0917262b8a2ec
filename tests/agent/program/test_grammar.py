"""Which programs the grammar lets a language model write, with the real compiler; and that all of them can be read."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from llguidance import LLMatcher
from tokenizers import Tokenizer

from agent.program.evaluator import run_program
from agent.program.grammar import choice_grammar, program_grammar
from agent.program.values import BadProgram, local_time
from chat.types import Lark, Tool
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.grammar_compiler import GrammarCompiler

ALARM = {
    "time": {"type": "string", "pattern": "^([0-9]{1,2}(:[0-9][0-9])?( [ap]m)?|noon)$"},
    "day": {"type": "string"},
    "repeat": {"type": "string", "enum": ["daily", "weekdays"]},
}
TIMER = {name: {"type": "number"} for name in ("hours", "minutes")} | {"name": {"type": "string"}}
FUNCTIONS = (
    Tool("set_alarm", "", {"type": "object", "properties": ALARM, "required": ["time"]}),
    Tool("set_timer", "", {"type": "object", "properties": TIMER}),
    Tool("list_alarms"),
)
SUM = 'kids = 3\nprice = 2.5\nanswer = (kids + 1) * price, "dollars"'


@pytest.fixture(scope="module")
def compiler(tiny_tokenizer: Tokenizer) -> GrammarCompiler:
    end = [tiny_tokenizer.token_to_id("<|im_end|>")]
    return GrammarCompiler(TextTokenizer(tiny_tokenizer), tiny_tokenizer.get_vocab_size(), end)


def accepts(compiler: GrammarCompiler, program: str, begin: str = "", grammar: Lark | None = None) -> bool:
    source = (grammar or program_grammar(FUNCTIONS, begin)).source
    matcher = LLMatcher(compiler.tables, LLMatcher.grammar_from_lark(source))
    assert not matcher.is_error(), matcher.get_error()
    written = all(matcher.consume_token(token) for token in compiler.tables.tokenize_str(program))
    return written and matcher.is_accepting()


@pytest.mark.parametrize(
    "program",
    [
        SUM,
        "answer = now",
        'answer = time("6:00 pm") + hours(3)',
        'answer = (time("midnight") - now) / minutes(1), "minutes"',
        'answer = date("june 1") > today',
        'answer = convert_time(time("4 pm"), "here", "New York")',
        'answer = convert(1, "foot", "inch")',
        "answer = max(1, 2, 3) ** 2 - -1",
        'set_alarm("6:40 am", day="tomorrow", repeat="weekdays")',
        'set_alarm("noon", repeat="daily")',
        "set_timer()",
        'set_timer(minutes=1.5, name="eggs")\nlist_alarms()',
        "cost = 3\nlist_alarms()",
        'ask("For how long?")',
        'cannot("do that")',
        "talk()",
    ],
)
def test_a_program_may_be_written(compiler: GrammarCompiler, program: str) -> None:
    assert accepts(compiler, program)


@pytest.mark.parametrize(
    "program",
    [
        "",
        "I am sorry.",
        "import os",
        'answer = open("file")',
        "answer = now.year",
        "answer = [1]",
        "answer = 1; answer = 2",
        "now = 3\nanswer = now",
        "class = 25\nanswer = class",
        'answer = time("25" + "1")',
        'answer = time("soon")',
        "delete_notes()",
        "set_alarm()",
        'set_alarm("soon")',
        'set_alarm("noon", repeat="hourly")',
        'set_alarm("noon", repeat="daily", day="today")',
        'set_timer(minutes="five")',
        "set_timer(days=1)",
        "answer = 1234567890123456",
        'answer = "a\nb"',
        "x = 1\n" * 17 + "answer = x",
    ],
)
def test_anything_else_may_not(compiler: GrammarCompiler, program: str) -> None:
    assert not accepts(compiler, program)


def test_a_program_may_be_completed_from_its_beginning_only(compiler: GrammarCompiler) -> None:
    begin = 'kids = 3\nname = "A\\\\B"\nanswer = '
    assert accepts(compiler, f'{begin}kids + 1, "children"', begin)
    assert accepts(compiler, f"{begin}kids\nanswer = 2", begin)
    assert accepts(compiler, "price = 2.5\nanswer = 3 * price", "price = ")
    assert not accepts(compiler, "answer = kids", begin)
    assert not accepts(compiler, "price = 2.5", "price = ")


@pytest.mark.parametrize(
    ("program", "accepted"),
    [
        ("fact", True),
        ("choice\nnorth = 3 - 3\nanswer = north == 0 and north > -1", True),
        ('choice\nanswer = "Lea" if 3 > 2 else "Max" if 2 > 1 else "Ida"', True),
        ("choice\nsteps = 3\nturn_left()\nforward(steps + 1)\nanswer = distance() <= 4", True),
        ("choice\nforward()\nanswer = distance() == 0", False),
        ("choice\nanswer = 3 + 4", False),
        ("choice\nfact", False),
        ("answer = 3 > 4", False),
    ],
)
def test_a_program_for_a_choice_decides_or_says_that_there_is_nothing_to_compute(
    compiler: GrammarCompiler, program: str, accepted: bool
) -> None:
    assert accepts(compiler, program, grammar=choice_grammar("choice\n", "fact")) == accepted


def test_whatever_the_grammar_lets_a_model_write_is_read_or_refused(compiler: GrammarCompiler) -> None:
    compiler.compile(program_grammar(FUNCTIONS))
    parameters = {tool.name: list(tool.parameters.get("properties", {})) for tool in FUNCTIONS}
    source, dice, ended = LLMatcher.grammar_from_lark(program_grammar(FUNCTIONS).source), random.Random(5), 0
    for _ in range(40):
        matcher, tokens = LLMatcher(compiler.tables, source), []
        while not matcher.is_stopped() and len(tokens) < 300:
            mask = matcher.compute_bitmask()
            allowed = [token for token in range(8 * len(mask)) if mask[token // 8] >> token % 8 & 1]
            stops = [token for token in allowed if token in compiler.stop_tokens]
            tokens.append(stops[0] if stops else dice.choice(allowed))
            matcher.consume_token(tokens[-1])
        if tokens[-1] not in compiler.stop_tokens:
            continue
        ended += 1
        with suppress(BadProgram):
            run_program(compiler.tables.decode_str(tokens[:-1]), local_time(), parameters)
    assert ended > 10
