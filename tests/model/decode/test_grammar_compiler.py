"""Matchers: what they allow, force and take back, and the faults that other engines had."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from chat.types import Opening
from lab.benchmarks.random_schemas import random_schema
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.grammar import (
    Choice,
    Grammar,
    GrammarFailed,
    InvalidGrammar,
    JSONObject,
    JSONSchema,
    Lark,
    Regex,
    csv,
    xml,
)
from model.decode.grammar_compiler import Allowed, GrammarCompiler, GrammarMatcher, allows
from model.decode.token_set import packed, unpacked

PADDING = 7
"""Rows of the output head after the tokenizer's last token."""


@pytest.fixture(scope="module")
def compiler(tiny_tokenizer: Tokenizer) -> GrammarCompiler:
    rows = tiny_tokenizer.get_vocab_size() + PADDING
    return GrammarCompiler(TextTokenizer(tiny_tokenizer), rows, [tiny_tokenizer.token_to_id("<|im_end|>")])


def choices(matcher: GrammarMatcher) -> list[int]:
    return tokens_of(matcher.allowed(), matcher._compiler)


def tokens_of(allowed: Allowed, compiler: GrammarCompiler) -> list[int]:
    if isinstance(allowed, int):
        return [allowed]
    tokens: list[int] = unpacked(allowed, compiler.vocabulary).nonzero()[0].tolist()
    return tokens


def follow(
    compiler: GrammarCompiler, grammar: Grammar, choose: Callable[[list[int]], int], limit: int = 300
) -> tuple[str, bool]:
    """The text that `choose` writes under a grammar, and whether it came to an end."""
    matcher, tokens = compiler.compile(grammar), []
    while not matcher.finished and len(tokens) < limit:
        tokens.append(choose(choices(matcher)))
        matcher.consume(tokens[-1])
    return compiler.tables.decode_str(
        [token for token in tokens if token not in compiler.stop_tokens]
    ), matcher.finished


def test_what_the_first_use_needs_can_be_loaded_before(tiny_tokenizer: Tokenizer) -> None:
    rows = tiny_tokenizer.get_vocab_size()
    fresh = GrammarCompiler(TextTokenizer(tiny_tokenizer), rows, [tiny_tokenizer.token_to_id("<|im_end|>")])
    fresh.preload()
    assert fresh._tables is not None and "word_starts" in vars(fresh)
    GrammarCompiler(TextTokenizer(tiny_tokenizer), rows, []).preload()  # it cannot be used, which is no error yet


def test_the_end_of_a_value_is_guessed_with_what_is_forced_after_it(compiler: GrammarCompiler) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 9}, "days": {"type": "integer", "minimum": 1, "maximum": 99},
            "note": {"type": "string"}, "more": {"type": "string"},
        },
        "required": ["city", "days", "note"],
    }  # fmt: skip
    matcher, tables = compiler.compile(JSONSchema(schema)), compiler.tables

    def write(text: str) -> str:
        """Continue with a text; returns how the value would end."""
        for token in tables.tokenize_str(text):
            while matcher.forced:
                matcher.consume(matcher.forced[0])
            matcher.consume(token)
        assert len(matcher.ending(20)) < 3 or matcher.ending(2) == ()
        return tables.decode_str(list(matcher.ending(20)))

    assert matcher.ending(9) == ()  # the beginning is forced
    assert write("Pa") == '", "days": ' == write("ris")
    before = matcher.allowed()
    ending = matcher.ending(20)
    assert np.array_equal(before, matcher.allowed())
    for token in ending[:2]:
        matcher.consume(token)
    assert write("1") == ', "note": "'
    matcher.consume(matcher.ending(20)[0])
    assert write("x") == ""  # another property may follow, or nothing
    text_only = compiler.compile(Regex("[a-z]+"))
    assert text_only.ending(9) == ()


@pytest.mark.parametrize(
    "grammar",
    [
        Choice(tuple(f"{'x' * 100}{n}" for n in range(1000))),
        Regex("|".join(f"{'x' * 100}{n}" for n in range(1000))),
        Lark("start: " + " | ".join(f'"{"x" * 100}{n}"' for n in range(1000))),
    ],
)
def test_a_grammar_that_holds_up_the_process_is_refused(compiler: GrammarCompiler, grammar: Grammar) -> None:
    """llguidance takes 0.16 s to find what 3,000 options with the same 50 characters force, and nothing else runs."""
    with pytest.raises(InvalidGrammar, match="more than 64 KiB"):
        compiler.compile(grammar)


