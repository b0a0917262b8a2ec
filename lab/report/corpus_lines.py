"""The text of the built-in corpus, with the pauses of the speaker and the background noise. Contains no audio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Background = Literal["pink", "babble"]
Expected = Literal["answer", "none"]


@dataclass(frozen=True)
class OverlapLine:
    """What the user says over a response.

    Attributes:
        after_ms: from the first audible sample of the response to the beginning of these words.
        interrupts: whether the assistant should stop, which it should not for a "mhm".
    """

    text: str
    after_ms: int
    interrupts: bool


@dataclass(frozen=True)
class Line:
    """One turn of the corpus. The name of the cached corpus is a checksum over these fields, names included.

    Attributes:
        parts: synthesized separately, so that the one before a pause sounds unfinished.
        pauses_s: silence between the parts, one fewer than parts.
        snr_db: signal-to-noise ratio of the background; None without one.
    """

    kind: str
    parts: tuple[str, ...]
    pauses_s: tuple[float, ...] = ()
    background: Background | None = None
    snr_db: float | None = None
    over: OverlapLine | None = None


_SHORT = (
    "Which animal runs the fastest?",
    "Who painted the Mona Lisa?",
    "How far away is the moon?",
    "Is a tomato a fruit?",
    "What do beavers eat?",
    "How tall is a giraffe?",
    "When was the telephone invented?",
    "Do fish ever sleep?",
    "Which planet is the largest?",
    "Can you say hello in Italian?",
    "What is seven times eight?",
    "Are bananas good for you?",
)

_LONG = (
    "I am visiting my cousin in Lisbon next month, so what are two places there that I really should not miss?",
    "My neighbour gave me a whole bag of lemons this morning, what could I make with them before they go bad?",
    "If I leave the house at half past seven and the bus takes forty minutes, will I be at work by a quarter past "
    "eight?",
    "I have been sleeping badly since we moved into the new flat, is there something simple that I could try tonight?",
    "Can you explain to my eight year old son, in words that he understands, why ships made of iron do not sink?",
    "We want to paint the kitchen in a lighter colour but the tiles are dark green, what would go well with that?",
    "The plant on my window sill has yellow leaves although I water it every single day, what am I doing wrong?",
    "I would like to learn a musical instrument at the age of fifty, which one would you say is the easiest to begin?",
)

_PAUSES = (
    ("I was wondering,", 0.3, "whether an octopus really has three hearts?"),
    ("What would you recommend,", 0.4, "for someone who has never cooked before?"),
    ("Could you remind me,", 0.5, "how many players there are in a rugby team?"),
    ("If I mix blue paint,", 0.6, "with yellow paint, what colour do I get?"),
    ("My daughter asked me yesterday,", 0.7, "why the leaves turn red in autumn."),
    ("On the way to the airport,", 0.8, "where could I stop for a good breakfast?"),
    ("I need the name of,", 0.9, "a river that flows through Vienna."),
    ("Suppose that it rains on Saturday,", 1.0, "what could we do with the children indoors?"),
    ("Before I go to the shop,", 1.1, "tell me what belongs in a Greek salad."),
    ("The thing that I do not understand is,", 1.2, "why the sea is salty and lakes are not."),
)

_NUMBERS: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...] = (
    (("My number is five five five,", "zero one four,", "two nine seven."), (0.4, 0.5)),
    (("Please note, oh two oh,", "seven nine four six,", "one eight double three."), (0.5, 0.6)),
    (("You can call me at six one nine,", "three three two,", "eight oh seven five."), (0.3, 0.4)),
    (("It is four one five,", "nine two six,", "five three,", "five eight."), (0.5, 0.4, 0.3)),
    (("The code is seven seven,", "one two,", "four nine."), (0.6, 0.7)),
    (("My card ends in three eight,", "two six."), (0.7,)),
    (("The order number is nine zero four,", "double one,", "six three two."), (0.5, 0.6)),
    (("Her extension is two one eight,", "and then four four."), (0.6,)),
)

_HESITATIONS = (
    ("Um,", 0.6, "what is a good name for a kitten?"),
    ("So, uh,", 0.5, "how do bees make honey?"),
    ("Could you, um,", 0.7, "tell me how long rice keeps in the fridge?"),
    ("I think, uh,", 0.8, "I would like to hear a riddle."),
    ("Well, um,", 0.4, "who was the first person on the moon?"),
    ("What is the, uh,", 0.9, "the highest building in Dubai?"),
)

_NOISY = (
    "What is the opposite of brave?",
    "How do I get a coffee stain out of a shirt?",
    "Which country has the most islands?",
    "What should I bring to a picnic?",
    "How old can a turtle become?",
    "Why do cats purr when they are happy?",
)

_STORIES = (
    "Tell me a long story about a lion.",
    "Explain to me in great detail how a piano works.",
    "Describe a whole day in the life of a fisherman.",
    "Tell me everything you know about the history of bread.",
    "Tell me a long fairy tale about a clever fox.",
    "Explain step by step and at length how a bridge is built.",
)

_INTERRUPTIONS = (
    ("Stop, please, that is enough.", 1000),
    ("Wait, I have another question.", 1400),
    ("Sorry, could you begin again?", 800),
    ("No no, that is not what I meant.", 1200),
    ("Hold on a moment, please.", 1600),
    ("Thank you, I have heard enough.", 900),
)

_BACKCHANNELS = (("Yep.", 900), ("Right.", 700), ("Okay.", 1200), ("Yeah.", 600), ("I see.", 1100), ("Sure.", 800))
"""Early enough for a response of one sentence to be still playing. No "mm hmm": Piper spells it out, which recognizers
do not understand."""


def _noisy(snr_db: float) -> list[Line]:
    lines = []
    for n, text in enumerate(_NOISY):
        background: Background = "pink" if n % 2 == int(snr_db) // 10 % 2 else "babble"
        lines.append(Line(f"noise-{snr_db:.0f}db", (text,), background=background, snr_db=snr_db))
    return lines


LINES: tuple[Line, ...] = (
    *(Line("short", (text,)) for text in _SHORT),
    *(Line("long", (text,)) for text in _LONG),
    *(Line("pause", (before, after), (pause,)) for before, pause, after in _PAUSES),
    *(Line("number", parts, pauses) for parts, pauses in _NUMBERS),
    *(Line("hesitation", (before, after), (pause,)) for before, pause, after in _HESITATIONS),
    *_noisy(20),
    *_noisy(10),
    *(
        Line("interruption", (story,), over=OverlapLine(text, after, True))
        for story, (text, after) in zip(_STORIES, _INTERRUPTIONS, strict=True)
    ),
    *(
        Line("backchannel", (story,), over=OverlapLine(text, after, False))
        for story, (text, after) in zip(_STORIES, _BACKCHANNELS, strict=True)
    ),
)

KINDS: tuple[str, ...] = tuple(dict.fromkeys(line.kind for line in LINES))

BABBLE = (
    "Well, we went down to the harbour in the afternoon and there was hardly anybody left on the boats.",
    "She said that the shop would open again on Monday, but nobody had told the people who were waiting outside.",
    "And then they brought the soup, which was cold, and the waiter only shrugged and walked back to the kitchen.",
    "There are three kinds of apples in the garden, and the red ones are the best for baking, at least I think so.",
    "He has been repairing that old bicycle since the spring, and it still makes the same noise on every corner.",
)
"""What the background voices say."""
