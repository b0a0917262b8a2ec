"""Responses that follow grammars and make tool calls, on tiny random weights."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from chat.progress import Progress
from chat.types import Ask, Message, Tool
from lab.benchmarks.random_schemas import outcome, random_schema
from model.decode.draft_length import DraftLengthController
from model.decode.effort import schedule_for_effort
from model.decode.grammar import Choice, Grammar, GrammarFailed, InvalidGrammar, JSONObject, JSONSchema, Lark, Regex
from model.decode.grammar_compiler import GrammarMatcher
from model.decode.sampling import Sampling
from model.decode.token_set import unpacked
from model.decode.tool_calls import call_matcher
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.engine.response_form import response_form
from tests.model.dialogues import HELLO, SYSTEM, at_the_same_time, collect_progress, committed_text
from tests.model.tiny_families import save_tiny_family

WEATHER = Tool(
    "get_weather",
    "the capital of France",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 6}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
)
HANG_UP = Tool("hang_up")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["customer", "supplier"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
}

SHORT = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "kind": {"enum": ["customer", "supplier"]}},
    "required": ["name", "kind"],
}

GRAMMARS: dict[str, Grammar] = {
    "schema": JSONSchema(PERSON),
    "regex": Regex(r"[a-f]{3,12}-[0-9]{2}(, again){0,2}"),
    "choice": Choice(("the capital", "the capital of France", "hello")),
    "Lark": Lark('start: ("hello" | "Paris" | " and "){4,9}'),
}


def constrained_one_by_one(model: LoadedModel, grammar: Grammar, messages: list[Message], count: int) -> list[int]:
    """The slow, obvious way: the whole text is read again for every token, and the best allowed one is taken."""
    matcher, ids, tokens = model.grammars.compile(grammar), model.template.encode(messages), []
    while len(tokens) < count and not matcher.finished:
        allowed = matcher.allowed()
        if isinstance(allowed, int):
            tokens.append(allowed)
        else:
            logits = model.decoder.forward(ids + tokens, model.decoder.new_cache(), logits="last")[-1]
            tokens.append(int(np.where(unpacked(allowed, len(logits)), logits.numpy(), -np.inf).argmax()))
        matcher.consume(tokens[-1])
    return tokens


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
async def test_constrained_text_is_the_same_with_drafts_and_forced_tokens(drafting: Engine, grammar: Grammar) -> None:
    model = drafting.model
    expected = constrained_one_by_one(model, grammar, [SYSTEM, HELLO], 80)
    detokenizer = model.tokenizer.detokenizer()
    text = "".join(detokenizer(token) for token in expected if token not in model.stop_tokens)
    for conversation in (Conversation(drafting), Conversation(drafting, drafting=False)):
        progress = await collect_progress(conversation, SYSTEM, HELLO, grammar=grammar, max_tokens=80)
        assert committed_text(progress) == text
        assert progress[-1].tokens == len(expected)


async def test_the_ends_of_short_values_are_guessed_on_a_cpu(model: LoadedModel) -> None:
    names = list("abcdefghijklmnop")
    values = {name: {"type": "integer", "minimum": 1, "maximum": 9999} for name in names}
    grammar = JSONSchema({"type": "object", "properties": values, "required": names})
    engine = Engine(lambda: model)
    try:
        greedy = [
            committed_text(await collect_progress(Conversation(engine, drafting=guess), SYSTEM, HELLO, grammar=grammar))
            for guess in (True, False)
        ]
        assert greedy[0] == greedy[1] and list(json.loads(greedy[0])) == names
        chosen, steps = [], []
        for guess in (True, False):
            progress = await collect_progress(
                Conversation(engine, drafting=guess), SYSTEM, HELLO, grammar=grammar,
                sampling=Sampling(1.0, seed=3), top_log_probabilities=0,
            )  # fmt: skip
            chosen.append(sum(score.log_probability < 0 for part in progress for score in part.scores))
            steps.append(progress[-1].step)
    finally:
        engine.close()
    assert steps[1] == chosen[1]
    assert steps[0] < chosen[0]  # some passes found the end of a value and the beginning of the next one


async def test_the_head_of_a_call_is_verified_with_the_end_of_the_prompt(model: LoadedModel) -> None:
    """From the second call on, when it is known how the model begins its calls."""
    model = replace(model)  # with a habit of its own
    engine = Engine(lambda: model)
    try:
        calls = [
            await collect_progress(
                Conversation(engine), SYSTEM, HELLO, tools=[WEATHER, HANG_UP], tool_choice="required", max_tokens=80
            )
            for _ in range(2)
        ]
        text = [
            committed_text(await collect_progress(Conversation(engine), SYSTEM, HELLO, tools=tools, max_tokens=20))
            for tools in ([WEATHER], [])
        ]
    finally:
        engine.close()
    first, second = ([delta for part in call for delta in part.tool_calls] for call in calls)
    assert "".join(delta.arguments for delta in first) == "".join(delta.arguments for delta in second) != ""
    assert model.call_habit.start is not None
    assert calls[1][-1].step < calls[0][-1].step
    assert text[0] and text[1]


@dataclass(frozen=True)
class Call:
    id: str = "call_1"
    name: str = "get_weather"
    arguments: str = "{}"


async def test_a_model_with_calls_of_its_own_form_reads_outputs_as_notes_after_the_same_prompt(
    model: LoadedModel,
) -> None:
    model = replace(model)  # with a habit of its own
    engine = Engine(lambda: model)
    conversation = Conversation(engine)
    output = Message("tool", "Paris", tool_call_id="call_1")
    try:
        call = await collect_progress(
            conversation, SYSTEM, HELLO, tools=[WEATHER], tool_choice="required", max_tokens=80
        )
        assert model.notes_outputs
        answer = await collect_progress(
            conversation, SYSTEM, HELLO, Message("assistant", "", (Call(),)), output,
            tools=[WEATHER], tool_choice="none", max_tokens=5,
        )  # fmt: skip
    finally:
        engine.close()
    opening = model.template.encode([HELLO]), model.template.encode([HELLO], add_generation_prompt=False)
    assert answer[-1].cached_tokens == call[-1].prompt_tokens - (len(opening[0]) - len(opening[1])) + 1  # <|im_start|>
    model.call_habit.start = model.tokenizer.token_id("<tool_call>")
    assert not model.notes_outputs


async def test_on_a_cpu_nothing_is_drafted_while_a_grammar_is_followed(model: LoadedModel) -> None:
    engine = Engine(lambda: model)
    engine.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 3, [0.9] * 3)
    try:
        constrained = await collect_progress(
            Conversation(engine), SYSTEM, HELLO, grammar=GRAMMARS["schema"], max_tokens=30
        )
        free = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=30)
    finally:
        engine.close()
    drafts = [progress.confidence for progress in constrained if progress.draft]
    assert all(set(chances[1:]) == {1.0} for chances in drafts), "the end of a value, and what the grammar forces then"
    assert any(progress.draft for progress in free)


@pytest.mark.parametrize("name", ["i-dlm", "nemotron-labs-diffusion"])
async def test_families_that_verify_their_own_drafts_give_the_same_constrained_text(
    tmp_path: Path, tiny_tokenizer: Tokenizer, name: str
) -> None:
    """One drafts with noise rows for every outcome, the other in a forward pass of its own."""
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, name)
    engine = Engine(lambda: load_model(folder, device="cpu", precision="float32"), decoding="verified")
    engine.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 2, [0.9] * 2)
    engine.drafts_with_grammar = True
    try:
        for grammar in (JSONSchema(SHORT), GRAMMARS["regex"]):
            options = {"grammar": grammar, "max_tokens": 80}
            drafted = await collect_progress(Conversation(engine), HELLO, **options)
            alone = await collect_progress(Conversation(engine, drafting=False), HELLO, **options)
            assert committed_text(drafted) == committed_text(alone)
            assert drafted[-1].finished == "stop"
            assert engine.model.grammars.follows(committed_text(drafted), grammar)
    finally:
        engine.close()


async def test_forced_tokens_need_no_forward_pass_of_their_own(drafting: Engine) -> None:
    conversation = Conversation(drafting, drafting=False)
    sentence = "the capital of France is Paris and hello to you"
    grammar = Lark(f'start: "{sentence}: " ("a" | "b") " {sentence}"')
    progress = await collect_progress(conversation, HELLO, grammar=grammar)
    assert committed_text(progress) in (f"{sentence}: {letter} {sentence}" for letter in "ab")
    assert progress[-1].tokens >= 6 * progress[-1].step
    assert progress[-1].finished == "stop"


async def test_the_cache_of_a_constrained_response_can_be_continued(drafting: Engine) -> None:
    """Forced tokens must have left the keys and values that reading them gives."""
    conversation = Conversation(drafting)
    progress = await collect_progress(conversation, SYSTEM, HELLO, grammar=GRAMMARS["schema"], max_tokens=60)
    history = [SYSTEM, HELLO, Message("assistant", committed_text(progress)), Message("user", "Paris")]
    continued = await collect_progress(conversation, *history, max_tokens=20)
    fresh = await collect_progress(Conversation(drafting, drafting=False), *history, max_tokens=20)
    assert continued[-1].cached_tokens > fresh[-1].cached_tokens
    assert committed_text(continued) == committed_text(fresh)


@pytest.mark.parametrize("drafts", [True, False])
async def test_sampled_responses_follow_the_grammar(drafting: Engine, drafts: bool) -> None:
    texts = set()
    for seed in range(12):
        conversation = Conversation(drafting, drafting=drafts)
        sampling = Sampling(temperature=1.5, top_p=0.9, seed=seed)
        progress = await collect_progress(conversation, HELLO, grammar=GRAMMARS["regex"], sampling=sampling)
        texts.add(committed_text(progress))
    assert len(texts) > 3
    assert all(drafting.model.grammars.follows(text, GRAMMARS["regex"]) for text in texts)


async def test_sampling_with_drafts_has_the_distribution_of_the_masked_model(drafting: Engine) -> None:
    model, grammar, count = drafting.model, Regex("[ab][cd][ef]"), 200
    expected: dict[str, float] = {}
    pending = [((), 1.0)]
    while pending:
        tokens, probability = pending.pop()
        matcher = model.grammars.compile(grammar)
        for token in tokens:
            matcher.consume(token)
        allowed = matcher.allowed()
        if isinstance(allowed, int):
            expected[model.tokenizer.decode(tokens)] = probability
            continue
        ids = [*model.template.encode([HELLO]), *tokens]
        logits = model.decoder.forward(ids, model.decoder.new_cache(), logits="last")[-1]
        may_follow = unpacked(allowed, len(logits))
        chances = logits.masked_fill(torch.from_numpy(~may_follow), -torch.inf).softmax(-1)
        following = may_follow.nonzero()[0].tolist()
        pending += [((*tokens, token), probability * float(chances[token])) for token in following]
    texts: Counter[str] = Counter()
    for seed in range(count):
        sampling = Sampling(temperature=1.0, seed=seed)
        texts[
            committed_text(await collect_progress(Conversation(drafting), HELLO, grammar=grammar, sampling=sampling))
        ] += 1
    assert set(texts) <= set(expected)
    assert max(abs(texts[text] / count - probability) for text, probability in expected.items()) < 0.12


async def test_random_schemas_give_valid_json(drafting: Engine) -> None:
    rng = random.Random(11)
    for number in range(20):
        schema = random_schema(rng)
        sampling = Sampling(temperature=1.0, seed=number) if number % 2 else None
        assert (await outcome(drafting, schema, 80, sampling)).verdict in ("valid", "length"), json.dumps(schema)


@pytest.mark.parametrize(
    ("name", "in_flight"),
    [("sdar", 1), ("i-dlm", 1), ("fast-dllm-v2", 1), ("llada", 1), ("dream", 3), ("mdlm", 3), ("bd3lm", 1)],
)
async def test_block_denoising_follows_the_grammar(
    tmp_path: Path, tiny_tokenizer: Tokenizer, name: str, in_flight: int
) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, name)
    schedule = schedule_for_effort("high", in_flight=in_flight)
    engine = Engine(
        lambda: load_model(folder, device="cpu", precision="float32"), decoding="blocks", denoising_schedule=schedule
    )
    try:
        for grammar in (JSONSchema(SHORT), GRAMMARS["regex"]):
            progress = await collect_progress(Conversation(engine), HELLO, grammar=grammar, max_tokens=150)
            assert progress[-1].finished == "stop"
            assert engine.model.grammars.follows(committed_text(progress), grammar), committed_text(progress)
    finally:
        engine.close()


async def test_max_tokens_ends_a_constrained_response_with_length(drafting: Engine) -> None:
    progress = await collect_progress(Conversation(drafting), HELLO, grammar=JSONSchema(PERSON), max_tokens=7)
    assert progress[-1].finished == "length"
    assert progress[-1].tokens == 7


async def test_a_grammar_that_fails_ends_its_own_request_only(
    drafting: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of one request's grammar ended a scheduler (SGLang 24283)."""
    schema = JSONSchema(PERSON)
    alone = await collect_progress(Conversation(drafting), HELLO, grammar=schema, max_tokens=60)
    consume = GrammarMatcher.consume

    def consume_json_only(matcher: GrammarMatcher, token: int) -> None:
        if not matcher._is_json:
            raise GrammarFailed("the grammar became too complex")
        consume(matcher, token)

    monkeypatch.setattr(GrammarMatcher, "consume", consume_json_only)
    error, progress = await asyncio.gather(
        collect_progress(Conversation(drafting), HELLO, grammar=Regex("[a-z]{9}"), max_tokens=60),
        collect_progress(Conversation(drafting), HELLO, grammar=schema, max_tokens=60),
        return_exceptions=True,
    )
    assert isinstance(error, GrammarFailed)
    assert isinstance(progress, list)
    assert committed_text(progress) == committed_text(alone)


