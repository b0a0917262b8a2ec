"""What a language model reads that writes a program: what it may use, and examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from agent.program.words import in_digits
from chat.types import Message, Tool

_TASK = (
    "You turn what a user says to a voice assistant into a short program. Write one assignment for each fact, with a "
    "name that says what the number is, and a last line `answer = …`, with what it counts, or the call of a function. "
    "Compute what is asked for, nothing else, and add nothing that was not said. Ask for what is missing."
)
_VALUES = (
    "Values: now, today, this_year, time(text), date(text), seconds(n), minutes(n), hours(n), days(n), weeks(n), "
    "months(n), years(n), time_in(place), convert_time(time, place, place), convert(amount, unit, unit), "
    "weekday(date), min, max, round, ceil, floor, sqrt."
)
_ALWAYS = ("ask(question)", "cannot(reason)", "talk()")

_EXAMPLES = """
There are three kids and two dogs. How many children?
kids = 3
dogs = 2
answer = kids, "children"

A shirt costs 80 dollars after the price dropped by 20 percent. What was it before?
price_now = 80
drop = 0.20
answer = price_now / (1 - drop), "dollars"

What's fifteen percent of two hundred plus four?
answer = 0.15 * 200 + 4

Tom is 41, which is five years older than Ann. How old is Ann?
tom = 41
older = 5
ann = tom - older
answer = ann, "years old"

If I were four years older, I'd be 20. How old am I?
then = 20
older = 4
answer = then - older, "years old"

We drove 150 miles in two and a half hours. How fast was that?
distance = 150
hours_driven = 2.5
answer = distance / hours_driven, "miles per hour"

Four of us share a bill of 90 dollars plus a 20 percent tip. How much does each pay?
bill = 90
tip = 0.20 * bill
people = 4
answer = (bill + tip) / people, "dollars"

The 72 dollars include 20 percent tax. How much is the tax?
total = 72
before_tax = total / (1 + 0.20)
answer = total - before_tax, "dollars"

The pump fills 9 liters a minute. How many minutes does a barrel of 108 liters take?
liters = 108
liters_per_minute = 9
answer = liters / liters_per_minute, "minutes"

Buns come in bags of eight, and I need 50. How many bags do I have to buy?
buns = 50
buns_per_bag = 8
answer = ceil(buns / buns_per_bag), "bags"

I had 6 coins, I mean 7 coins, and found 2 more. How many are that?
coins = 7
found = 2
answer = coins + found, "coins"

Twenty people are on the bus. At the stop seven get off and four get on. How many are on it then?
people = 20
got_off = 7
got_on = 4
answer = people - got_off + got_on, "people"

Which is more, 0.3 or 0.25?
answer = max(0.3, 0.25)

Ana was born in 1990. How old does she get this year?
born = 1990
answer = this_year - born, "years old"

How much will the tickets be for all of us?
ask("How much is one ticket, and how many are you?")

A recipe for six needs three eggs. How much butter do I need for two?
ask("How much butter does the recipe need?")

My flight leaves at six in the evening and takes three hours, and it's an hour earlier there. When do I land?
departure = time("6:00 pm")
flight = hours(3)
difference = hours(1)
answer = departure + flight - difference

The soup goes on at 5:40 in the afternoon and takes an hour and a quarter. When is it ready?
start = time("5:40 pm")
length = hours(1.25)
answer = start + length

The film has to end at 10 and lasts 90 minutes. When must it start?
end = time("10:00")
length = minutes(90)
answer = end - length

The library is open from 10 a.m. to 7 p.m. How many hours is that?
opens = time("10:00 am")
closes = time("7:00 pm")
answer = (closes - opens) / hours(1), "hours"

The concert begins at eight and has 300 guests. When does it end?
ask("How long does the concert last?")

How many minutes are left until midnight?
answer = (time("midnight") - now) / minutes(1), "minutes"

What time will it be in two and a half hours?
answer = now + hours(2.5)

How many seconds are in three days?
answer = days(3) / seconds(1), "seconds"

What time is it?
answer = now

What day is it today, and what date is it in ten days?
answer = today
answer = today + days(10)

How late is it in Lima right now?
answer = time_in("Lima"), "in Lima"

If it's four pm here, what time is it in New York?
answer = convert_time(time("4:00 pm"), "here", "New York")

How long is it until Christmas?
answer = date("christmas") - today

How many days ago was August the third?
answer = today - date("august 3")

