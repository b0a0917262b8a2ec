"""Stage 1: a GPU computes what a CPU does. Mostly tiny models in float32, whose texts must be equal."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.benchmarks.gpu_acceptance.answers import Answer, answer, ask, expect_equal, holds, running
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.random_models import (
    QWEN_05B,
    TINY,
    TINY_BLOCKS,
    RandomCheckpoint,
    random_model,
)
from lab.benchmarks.gpu_acceptance.runners import new_runner
from model.decode.draft import NO_DRAFT
from model.decode.grammar import Regex
from model.decode.sampling import Sampling
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.nn.attention import additive_mask, attend, attend_split, supports_attend_split

CPU = torch.device("cpu")

QUESTION = "Where does the river rise, through which towns does it run, and where does it reach the sea?"
"""A token for each character: with the instructions, a short answer crosses from 256 to 512 positions."""


def run(context: Context) -> None:
    """Run the stage."""
    for name in ("auto", "cuda", "cuda:0") if context.on_gpu else ("cpu",):
        context.check(f"a model starts on {name!r}", lambda name=name: starts_on(name))
    for query_rows, past in ((1, 1), (9, 63), (33, 1000)):
        context.check(
            f"attention of {query_rows} rows over {past} keys",
            lambda r=query_rows, p=past: attention_error(context, r, p),
        )
    for drafts in (0, 2):
        context.check(f"text with {drafts} drafts equals a CPU's", lambda d=drafts: equal_texts(context, d))
    context.check("a replayed step equals an eager one", lambda: replay_equals_eager(context))
    context.check("conversations attach, leave, fork and are cancelled", lambda: taking_turns(context))
    context.check("a crowd gets the texts that each gets alone", lambda: crowd_texts(context))
    context.check("blocks are denoised as on a CPU", lambda: equal_blocks(context))
    context.check("the texts of steps that choose tokens", lambda: sampled(context))
    context.check("texts in bfloat16 with and without drafts", lambda: divergence(context))


def starts_on(name: str) -> Mapping[str, Any]:
    """Load a tiny checkpoint from a folder, and answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = RandomCheckpoint(TINY, CPU).save(Path(folder) / "tiny")
        model = load_model(path, device=name)
    with running(model, max_slots=1) as engine:
        result = ask(engine, "hello", 20)
    holds(result.tokens == 20, lambda: f"{result.tokens} tokens instead of 20")
    return {"device": str(model.decoder.device), "precision": model.decoder.precision}


