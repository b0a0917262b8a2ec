"""Compiles grammars for one tokenizer with llguidance, and follows them token by token.

llguidance is imported when the first grammar is compiled: conversion runs on machines without it. Its matcher does not
raise; after an error it stays in it, so every call here asks for it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from chat.types import Opening
from model.decode import json_schema
from model.decode.grammar import Choice, Grammar, GrammarFailed, InvalidGrammar, JSONObject, JSONSchema, Lark, Regex
from model.decode.grammar import lark_string as _quoted
from model.decode.token_set import TokenSet, contains, num_bytes, packed, unpacked

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from model.checkpoint.tokenizer import TextTokenizer

_log = logging.getLogger("rejoinder.model")

Allowed = int | TokenSet
"""The tokens that may come next: a single one, or a set."""

JSON_LAYOUT = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}
"""Compact JSON as chat templates write it, so that most tokens are forced and none is white space without end. Without
\\u escapes, half of a surrogate pair cannot be written."""

_MAX_DIGITS = 20
"""Digits in a row in JSON, unless nothing but another digit may follow. A float64 has at most 17; llguidance bounds a
number's value but not its length."""

_OPEN_QUOTES = (b' "', b'["', b'{"')
"""Ends of forced text that are taken as tokens of their own. llguidance leaves the last token of forced text to the
model, because what follows might be merged with it. Letters and digits never are, after a quote; other characters may
be, but cost a forward pass for every string."""

_VALUE_ENDS = b'"}],'
"""Characters that end a value in JSON, or that follow a number."""

_MAX_COMPILED = 64
"""Compiled grammars that are kept, the most recently used ones: a server has few tools and response formats."""

_MAX_SOURCE = 64 << 10
"""Characters of a choice, a regular expression or a context-free grammar. llguidance finds the text that they force in
one go, in which nothing else of the process runs: 0.16 s for 3,000 options that begin with the same 50 characters."""

_ANY_OBJECT = {
    "type": "object",
    "additionalProperties": {"$ref": "#/$defs/value"},
    "$defs": {
        "value": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/value"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
            ]
        }
    },
}


@dataclass(frozen=True)
class JSONStructure:
    """Sets of tokens.

    Attributes:
        after_string, after_other: tokens that go on with another property, and tokens that end the object: after an
            open string, whose quote they close, and after any other value.
        newline, with_newline: the line break, and tokens that have one besides other characters.
    """

    after_string: tuple[TokenSet, TokenSet]
    after_other: tuple[TokenSet, TokenSet]
    newline: TokenSet
    with_newline: TokenSet


