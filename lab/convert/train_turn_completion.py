"""Trains a turn completion classifier (`engine/turn_completion.py`): the model reads whole sentences and their
beginnings, and a logistic regression on its hidden states learns which are complete.

Sentences come from templates, where every position is labelled, and from the user messages of the base model's own
texts, where positions are labelled by their words: "what is the capital of" needs what follows; "what time is it" of
"what time is it in Paris" does not, so it is not used for training.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lab.convert.corpus import Corpus
from lab.convert.read_states import read_after
from lab.convert.spoken_templates import LabelledWords, spoken_sentences
from model.engine.loader import LoadedModel
from model.engine.turn_completion import TurnCompletionClassifier, normalize_text, user_turn_prefix

_DEPENDENT = frozenset(
    """
    the a an my your his its our their some every of in to for from with at by into between than and or but
    because if so that which while whether although unless is are was were will would could should can i he she
    we they who how why um uh very more most going like when where what about i'm you're we're they're it's
    """.split()
)
"""Words that hardly ever end a turn, because they need what follows."""

_JOINING = frozenset(
    """
    in on at for with about from by and or but because if when while before after that than as to during without
    between into near today tomorrow tonight now please right
    """.split()
)
"""Words that often begin an optional phrase: whether the turn is complete before them cannot be told."""

_POSSIBLE_ENDS = frozenset(
    """
    is are was were can will would could should like that so why how what when where
    """.split()
)
"""Dependent words that may still end a question or a clause: whether the turn is complete after them cannot be told."""

_SENTENCE = re.compile(r"[A-Z][^()*:|\[\]]*[.?!]")

_MIN_WORDS, _MAX_WORDS = 3, 25
"""Length of a user's sentence. Shorter and longer ones by the base model are mostly not sentences."""

_CUT_SHARE = 0.3
"""Share of the other positions where a user's sentence is cut; the turn could be complete at some of them."""

_JOINED_SHARE = 0.2
"""Share of texts that get another sentence in front."""

_L2_WEIGHTS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Weights of the L2 penalty to choose from."""

_FALSE_POSITIVE_RATE = 0.05
"""Share of unfinished turns classified as complete at which `recall` is measured; the project promises this rate."""


@dataclass(frozen=True)
class LabelledText:
    """A text with labelled positions.

    Attributes:
        origin: what it was made from. Texts of one origin are either all used for training or all held out.
        words: its words, and whether the turn is complete after each.
    """

    origin: str
    words: LabelledWords


@dataclass(frozen=True)
class ClassifierMetrics:
    """The quality of a classifier on held-out positions. Field names are keys of the classifier's metadata.

    Attributes:
        places: number of positions; complete and incomplete ones have the same total weight.
        auc: probability that a complete position gets a higher score than an incomplete one.
        accuracy: at P = 0.5, with both classes weighted equally.
        recall: share of complete positions found when 5 % of the incomplete ones are classified as complete.
        threshold: the P at which that is the case.
    """

    places: int
    auc: float
    accuracy: float
    recall: float
    threshold: float


def user_sentences(corpus: Corpus, model: LoadedModel) -> list[str]:
    """The users' sentences in a corpus that could be spoken; none if the template is not ChatML."""
    message_start = model.tokenizer.token_id("<|im_start|>")
    last_lines: dict[str, None] = {}
    for text in corpus.texts:
        starts = [n + 1 for n, token in enumerate(text.tokens) if token == message_start]
        for start, end in zip(starts, [*starts, None][1:], strict=True):
            role, _, content = model.tokenizer.decode(text.tokens[start:end]).partition("\n")
            if role == "user" and text.kind not in ("json", "own"):
                last_lines.update(dict.fromkeys(content.strip().splitlines()[-1:]))
    return [line for line in last_lines if _SENTENCE.fullmatch(line)]


def labelled_texts(user_messages: Sequence[str], seed: int) -> list[LabelledText]:
    """All sentences for training and testing, in random order."""
    draw = random.Random(seed)
    texts = [LabelledText(origin, words) for origin, words in spoken_sentences(draw)]
    for message in user_messages:
        words = normalize_text(message).split()
        if _MIN_WORDS <= len(words) <= _MAX_WORDS:
            texts.append(LabelledText(message, _label(words, draw)))
    complete = {_prefix(text.words, n) for text in texts for n, (_, ends) in enumerate(text.words) if ends}
    texts = [LabelledText(text.origin, list(_without_conflicts(text.words, complete))) for text in texts]
    draw.shuffle(texts)
    return texts


def _label(words: list[str], draw: random.Random) -> LabelledWords:
    labelled: LabelledWords = []
    for n, word in enumerate(words[:-1]):
        if word in _DEPENDENT:
            labelled.append((word, None if word in _POSSIBLE_ENDS and n > 1 else False))
        else:
            labelled.append((word, None if words[n + 1] in _JOINING or draw.random() > _CUT_SHARE else False))
    return [*labelled, (words[-1], True)]


def _prefix(words: LabelledWords, n: int) -> str:
    return " ".join(word for word, _ in words[: n + 1])


def _without_conflicts(words: LabelledWords, complete: set[str]) -> Iterator[tuple[str, bool | None]]:
    """Remove the label `False` from prefixes that are complete in another text."""
    for n, (word, ends) in enumerate(words):
        yield word, None if ends is False and _prefix(words, n) in complete else ends


def split_by_origin(
    texts: Sequence[LabelledText], held_out_share: float, seed: int
) -> tuple[list[LabelledText], list[LabelledText]]:
    """(training texts, held-out texts), split by origin."""
    origins = sorted({text.origin for text in texts})
    held_out = set(random.Random(seed).sample(origins, max(1, round(len(origins) * held_out_share))))
    return [text for text in texts if text.origin not in held_out], [text for text in texts if text.origin in held_out]