async def test_requests_with_and_without_grammars_share_forward_passes(drafting: Engine) -> None:
    free = await collect_progress(Conversation(drafting), HELLO, max_tokens=20)
    bound = await collect_progress(Conversation(drafting), HELLO, grammar=GRAMMARS["schema"], max_tokens=60)
    shared = await at_the_same_time(
        drafting,
        collect_progress(Conversation(drafting), HELLO, max_tokens=20),
        collect_progress(Conversation(drafting), HELLO, grammar=GRAMMARS["schema"], max_tokens=60),
    )
    assert [committed_text(one) for one in shared] == [committed_text(free), committed_text(bound)]


async def test_an_invalid_schema_is_an_error_that_names_its_path(drafting: Engine) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "strin"}}}
    with pytest.raises(InvalidGrammar) as caught:
        await collect_progress(Conversation(drafting), HELLO, grammar=JSONSchema(schema))
    assert caught.value.path == "properties.city.type"


async def test_any_json_object(drafting: Engine) -> None:
    sampling = Sampling(temperature=1.0, seed=4)
    progress = await collect_progress(
        Conversation(drafting), HELLO, grammar=JSONObject(), sampling=sampling, max_tokens=200
    )
    assert progress[-1].finished == "length" or isinstance(json.loads(committed_text(progress)), dict)


