"""Calibrates the thresholds of tool calls for a model, on the tuning half of `rejoinder bench tools`.

    python -m lab.benchmarks.tool_thresholds --model NAME --features FILE [--bfcl 40] [--call-gate FILE]

Every decision of the tuning half is scored as the engine would, without generating anything: how likely a call's first
tokens and each tool's name are, what the call gate says, how likely text is after each call that is right, and how
likely each optional argument is after the required ones. With `--bfcl`, so are as many odd questions of each kind of
BFCL (`lab/benchmarks/bfcl`). The scores are appended to FILE (JSON lines), which a second run continues. Then the
thresholds that separate best are printed, for model/engine/call_thresholds.py.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from rich.console import Console
from torch import Tensor

from agent.instructions import INSTRUCTIONS
from chat.types import Message, Tool
from lab.bench.call_matching import ExpectedCall, example
from lab.bench.tool_cases import Decision, ToolCase, select
from lab.benchmarks.bfcl.items import Item, declared_name, read_items, sample
from model.decode.call_decision import CallDecision, CallThresholds, GateOdds
from model.decode.call_margins import MORE_PER_CALL
from model.decode.option_tree import OptionTree
from model.decode.tool_calls import arguments_schema, call_matcher, declaration
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from model.engine.scheduler import RequestSteps
from model.hub.catalog import QWEN_15B
from model.nn.forward_batch import PREFILL_CHUNK
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_HEAD = '{"name": "'
_WEIGHTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
_FIT_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)
_SEVERAL_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)

_QUESTIONS = ("irrelevance", "live_irrelevance", "simple_python", "multiple", "parallel")
"""Kinds of BFCL's questions."""