class GrammarCompiler:
    """Compiles grammars. Safe to use from several threads; the first use takes about a second.

    Args:
        tokenizer: the checkpoint's tokenizer.
        vocabulary: rows of the output head. Checkpoints pad it, so it may be larger than the tokenizer's vocabulary.
        stop_tokens: ids that end a response.
    """

    def __init__(self, tokenizer: TextTokenizer, vocabulary: int, stop_tokens: Iterable[int]) -> None:
        self._tokenizer, self.vocabulary = tokenizer, vocabulary
        self.stop_tokens = tuple(sorted(stop_tokens))
        self._lock = threading.Lock()
        self._tables: LLTokenizer | None = None
        self._start = lru_cache(_MAX_COMPILED)(self._new_matcher)

    def preload(self) -> None:
        """Do what the first use would wait for: a second or two. Without llguidance, nothing."""
        try:
            self.compile(JSONObject())
        except InvalidGrammar as error:
            _log.debug("grammars cannot be used: %s", error)
        else:
            _ = self.word_starts, self.structure

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        """A matcher at the grammar's start.

        Raises:
            InvalidGrammar: the grammar cannot be enforced.
        """
        is_json = isinstance(grammar, (JSONSchema, JSONObject))
        try:
            source = self._source(grammar)
        except (TypeError, RecursionError) as error:
            raise InvalidGrammar(f"the schema cannot be read: {error}") from None
        return self.matcher(source, is_json=is_json)

    def matcher(self, source: str, *, is_json: bool) -> GrammarMatcher:
        """A matcher at the start of a grammar in llguidance's own form.

        Raises:
            InvalidGrammar: the grammar cannot be enforced.
        """
        matcher = self._start(source)
        if matcher.is_error():
            raise InvalidGrammar(_first_line(matcher.get_error()))
        try:
            return GrammarMatcher(matcher.deep_copy(), self, is_json=is_json)
        except GrammarFailed as error:
            raise InvalidGrammar(f"nothing follows this grammar ({error})") from None

    def follows(self, text: str, grammar: Grammar) -> bool:
        """Whether a complete text follows a grammar. Raises InvalidGrammar."""
        matcher = self.compile(grammar)
        try:
            for token in self.tables.tokenize_str(text):
                matcher.forced = ()  # another way to split the same text counts, too
                matcher.consume(token)
            matcher.consume(self.stop_tokens[0])
        except GrammarFailed:
            return False
        return True

    def schema_source(self, schema: Any) -> Any:
        """The JSON Schema to compile in place of this one: bounded, with the layout of `JSON_LAYOUT`.

        Raises:
            InvalidGrammar: the schema cannot be enforced; its path is the subschema that is to blame.
        """
        json_schema.check(schema)
        for candidate in (json_schema.bounded(schema), schema):  # our own bounds never make a schema invalid
            laid_out = _with_layout(candidate)
            if not self._schema_error(laid_out):
                return laid_out
        raise json_schema.locate_error(schema, lambda part: self._schema_error(_with_layout(json_schema.bounded(part))))

    @property
    def tables(self) -> LLTokenizer:
        """The tokenizer as llguidance needs it."""
        with self._lock:
            if self._tables is None:
                self._tables = self._new_tables()
            return self._tables

    @cached_property
    def word_starts(self) -> TokenSet:
        """The tokens that begin with a letter or a digit, of any alphabet."""
        starts = (text[:1] for text in self._texts())
        return packed(np.fromiter((one.isalnum() or one >= b"\x80" for one in starts), np.bool_, self.vocabulary))

    @cached_property
    def structure(self) -> JSONStructure:
        """The tokens that end a value or an object in JSON."""
        texts = self._texts()

        def tokens(condition: Callable[[bytes], bool]) -> TokenSet:
            return packed(np.fromiter(map(condition, texts), np.bool_, self.vocabulary))

        return JSONStructure(
            after_string=(tokens(lambda text: text[:2] == b'",'), tokens(lambda text: text[:2] == b'"}')),
            after_other=(tokens(lambda text: text[:1] == b","), tokens(lambda text: text[:1] == b"}")),
            newline=tokens(lambda text: text == b"\n"),
            with_newline=tokens(lambda text: b"\n" in text and text != b"\n"),
        )

    @cached_property
    def value_ends(self) -> tuple[int, ...]:
        """The tokens that are just a character that ends a value in JSON."""
        return tuple(self.tables.tokenize_bytes(bytes([character]))[0] for character in _VALUE_ENDS)

    def _texts(self) -> list[bytes]:
        """What each token of the vocabulary stands for."""
        decode = self.tables.decode_bytes
        return [decode([token]) for token in range(self.vocabulary)]

    def _new_tables(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise InvalidGrammar("grammars and tools need the package llguidance, which is not installed") from None
        if not self.stop_tokens:
            raise InvalidGrammar("this model has no token that ends a response, so it cannot follow a grammar")
        return LLTokenizer(
            self._tokenizer.to_json(),
            n_vocab=self.vocabulary,
            eos_token=list(self.stop_tokens),
            slices=LLTokenizer.json_slices(),
        )

    def _source(self, grammar: Grammar) -> str:
        from llguidance import LLMatcher

        if isinstance(grammar, JSONSchema):
            return LLMatcher.grammar_from_json_schema(json.dumps(self.schema_source(grammar.schema)))
        if isinstance(grammar, JSONObject):
            return LLMatcher.grammar_from_json_schema(json.dumps(self.schema_source(_ANY_OBJECT)))
        if isinstance(grammar, (Choice, Opening)):
            if not grammar.options:
                raise InvalidGrammar("a choice needs at least one option")
            grammar = Lark("start: " + " | ".join(map(_quoted, grammar.options)))
        source = grammar.pattern if isinstance(grammar, Regex) else grammar.source
        if len(source) > _MAX_SOURCE:
            raise InvalidGrammar(f"the grammar has more than {_MAX_SOURCE >> 10} KiB: shorten it")
        if isinstance(grammar, Regex):
            return LLMatcher.grammar_from_regex(source)
        return LLMatcher.grammar_from_lark(source)

    def _schema_error(self, schema: Any) -> str:
        from llguidance import LLMatcher

        try:
            source = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        except ValueError as error:
            return str(error)
        matcher = self._start(source)
        return matcher.get_error() if matcher.is_error() else ""

    def _new_matcher(self, source: str) -> LLMatcher:
        from llguidance import LLMatcher

        return LLMatcher(self.tables, source, log_level=0)


class GrammarMatcher:
    """Follows a grammar along one response.

    Forced tokens, where the grammar leaves no other text, are always taken: as the tokenizer would encode that text,
    whichever way the model would have split it. So they are the same with and without drafts.

    Attributes:
        forced: the tokens that must come next; empty where there is a choice.
        finished: whether a stop token was consumed.
    """

    def __init__(self, matcher: LLMatcher, compiler: GrammarCompiler, *, is_json: bool) -> None:
        self._matcher, self._compiler, self._is_json = matcher, compiler, is_json
        self._digits = 0
        self.finished = False
        self.forced: tuple[int, ...] = ()
        self._known: tuple[tuple[int, ...], list[Allowed]] | None = None
        """The newest result of `along` and its tokens: drafts are cut by what is allowed, and their logits masked."""
        self._find_forced()

    def consume(self, token: int) -> None:
        """Follow the grammar along one token.

        Raises:
            GrammarFailed: the grammar does not allow it, or became too complex.
        """
        self._known = None
        if token in self._compiler.stop_tokens:
            if not (self.finished or self._matcher.is_accepting()):
                raise GrammarFailed("the response ended where its grammar does not allow that")
            self.finished, self.forced = True, ()
            return
        if self.finished or (self.forced and token != self.forced[0]) or not self._matcher.consume_token(token):
            raise GrammarFailed(f"token {token} does not follow the grammar: {self._error()}")
        if self._is_json:
            self._count_digits(token)
        if len(self.forced) > 1:
            self.forced = self.forced[1:]
        else:
            self._find_forced()

    def allowed(self) -> Allowed:
        """The tokens that may come next."""
        if self.forced:
            return self.forced[0]
        if self.finished:
            return self._compiler.stop_tokens[0]
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise GrammarFailed(f"the grammar cannot be followed any further: {self._error()}")
        return self._without_endless_digits(np.frombuffer(mask, np.uint8, num_bytes(self._compiler.vocabulary)))

    def may_end(self, allowed: Allowed) -> bool:
        """Whether the end of the response is allowed."""
        return any(allows(allowed, token) for token in self._compiler.stop_tokens)

    def along(self, tokens: Sequence[int]) -> list[Allowed]:
        """What is allowed before the first of `tokens`, after it, and so on, up to the first that is not allowed. The
        matcher stays where it is."""
        if self._known is not None and self._known[0] == tuple(tokens):
            return self._known[1]
        state = self._digits, self.forced, self.finished
        found, consumed = [self.allowed()], 0
        try:
            for token in tokens:
                if not allows(found[-1], token) or self.finished:
                    break
                self.consume(token)
                consumed += not self.finished
                found.append(self.allowed())
        finally:
            self._take_back(consumed)
            self._digits, self.forced, self.finished = state
        if tokens:
            self._known = tuple(tokens[: len(found) - 1]), found
        return found

    def ending(self, limit: int) -> tuple[int, ...]:
        """How JSON goes on if the value that is being written ends here: what ends it, and what the grammar forces
        after that. Empty if nothing would be gained by guessing it; see `continuation`."""
        if not self._is_json or self.forced or self.finished:
            return ()
        allowed = self.allowed()
        end = next((token for token in self._compiler.value_ends if allows(allowed, token)), None)
        return () if end is None else self.continuation(end, limit, merged=True)

    def continuation(self, token: int, limit: int, *, merged: bool = False) -> tuple[int, ...]:
        """A token and what the grammar forces after it. The matcher stays where it is.

        Empty if the token is not allowed, if nothing is forced after it, if that is more than `limit` tokens, or if the
        response ends with it: there is no next token then, which would be predicted in the same forward pass.

        Args:
            merged: encode the token's text with what follows it, as the model is used to.
        """
        if not allows(self.allowed(), token):
            return ()
        state, tables = (self._digits, self.forced, self.finished), self._compiler.tables
        consumed = 0
        try:
            self.consume(token)
            consumed = 1
            text = self._matcher.compute_ff_bytes()
            tokens = (token, *tables.tokenize_bytes(text))
            if merged:
                self._take_back(consumed)
                consumed = 0
                tokens = tuple(tables.tokenize_bytes(tables.decode_bytes([token]) + text))
            rest = list(tokens[consumed:])
            if not text or len(tokens) > limit or self._matcher.validate_tokens(rest) < len(rest):
                return ()
            for following in rest:
                self._matcher.consume_token(following)
                consumed += 1
            return () if self._matcher.is_stopped() else tokens
        finally:
            self._take_back(consumed)
            self._digits, self.forced, self.finished = state

    def _take_back(self, count: int) -> None:
        if count and not self._matcher.rollback(count):
            raise GrammarFailed(f"drafts could not be taken back: {self._error()}")

    def _find_forced(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailed(f"the grammar cannot be followed any further: {self._error()}")
        if self._matcher.is_stopped():
            self.forced = self._compiler.stop_tokens[:1]
        else:
            self.forced = tuple(self._matcher.compute_ff_tokens())
        if not self.forced and self._is_json:
            text = self._matcher.compute_ff_bytes()
            if text.endswith(_OPEN_QUOTES):
                self.forced = tuple(self._compiler.tables.tokenize_bytes(text))

    def _count_digits(self, token: int) -> None:
        text = self._compiler.tables.decode_bytes([token])
        stripped = text.rstrip(b"0123456789")
        self._digits = self._digits + len(text) if not stripped else len(text) - len(stripped)

    def _without_endless_digits(self, allowed: TokenSet) -> TokenSet:
        if self._digits < _MAX_DIGITS:
            return allowed
        decode = self._compiler.tables.decode_bytes
        tokens = unpacked(allowed, self._compiler.vocabulary)
        others = [token for token in tokens.nonzero()[0].tolist() if not decode([token])[:1].isdigit()]
        if not others:
            return allowed
        bounded = np.zeros_like(tokens)
        bounded[others] = True
        return packed(bounded)

    def _error(self) -> str:
        return _first_line(self._matcher.get_error()) or "it allows other tokens only"


def allows(allowed: Allowed, token: int) -> bool:
    """Whether a token may come next."""
    return allowed == token if isinstance(allowed, int) else contains(allowed, token)


def _with_layout(schema: Any) -> Any:
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        return schema
    layout = JSON_LAYOUT
    if "\\u00" in json.dumps(schema, ensure_ascii=False):  # a constant has a character that only an escape can write
        layout = {**layout, "json_allowed_escapes": f"{layout['json_allowed_escapes']}u"}
    return {**schema, "x-guidance": layout}


def _first_line(error: str) -> str:
    return error.strip().splitlines()[0][:300] if error.strip() else ""
