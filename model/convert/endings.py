"""Teaches an ending classifier (model/ending.py): whole sentences and their beginnings are read by the model, and a
logistic regression on its states learns which are complete.

Sentences come from templates, where each place is marked, and from the user's sides of the base model's own texts,
where places are judged by their words: "what is the capital of" leans on what follows, "what time is it" of "what time
is it in Paris" does not and teaches nothing.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from model.convert.corpus import Corpus
from model.convert.spoken import Labelled, spoken
from model.ending import Ending, header, prepare_text
from model.engine import LoadedModel
from model.transformer import Rows, text_rows


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEANING = _words(
    """
    the a an my your his its our their some every of in to for from with at by into between than and or but
    because if so that which while whether although unless is are was were will would could should can i he she
    we they who how why um uh very more most going like when where what about i'm you're we're they're it's
    """
)
"""Words that hardly ever end a turn: what they lean on follows."""

_JOINING = _words(
    """
    in on at for with about from by and or but because if when while before after that than as to during without
    between into near today tomorrow tonight now please right
    """
)
"""Words that often begin what could as well be left out: before them nobody can tell."""

_ENDS = _words(
    """
    is are was were can will would could should like that so why how what when where
    """
)
"""Leaning words that may end a question or a clause all the same: behind them nobody can tell."""

_SENTENCE = re.compile(r"[A-Z][^()*:|\[\]]*[.?!]")

_SHORTEST, _LONGEST = 3, 25
"""Words of a user's sentence: shorter and longer ones of the base model's are mostly none."""

_ROWS = 256
"""Rows of every pass: products of another size are prepared anew, for seconds each."""

_CUT = 0.3
"""Share of the other places where a user's sentence is cut: some of them could be its end."""

_JOINED = 0.2
"""Share of texts with another sentence before them."""

_DECAYS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Weights of the L2 penalty to choose from."""

_FALSE = 0.05
"""Share of unfinished turns called complete at which `recall` is told: what the project promises."""


@dataclass(frozen=True)
class Said:
    """A text with its places.

    Attributes:
        origin: what it was made from; texts of one origin are all taught or all held out.
        places: its words, and whether it is complete behind each.
    """

    origin: str
    places: Labelled


@dataclass(frozen=True)
class Figures:
    """How good a classifier is on held-out places.

    Attributes:
        places: how many, half of their weight complete and half not.
        auc: chance that a complete place is called likelier than another.
        accuracy: at P = 0.5, of complete and others alike.
        recall: share of complete ones found where 5 % of the others are called complete.
        threshold: the P above which that is.
    """

    places: int
    auc: float
    accuracy: float
    recall: float
    threshold: float


def user_sides(corpus: Corpus, model: LoadedModel) -> list[str]:
    """The sentences of a corpus's users, as far as one would say them; none where a template is no ChatML."""
    begins = model.tokenizer.token_id("<|im_start|>")
    found: dict[str, None] = {}
    for text in corpus.texts:
        starts = [n + 1 for n, token in enumerate(text.tokens) if token == begins]
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            role, _, content = model.tokenizer.decode(text.tokens[start:end]).partition("\n")
            if role == "user" and text.kind not in ("json", "own"):
                found.update(dict.fromkeys(content.strip().splitlines()[-1:]))
    return [said for said in found if _SENTENCE.fullmatch(said)]


def sentences(sides: Sequence[str], seed: int) -> list[Said]:
    """All that is taught and held out, in random order."""
    draw = random.Random(seed)
    texts = [Said(origin, places) for origin, places in spoken(draw)]
    for side in sides:
        words = prepare_text(side).split()
        if _SHORTEST <= len(words) <= _LONGEST:
            texts.append(Said(side, _judged(words, draw)))
    complete = {_so_far(text.places, n) for text in texts for n, (_, ends) in enumerate(text.places) if ends}
    texts = [Said(text.origin, list(_told(text.places, complete))) for text in texts]
    draw.shuffle(texts)
    return texts


def _judged(words: list[str], draw: random.Random) -> Labelled:
    places: Labelled = []
    for n, word in enumerate(words[:-1]):
        if word in _LEANING:
            places.append((word, None if word in _ENDS and n > 1 else False))
        else:
            places.append((word, None if words[n + 1] in _JOINING or draw.random() > _CUT else False))
    return [*places, (words[-1], True)]


def _so_far(places: Labelled, n: int) -> str:
    return " ".join(word for word, _ in places[: n + 1])


def _told(places: Labelled, complete: set[str]) -> Iterator[tuple[str, bool | None]]:
    """What is complete somewhere is not unfinished elsewhere."""
    for n, (word, ends) in enumerate(places):
        yield word, None if ends is False and _so_far(places, n) in complete else ends


def held_out(texts: Sequence[Said], share: float, seed: int) -> tuple[list[Said], list[Said]]:
    """(taught, held out), by origin."""
    origins = sorted({text.origin for text in texts})
    apart = set(random.Random(seed).sample(origins, max(1, round(len(origins) * share))))
    return [text for text in texts if text.origin not in apart], [text for text in texts if text.origin in apart]


def joined(texts: Sequence[Said], seed: int) -> list[Said]:
    """The same, some with another of them before."""
    draw = random.Random(seed)
    whole = [text for text in texts if text.places[-1][1]]
    return [
        Said(text.origin, [*draw.choice(whole).places, *text.places]) if draw.random() < _JOINED else text
        for text in texts
    ]


