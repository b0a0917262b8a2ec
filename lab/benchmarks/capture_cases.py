"""Values that `lab.benchmarks.capture` dictates. The parsers were looked at with the tuning set only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal

from agent.capture import Amount, Date, Digits, Email, Form, PhoneNumber, SpelledName, Time
from agent.capture.field import Field

TODAY = date(2026, 11, 22)
"""A Sunday."""

_FIELDS: dict[str, Field] = {  # type: ignore[type-arg]
    "phone number": PhoneNumber(),
    "customer number": Digits(prompt="What is your customer number?", length=6, name="customer number"),
    "name": SpelledName(),
    "e-mail": Email(),
    "date": Date(today=lambda: TODAY),
    "time": Time(earliest=time(8), latest=time(18)),
    "amount": Amount(most=Decimal(10_000)),
}


@dataclass(frozen=True)
class Case:
    """A value and how it is said.

    Attributes:
        value: as in JSON.
        said: at first.
        again: after it was misunderstood.
    """

    kind: str
    value: str
    said: str
    again: str

    @property
    def form(self) -> Form:
        """The form that asks for it."""
        return Form(value=_FIELDS[self.kind])


TUNING = [
    Case("phone number", "4155550132", "Four one five, five five five, oh one three two.",
         "Four, one, five. Five, five, five. Zero, one, three, two."),
    Case("phone number", "2125550188", "It's two one two, five five five, zero one double eight.",
         "Two one two. Five five five. Zero one eight eight."),
    Case("phone number", "3035550147", "My number is three oh three, five fifty five, oh one forty seven.",
         "Three zero three, five five five, zero one four seven."),
    Case("customer number", "402916", "Four oh two, nine one six.", "Four, zero, two, nine, one, six."),
    Case("customer number", "778215", "Double seven eight, two one five.", "Seven, seven, eight, two, one, five."),
    Case("name", "Garcia", "Garcia. G, A, R, C, I, A.",
         "G as in Golf, A as in Alpha, R as in Romeo, C as in Charlie, I as in India, A as in Alpha."),
    Case("name", "Novak", "N, O, V, A, K.",
         "N as in November, O as in Oscar, V as in Victor, A as in Alpha, K as in Kilo."),
    Case("name", "Bennett", "It's Bennett, B E double N E double T.",
         "B as in Bravo, E as in Echo, N as in November, N as in November, E as in Echo, "
         "T as in Tango, T as in Tango."),
    Case("e-mail", "anna.weber@gmail.com", "Anna dot Weber at gmail dot com.",
         "A, N, N, A, dot, W, E, B, E, R, at gmail dot com."),
    Case("e-mail", "tom42@yahoo.com", "It's Tom forty two at yahoo dot com.", "T, O, M, four, two, at yahoo dot com."),
    Case("e-mail", "info@northlake.org", "Info at northlake dot org.",
         "Info, at, N, O, R, T, H, L, A, K, E, dot org."),
    Case("date", "2027-03-15", "The fifteenth of March.", "March fifteenth."),
    Case("date", "2026-11-24", "Next Tuesday, please.", "November twenty fourth."),
    Case("date", "2026-12-06", "In two weeks.", "December sixth."),
    Case("time", "14:30", "Half past two.", "Two thirty in the afternoon."),
    Case("time", "08:45", "Quarter to nine.", "Eight forty five in the morning."),
    Case("amount", "25.50", "Twenty five dollars fifty.", "Twenty five dollars and fifty cents."),
    Case("amount", "120.00", "A hundred and twenty dollars.", "One hundred twenty dollars."),
]  # fmt: skip

REPORTED = [
    Case("phone number", "6175550164", "Six one seven, five five five, zero one six four.",
         "Six, one, seven. Five, five, five. Zero, one, six, four."),
    Case("phone number", "9165550199", "Nine one six, five five five, oh one double nine.",
         "Nine one six. Five five five. Zero one nine nine."),
    Case("phone number", "7185550123", "You can reach me at seven one eight, triple five, oh one two three.",
         "Seven one eight, five five five, zero one two three."),
    Case("phone number", "5035550176", "That's five zero three, five five five, zero one seven six.",
         "Five zero three. Five five five. Zero one seven six."),
    Case("phone number", "8325550110", "Eight three two, five five five, oh one ten.",
         "Eight, three, two, five, five, five, zero, one, one, zero."),
    Case("phone number", "4045550158", "Sure, it's four oh four, five five five, oh one fifty eight.",
         "Four zero four, five five five, zero one five eight."),
    Case("phone number", "2065550185", "One, two oh six, five five five, oh one eight five.",
         "Two zero six. Five five five. Zero one eight five."),
    Case("phone number", "9725550141", "Nine seven two five five five oh one four one.",
         "Nine seven two, five five five, zero one four one."),
    Case("customer number", "615048", "Six one five, oh four eight.", "Six, one, five, zero, four, eight."),
    Case("customer number", "330972", "Double three, zero nine, seven two.", "Three, three, zero, nine, seven, two."),
    Case("customer number", "129084", "Twelve, ninety, eighty four.", "One, two, nine, zero, eight, four."),
    Case("customer number", "854361", "It's eight five four three six one.", "Eight, five, four. Three, six, one."),
    Case("name", "Peterson", "Peterson, P, E, T, E, R, S, O, N.",
         "P as in Papa, E as in Echo, T as in Tango, E as in Echo, R as in Romeo, S as in Sierra, O as in Oscar, "
         "N as in November."),
    Case("name", "Dvorak", "D, V, O, R, A, K.",
         "D as in Delta, V as in Victor, O as in Oscar, R as in Romeo, A as in Alpha, K as in Kilo."),
    Case("name", "Mills", "Mills. M, I, double L, S.",
         "M as in Mike, I as in India, L as in Lima, L as in Lima, S as in Sierra."),
    Case("name", "Yamada", "My name is Yamada. Y, A, M, A, D, A.",
         "Y as in Yankee, A as in Alpha, M as in Mike, A as in Alpha, D as in Delta, A as in Alpha."),
    Case("name", "Fitch", "F as in Frank, I as in ice, T as in Tom, C as in cat, H as in house.",
         "F as in Foxtrot, I as in India, T as in Tango, C as in Charlie, H as in Hotel."),
    Case("name", "Hassan", "H, A, S, S, A, N.",
         "H as in Hotel, A as in Alpha, S as in Sierra, S as in Sierra, A as in Alpha, N as in November."),
    Case("name", "Brown", "Brown.", "B as in Bravo, R as in Romeo, O as in Oscar, W as in Whiskey, N as in November."),
    Case("e-mail", "maria.lopez@outlook.com", "Maria dot Lopez at outlook dot com.",
         "M, A, R, I, A, dot, L, O, P, E, Z, at outlook dot com."),
    Case("e-mail", "davidking@gmail.com", "David King, all one word, at gmail dot com.",
         "D, A, V, I, D, K, I, N, G, at gmail dot com."),
    Case("e-mail", "susan_lee@hotmail.com", "It's Susan underscore Lee at hotmail dot com.",
         "S, U, S, A, N, underscore, L, E, E, at hotmail dot com."),
    Case("e-mail", "office@greenfield.com", "Office at greenfield dot com.",
         "O, F, F, I, C, E, at, G, R, E, E, N, F, I, E, L, D, dot com."),
    Case("e-mail", "j.carter88@yahoo.com", "J dot Carter eighty eight at yahoo dot com.",
         "J, dot, C, A, R, T, E, R, eight, eight, at yahoo dot com."),
    Case("e-mail", "peter@web.de", "My e-mail address is Peter at web dot D E.", "P, E, T, E, R, at web dot D, E."),
    Case("date", "2026-12-03", "The third of December.", "December third."),
    Case("date", "2027-02-28", "February twenty eighth.", "The twenty eighth of February."),
    Case("date", "2026-11-27", "This Friday.", "November twenty seventh."),
    Case("date", "2026-11-23", "Tomorrow, if possible.", "November twenty third."),
    Case("date", "2027-01-11", "Monday, January eleventh.", "The eleventh of January."),
    Case("date", "2027-05-01", "May the first.", "The first of May."),
    Case("date", "2028-08-19", "August nineteenth, twenty twenty eight.",
         "The nineteenth of August, twenty twenty eight."),
    Case("time", "16:15", "Quarter past four.", "Four fifteen in the afternoon."),
    Case("time", "11:00", "At eleven o'clock.", "Eleven in the morning."),
    Case("time", "09:20", "Nine twenty.", "Nine twenty in the morning."),
    Case("time", "17:50", "Ten to six.", "Five fifty in the afternoon."),
    Case("amount", "49.99", "Forty nine ninety nine.", "Forty nine dollars and ninety nine cents."),
    Case("amount", "300.00", "Three hundred dollars.", "Three hundred dollars."),
    Case("amount", "1250.00", "One thousand two hundred and fifty dollars.", "Twelve hundred fifty dollars."),
    Case("amount", "8.75", "Eight dollars seventy five.", "Eight dollars and seventy five cents."),
]  # fmt: skip