@pytest.mark.parametrize("padding", [PADDING, 64])
def test_a_mask_is_as_wide_as_the_output_head(tiny_tokenizer: Tokenizer, padding: int) -> None:
    """A narrower mask ended an engine (vLLM 50924)."""
    rows = (tiny_tokenizer.get_vocab_size() + padding) // padding * padding
    compiler = GrammarCompiler(TextTokenizer(tiny_tokenizer), rows, [tiny_tokenizer.token_to_id("<|im_end|>")])
    allowed = compiler.compile(Regex("[a-z]+")).allowed()
    assert isinstance(allowed, np.ndarray)
    assert allowed.shape == packed(np.zeros(rows, np.bool_)).shape == (-(-rows // 32) * 4,)
    assert not unpacked(allowed, rows)[tiny_tokenizer.get_vocab_size() :].any()


def test_random_texts_of_random_schemas_are_valid(compiler: GrammarCompiler) -> None:
    rng = random.Random(5)
    valid = 0
    for _ in range(150):
        schema = random_schema(rng)
        text, finished = follow(compiler, JSONSchema(schema), rng.choice)
        if finished:
            Draft202012Validator(schema).validate(json.loads(text))
            valid += 1
    assert valid > 50  # strings of random characters rarely end by themselves


@given(st.integers(0, 10_000), st.data())
def test_drafts_are_taken_back(compiler: GrammarCompiler, seed: int, data: st.DataObject) -> None:
    """Drafts that advanced the automaton for good broke others (vLLM 44006, 53181, 46118), also across the end of the
    response (vLLM 25905)."""
    rng = random.Random(seed)
    grammar = JSONSchema(random_schema(rng))
    matcher, twin = compiler.compile(grammar), compiler.compile(grammar)
    for _ in range(data.draw(st.integers(1, 12))):
        if matcher.finished:
            break
        path: list[int] = []
        drafts = [rng.randrange(compiler.vocabulary) for _ in range(3)]
        if rng.random() < 0.7:  # begin with tokens that are allowed
            for _ in range(rng.randint(1, 3)):
                last = matcher.along(path)[-1]
                path.append(rng.choice(tokens_of(last, compiler)))
        matcher.along([*path, *drafts, *compiler.stop_tokens, *drafts])
        assert choices(matcher) == choices(twin)
        assert matcher.forced == twin.forced
        token = rng.choice(choices(matcher))
        matcher.consume(token)
        twin.consume(token)


def test_masks_along_drafts_are_those_of_a_matcher_that_consumed_them(compiler: GrammarCompiler) -> None:
    rng = random.Random(3)
    grammar = JSONSchema({"type": "array", "items": {"type": "string"}, "minItems": 2})
    matcher, tokens = compiler.compile(grammar), []
    for _ in range(25):
        tokens.append(rng.choice(choices(matcher)))
        matcher.consume(tokens[-1])
    along, stepwise = compiler.compile(grammar).along(tokens), compiler.compile(grammar)
    assert len(along) == len(tokens) + 1
    for allowed, token in zip(along, tokens, strict=False):
        assert np.array_equal(allowed, stepwise.allowed())
        stepwise.consume(token)


def test_along_stops_at_the_first_draft_that_is_not_allowed(compiler: GrammarCompiler) -> None:
    matcher = compiler.compile(Regex("[ab]{4}"))
    a, b, c = (compiler.tables.tokenize_str(letter)[0] for letter in "abc")
    assert len(matcher.along([a, b, c, a])) == 3


def test_a_finished_grammar_allows_the_end_only(compiler: GrammarCompiler) -> None:
    """A mask on a finished grammar failed in SGLang (15373)."""
    matcher = compiler.compile(Choice(("hello",)))
    for token in [*matcher.forced]:
        matcher.consume(token)
    assert matcher.forced == compiler.stop_tokens
    matcher.consume(compiler.stop_tokens[0])
    assert matcher.finished
    assert matcher.allowed() == compiler.stop_tokens[0]
    assert matcher.along([5, 6]) == [compiler.stop_tokens[0]]
    with pytest.raises(GrammarFailed):
        matcher.consume(5)


def test_a_token_that_is_not_allowed_is_an_error(compiler: GrammarCompiler) -> None:
    a, b = (compiler.tables.tokenize_str(letter)[0] for letter in "ab")
    matcher = compiler.compile(Regex("[ac]{2,3}"))
    with pytest.raises(GrammarFailed):
        matcher.consume(compiler.stop_tokens[0])
    with pytest.raises(GrammarFailed):
        matcher.consume(b)
    with pytest.raises(GrammarFailed):  # llguidance does not leave this state
        matcher.consume(a)


def test_every_matcher_of_a_grammar_starts_at_its_beginning(compiler: GrammarCompiler) -> None:
    first = compiler.compile(Regex("[ab]c"))
    first.consume(choices(first)[0])
    assert len(choices(compiler.compile(Regex("[ab]c")))) == 2


@pytest.mark.parametrize("schema", [{}, True, {"type": "number"}, {"type": "integer"}, {"minimum": 0.5}])
def test_a_number_does_not_go_on_without_end(compiler: GrammarCompiler, schema: object) -> None:
    """The schema `{}` gave an endless number (vLLM 52011)."""
    decode = compiler.tables.decode_str
    for digits in ("0123456789", "9", "0.", "-1", "1.0", "1e"):

        def choose(ids: list[int], digits: str = digits) -> int:
            wanted = [token for token in ids if token not in compiler.stop_tokens and decode([token]) in [*digits]]
            return wanted[-1] if wanted else ids[-1]

        text, finished = follow(compiler, JSONSchema(schema), choose, 200)  # type: ignore[arg-type]
        assert finished, text
        json.loads(text)


def test_white_space_between_values_has_an_end(compiler: GrammarCompiler) -> None:
    """Endless white space used up max_tokens (vLLM 38696)."""
    schema = JSONSchema({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}})
    space = [compiler.tables.tokenize_str(mark)[0] for mark in (" ", "\n", "\t")]

    def choose(ids: list[int]) -> int:
        return next((token for token in ids if token in space), ids[0])

    text, finished = follow(compiler, schema, choose, 60)
    assert finished
    assert text == json.dumps(json.loads(text))


def test_longer_digits_are_possible_where_nothing_else_is(compiler: GrammarCompiler) -> None:
    schema = JSONSchema({"type": "string", "pattern": "^[0-9]{40}$"})
    text, finished = follow(compiler, schema, lambda ids: ids[0])
    assert finished
    assert len(json.loads(text)) == 40


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (csv(["name", "a,b"]), 'name,"a,b"\nhello,1\n,"x, y"'),
        (xml("order", ["id", "note"]), "<order><id>17</id><note>a &amp; b</note></order>"),
        (xml("orders", ["id"], max_records=3), "<orders><item><id>1</id></item><item><id>2</id></item></orders>"),
        (JSONObject(), '{"a": [1, {"b": null}], "c": "d"}'),
        (Choice(('say "hi"', "back\\slash")), 'say "hi"'),
        (Lark('start: "a" ("b" | "c")+ "d"'), "abcbd"),
        (JSONSchema({"const": "\0"}), '"\\u0000"'),
    ],
)
def test_ready_grammars_accept_what_they_should(compiler: GrammarCompiler, grammar: Grammar, text: str) -> None:
    assert compiler.follows(text, grammar)
    assert not compiler.follows(text + "\0", grammar)
    assert not compiler.follows(text[:-1], grammar)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "strnig"}, "type"),
        ({"type": "object", "properties": {"city": {"type": ["string", "strin"]}}}, "properties.city.type"),
        ({"type": "object", "properties": {"c": {"not": {"type": "string"}}}}, "properties.c.not"),
        ({"type": "array", "items": {"type": "string", "pattern": "(?=a)b"}}, "items.pattern"),
        ({"type": "array", "items": {"type": "string", "format": "postcode"}}, "items.format"),
        ({"properties": {"l": {"items": {"oneOf": [{"type": "string"}, {}]}}}}, "properties.l.items.oneOf"),
        ({"$defs": {"p": {"if": {}, "then": {"type": "null"}}}, "$ref": "#/$defs/p"}, "$defs.p.if"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}}, "properties.a.$ref"),
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "properties.a.$ref"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "minItems": "2"}]}, "anyOf.1.minItems"),
        ({"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}, "properties.a.enum"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"contains": {"type": "string"}}, "contains"),
    ],
)
def test_an_unsupported_or_wrong_keyword_is_refused_by_its_path(
    compiler: GrammarCompiler, schema: dict[str, object], path: str
) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        compiler.compile(JSONSchema(schema))
    assert caught.value.path == path


