"""`rejoinder convert data`: the base model writes the text that its adapter learns from.

It invents the user's side (asked for by topic and kind), answers in the assistant's voice, is asked again, and what
loops or repeats is thrown away. People's own conversations can be mixed in: their side is kept, the answers are the
model's own, because those are what drafts have to match.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.chat import TextMessage
from model.convert import prompts as ask
from model.convert.corpus import Corpus, Text, loops
from model.convert.generate import Prompt, generate
from model.engine import LoadedModel
from model.gguf_file import BadModelFile

Report = Callable[[str, int, int], None]
"""(what is being written, texts finished, texts in all)."""

LONGEST = 768
"""Tokens of a text; a longer conversation is cut to its last turns."""

_ANSWER = {"json": 128, "tool": 96, "list": 128}
"""Tokens of an answer at most, by kind; 80 for the others: spoken answers are short."""

_SAME_ANSWER = 3
"""An answer that was given this often ("I'm sorry, …") teaches nothing more."""


@dataclass(frozen=True)
class Recipe:
    """How much of what is written.

    Attributes:
        tokens: answer tokens wanted in all.
        seed: of all draws.
        lanes: texts written side by side.
        drawn: share of answers drawn at temperature 0.7; the others are greedy, as the assistant answers.
        instructions: system prompts, beside the built-in ones.
        own: folder of people's own conversations, JSONL with `messages`.
        shares: how often each kind is asked for.
    """

    tokens: int = 300_000
    seed: int = 1
    lanes: int = 96
    drawn: float = 0.3
    instructions: tuple[str, ...] = ()
    own: Path | None = None
    shares: dict[str, float] = field(
        default_factory=lambda: {"chat": 0.44, "list": 0.16, "numbers": 0.12, "json": 0.1, "tool": 0.1, "passage": 0.08}
    )


@dataclass(frozen=True)
class _Asked:
    """A conversation that waits for the assistant's answer."""

    kind: str
    messages: tuple[TextMessage, ...]
    tools: tuple[dict[str, Any], ...] = ()
    ids: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


def write_corpus(
    model: LoadedModel, base: str, recipe: Recipe, *, forbidden: Iterable[str], report: Report = lambda *_: None
) -> Corpus:
    """Let the base model write until there are `recipe.tokens` answer tokens.

    Args:
        base: sha256 of the model's weights.
        forbidden: what the user never says: the evaluation's prompts.

    Raises:
        BadModelFile: a file of `recipe.own` cannot be read.
    """
    return _Author(model, base, recipe, forbidden, report).write()