How many weeks is it until March 9th?
answer = (date("march 9") - today) / weeks(1), "weeks"

what's the date two weeks from Friday
answer = date("friday") + weeks(2)

What date was last Tuesday?
answer = date("last tuesday")

How many days are between the third of March and the first of June?
answer = date("june 1") - date("march 3")

How many inches are in a foot?
answer = convert(1, "foot", "inch")

The book says 300 Fahrenheit, what is that for my oven in Celsius?
answer = convert(300, "fahrenheit", "celsius")

How do cats find their way home?
talk()

I ran five miles today, and I feel great.
talk()

Okay, and now?
talk()

Set a timer for an hour and a half for the roast.
set_timer(hours=1.5, name="roast")

Count down forty seconds, please.
set_timer(seconds=40)

Start a timer.
ask("For how long?")

Wake me at eight.
set_alarm("8:00 am")

I have to be up by seven tomorrow.
set_alarm("7:00 am", day="tomorrow")

I need an alarm for five thirty, no, for quarter to six.
set_alarm("5:45")

wake me every weekday at twenty to seven
set_alarm("6:40 am", repeat="weekdays")

An alarm on Saturdays at ten, please.
set_alarm("10:00 am", repeat="saturday")

Wake me on Friday.
ask("At what time?")

Wake me at seven, but only if it snows.
cannot("tell whether it snows")

Ring when the bread smells good.
cannot("smell the bread")

Remind me tomorrow at noon to water the plants.
set_reminder("water the plants", time="noon", day="tomorrow")

in 20 minutes, no, make that half an hour, remind me to call Eve
set_reminder("call Eve", minutes=30)

On Mondays at 6 in the evening remind me of the choir.
set_reminder("choir", time="6:00 pm", repeat="monday")

Remind me to pay the rent.
ask("When should I remind you?")

Have I set anything for tonight?
list_alarms()

How long does the timer still run?
list_alarms()

I don't need the alarm at nine any more.
cancel_alarm("9:00")

Delete all my alarms.
cancel_alarm("all alarms")

Stop the pasta timer, and tell me what timers are left.
cancel_alarm("pasta timer")
list_alarms()

Note that the plumber comes on Monday.
write_note("the plumber comes on Monday")

Put bread and milk on my shopping list.
write_note("shopping list: bread and milk")

Remember that my cousin eats no fish.
write_note("my cousin eats no fish")

Take this down: an idea for a song about trains.
write_note("an idea for a song about trains")

Wake me at 5, and write down that I need the big bag.
set_alarm("5:00 am")
write_note("I need the big bag")

Remember something for me.
ask("What should I remember?")

Have I written anything down?
read_notes()

What's on my shopping list?
read_notes("shopping list")

Do I need a jacket in Oslo tomorrow?
get_weather("Oslo", day="tomorrow")

Might it rain on Tuesday?
get_weather(day="tuesday")

How warm is it outside?
get_weather()

Who won the match last night?
search_web("who won the match last night")

Look up whether the museum is open on Sundays.
search_web("is the museum open on Sundays")

How many daughters do I have if I have a son and four daughters?
sons = 1
daughters = 4
answer = daughters, "daughters"
""".strip()

_CALL = re.compile(r"^(\w+)\(", re.MULTILINE)


def program_messages(functions: Sequence[Tool], turns: Sequence[tuple[str, str]], said: str) -> list[Message]:
    """The prompt for a program.

    Args:
        functions: those that it may call.
        turns: what the user said before, and the programs for it, the oldest first.
        said: what the user said last.
    """
    messages = [Message("system", _instructions(functions))]
    for before, program in turns:
        messages += [Message("user", in_digits(before)), Message("assistant", program)]
    return [*messages, Message("user", in_digits(said))]


def _instructions(functions: Sequence[Tool]) -> str:
    names = {tool.name for tool in functions} | {"ask", "cannot", "talk", "answer"}
    signatures = [f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})" for tool in functions]
    examples = [text for text, called in _examples() if called <= names]
    listed = f"Functions: {', '.join([*signatures, *_ALWAYS])}."
    return "\n\n".join([_TASK, f"{listed}\n{_VALUES}", *examples])


@cache
def _examples() -> list[tuple[str, frozenset[str]]]:
    """The examples, each with the functions that it calls."""
    parts = [example.partition("\n") for example in _EXAMPLES.split("\n\n")]
    return [(f"User: {in_digits(said)}\n{program}", frozenset(_CALL.findall(program))) for said, _, program in parts]
