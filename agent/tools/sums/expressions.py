"""Spoken expressions: "three times four plus ten", "two thirds of ninety-six", "take fifty, subtract eight and divide
the result by six". A recursive descent parser; an expression is computed only if all of its tokens are part of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from agent.tools.sums.words import as_number

_MAX_EXPONENT, _MAX_MAGNITUDE = 64, Fraction(10) ** 24
"""Larger powers take long, and nobody wants to hear the digits."""

MONEY = {"dollar": "dollar", "buck": "dollar", "euro": "euro", "sterling": "pound", "cent": "cent"}
_PURCHASES = ("bill", "check", "meal", "dinner", "lunch", "tab", "purchase", "order", "item")
_PREVIOUS = ("my number", "that number", "this number", "that", "it", "this", "result", "answer")
_ADDITIVE = {"plus": 1, "minus": -1, "less": -1}


class NotASum(ValueError):
    """Not words that are an expression."""


class Expression:
    """The value of an expression.

    Args:
        tokens: of `sum_tokens`, without what introduces the question.
        previous: what "that" and "the result" stand for.

    Attributes:
        value: its value.
        unit: the currency that it names, or empty.
        operations: how many operations it has.

    Raises:
        NotASum: some token is no part of an expression, or its value is not defined.
    """

    def __init__(self, tokens: Sequence[str], previous: Fraction | None = None) -> None:
        self._tokens, self._at, self._result = list(tokens), 0, previous
        self.unit, self.operations = "", 0
        try:
            self.value = self._steps()
        except (ZeroDivisionError, OverflowError):
            raise NotASum("it has no value") from None
        if self._at < len(self._tokens) or abs(self.value) > _MAX_MAGNITUDE:
            raise NotASum(" ".join(self._tokens))

    # Tokens.

    def _peek(self, *words: str) -> bool:
        return self._tokens[self._at : self._at + len(words)] == list(words)

    def _accept(self, *phrases: str) -> bool:
        """Take the first of these phrases that comes next, if any does."""
        for phrase in phrases:
            words = phrase.split()
            if self._peek(*words):
                self._at += len(words)
                return True
        return False

    def _expect(self, *phrases: str) -> None:
        if not self._accept(*phrases):
            raise NotASum(f"{phrases[0]!r} is missing")

    # Steps: "take fifty, subtract eight and divide the result by six".

    def _steps(self) -> Fraction:
        value = self._step()
        while self._at < len(self._tokens):
            start = self._at
            while self._accept(",", "and", "then", "after", "finally", "next", "you", "i", "we"):
                pass
            if self._at == start:
                break
            self._result = value
            value = self._step(going_on=True)
        return value

    def _step(self, *, going_on: bool = False) -> Fraction:
        if self._result is not None and (value := self._operation(self._result)) is not None:
            return value
        value = self._command(going_on=going_on)
        if value is None and going_on:
            raise NotASum("a step is no operation")
        return self._sum() if value is None else value

    def _operation(self, left: Fraction) -> Fraction | None:
        """An operator and what follows it, applied to an earlier result: "times three"."""
        start = self._at
        value = self._product_after(left)
        value = self._sum_after(value)
        return value if self._at > start else None

    def _command(self, *, going_on: bool) -> Fraction | None:
        if self._accept("start with", "begin with"):
            return self._sum()
        if self._accept("add up", "add together", "add", "sum up"):
            if (share := self._surcharge()) is not None:
                self._expect("to")
                value = self._sum()
                return self._counted(value * (100 + share) / 100)
            numbers = self._list()
            is_list = len(numbers) > 1 and not going_on
            base = self._sum() if self._accept("to") else Fraction(0) if is_list else self._running()
            return self._counted(base + sum(numbers))
        if self._accept("subtract", "deduct", "take away"):
            amount = self._term()
            return self._minus(self._sum() if self._accept("from") else self._running(), amount)
        if self._accept("take"):
            value = self._term()
            if self._accept("away from", "from"):
                return self._minus(self._sum(), value)
            return self._minus(self._running(), value) if self._accept("away") else value
        if self._accept("multiply", "divide", "split"):
            if self._tokens[self._at - 1] == "multiply":
                value = self._running() if self._peek("by") else self._sum()
                self._expect("by", "with")
                return self._counted(value * self._term())
            value = self._running() if self._tokens[self._at : self._at + 1] in (["by"], ["between"]) else self._sum()
            return self._shared(value)
        is_square = self._peek("square") and not self._peek("square", "root") and not self._peek("square", "of")
        if self._accept("double", "triple", "halve", *(("square",) if is_square else ())):
            verb = self._tokens[self._at - 1]
            alone = self._at == len(self._tokens) or self._peek(",") or self._peek("and")
            value = self._running() if alone else self._sum()
            change = {"double": value * 2, "triple": value * 3, "halve": value / 2, "square": value * value}
            return self._counted(change[verb])
        if self._accept("increase", "raise", "decrease", "reduce", "lower"):
            sign = 1 if self._tokens[self._at - 1] in ("increase", "raise") else -1
            value = self._running() if self._peek("by") else self._sum()
            self._expect("by")
            return value + sign * self._amount_of(value)
        return None

    def _shared(self, value: Fraction) -> Fraction:
        """What "divide" and "split" name after an amount: "by six", "three ways", "between four people"."""
        self._accept("evenly", "equally")
        self._accept("by", "into", "in", "between", "among")
        parts = self._divided(value, self._factor())
        self._accept("equal")
        self._accept("ways", "people", "persons", "friends", "parts", "of us", "pieces")
        return parts

    def _running(self) -> Fraction:
        if self._result is None:
            raise NotASum("there is no earlier result")
        return self._result

    def _minus(self, left: Fraction, right: Fraction) -> Fraction:
        return self._counted(left - right)

    # Sums, products, factors.

    def _sum(self) -> Fraction:
        return self._sum_after(self._term())

    def _sum_after(self, value: Fraction) -> Fraction:
        while True:
            start = self._at
            if self._accept("with", "plus") and (share := self._surcharge()) is not None:
                value = self._counted(value * (100 + share) / 100)
                continue
            self._at = start
            if self._accept("take away"):
                sign = -1
            elif self._at < len(self._tokens) and self._tokens[self._at] in _ADDITIVE:
                sign = _ADDITIVE[self._tokens[self._at]]
                self._at += 1
            else:
                return value
            value = self._counted(value + sign * self._amount_of(value))

    def _surcharge(self) -> Fraction | None:
        """A percentage that is added to a price, or taken off: "a twenty percent tip", "ten percent off"."""
        start = self._at
        self._accept("a", "an")
        share = self._number()
        if share is not None and self._accept("percent"):
            if self._accept("tip", "tax", "sales tax", "vat", "service charge"):
                return share
            if self._accept("off", "discount"):
                return -share
        self._at = start
        return None

    def _amount_of(self, value: Fraction) -> Fraction:
        """A term, or a percentage of a value: "plus eight percent"."""
        start = self._at
        if (share := self._number()) is not None and self._accept("percent") and not self._peek("of"):
            return self._counted(value * share / 100)
        self._at = start
        return self._term()

    def _term(self) -> Fraction:
        return self._product_after(self._factor())

    def _product_after(self, value: Fraction) -> Fraction:
        while True:
            if self._accept("times", "multiplied by", "multiplied with"):
                value = self._counted(value * self._factor())
            elif self._accept("divided by", "over", "divided into"):
                value = self._divided(value, self._factor())
            elif self._accept("modulo", "mod"):
                value = self._counted(value % self._factor())
            else:
                return value

    def _divided(self, left: Fraction, right: Fraction) -> Fraction:
        return self._counted(left / right)

    def _factor(self) -> Fraction:
        while self._accept("the", "a", "an", "number"):
            pass
        if self._accept("minus", "negative"):
            return -self._factor()
        if self._accept("half"):
            self._accept("of")
            return self._counted(self._factor() / 2)
        if self._accept("twice", "double", "two times"):
            return self._counted(2 * self._factor())
        if self._accept("square root of", "root of"):
            return self._counted(_root(self._factor(), 2))
        if self._accept("cube root of"):
            return self._counted(_root(self._factor(), 3))
        if self._accept("sum of", "total of"):
            return sum(self._list(at_least=2), Fraction(0))
        if self._accept("product of"):
            return math.prod(self._list(at_least=2), start=Fraction(1))
        if self._accept("average of", "mean of"):
            numbers = self._list(at_least=2)
            return sum(numbers, Fraction(0)) / len(numbers)
        if self._accept("difference between", "difference of"):
            first, second = self._list(exactly=2)
            return abs(first - second)
        if self._accept("square of"):
            return self._power(self._factor(), Fraction(2))
        if self._accept("remainder of", "remainder when", "remainder if"):
            value = self._number()
            self._accept("is")
            self._expect("divided by")
            if value is None:
                raise NotASum("a number is missing")
            return self._counted(value % self._factor())
        if self._accept("tip of"):
            return self._share("on", "for")
        return self._primary()

    def _primary(self) -> Fraction:
        value = self._number()
        if value is None:
            if self._accept("("):
                inner = self._sum()
                self._expect(")")
                return self._after_number(inner)
            if self._accept(*_PREVIOUS):
                return self._after_number(self._running())
            raise NotASum("a number is missing")
        if self._peek("percent"):
            self._at -= 1
            return self._share("of", "off of", "off", "tip on", "tip for", "tax on", "tip of")
        if "/" in self._tokens[self._at - 1] and self._accept("of"):
            return self._counted(value * self._factor())
        return self._after_number(self._with_unit(value))

    def _share(self, *joints: str) -> Fraction:
        """ "Twenty percent of fifty", "twenty percent off fifty"."""
        share = self._number()
        if share is None or not self._accept("percent"):
            raise NotASum("a percentage is missing")
        start = self._at
        self._expect(*joints)
        off = "off" in self._tokens[start : self._at]
        value = self._factor()
        return self._counted(value * (100 - share if off else share) / 100)

    def _after_number(self, value: Fraction) -> Fraction:
        while True:
            if self._accept("squared"):
                value = self._power(value, Fraction(2))
            elif self._accept("cubed"):
                value = self._power(value, Fraction(3))
            elif self._accept("to the power of"):
                value = self._power(value, self._factor())
            else:
                return value

    def _number(self) -> Fraction | None:
        value = as_number(self._tokens[self._at]) if self._at < len(self._tokens) else None
        self._at += value is not None
        return value

    def _with_unit(self, value: Fraction) -> Fraction:
        """Take the currency of a number, and what was bought."""
        word = self._tokens[self._at].removesuffix("s") if self._at < len(self._tokens) else ""
        if word in MONEY:
            self._at += 1
            if MONEY[word] == "cent":
                value /= 100
            unit = "dollar" if MONEY[word] == "cent" else MONEY[word]
            if self.unit not in ("", unit):
                raise NotASum("two currencies")
            self.unit = unit
            self._accept(*_PURCHASES)
        return value

    def _list(self, *, at_least: int = 1, exactly: int | None = None) -> list[Fraction]:
        """ "Six, nine and fifteen"."""
        numbers = [self._term()]
        while True:
            start = self._at
            if not self._accept(", and", ",", "and"):
                break
            try:
                numbers.append(self._term())
            except NotASum:  # the next step: "add six and nine, and divide by three"
                self._at = start
                break
        if len(numbers) < at_least or exactly not in (None, len(numbers)):
            raise NotASum("numbers are missing")
        self.operations += len(numbers) - 1
        return numbers

    def _power(self, base: Fraction, exponent: Fraction) -> Fraction:
        if abs(exponent) > _MAX_EXPONENT or exponent.denominator != 1:
            raise NotASum("the exponent is too large")
        return self._counted(base ** int(exponent))

    def _counted(self, value: Fraction) -> Fraction:
        self.operations += 1
        return value


def _root(value: Fraction, degree: int) -> Fraction:
    if value < 0:
        raise NotASum("it has no real root")
    root = Fraction(round(float(value) ** (1 / degree)))
    return root if root**degree == value else Fraction(float(value) ** (1 / degree))