class _Author:
    def __init__(self, model: LoadedModel, base: str, recipe: Recipe, forbidden: Iterable[str], report: Report) -> None:
        self._model, self._base, self._recipe, self._report = model, base, recipe, report
        self._draw = random.Random(recipe.seed)
        self._seen = {_plain(said) for said in forbidden}
        self._answers: Counter[tuple[int, ...]] = Counter()
        self._texts: list[Text] = []
        self._written = self._looped = 0
        self._round = 0
        self._kinds: Counter[str] = Counter()

    def write(self) -> Corpus:
        recipe = self._recipe
        if recipe.own is not None:
            self._answer([*_own_conversations(recipe.own, self._personas())], "answering your own conversations")
        barren = 0
        while self._written < recipe.tokens:
            before = self._written
            asked = self._invent()
            answered = self._answer(asked, "answering")
            again = [text for text in answered if text.kind in ("chat", "list", "numbers")]
            follow = self._follow_up(self._draw.sample(again, len(again) // 3))
            self._answer(follow, "answering again")
            barren = barren + 1 if self._written == before else 0
            if barren == len(recipe.shares):
                raise BadModelFile("this model writes nothing that is new: it cannot teach itself")
        self._draw.shuffle(self._texts)
        about = {
            "texts": str(len(self._texts)),
            "answer_tokens": str(self._written),
            "looped_and_left_out": str(self._looped),
            "seed": str(recipe.seed),
        }
        return Corpus(tuple(self._texts), self._base, about)

    def _personas(self) -> tuple[str, ...]:
        # The assistant's own instructions are what it will be run with: half of all texts have them.
        own = self._recipe.instructions
        return own * max(1, len(ask.PERSONAS) // max(1, len(own))) + ask.PERSONAS

    def _invent(self) -> list[_Asked]:
        """New conversations up to the assistant's first answer, of the kinds that are behind their share."""
        shares = self._recipe.shares
        wanted = sorted(shares, key=lambda kind: self._kinds[kind] / shares[kind])[: max(1, (len(shares) + 1) // 2)]
        asked: list[_Asked] = []
        for kind in wanted:
            self._kinds[kind] += 1  # a kind that yields nothing falls back behind the others
            topics = self._draw.sample(ask.TOPICS, self._recipe.lanes // 2)
            asked += getattr(self, f"_invent_{kind}", lambda topics, kind=kind: self._invent_plain(kind, topics))(
                topics
            )
        self._draw.shuffle(asked)
        return asked

    def _invent_plain(self, kind: str, topics: Sequence[str]) -> list[_Asked]:
        lists = self._say([ask.QUESTIONS[kind].format(topic=topic) for topic in topics], f"inventing {kind}")
        return [self._turn(kind, line) for text in lists for line in self._fresh(text)]

    def _invent_json(self, topics: Sequence[str]) -> list[_Asked]:
        turns = [self._draw.choice(ask.JSON_TURNS).format(topic=topic) for topic in topics]
        return [self._turn("json", turn) for turn in turns if self._is_new(turn)]

    def _invent_tool(self, topics: Sequence[str]) -> list[_Asked]:
        sets = [self._draw.choice(ask.TOOL_SETS) for _ in topics]
        lists = self._say(
            [ask.TOOL_REQUESTS.format(does=self._draw.choice(tools)[0]) for tools in sets], "inventing tool"
        )
        return [
            self._turn("tool", line, tuple(tool for _, tool in tools))
            for tools, text in zip(sets, lists, strict=True)
            for line in self._fresh(text)[:4]
        ]

    def _invent_passage(self, topics: Sequence[str]) -> list[_Asked]:
        passages = self._say([ask.PASSAGE.format(topic=topic) for topic in topics], "inventing passages", most=160)
        lists = self._say([ask.PASSAGE_QUESTIONS.format(passage=text) for text in passages], "inventing questions")
        return [
            self._turn("passage", ask.PASSAGE_TURN.format(passage=passage, question=line))
            for passage, text in zip(passages, lists, strict=True)
            for line in self._fresh(text)
        ]

    def _turn(self, kind: str, said: str, tools: tuple[dict[str, Any], ...] = ()) -> _Asked:
        persona = self._draw.choice(self._personas())
        if kind in ("json", "list") and self._draw.random() < 0.5:
            persona = "You are a helpful assistant."
        return _Asked(kind, (TextMessage("system", persona), TextMessage("user", said)), tools)

    def _say(self, requests: Sequence[str], what: str, most: int = 140) -> list[str]:
        """The base model's drawn answers to plain requests."""
        template, tokenizer = self._model.template, self._model.tokenizer
        prompts = [Prompt(tuple(template.encode([TextMessage("user", said)])), most, 1.0) for said in requests]
        return [tokenizer.decode(ids) for ids in self._generate(prompts, what)]

    def _fresh(self, text: str) -> list[str]:
        """The lines of a list that nobody said before; the last may be cut off and is left out."""
        lines = [re.sub(r"^[\s\d.)\-*•]+|[\"“”`]", "", line).strip() for line in text.split("\n")[:-1]]
        return [line for line in lines if 8 <= len(line) <= 200 and self._is_new(line)]

    def _is_new(self, said: str) -> bool:
        plain = _plain(said)
        if plain in self._seen:
            return False
        self._seen.add(plain)
        return True

    def _answer(self, asked: Sequence[_Asked], what: str) -> list[_Asked]:
        """Write the answers, keep what is worth keeping, and return those conversations with their answer."""
        model, recipe = self._model, self._recipe
        prompts, whole = [], []
        for text in asked:
            ids = text.ids or self._encoded(text)
            if len(ids) + 160 > LONGEST:
                continue
            drawn = 0.7 if self._draw.random() < recipe.drawn else 0.0
            prompts.append(Prompt(ids, _ANSWER.get(text.kind, 80), drawn))
            whole.append(text)
        kept = []
        for text, prompt, answer in zip(whole, prompts, self._generate(prompts, what), strict=True):
            self._answers[tuple(answer)] += 1
            if loops(answer):
                self._looped += 1
                continue
            if len(answer) < 4 or self._answers[tuple(answer)] > _SAME_ANSWER:
                continue
            span = (len(prompt.tokens), len(prompt.tokens) + len(answer))
            spans, ids = (*text.spans, span), (*prompt.tokens, *answer)
            if text.spans:  # the conversation goes on: the longer text takes the place of the shorter
                self._texts = [old for old in self._texts if old.tokens != text.ids[: text.spans[-1][1]]]
            self._texts.append(Text(ids, spans, text.kind))
            self._written += len(answer)
            self._kinds[text.kind] += len(answer)
            if answer[-1] in model.stop_tokens:
                said = TextMessage("assistant", model.tokenizer.decode(answer))
                kept.append(_Asked(text.kind, (*text.messages, said), text.tools, ids, spans))
        return kept

    def _follow_up(self, answered: Sequence[_Asked]) -> list[_Asked]:
        """The user goes on: the model writes that side too, in its own template."""
        asked, whole = [], []
        for text in answered:
            empty = self._model.template.encode([*text.messages, TextMessage("user", "")])
            opening = self._opening(tuple(empty), text.ids)
            if opening is not None:
                asked.append(Prompt(opening, 32, 1.0))
                whole.append(text)
        follow = []
        for text, said in zip(whole, self._generate(asked, "going on"), strict=True):
            words = self._model.tokenizer.decode(said).strip()
            if said[-1] not in self._model.stop_tokens or len(words) < 4 or not self._is_new(words):
                continue
            messages = (*text.messages, TextMessage("user", words))
            ids = self._encoded(_Asked(text.kind, messages, text.tools))
            if ids[: len(text.ids)] == text.ids:  # else the answer's tokens are not how its text is encoded
                follow.append(_Asked(text.kind, messages, text.tools, ids, text.spans))
        return follow

    def _opening(self, empty: tuple[int, ...], ids: tuple[int, ...]) -> tuple[int, ...] | None:
        """A conversation up to where the user's next words begin, from one whose next user message is empty."""
        if empty[: len(ids)] != ids:
            return None
        stops = [n for n in range(len(ids), len(empty)) if empty[n] in self._model.stop_tokens]
        return empty[: stops[0]] if stops else None

    def _encoded(self, text: _Asked) -> tuple[int, ...]:
        return tuple(self._model.template.encode(list(text.messages), tools=text.tools))

    def _generate(self, prompts: Sequence[Prompt], what: str) -> list[list[int]]:
        self._round += 1
        recipe = self._recipe

        def report(done: int) -> None:
            self._report(f"{what} ({len(prompts)} texts)", self._written, recipe.tokens)

        seed = recipe.seed * 1_000_003 + self._round
        stop = self._model.stop_tokens
        return generate(self._model.decoder, prompts, stop, lanes=recipe.lanes, seed=seed, report=report)


def _plain(said: str) -> str:
    return re.sub(r"\W+", " ", said.lower()).strip()


def _own_conversations(folder: Path, personas: Sequence[str]) -> Iterable[_Asked]:
    """Every user turn of people's own conversations, with what was said before it."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise BadModelFile(f"{folder} holds no .jsonl files: one conversation a line, with `messages`")
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                said = [TextMessage(str(m["role"]), str(m["content"])) for m in json.loads(line)["messages"]]
            except (ValueError, KeyError, TypeError) as error:
                raise BadModelFile(
                    f"{path} line {number} is no conversation ({error!r}); expected "
                    '{"messages": [{"role": "user", "content": "…"}, …]}'
                ) from None
            if not said or said[0].role != "system":
                said.insert(0, TextMessage("system", personas[0]))
            for n, message in enumerate(said):
                if message.role == "user":
                    yield _Asked("own", tuple(said[: n + 1]))
