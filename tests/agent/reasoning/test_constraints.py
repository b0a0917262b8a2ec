"""Constraints on texts: how they are read, checked, held by a grammar, and what a problem says."""

from __future__ import annotations

import string

import pytest
from tokenizers import Tokenizer

from agent.reasoning.constraint_prompt import EXAMPLES, sentences
from agent.reasoning.constraints import (
    CONSTRAINTS,
    NO_CONSTRAINT,
    SOME_CONSTRAINTS,
    Constraint,
    compatible,
    read_constraints,
    text_grammar,
)
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.grammar_compiler import GrammarCompiler

LINES = {
    "words at least 3": ("one two three", "one two"),
    "words at most 2": ("one two", "one two three"),
    "sentences exactly 2": ('He said: "Go!" She went.', "One. Two. Three."),
    "sentences at most 1": ("no point at the end", "One. And a second"),
    "paragraphs exactly 2": ("One.\n\n***\n\nTwo,\nin two lines.", "One.\nTwo."),
    "bullet points exactly 2": ("Here:\n* one\n - two", "* one\n*two*"),
    "highlights at least 3": ("* **Name**: x\n* ***Age***: y\n*z*", "* one\n* two * three * four"),
    "sentences exactly 3": ("Dr. Smith came at 5 p.m. today. He left.\nBye", "1. Walk.\n2. Run."),
    "highlights at least 2": ("*one* and **two words**", "* a point\n* another"),
    "placeholders at least 2": ("[name], [a street]", "[name]"),
    "capital words at most 1": ("A NASA-like agency", "NASA and ESA"),
    'contains "rain"': ("Rainy days", "sunny days"),
    'contains "rain" at least 2': ("rain, Rain", "rain"),
    'contains "say "no""': ('they say "no"', "they say no"),
    'avoids "art"': ("a start", "Art is long"),
    'avoids "e"': ("a cat", "a dEer"),
    'avoids ","': ("one two", "one, two"),
    'starts with "Dear"': ("dear Sir", "My dear"),
    'ends with "Bye."': ("So long. Bye. ", "Bye. So long."),
    "lower case": ("it is, 3 times", "It is"),
    "upper case": ("IT IS, 3 TIMES", "It is"),
    "JSON": ('```json\n{"a": 1}\n```', '{"a": 1} is it'),
    "title": ("<<Rain>>\nIt rains.", "<Rain> <<>>"),
    "in quotation marks": ('"It rains."', '"It" rains.'),
}


@pytest.mark.parametrize("line", LINES)
def test_each_constraint_tells_a_text_that_follows_it_from_one_that_does_not(line: str) -> None:
    (constraint,) = read_constraints(line)
    follows, does_not = LINES[line]
    assert constraint.met(follows) and not constraint.met(does_not)
    assert constraint.problem(does_not).endswith((".", ">>."))


def test_a_problem_says_what_there_is_and_what_is_asked_for() -> None:
    words, rain = read_constraints('words at least 300\ncontains "rain" exactly 2')
    assert words.problem("It rains.") == "It has 2 words; at least 300 are asked for."
    assert rain.problem("It rains.") == 'It has "rain" 1 times; exactly 2 are asked for.'


@pytest.mark.parametrize(
    ("sentence", "line", "may"),
    [
        ("Write 100-150 words.", "words at least 100", True),
        ("Write 100–150 words.", "words at most 150", True),
        ("Use 3-5 sentences.", "sentences at most 5", True),
        ("Use 3-5 sentences.", "sentences at most 35", False),
        ("Write 1,200 words.", "words at least 1200", True),
    ],
)
def test_a_constraint_may_have_either_number_of_a_range(sentence: str, line: str, may: bool) -> None:
    (constraint,) = read_constraints(line)
    assert constraint.may_come_from(sentence) == may


def test_constraints_are_read_once_and_without_what_contradicts_another() -> None:
    assert read_constraints("none") == []
    read = compatible(read_constraints('words at most 9\nwords at most 9\ncontains "sun"\navoids "Sun"'))
    assert read == [Constraint("words", "", "at most", 9), Constraint("contains", "sun")]


@pytest.fixture(scope="module")
def compiler(tiny_tokenizer: Tokenizer) -> GrammarCompiler:
    end = tiny_tokenizer.token_to_id("<|im_end|>")
    return GrammarCompiler(TextTokenizer(tiny_tokenizer), tiny_tokenizer.get_vocab_size(), [end])


def test_what_the_examples_list_follows_the_grammar(compiler: GrammarCompiler) -> None:
    for sentence, listed in EXAMPLES:
        assert compiler.follows(listed, CONSTRAINTS), listed
        assert compiler.follows(listed, SOME_CONSTRAINTS) == (listed != NO_CONSTRAINT)
        assert sentences(sentence) and all(one.may_come_from(sentence) for one in read_constraints(listed)), sentence
    for line in LINES:
        assert compiler.follows(line, CONSTRAINTS) == (line != 'contains "say "no""'), line


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("lower case\nupper case", "lower case"),
        ('starts with "Yes"\nstarts with "No"', 'starts with "Yes"'),
        ("words at least 300\nwords at most 100", "words at least 300"),
        ("words exactly 5\nwords at least 7\nwords at most 9", "words exactly 5\nwords at most 9"),
        ("words at least 3\nwords at most 9", "words at least 3\nwords at most 9"),
        ('contains "o"\ncontains "o" at least 6', 'contains "o"\ncontains "o" at least 6'),
        ('avoids "rain"\ncontains "train"', 'avoids "rain"\ncontains "train"'),
        ('lower case\nstarts with "My"', 'lower case\nstarts with "my"'),
    ],
)
def test_of_constraints_that_exclude_each_other_the_first_is_kept(lines: str, kept: str) -> None:
    assert compatible(read_constraints(lines)) == read_constraints(kept)


@pytest.mark.parametrize("character", string.punctuation)
def test_the_grammar_holds_any_punctuation(compiler: GrammarCompiler, character: str) -> None:
    grammar = text_grammar(read_constraints(f'avoids "{character}"'))
    assert grammar is not None
    assert compiler.follows("wet", grammar) and not compiler.follows(f"we{character}t", grammar)
    grammar = text_grammar(read_constraints(f'ends with "a{character * 2}b"\nstarts with "{character}c"'))
    assert grammar is not None
    assert compiler.follows(f"{character}c wet a{character * 2}b", grammar) and not compiler.follows("wet", grammar)


def test_the_grammar_holds_characters_and_both_ends(compiler: GrammarCompiler) -> None:
    grammar = text_grammar(read_constraints('lower case\navoids ","\nstarts with "well: "\nends with "(bye)."'))
    assert grammar is not None
    assert compiler.follows("well: it rains\nagain 😀 (bye).", grammar)
    for text in ("well: It rains (bye).", "well: it rains, (bye).", "it rains (bye).", "well: it rains."):
        assert not compiler.follows(text, grammar), text
    quoted = text_grammar(read_constraints('in quotation marks\navoids "-"\nends with "."'))
    assert quoted is not None
    assert compiler.follows('"It rains."', quoted) and not compiler.follows('"It - rains."', quoted)
    assert text_grammar(read_constraints('words at most 9\navoids "art"')) is None