async def test_the_device_runner_is_not_used_while_a_grammar_is_followed(model: LoadedModel) -> None:
    """CUDA graphs choose tokens on the device, where no grammar restricts them."""
    engine = Engine(lambda: model, cuda_graphs=True)
    try:
        grammar = GRAMMARS["schema"]
        progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, grammar=grammar, max_tokens=300)
        assert engine.model.grammars.follows(committed_text(progress), grammar)
    finally:
        engine.close()


@pytest.mark.parametrize(("parallel", "most", "expected"), [(True, None, 8), (True, 2, 2), (True, 1, 1), (False, 5, 1)])
def test_a_response_makes_at_most_so_many_calls(
    tiny_engine: Engine, parallel: bool, most: int | None, expected: int
) -> None:
    model = tiny_engine.model
    tool = Tool("ring", "", {"type": "object", "properties": {"times": {"enum": [1]}}, "required": ["times"]})
    matcher = call_matcher(model.grammars, model.tokenizer, [tool], parallel=parallel, most=most)
    call = '{"name": "ring", "arguments": {"times": 1}}'
    for count in (expected, expected + 1):
        tokens = model.tokenizer.encode("\n".join([call] * count))
        assert (len(matcher.along(tokens)) == 1 + len(tokens)) == (count == expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 1), ({"max_tool_calls": 3}, 1), ({"parallel_tool_calls": True}, 8),
     ({"parallel_tool_calls": True, "max_tool_calls": 2}, 2), ({"tool_choice": "none"}, 0)],
)  # fmt: skip
def test_calls_that_no_grammar_enforced_are_limited_too(
    tiny_engine: Engine, options: dict[str, Any], expected: int
) -> None:
    tool = Tool("ring", "", {"type": "object", "properties": {"times": {"type": "integer"}}, "required": ["times"]})
    form = response_form(tiny_engine.model, Ask([HELLO], tools=[tool], **options))
    call = '<tool_call>{{"name": "ring", "arguments": {{"times": {}}}}}</tool_call>'
    text = "".join(map(call.format, range(9)))
    read = form.read(Progress(text, finished="stop"))
    assert len(read.tool_calls) == expected and not read.committed


def test_a_fenced_call_is_text_where_no_call_may_be_made(tiny_engine: Engine) -> None:
    form = response_form(tiny_engine.model, Ask([HELLO], tools=[HANG_UP], tool_choice="none"))
    text = '```json\n{"name": "hang_up", "arguments": {}}\n```'
    read = form.read(Progress(text, finished="stop"))
    assert read.committed == text and not read.tool_calls and read.finished == "stop"