class ToolScores(Conversation):
    """Scores continuations of a prompt that has tools."""

    @property
    def model(self) -> LoadedModel:
        """What is scored."""
        return self._engine.model

    odds = GateOdds(0.0, 0.0, 0.0)
    """What the call gate says of the row that was scored last."""

    async def logits(
        self, messages: Sequence[Message], tools: Sequence[Tool], written: Sequence[int], tree: OptionTree
    ) -> Tensor:
        """The logits [1 + nodes, vocabulary] after what is written of the response."""
        loop, declarations = asyncio.get_running_loop(), [declaration(tool) for tool in tools]
        result: asyncio.Future[Tensor] = loop.create_future()

        def take(features: Tensor) -> None:
            if (gate := self._engine.model.call_gate) is not None:
                self.odds = gate.odds(features[0])

        def deliver(outcome: Tensor | Exception) -> None:
            report = result.set_exception if isinstance(outcome, Exception) else result.set_result
            loop.call_soon_threadsafe(report, outcome)

        def steps() -> RequestSteps:
            ids = [*self._encode(list(messages), declarations, True)[0], *written]
            self._truncate_to(ids[:-1])
            yield from self._read_instructions(messages, declarations, ids[:-1])
            cached = len(self._cache.tokens)
            yield from self._read(ids[: cached + (len(ids) - 1 - cached) // PREFILL_CHUNK * PREFILL_CHUNK])
            rest = ids[len(self._cache.tokens) :]
            logits: Tensor = yield replace(tree.forward_input(self._cache, rest), on_features=take)
            self._cache.commit(rest)
            deliver(logits.clone())

        self._submit(steps(), deliver, lambda: None)
        return await result


async def score(engine: Engine, case: ToolCase, decision: Decision) -> dict[str, Any]:
    """All scores of one decision."""
    messages = [Message("system", INSTRUCTIONS), *decision.messages]
    scores, encode = ToolScores(engine), engine.model.tokenizer.encode
    first = await first_scores(scores, messages, case.tools)
    another, optional = [], []
    for number in range(1, len(decision.expected) + 1):
        written = _written(encode, map(_text, decision.expected[:number]))
        score = await _text_after(scores, messages, case.tools, written)
        another.append((score, number < len(decision.expected)))
    if decision.expected:
        tool = next(tool for tool in case.tools if tool.name == decision.expected[0].name)
        async for found in _optional(scores, messages, case.tools, tool, decision.expected[0], encode):
            optional.append(found)
    user = decision.messages[-1].role == "user"
    asked = len(messages) > 2 and messages[-2].role == "assistant" and messages[-2].content.endswith("?")
    return {
        "case": case.name,
        "set": "tuning half",
        "category": case.category,
        "after": decision.messages[-1].content,
        "decides": user,
        "answers_question": asked,
        "needed": bool(decision.expected),
        **first,
        "another": another,
        "optional": optional,
    }


async def first_scores(scores: ToolScores, messages: Sequence[Message], tools: Sequence[Tool]) -> dict[str, float]:
    """What the decision for or against a call reads."""
    model, names = scores.model, [tool.name for tool in tools]
    matcher = call_matcher(model.grammars, model.tokenizer, tools, parallel=False)
    decided = CallDecision(model.tokenizer, CallThresholds(), names, matcher)
    encode = model.tokenizer.encode
    tree = OptionTree([encode(f'{_HEAD}{name}",') for name in names], ())
    logits = await scores.logits(messages, tools, (), tree)
    head = len(encode(_HEAD))
    best = max(sum(tree.token_log_probabilities(logits, n)[head:]) for n in range(len(names)))
    return {
        "start": decided.score(logits[0]),
        "name": best,
        "fit": scores.odds.fits,
        "several": scores.odds.several,
        "continues": scores.odds.continues,
    }


async def score_question(engine: Engine, item: Item) -> dict[str, Any]:
    """The scores of one of BFCL's questions."""
    functions = [tool["function"] for tool in item.tools]
    tools = [Tool(one["name"], one["description"], one["parameters"]) for one in functions]
    messages = [Message(one["role"], one["content"]) for one in item.messages]
    scores, encode, calls = ToolScores(engine), engine.model.tokenizer.encode, list(map(_answer, item.answers))
    first = await first_scores(scores, messages, tools)
    another = [
        (await _text_after(scores, messages, tools, _written(encode, calls[:number])), number < len(calls))
        for number in range(1, len(calls) + 1)
    ]
    return {
        "case": item.id, "set": "BFCL", "category": item.kind, "decides": True, "answers_question": False,
        "needed": "irrelevance" not in item.kind, **first, "another": another, "optional": [],
    }  # fmt: skip


def _answer(answer: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    """A call that is right, with the first accepted value of each argument that has to be given."""
    [(name, accepted)] = answer.items()
    arguments = {key: values[0] for key, values in accepted.items() if "" not in values}
    return json.dumps({"name": declared_name(name), "arguments": arguments})


def _written(encode: Callable[[str], list[int]], calls: Iterable[str]) -> list[int]:
    """The tokens of calls as they are generated: line breaks are tokens of their own, which `encode` would merge with
    the ends of the calls. The model ends sooner after the merged ones."""
    [*rest, last] = calls
    return [token for call in rest for token in (*encode(call), *encode("\n"))] + encode(last)


async def _text_after(
    scores: ToolScores, messages: Sequence[Message], tools: Sequence[Tool], written: Sequence[int]
) -> float:
    """How likely text is after some calls."""
    model = scores.model
    logits = await scores.logits(messages, tools, written, OptionTree([model.tokenizer.encode("\n")], ()))
    return model.call_margins.text_score(logits[0])


async def _optional(
    scores: ToolScores, messages: Sequence[Message], tools: Sequence[Tool], tool: Tool, call: ExpectedCall, encode: Any
) -> Any:
    """For each optional argument until the first that is given: how much likelier it is than the end of the arguments,
    and whether it is given. Those that may be given are left out."""
    schema, right = arguments_schema(tool), example(call)
    arguments = {name: right[name] for name in schema["properties"] if name in schema.get("required", ())}
    for name in [name for name in schema["properties"] if name not in schema.get("required", ())]:
        text = json.dumps({"name": call.name, "arguments": arguments})[:-2]
        options = [encode(f"{text}}}}}"), encode(f'{text}{", " if arguments else ""}"{name}":')]
        common = next(n for n, pair in enumerate(zip(*options, strict=False)) if pair[0] != pair[1])
        tree = OptionTree([option[common:] for option in options], ())
        logits = await scores.logits(messages, tools, options[0][:common], tree)
        end, more = (sum(tree.token_log_probabilities(logits, n)) for n in (0, 1))
        if f"{name}?" not in call.arguments:
            yield more - end, name in call.arguments
        if name in call.arguments:
            return


def _text(call: ExpectedCall) -> str:
    return json.dumps({"name": call.name, "arguments": example(call)})


def best_threshold(scored: Sequence[tuple[float, bool, str]]) -> tuple[float, float]:
    """The threshold with the best mean of the shares that are right above and below it in each set, and that mean.

    Args:
        scored: a score, whether it should be above the threshold, and the set that it is of.
    """
    values = sorted(value for value, _, _ in scored)
    candidates = [(low + high) / 2 for low, high in itertools.pairwise(values)]
    groups: dict[tuple[bool, str], list[float]] = {}
    for value, needed, group in scored:
        groups.setdefault((needed, group), []).append(value)

    def share(threshold: float) -> float:
        return fmean(fmean((value > threshold) is side for value in some) for (side, _), some in groups.items())

    best = max(map(share, candidates))
    middle = [threshold for threshold in candidates if math.isclose(share(threshold), best)]
    return middle[len(middle) // 2], best


def calibrate(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each threshold."""
    decisions = [row for row in rows if row["decides"]]
    for fit, bonus, weight in itertools.product(_FIT_WEIGHTS, (0.0, 1.0, 2.0, 3.0), _WEIGHTS):
        scored = [
            (
                row["start"] + weight * row["name"] + bonus * row["answers_question"] + fit * row["fit"],
                row["needed"],
                row["set"],
            )
            for row in decisions
        ]
        for name in sorted({name for _, _, name in scored}):  # speech has the tuning half's threshold, text BFCL's
            threshold, right = best_threshold([one for one in scored if one[2] == name])
            yield (
                f"fit_weight {fit}, name_weight {weight:4.1f}, expected {bonus}: call {threshold:6.2f} "
                f"({name}, {100 * right:.1f} % right)"
            )
    for weight in _SEVERAL_WEIGHTS:
        text = [
            (value + weight * row["several"] - MORE_PER_CALL * number, needed, row["set"])
            for row in rows
            for number, (value, needed) in enumerate(row["another"])
        ]
        threshold, right = best_threshold(text)
        yield f"several_weight {weight}: several_another {threshold:.2f} ({100 * right:.1f} % right)"
    outputs = [row for row in rows if not row["decides"]]
    for name in ("start", "continues"):
        threshold, right = best_threshold([(row[name], row["needed"], row["set"]) for row in outputs])
        yield f"after an output, {name} {threshold:.2f} ({100 * right:.1f} % right)"
    optional = [(value, needed, row["set"]) for row in rows for value, needed in row["optional"]]
    threshold, right = best_threshold(optional)
    yield f"optional {threshold:.2f} ({100 * right:.1f} % right)"


def main() -> None:
    """Score what is missing, and print the thresholds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--bfcl", type=int, default=0, help="odd questions of each kind")
    parser.add_argument("--call-gate", type=Path, help="in place of the bundled one")
    options = parser.parse_args()
    rows = []
    if options.features.exists():
        rows = [json.loads(line) for line in options.features.read_text(encoding="utf-8").splitlines()]
    cases = [partial(score, case=case, decision=decision) for case in select("tuning") for decision in case.decisions]
    kinds = _QUESTIONS if options.bfcl else ()
    sampled = (item for kind in kinds for item in sample(read_items(kind), "odd", options.bfcl))
    questions = [item for item in sampled if item.tools]
    pending = [*cases, *(partial(score_question, item=item) for item in questions)][len(rows) :]
    if pending:
        gate: Path | Literal["auto"] = options.call_gate or "auto"
        engine = load_engine(ModelOptions(model=options.model, call_gate=gate), Console(stderr=True))
        engine.model.call_habit.start = engine.model.tokenizer.encode(_HEAD)[0]  # as after its first call
        with options.features.open("a", encoding="utf-8") as file:
            for scored in pending:
                rows.append(asyncio.run(scored(engine)))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
        engine.close()
    for line in calibrate(rows):
        print(line)


if __name__ == "__main__":
    main()