@pytest.mark.parametrize("grammar", [Regex("["), Regex("(?=a)"), Choice(()), Lark("start: foo"), Lark("")])
def test_a_wrong_grammar_is_refused(compiler: GrammarCompiler, grammar: Grammar) -> None:
    with pytest.raises(InvalidGrammar):
        compiler.compile(grammar)


def test_a_schema_that_nothing_can_follow_is_refused(compiler: GrammarCompiler) -> None:
    for schema in ({"type": "integer", "minimum": 5, "maximum": 3}, False):
        with pytest.raises(InvalidGrammar):
            compiler.compile(JSONSchema(schema))


def test_a_model_without_a_stop_token_cannot_follow_grammars(tiny_tokenizer: Tokenizer) -> None:
    endless = GrammarCompiler(TextTokenizer(tiny_tokenizer), tiny_tokenizer.get_vocab_size(), [])
    with pytest.raises(InvalidGrammar, match="ends a response"):
        endless.compile(Regex("a"))


def test_allows() -> None:
    assert allows(3, 3)
    assert not allows(3, 4)
    assert allows(packed(np.array([False, True])), 1)


@pytest.mark.parametrize("kind", [Choice, Opening])
@pytest.mark.parametrize("code", [*range(32), 0x7F, 0x85, 0x2028])
def test_a_text_with_a_control_character_can_be_enforced(compiler: GrammarCompiler, kind: type, code: int) -> None:
    text = f'The "rules"{chr(code)} \\of France'
    for options in ((text,), (text, "Paris")):
        assert compiler.follows(text, kind(options))