def states_of(
    model: LoadedModel, texts: Sequence[Said], report: Callable[[float], None] = lambda done: None
) -> tuple[Tensor, Tensor]:
    """What the model's state is behind every place of `texts` where somebody could tell.

    Returns:
        States [n, hidden] float32, and whether each is complete [n] bool.
    """
    decoder, opening = model.decoder, header(model.template)
    first = decoder.new_cache()
    decoder.forward(opening, first, logits="none")
    caches, spare = [first], decoder.new_cache()
    states: list[Tensor] = []
    complete: list[bool] = []
    batch: list[Rows] = []
    places: list[list[int]] = []
    rows = 0

    def run() -> None:
        filling = [text_rows(spare, [opening[0]] * (_ROWS - rows), 0)] if rows < _ROWS else []
        for found, at in zip(decoder.run([*batch, *filling]), places, strict=False):
            states.append(found[at].float().cpu())
        batch.clear()
        places.clear()

    for number, text in enumerate(texts):
        ids: list[int] = []
        at: list[int] = []
        for n, (word, ends) in enumerate(text.places):
            ids += model.tokenizer.encode(f" {word}" if n else word)
            if ends is not None:
                at.append(len(ids) - 1)
                complete.append(ends)
        if batch and rows + len(ids) > _ROWS:
            run()
            rows = 0
            report(number / len(texts))
        if len(batch) == len(caches):
            caches.append(first.fork())
        # Nothing is committed: the caches hold the opening, and are written over in the next pass.
        new = text_rows(caches[len(batch)], ids, len(ids), states=True)
        batch.append(replace(new, exact=False))  # a last bit is no matter, and many texts side by side are quicker
        places.append(at)
        rows += len(ids)
    if batch:
        run()
    return torch.cat(states), torch.tensor(complete)


def fit(states: Tensor, complete: Tensor, decay: float) -> tuple[Tensor, float]:
    """Logistic regression with an L2 penalty of `decay` on the weights of standardized states, both classes of equal
    weight.

    Args:
        states: [n, hidden] float32.
        complete: [n] bool.

    Returns:
        Weights [hidden] for states as they are, and the bias.
    """
    mean, spread = states.mean(0), states.std(0).clamp(min=1e-6)
    scaled, wanted = (states - mean) / spread, complete.float()
    share = _class_weights(complete)
    weight = torch.zeros(states.shape[1], requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    search = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        logit = scaled @ weight + bias
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(logit, wanted, share, reduction="sum")
        total: Tensor = entropy + decay * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    search.step(loss)  # type: ignore[no-untyped-call]
    own = weight.detach() / spread
    return own, float(bias.detach() - own @ mean)


def _class_weights(complete: Tensor) -> Tensor:
    """[n], which sums to a half over each class."""
    yes = complete.float()
    return yes * (0.5 / yes.sum()) + (1 - yes) * (0.5 / (1 - yes).sum())


def figures(ending: Ending, states: Tensor, complete: Tensor) -> Figures:
    """What a classifier is worth on places it has not been taught."""
    said = ending(states)
    yes, no = said[complete], said[~complete].sort().values
    below = torch.searchsorted(no, yes, right=False) + torch.searchsorted(no, yes, right=True)
    threshold = float(no[min(len(no) - 1, int(len(no) * (1 - _FALSE)))])
    return Figures(
        places=len(said),
        auc=float(below.double().mean()) / 2 / len(no),
        accuracy=float(((said > 0.5) == complete).float() @ _class_weights(complete)),
        recall=float((yes > threshold).float().mean()),
        threshold=threshold,
    )


def teach(
    model: LoadedModel,
    corpus: Corpus | None,
    base: str,
    base_bytes: int,
    *,
    seed: int = 1,
    report: Callable[[str, float], None] = lambda what, done: None,
) -> tuple[Ending, Figures]:
    """Teach a classifier for a model, and tell how good it is on sentences of templates and users held out.

    Args:
        corpus: the base model's own texts, if there are any; without them only templates are used.
        base: sha256 of the model's weights, `base_bytes` their size, by which a shipped classifier is found.
        report: called with what is being done and how much of it is.

    Raises:
        ValueError: the template refuses a conversation that a user begins.
    """
    texts = sentences([] if corpus is None else user_sides(corpus, model), seed)
    taught, tests = held_out(texts, 0.15, seed)
    lessons, choices = held_out(taught, 0.15, seed + 1)
    parts = []
    for name, part in (("reading lessons", lessons), ("reading choices", choices), ("reading tests", tests)):
        parts.append(states_of(model, joined(part, seed), lambda done, name=name: report(name, done)))  # type: ignore[misc]
    about = {"base_bytes": str(base_bytes), "trained_on": f"{len(taught)} sentences, seed {seed}"}
    best: tuple[float, float] | None = None
    for number, decay in enumerate(_DECAYS):
        report("fitting", number / len(_DECAYS))
        auc = figures(Ending(*fit(*parts[0], decay), base, {}), *parts[1]).auc
        best = max(best or (auc, decay), (auc, decay))
    assert best is not None
    together = torch.cat((parts[0][0], parts[1][0])), torch.cat((parts[0][1], parts[1][1]))
    ending = Ending(*fit(*together, best[1]), base, {**about, "decay": str(best[1])})
    found = figures(ending, *parts[2])
    return replace(ending, metadata={**ending.metadata, "held_out": json.dumps(asdict(found))}), found
