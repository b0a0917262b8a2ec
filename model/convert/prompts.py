"""The prompts with which the base model generates training text: system prompts, topics and requests.

Conversations with tools are in `tool_prompts.py`. The evaluation (`evaluation.json`) has different prompts and JSON
forms.
"""

from __future__ import annotations

PERSONAS = (
    "You are a friendly voice assistant. Answer in one or two short sentences of plain spoken English.",
    "You are a helpful assistant on the phone. Keep every answer short and easy to say aloud.",
    "You are a patient voice assistant for a family. Speak simply, in at most three sentences.",
    "You answer calls for a small company. Be polite and brief, and ask one question when something is missing.",
)
"""System prompts, in addition to the assistant's own instructions."""

_TOPICS = """
cooking; breakfast; baking bread; coffee; tea; fruit; vegetables; restaurants; groceries; diets; the weather;
storms; seasons; gardening; house plants; trees; birds; cats; dogs; horses; fish; insects; farm animals;
wild animals; dinosaurs; the ocean; rivers; mountains; deserts; forests; volcanoes; earthquakes; the moon; planets;
stars; space travel; physics; chemistry; biology; the human body; sleep; exercise; running; swimming; yoga;
football; tennis; the Olympics; chess; board games; card games; video games; puzzles; riddles; jokes; movies;
television; theatre; books; poetry; fairy tales; newspapers; music; guitars; pianos; singing; dancing; painting;
photography; museums; architecture; bridges; castles; ancient Rome; ancient Egypt; the Middle Ages; explorers;
inventors; famous scientists; presidents; kings and queens; world geography; capital cities; islands; Europe; Asia;
Africa; South America; languages; spelling; grammar; holidays; birthdays; weddings; gifts; families; babies; school;
homework; university; exams; job interviews; office work; meetings; email; computers; phones; the internet;
passwords; batteries; electricity; light bulbs; cars; bicycles; trains; airplanes; ships; traffic; road trips;
camping; hiking; beaches; hotels; luggage; passports; money; saving; taxes; shopping; clothes; shoes; laundry;
cleaning; furniture; repairs; tools; paint; moving house; neighbours; friends; feelings; stress; manners;
time zones; calendars; clocks; measuring; percentages; multiplication; temperatures; distances; recycling; energy;
water; noise; safety; first aid; colds and flu; teeth; eyes; doctors; dentists; hospitals; libraries; post offices;
banks; parks; zoos
"""
TOPICS = tuple(" ".join(_TOPICS.split()).split("; "))

QUESTIONS = {
    "chat": "Write eight different things that a person might say or ask a voice assistant about {topic}. "
    "Short, natural, spoken English, one a line, no numbering.",
    "list": "Write eight different requests to a voice assistant, about {topic}, that are best answered with a list, "
    "some steps or a few examples. One a line, no numbering.",
    "numbers": "Write eight different questions to a voice assistant, about {topic}, whose answer has a number, a "
    "date, a time, a price or a calculation in it. One a line, no numbering.",
}
"""Requests for the user's side of a conversation, by kind."""

PASSAGE = (
    "Write four or five plain sentences of a guide, a notice, a letter or a news report about {topic}. Only the text."
)
PASSAGE_QUESTIONS = (
    "Here is a text.\n\n{passage}\n\nWrite four short questions that this text answers, one a line, no numbering."
)
PASSAGE_TURN = "Answer from this text.\n\n{passage}\n\n{question}"

TOOL_REQUESTS = (
    "A voice assistant can {does}. Write eight different things that people say to make it do that, "
    "one a line, no numbering."
)

JSON_TURNS = (
    "Give me a JSON object about {topic} with the keys name, kind, year and facts. Only the JSON.",
    "Return a JSON array of three objects about {topic}, each with title, price and in_stock. Only JSON.",
    "Fill this in for {topic} and answer with JSON alone: id, label, tags (a list of three), score between 0 and 1.",
    "I need a JSON object with question, answer and difficulty for a quiz about {topic}.",
    "Describe an event about {topic} as JSON: title, date, start, end, place, guests as a list of names.",
    "Give me a JSON configuration for an app about {topic}, with nested settings for display, sound and account.",
    "Make a JSON list of four steps to do with {topic}; each step has a number, a title and minutes.",
)
