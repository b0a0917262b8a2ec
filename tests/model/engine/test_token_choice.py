"""Steps that sample, follow grammars and have log probabilities on the device: with the same random numbers the text is
the one that the eager path makes one token at a time. On the CPU, in plain PyTorch, for conversations of all kinds that
share their steps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from chat.types import Message, Opening, Tool
from model.decode.constraint import Constraint, mask_logits
from model.decode.device_steps import TokenSettings
from model.decode.draft import NO_DRAFT, Path
from model.decode.draft_length import DraftLengthController
from model.decode.grammar import Choice, Grammar, JSONSchema, Regex
from model.decode.log_probabilities import TokenLogProbability
from model.decode.sampling import Sampler, Sampling
from model.decode.speculative import DraftSettings, SpeculativeDecoder
from model.decode.token_set import unpacked
from model.decode.tool_calls import ToolCallConstraint
from model.engine import engine as engine_module
from model.engine.batch_step import BatchStep
from model.engine.conversation import Conversation
from model.engine.cuda_graph import Attachment, CUDAGraphRunner, slot_capacity
from model.engine.device_state import DeviceState
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from model.engine.token_choice import TokenChoice
from model.nn.batch_drafter import BatchDrafter
from model.nn.forward_batch import num_features
from model.nn.kv_cache import KeyValueCache
from model.nn.kv_slab import KeyValueSlab
from tests.model.dialogues import SYSTEM, at_the_same_time, collect_progress, committed_text
from tests.model.engine.recorded_graphs import use_recorded_graphs
from tests.model.random_draft_head import random_block_drafter, random_draft_head

WEATHER = Tool(
    "get_weather",
    "the capital of France",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 6}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
)

CASES, TOGETHER, TOKENS, DRAFTS, CONTEXT = 200, 8, 14, 3, 120

GRAMMARS: list[Grammar | None] = [
    None,
    JSONSchema(
        {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["customer", "supplier"]}},
            "required": ["name", "kind"],
        }
    ),
    JSONSchema({"type": "array", "items": {"type": "integer"}, "maxItems": 4}),
    Regex("[a-f]{3,12}-[0-9]{2}"),
    Choice(("the capital", "hello to you", "the hello")),
]


@dataclass
class Case:
    """A response to be generated, what is generated, and how."""

    prompt: list[int]
    grammar: Grammar | None
    sampling: Sampling
    num_top: int | None
    drafting: bool
    stops: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    scores: list[TokenLogProbability] = field(default_factory=list)
    input: object = None

    def decoder(self, model: LoadedModel, cache: KeyValueCache, runner: CUDAGraphRunner | None) -> SpeculativeDecoder:
        self.tokens, self.scores = [], []
        return SpeculativeDecoder(
            cache,
            self.prompt,
            DraftSettings,
            Sampler(self.sampling, self.sampling.generator(torch.device("cpu"))),
            model.decoder.config.context_length,
            DraftLengthController({1: 1.0}, 0, ()),
            None if runner is None else partial(runner.attach, drafting=self.drafting),
            constraint=None if self.grammar is None else Constraint(model.grammars.compile(self.grammar)),
            num_top=self.num_top,
            stop_tokens=model.stop_tokens,
        )

    def take(self, decoder: SpeculativeDecoder, result: object) -> bool:
        """Take the result of a step. Returns whether the response goes on."""
        output = decoder.step(result)
        self.tokens += output.committed
        self.scores += output.log_probabilities
        if len(self.tokens) >= TOKENS or any(token in self.stops for token in output.committed):
            decoder.close()
            return False
        decoder.draft(TOKENS - len(self.tokens))
        self.input = decoder.next_input()
        return True

    @property
    def text(self) -> list[int]:
        """The tokens up to the end of the response."""
        end = next((n for n, token in enumerate(self.tokens, 1) if token in self.stops), TOKENS)
        return self.tokens[: min(end, TOKENS)]


def random_case(draw: random.Random, seed: int, stops: frozenset[int]) -> Case:
    temperature = draw.choice((0.0, 0.0, 0.6, 1.0, 1.4))
    sampling = Sampling(temperature, draw.choice((0, 0, 5, 40)), draw.choice((1.0, 1.0, 0.9, 0.5)), seed=seed)
    prompt = [draw.randrange(1, 250) for _ in range(draw.randint(2, 30))]
    num_top = draw.choice((None, None, None, 0, 3, 20))
    return Case(prompt, draw.choice(GRAMMARS), sampling, num_top, draw.random() < 0.85, stops)


def with_drafter(model: LoadedModel) -> LoadedModel:
    decoder, config = model.decoder, model.decoder.config
    head = random_draft_head(num_features(config), config.hidden, config.vocab_size, seed=1, size=256)
    rows = decoder.head_weight[head.vocabulary] @ head.matrices["output"]
    drafter = BatchDrafter(random_block_drafter(head), rows, decoder.embedding, decoder.device, decoder.dtype)
    return replace(model, adapter=None, draft_head=drafter)


@pytest.fixture(scope="module")
def engine(model: LoadedModel) -> Iterator[Engine]:
    """Everything takes the eager path."""
    engine = Engine(lambda: replace(model, adapter=None))
    yield engine
    engine.close()


def new_runner(model: LoadedModel, slots: int) -> CUDAGraphRunner:
    decoder, head = model.decoder, model.draft_head
    assert isinstance(head, BatchDrafter)
    slab = KeyValueSlab(decoder.config, decoder.dtype, decoder.device, slots, slot_capacity(CONTEXT, DRAFTS, 4))
    return CUDAGraphRunner(decoder, None, DRAFTS, slab, 4, head=head)


def generate_alone(model: LoadedModel, case: Case) -> None:
    """One token at a time, in forward passes of the host."""
    cache = model.decoder.new_cache()
    decoder = case.decoder(model, cache, None)
    case.input = decoder.next_input()
    while case.take(decoder, model.decoder.run([case.input])[0]):  # type: ignore[list-item]
        pass


def generate_together(model: LoadedModel, runner: CUDAGraphRunner, cases: Sequence[Case]) -> None:
    """On the device, but for prompts and what it cannot take."""
    active = []
    for case in cases:
        decoder = case.decoder(model, runner._slab.new_cache(), runner)
        case.input = decoder.next_input()
        active.append((case, decoder))
    while active:
        attached = {id(case.input): one for one in active if isinstance((case := one[0]).input, Attachment)}
        results = [] if not attached else runner.step([case.input for case, _ in attached.values()])  # type: ignore[misc]
        found: list[tuple[Case, SpeculativeDecoder, Any]] = [(*attached[id(one)], result) for one, result in results]
        others = [one for one in active if not isinstance(one[0].input, Attachment)]
        if others:
            logits = model.decoder.run([case.input for case, _ in others])  # type: ignore[misc]
            found += [(*one, rows) for one, rows in zip(others, logits, strict=True)]
        ended = [case for case, decoder, result in found if not case.take(decoder, result)]
        active = [one for one in active if all(one[0] is not case for case in ended)]


def drafts_that_are_often_right(
    patch: pytest.MonkeyPatch, expected: Sequence[list[int]], draw: random.Random
) -> Counter[str]:
    """In place of a random drafter's: what the texts go on with, now and then with an error."""
    set_drafts, seen = DeviceState.set_drafts, Counter[str]()

    def draft(state: DeviceState, slots: Tensor, drafts: Tensor, confidence: Tensor, result: Tensor) -> None:
        for row, slot in enumerate(slots.tolist()):
            so_far = state.history[slot, : int(state.past_length[slot]) + 1].tolist()
            text = next((text for text in expected if text[: len(so_far)] == so_far), [])
            follows = [*text[len(so_far) :][: drafts.shape[1]], *[5] * 6]
            follows[draw.randrange(6)] = 7
            drafts[row] = torch.tensor(follows[: drafts.shape[1]])
            seen["right"] += follows[0] == (text[len(so_far) :] or [-1])[0]
        set_drafts(state, slots, drafts, confidence, result)

    patch.setattr(DeviceState, "set_drafts", draft)
    return seen