def with_preceding_sentences(texts: Sequence[LabelledText], seed: int) -> list[LabelledText]:
    """The same texts, some with another sentence in front."""
    draw = random.Random(seed)
    complete = [text for text in texts if text.words[-1][1]]
    return [
        LabelledText(text.origin, [*draw.choice(complete).words, *text.words])
        if draw.random() < _JOINED_SHARE
        else text
        for text in texts
    ]


def hidden_states_of(
    model: LoadedModel, texts: Sequence[LabelledText], on_progress: Callable[[float], None] = lambda done: None
) -> tuple[Tensor, Tensor]:
    """The model's hidden states after every labelled position of `texts`.

    Returns:
        States [n, hidden] float32, and whether each is complete [n] bool.
    """
    decoder, prefix = model.decoder, user_turn_prefix(model.template)
    start = decoder.new_cache()
    decoder.forward(prefix, start, logits="none")
    complete: list[bool] = []
    read: list[tuple[list[int], int]] = []
    labelled: list[list[int]] = []
    for text in texts:
        ids: list[int] = []
        positions: list[int] = []
        for n, (word, ends) in enumerate(text.words):
            ids += model.tokenizer.encode(f" {word}" if n else word)
            if ends is not None:
                positions.append(len(ids) - 1)
                complete.append(ends)
        read.append((ids, len(ids)))
        labelled.append(positions)
    states: list[Tensor] = []
    for positions, (output, _) in zip(labelled, read_after(decoder, start, read), strict=True):
        states.append(output[positions].float().cpu())
        on_progress(len(states) / len(texts))
    return torch.cat(states), torch.tensor(complete)


def fit_logistic_regression(states: Tensor, complete: Tensor, l2_weight: float) -> tuple[Tensor, float]:
    """Logistic regression on standardized states, with both classes weighted equally and an L2 penalty on the weights.

    Args:
        states: [n, hidden] float32.
        complete: [n] bool.

    Returns:
        Weights [hidden] for unscaled states, and the bias.
    """
    mean, std = states.mean(0), states.std(0).clamp(min=1e-6)
    scaled, target = (states - mean) / std, complete.float()
    sample_weights = _class_weights(complete)
    weight = torch.zeros(states.shape[1], requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logit = scaled @ weight + bias
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(logit, target, sample_weights, reduction="sum")
        total: Tensor = entropy + l2_weight * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    unscaled = weight.detach() / std
    return unscaled, float(bias.detach() - unscaled @ mean)


def _class_weights(complete: Tensor) -> Tensor:
    """[n] weights that sum to 0.5 for each class."""
    positive = complete.float()
    return positive * (0.5 / positive.sum()) + (1 - positive) * (0.5 / (1 - positive).sum())


def measure(scores: Tensor, complete: Tensor) -> ClassifierMetrics:
    """The quality of a classifier, from its probabilities [n] for positions that it was not trained on."""
    positive, negative = scores[complete], scores[~complete].sort().values
    rank_sum = torch.searchsorted(negative, positive, right=False) + torch.searchsorted(negative, positive, right=True)
    threshold = float(negative[min(len(negative) - 1, int(len(negative) * (1 - _FALSE_POSITIVE_RATE)))])
    return ClassifierMetrics(
        places=len(scores),
        auc=float(rank_sum.double().mean()) / 2 / len(negative),
        accuracy=float(((scores > 0.5) == complete).float() @ _class_weights(complete)),
        recall=float((positive > threshold).float().mean()),
        threshold=threshold,
    )


def train_classifier(
    model: LoadedModel,
    corpus: Corpus | None,
    base: str,
    *,
    seed: int = 1,
    on_progress: Callable[[str, float], None] = lambda phase, done: None,
) -> tuple[TurnCompletionClassifier, ClassifierMetrics]:
    """Train a classifier for a model, and measure it on held-out sentences of templates and users.

    Args:
        corpus: the base model's own texts; if None, only templates are used.
        base: sha256 of the model's weights.
        on_progress: called with the current phase and the share of it that is done.

    Raises:
        ValueError: the template rejects a conversation that starts with a user message.
    """
    texts = labelled_texts([] if corpus is None else user_sentences(corpus, model), seed)
    training, test = split_by_origin(texts, 0.15, seed)
    fitting, validation = split_by_origin(training, 0.15, seed + 1)
    (states, complete), (validation_states, validation_complete), (test_states, test_complete) = (
        hidden_states_of(model, with_preceding_sentences(part, seed), partial(on_progress, f"reading {name}"))
        for name, part in (("training", fitting), ("validation", validation), ("test", test))
    )
    aucs: dict[float, float] = {}
    for number, l2_weight in enumerate(_L2_WEIGHTS):
        on_progress("fitting", number / len(_L2_WEIGHTS))
        candidate = TurnCompletionClassifier(*fit_logistic_regression(states, complete, l2_weight), base, {})
        aucs[l2_weight] = measure(candidate(validation_states), validation_complete).auc
    best = max(aucs, key=lambda l2_weight: (aucs[l2_weight], l2_weight))
    all_states = torch.cat((states, validation_states))
    all_complete = torch.cat((complete, validation_complete))
    metadata = {"trained_on": f"{len(training)} sentences, seed {seed}", "decay": str(best)}
    classifier = TurnCompletionClassifier(*fit_logistic_regression(all_states, all_complete, best), base, metadata)
    return classifier, measure(classifier(test_states), test_complete)
