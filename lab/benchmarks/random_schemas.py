"""Random JSON Schemas: every response must match its schema, or end with `length`.

    python -m lab.benchmarks.random_schemas [--schemas 1000] [--seed 0] [--max-tokens 300] [--model NAME]

Without --model the weights are tiny and random. Those write what no trained model would: they try every token that a
grammar allows. Every other response is sampled. Needs `jsonschema`, which is in the extra `test`.
tests/model/engine/test_response_form.py runs a few dozen.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from jsonschema import Draft202012Validator
from rich.console import Console

from chat.types import Ask, Message
from lab.benchmarks.gpu_acceptance.random_models import TINY, random_model
from model.decode.grammar import JSONSchema
from model.decode.sampling import Sampling
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_NAMES = ("id", "name", "count", "tags", "size", "address", "a b", "größe", 'qu"ote', "on")
_WORDS = ("red", "green", "blue", "", "two words", 'say "hi"', "naïve", "a\\b", "line\nbreak")
_PATTERNS = ("^[a-z]{2,5}$", "^[0-9]{3}-[0-9]{4}$", "a+b", "^(yes|no)$", "[A-Z]", r"^\d+(\.\d+)?$")
_FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4")


def random_schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """A random schema of the supported kinds, with definitions that refer to themselves."""
    schema = _schema(rng, depth, refs=True)
    item = {"type": "object", "properties": {"value": _schema(rng, 1, refs=False), "next": {"$ref": "#/$defs/item"}}}
    if rng.random() < 0.5:
        item["required"] = ["value"]
    return {**schema, "$defs": {"item": item, "leaf": _schema(rng, 0, refs=False)}}


def _schema(rng: random.Random, depth: int, *, refs: bool) -> dict[str, Any]:
    makers = [_string, _integer, _number, _enum, _const, lambda rng: {"type": rng.choice(["boolean", "null"])}]
    makers.append(lambda rng: {"type": rng.sample(["string", "integer", "null", "boolean", "number"], 2)})
    if refs:
        makers.append(lambda rng: {"$ref": rng.choice(["#/$defs/item", "#/$defs/leaf"])})
    if depth:
        makers += [lambda rng: _object(rng, depth - 1, refs)] * 4 + [lambda rng: _array(rng, depth - 1, refs)] * 2
        makers += [lambda rng: {"anyOf": [_schema(rng, depth - 1, refs=refs) for _ in range(rng.randint(1, 3))]}]
        makers += [lambda rng: _one_of(rng, depth - 1, refs), lambda rng: _all_of(rng, depth - 1, refs)]
    if depth < 2:
        makers.append(lambda rng: {})
    schema = rng.choice(makers)(rng)
    if rng.random() < 0.2:
        schema = {**schema, "description": "anything", "title": "Title"}
    return schema


def _string(rng: random.Random) -> dict[str, Any]:
    kind = rng.randrange(5)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice(_PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": rng.choice(_FORMATS)}
    fewest = rng.randint(0, 5)
    bounds = {"minLength": fewest, "maxLength": fewest + rng.randint(0, 20)}
    return {"type": "string", **{key: value for key, value in bounds.items() if rng.random() < 0.6}}


def _integer(rng: random.Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    lower = rng.randint(-1000, 1000)
    if rng.random() < 0.6:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = lower
    if rng.random() < 0.6:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = lower + rng.randint(20, 3000)
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.randint(1, 10)
    return schema


def _number(rng: random.Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "number"}
    lower = rng.randint(-100, 100) / 4
    if rng.random() < 0.5:
        schema["minimum"] = lower
    if rng.random() < 0.5:
        schema["maximum"] = lower + rng.randint(1, 400) / 4
    return schema


def _enum(rng: random.Random) -> dict[str, Any]:
    values = [*_WORDS, 0, -7, 2.5, True, None, ["x", 1], {"k": [None]}]
    return {"enum": rng.sample(values, rng.randint(1, 5))}


def _const(rng: random.Random) -> dict[str, Any]:
    return {"const": rng.choice([*_WORDS, 12, 1.25, False, [], {}, {"a": "b", "c": [1, 2]}])}


def _object(rng: random.Random, depth: int, refs: bool) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randint(0, 5))
    schema: dict[str, Any] = {"type": "object", "properties": {name: _schema(rng, depth, refs=refs) for name in names}}
    if names and rng.random() < 0.8:
        schema["required"] = rng.sample(names, rng.randint(1, len(names)))
    roll = rng.random()
    if roll < 0.4:
        schema["additionalProperties"] = False
    elif roll < 0.55:
        schema["additionalProperties"] = _schema(rng, 0, refs=refs)
    elif roll < 0.65:
        schema["patternProperties"] = {"^x-[a-z]{1,3}$": _schema(rng, 0, refs=refs)}
        schema["additionalProperties"] = False
    if rng.random() < 0.1:
        del schema["properties"]
        schema.pop("required", None)
    return schema


def _array(rng: random.Random, depth: int, refs: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if rng.random() < 0.8:
        schema["items"] = _schema(rng, depth, refs=refs)
    if rng.random() < 0.3:
        schema["prefixItems"] = [_schema(rng, depth, refs=refs) for _ in range(rng.randint(1, 2))]
    fewest = rng.randint(0, 2)
    if rng.random() < 0.5:
        schema["minItems"] = fewest
    if rng.random() < 0.6:
        schema["maxItems"] = fewest + rng.randint(0, 3)
    return schema


def _one_of(rng: random.Random, depth: int, refs: bool) -> dict[str, Any]:
    """Branches that a required constant tells apart: what can be enforced."""
    branches = []
    for kind in rng.sample(["circle", "square", "line"], 2):
        branch = {"kind": {"const": kind}, "value": _schema(rng, depth, refs=refs)}
        branches.append({"type": "object", "properties": branch, "required": ["kind"], "additionalProperties": False})
    return {"oneOf": branches}


def _all_of(rng: random.Random, depth: int, refs: bool) -> dict[str, Any]:
    return {
        "allOf": [
            {"type": "object", "properties": {"id": _integer(rng)}, "required": ["id"]},
            {"type": "object", "properties": {"name": _schema(rng, depth, refs=False)}},
        ]
    }


@dataclass(frozen=True)
class Outcome:
    """What came of one schema.

    Attributes:
        verdict: `valid`, `length`, or what is wrong.
        tokens, steps: of the response.
    """

    verdict: str
    tokens: int
    steps: int


async def outcome(engine: Engine, schema: dict[str, Any], max_tokens: int, sampling: Sampling | None = None) -> Outcome:
    """Let the model write something that follows a schema, and check it."""
    text = ""
    question = [Message("user", "Write an example.")]
    async for progress in Conversation(engine).reply(
        Ask(question, grammar=JSONSchema(schema), max_tokens=max_tokens, sampling=sampling)
    ):
        text += progress.committed
    verdict = "length" if progress.finished == "length" else _verdict(schema, text)
    return Outcome(verdict, progress.tokens, progress.step)


def _verdict(schema: dict[str, Any], text: str) -> str:
    try:
        error = next(Draft202012Validator(schema).iter_errors(json.loads(text)), None)
    except ValueError as parse_error:
        return f"{parse_error} in {text[:200]!r}"
    return "valid" if error is None else f"{error.message} in {text[:200]!r}"


def tiny_model() -> LoadedModel:
    """Tiny random weights that can end a response."""
    model = random_model(TINY, torch.device("cpu"), "float32", num_drafts=3)
    end = model.tokenizer.token_id("<|im_end|>")
    assert end is not None
    return replace(model, stop_tokens=frozenset((end,)))


def main() -> None:
    """Run and report; exits with 1 if a response is invalid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=300)
    parser.add_argument("--model", help="a real model instead of random weights")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    named = arguments.model
    engine = load_engine(ModelOptions(model=named), Console(stderr=True)) if named else Engine(tiny_model)
    found: Counter[str] = Counter()
    tokens = steps = 0
    began = time.monotonic()
    for number in range(arguments.schemas):
        schema = random_schema(rng)
        sampling = Sampling(temperature=1.0, seed=number) if number % 2 else None
        result = asyncio.run(outcome(engine, schema, arguments.max_tokens, sampling))
        tokens, steps = tokens + result.tokens, steps + result.steps
        found[result.verdict if result.verdict in ("valid", "length") else "invalid"] += 1
        if result.verdict not in ("valid", "length"):
            print(f"schema {number}: {result.verdict}\n  {json.dumps(schema)}")
    engine.close()
    seconds = time.monotonic() - began
    print(
        f"{arguments.schemas} schemas in {seconds:.0f} s: {dict(found)}; tokens per forward pass {tokens / steps:.2f}"
    )
    raise SystemExit(found["invalid"] > 0)


if __name__ == "__main__":
    main()