def test_the_text_is_that_of_the_eager_path(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, model = random.Random(2), with_drafter(model)
    runner, steps, committed = new_runner(model, TOGETHER), Counter[bool](), Counter[bool]()
    launch = BatchStep.launch

    def counted(step: BatchStep, bucket: int) -> object:
        choosing = step._choice is not None
        steps[choosing] += 1
        result = launch(step, bucket)
        committed[choosing] += int(result[0][:, 0].sum())
        return result

    monkeypatch.setattr(BatchStep, "launch", counted)
    cases = [random_case(draw, seed, model.stop_tokens) for seed in range(CASES)]
    equal = 0
    for start in range(0, CASES, TOGETHER):
        group = cases[start : start + TOGETHER]
        for case in group:
            generate_alone(model, case)
        expected, scores = [case.text for case in group], [case.scores for case in group]
        texts = [case.prompt + case.tokens for case in group]
        with pytest.MonkeyPatch.context() as patch:
            seen = drafts_that_are_often_right(patch, texts, draw)
            generate_together(model, runner, group)
        assert seen["right"] > 5
        for case, text, values in zip(group, expected, scores, strict=True):
            assert case.text == text, case
            equal += 1
            if case.num_top is not None:
                for one, other in zip(case.scores[: len(text)], values, strict=False):
                    assert one.token == other.token and one.value == pytest.approx(other.value, abs=1e-3)
                    assert len(one.top) == len(other.top)
                    assert [v for _, v in one.top] == pytest.approx([v for _, v in other.top], abs=1e-3)
    assert equal == CASES and steps[True] > 200 and steps[False] > 5 and committed[True] > 500


async def test_replayed_steps_choose_what_the_eager_path_does(
    model: LoadedModel, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversations that sample, follow a grammar, call tools, begin in a given way, and a plain one share captured
    steps."""
    graphs = use_recorded_graphs(monkeypatch)
    monkeypatch.setitem(engine_module._MAX_SLOTS, "cpu", 6)
    replaying, hello = Engine(lambda: with_drafter(model), cuda_graphs=True), Message("user", "hello to you")
    options: list[dict[str, Any]] = [
        {"sampling": Sampling(0.9, top_p=0.9, seed=4), "top_log_probabilities": 2},
        {"sampling": Sampling(0.7, seed=5), "grammar": GRAMMARS[1]},
        {"tools": [WEATHER], "tool_choice": "required", "sampling": Sampling(0.5, seed=6)},
        {"tools": [WEATHER], "sampling": Sampling(0.8, seed=7)},
        {"grammar": Opening(("hello to the capital", "hello to you")), "sampling": Sampling(0.9, seed=8)},
        {},
    ]
    try:
        started = graphs.num_replayed
        found = await at_the_same_time(
            replaying,
            *(collect_progress(Conversation(replaying), SYSTEM, hello, max_tokens=40, **one) for one in options),
        )
        assert graphs.num_replayed - started > 10
        for one, progress in zip(options, found, strict=True):
            alone = await collect_progress(Conversation(engine), SYSTEM, hello, max_tokens=40, **one)
            assert committed_text(progress) == committed_text(alone)
            assert [p.tool_calls for p in progress if p.tool_calls] == [p.tool_calls for p in alone if p.tool_calls]
            assert [s.text for p in progress for s in p.scores] == [s.text for p in alone for s in p.scores]
    finally:
        replaying.close()


async def test_rules_are_what_a_constraint_does_to_logits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tool calls with optional arguments, of which there may be several. Where rules are silent, logits decide."""
    restrict, seen = ToolCallConstraint.restrict, Counter[str]()

    def compared(self: ToolCallConstraint, logits: Tensor, paths: Sequence[Path]) -> None:
        rules, expected = self.rules(paths[0].tokens), logits.clone()
        seen["silent"] += self.in_call and not rules
        restrict(self, logits, paths)
        for row, rule in enumerate(rules):
            if rule.lowered is not None:
                expected[row, torch.from_numpy(unpacked(rule.lowered, logits.shape[1]))] -= rule.by
                seen["lowered"] += 1
            if rule.allowed is not None:
                mask_logits(expected[row], rule.allowed)
            assert torch.equal(expected[row], logits[row])
            seen["rows"] += 1

    monkeypatch.setattr(ToolCallConstraint, "restrict", compared)
    for seed in range(8):
        hello, sampling = Message("user", "hello to you"), Sampling(1.0, seed=seed)
        options = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": True, "sampling": sampling}
        await collect_progress(Conversation(engine), SYSTEM, hello, max_tokens=80, **options)
    assert seen["rows"] > 30 and seen["lowered"] and seen["silent"]


def test_where_choices_cannot_be_captured_they_take_the_eager_path(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_recorded_graphs(monkeypatch)
    monkeypatch.setattr(TokenChoice, "choose", lambda *arguments: torch.empty(0).item())  # what a capture cannot do
    runner = new_runner(with_drafter(model), 1)
    runner.warm_up()
    assert "sampling and log probabilities are not captured" in caplog.text and runner.choice is None
    cache = runner._slab.new_cache()
    runner._decoder.forward([1, 2, 3], cache, logits="none")
    assert runner.attach(cache, 4, NO_DRAFT, TokenSettings(Sampler(), 0)) is None
    assert runner.attach(cache, 4, NO_DRAFT) is not None