def attention_error(context: Context, rows: int, past: int) -> Mapping[str, Any]:
    """Relative errors against float64, over what each implementation supports here."""
    errors = {}
    for dtype, limit in ((torch.float32, 1e-4), (torch.bfloat16, 1e-2)):
        for heads, kv_heads, size in ((14, 2, 64), (12, 2, 128)):
            draw = torch.Generator().manual_seed(rows)
            query = torch.randn(rows, heads, size, generator=draw).to(context.device, dtype)
            keys = torch.randn(2, kv_heads, past + rows, size, generator=draw).to(context.device, dtype)
            new = torch.ones(rows, rows, dtype=torch.bool, device=context.device).tril()
            mask = torch.cat((torch.ones(rows, past, dtype=torch.bool, device=context.device), new), 1)
            expected = _attention_in_float64(query, keys[0], keys[1], mask)
            found = {"whole": attend(query, keys[0], keys[1], additive_mask(mask, heads // kv_heads, dtype))}
            if not context.on_gpu or supports_attend_split(context.device, dtype, size):
                found["split"] = attend_split(query, keys[0], keys[1], past, new)
            for kind, out in found.items():
                error = float((out.double() - expected).norm() / expected.norm())
                holds(error < limit, lambda e=error, k=kind, d=dtype: f"{k} attention in {d} is off by {e:.1e}")
                errors[f"{kind} {size} {str(dtype).removeprefix('torch.')}"] = error
    return errors


def _attention_in_float64(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """[rows, heads × head_dim]."""
    group = query.shape[1] // key.shape[0]
    key, value = (part.double().repeat_interleave(group, 0) for part in (key, value))
    scores = torch.einsum("qhd,hkd->hqk", query.double(), key) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.einsum("hqk,hkd->qhd", weights, value).flatten(1)


def equal_texts(context: Context, drafts: int) -> Mapping[str, Any]:
    """A CPU's text one token at a time, and the device's: eager, and whole steps (a CUDA graph on a GPU)."""
    tokens = 200 if context.on_gpu else 60
    with running(random_model(TINY, CPU, "float32"), cuda_graphs=False) as engine:
        expected = ask(engine, QUESTION, tokens)
    figures = {}
    for kind, graphs in (("eager", False), ("whole steps", True)):
        with running(random_model(TINY, context.device, "float32", drafts), cuda_graphs=graphs, max_slots=1) as engine:
            for drafting in (False, True):
                result = ask(engine, QUESTION, tokens, drafting=drafting)
                expect_equal(
                    f"the text of {kind}, {'with' if drafting else 'without'} drafts,", result.text, expected.text
                )
                figures[f"{kind}, {'drafts' if drafting else 'none'}"] = f"{result.tokens} in {result.steps}"
    return figures


def replay_equals_eager(context: Context) -> Mapping[str, Any]:
    """The same step of the 0.5B's shape, launched kernel by kernel and replayed: every number it leaves is equal."""
    if not context.on_gpu:
        raise NotPossibleHere("needs CUDA graphs")
    model = random_model(QWEN_05B, context.device, "bfloat16", 4, source=context.device)
    decoder = model.decoder
    runner, slab = new_runner(model, 4, 8, 1024, 2)
    caches = [slab.new_cache() for _ in range(2)]
    for n, cache in enumerate(caches):
        decoder.forward(list(range(300 - 100 * n)), cache, logits="none")
    for size, bucket in ((1, 512), (2, 512), (2, slab.capacity)):
        step, left = runner.batch_step(size, 4), []
        step.capture(bucket, None)
        for launch in (step.run, step.launch):
            step.set_members([0, 1][:size])
            for cache in caches:
                runner.attach(cache, 7, NO_DRAFT)
            with torch.inference_mode():
                launch(bucket)
            kept = slab.keys_values[:, :, :size, :, : 300 + runner.rows_each]
            parts = (step._result, *(part[:size] for part in runner.state.parts), kept)
            left.append([part.clone() for part in parts])
        eager, replayed = left
        for number, (one, other) in enumerate(zip(eager, replayed, strict=True)):
            holds(torch.equal(one, other), lambda n=number: f"part {n} of the state differs")
    return {"rows of a conversation": runner.rows_each, "steps": 3}


def taking_turns(context: Context) -> Mapping[str, Any]:
    """Whatever happens around it, a conversation gets the text that it gets alone."""
    with running(random_model(TINY, context.device, "float32", 2), cuda_graphs=True, max_slots=3) as engine:
        alone = {question: ask(engine, question, 40) for question in ("one", "two", "three")}
        results = asyncio.run(_taking_turns(engine))
        for question, result in results:
            expect_equal(f"the answer to {question!r}", result.text, alone[question].text)
        return {"answers": len(results)}


async def _taking_turns(engine: Engine) -> list[tuple[str, Answer]]:
    """Two at a time, one of which is cancelled in the middle of another's answer, a fork, and one after all of them."""
    conversation = Conversation(engine)
    results = [("one", await answer(conversation, "one", 40))]
    both = await asyncio.gather(answer(conversation, "two", 40), answer(Conversation(engine), "three", 40))
    results += zip(("two", "three"), both, strict=True)
    left = asyncio.create_task(answer(Conversation(engine), "three", 400))
    staying = asyncio.create_task(answer(conversation, "one", 40))
    await asyncio.sleep(0.05)
    left.cancel()
    forked = asyncio.create_task(answer(conversation.fork(), "two", 40))
    results += [("one", await staying), ("two", await forked), ("three", await answer(conversation, "three", 40))]
    await asyncio.gather(left, return_exceptions=True)
    return results


def crowd_texts(context: Context) -> Mapping[str, Any]:
    """Answers of different lengths, in steps for all of them, in float32."""
    count, most = (24, 120) if context.on_gpu else (6, 30)
    questions = {f"Question number {n}?": most - n % 7 * (most // 10) for n in range(count)}
    with running(random_model(TINY, context.device, "float32", 2), cuda_graphs=True, max_slots=count) as engine:
        alone = {question: ask(engine, question, tokens) for question, tokens in questions.items()}

        async def ask_all() -> list[Answer]:
            return await asyncio.gather(
                *(answer(Conversation(engine), question, tokens) for question, tokens in questions.items())
            )

        for question, together in zip(questions, asyncio.run(ask_all()), strict=True):
            expect_equal(f"the answer to {question!r}", together.text, alone[question].text)
    return {"conversations": count}


def equal_blocks(context: Context) -> Mapping[str, Any]:
    """Text of a block diffusion model on a CPU, and of forward passes that the device captured."""
    texts = []
    for device, graphs in ((CPU, False), (context.device, True)):
        with running(random_model(TINY_BLOCKS, device, "float32"), cuda_graphs=graphs, max_slots=1) as engine:
            texts.append(ask(engine, QUESTION, 48))
    expect_equal("the text of blocks", texts[1].text, texts[0].text)
    return {"tokens": texts[1].tokens, "steps": texts[1].steps}


def sampled(context: Context) -> Mapping[str, Any]:
    """Texts that are sampled, have log probabilities or follow a grammar: on a CPU one token at a time, and in steps
    that choose tokens on the device, with drafts. A seed gives one text."""
    kinds: dict[str, dict[str, Any]] = {
        f"seed {seed}": {"sampling": Sampling(0.8, top_k=50, top_p=0.9, seed=seed)} for seed in (1, 2)
    }
    kinds["log probabilities"] = {"top_log_probabilities": 5}
    if find_spec("llguidance") is not None:
        kinds["a grammar"] = {"grammar": Regex("[a-z ]{10,40}"), "sampling": Sampling(0.7, seed=3)}
    texts = []
    for device, graphs, drafts in ((CPU, False, 0), (context.device, True, 2)):
        model = random_model(TINY, device, "float32", drafts)
        model = replace(model, stop_tokens=frozenset({TINY.vocab_size - 2}))
        with running(model, cuda_graphs=graphs, max_slots=1) as engine:
            texts.append({kind: ask(engine, "hello", 30, **options).text for kind, options in kinds.items()})
    for kind in kinds:
        expect_equal(f"the text with {kind}", texts[1][kind], texts[0][kind])
    holds(texts[0]["seed 1"] != texts[0]["seed 2"], lambda: "another seed gave the same text")
    return {"texts": len(kinds)}


def divergence(context: Context) -> Mapping[str, Any]:
    """How many texts differ with and without drafts. A figure only: bfloat16 gives no guarantee, and random weights are
    less sure of a token than trained ones."""
    config = QWEN_05B if context.on_gpu else TINY
    count, tokens = (20, 60) if context.on_gpu else (3, 20)
    model = random_model(config, context.device, "bfloat16", 4, source=context.device)
    with running(model, cuda_graphs=True, context=512, max_slots=1) as engine:
        pairs = [
            [ask(engine, f"Question number {n}?", tokens, drafting=drafting).text for drafting in (False, True)]
            for n in range(count)
        ]
    differ = [one != other for one, other in pairs]
    return {"texts": count, "tokens each": tokens, "differ": sum(differ), "rate": sum(differ) / count}
