"""Whether requests change a smart home as they should, and whether questions about it are answered, on the public
benchmark of Home Assistant's assistants.

    python -m lab.benchmarks.home_assistant --data FOLDER [--set assist-mini] [--out FILE] [--show] [-- serve's options]

FOLDER is `datasets` of https://github.com/allenporter/home-assistant-datasets. Each sentence of a set is asked once
(the benchmark repeats it), at temperature 0 over `/v1/chat/completions`, with an overview of the home, and functions
with the names and arguments of Home Assistant's intents. The home is simulated here instead of by Home Assistant: an
intent sets the states that it sets there, and attributes that only follow from Home Assistant's own entities are not
compared (`_COMPARED`). Needs PyYAML.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.report.own_server import own_server

SETS = ("assist-mini", "assist", "questions")

_MAX_ROUNDS = 4
"""Of calls and their results, before the answer counts as given."""

_MAX_TOKENS = 256
_TIMEOUT_S = 600.0

_INSTRUCTIONS = """You control a smart home with functions, and answer questions about it in one short sentence. Call \
a function for each request. HassTurnOn also opens covers and valves and locks locks; HassTurnOff closes and unlocks \
them. Name a device by its name, or all devices of a kind by their area and domain. What is on, open or locked at the \
moment is known from GetLiveContext only. The devices are:
"""

_COMPARED = ("current_position", "volume_level", "media_track", "temperature")
"""Attributes that are compared, and the brightness where a request names one."""

_ON = {"lock": "locked", "cover": "open", "valve": "open"}
_OFF = {"lock": "unlocked", "cover": "closed", "valve": "closed"}
"""States after turning on and off, where they are not `on` and `off`."""


@dataclass
class Entity:
    """A device of a home, or a sensor of one.

    Attributes:
        id: such as `light.kitchen_light`.
        area: the name of the room; empty if it is in none.
    """

    id: str
    name: str
    area: str
    state: str
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        """Its kind, such as `light`."""
        return self.id.partition(".")[0]


@dataclass(frozen=True)
class Task:
    """A request, the home before it, and what is expected.

    Attributes:
        changes: states and attributes of entities afterwards, by their ids; the others stay as they are.
        ignored: attributes that are not compared, by the entities' ids.
        words: of which the answer must have one; none if any answer is right.
    """

    sentence: str
    home: Sequence[Entity]
    changes: Mapping[str, Mapping[str, Any]]
    ignored: Mapping[str, Sequence[str]]
    words: Sequence[str]


@dataclass(frozen=True)
class Result:
    """What came of a task."""

    sentence: str
    right: bool
    calls: Sequence[str]
    text: str


def read_tasks(folder: Path) -> Iterator[Task]:
    """The distinct tasks of a set. Raises OSError."""
    yaml = importlib.import_module("yaml")
    seen = set[str]()
    for fixtures in sorted(folder.glob("*/_fixtures.yaml")):
        home = _read_home(yaml.safe_load(fixtures.read_text()))
        for path in sorted(fixtures.parent.glob("[!_]*.yaml")):
            for test in yaml.safe_load(path.read_text())["tests"]:
                for sentence in test["sentences"]:
                    task = _task(home, sentence, test)
                    if (key := json.dumps([asdict(task)], default=str)) not in seen:
                        seen.add(key)
                        yield task


def _read_home(fixtures: Mapping[str, Any]) -> list[Entity]:
    areas = {area["id"]: area["name"] for area in fixtures.get("areas", ())}
    return [
        Entity(one["id"], one["name"], areas.get(one.get("area"), ""), _state(one), dict(one.get("attributes") or {}))
        for one in fixtures["entities"]
    ]


def _state(entity: Mapping[str, Any]) -> str:
    state = entity.get("state", "0" if entity["id"].startswith("todo.") else "unknown")
    return {True: "on", False: "off"}.get(state, str(state))


def _task(home: Sequence[Entity], sentence: str, test: Mapping[str, Any]) -> Task:
    home = deepcopy(home)
    for entity in home:
        change = (test.get("setup") or {}).get(entity.id) or {}
        attributes = change.get("attributes") or {}
        entity.state = str(change.get("state", attributes.get("native_value", entity.state)))
        entity.attributes.update(attributes)
    words = test.get("expect_response") or ()
    return Task(
        sentence,
        home,
        test.get("expect_changes") or {},
        test.get("ignore_changes") or {},
        [words] if isinstance(words, str) else [str(word) for word in words],
    )


def tools_for(home: Sequence[Entity]) -> list[dict[str, Any]]:
    """The functions for the domains of a home."""
    domains = sorted({entity.domain for entity in home})
    kinds = {"domain": {"type": "string", "enum": domains}}
    percent = {"type": "integer", "minimum": 0, "maximum": 100}
    found = [
        _function("HassTurnOn", "Turns on, opens, or locks", kinds),
        _function("HassTurnOff", "Turns off, closes, or unlocks", kinds),
        _function("GetLiveContext", "The states of all devices and sensors now", {}, named=False),
    ]
    own: Mapping[str, Sequence[dict[str, Any]]] = {
        "light": [_function("HassLightSet", "Sets the brightness of a light", {"brightness": percent})],
        "cover": [_function("HassSetPosition", "Sets how far a cover or valve is open", {"position": percent})],
        "media_player": [
            _function("HassMediaPause", "Pauses a media player"),
            _function("HassMediaUnpause", "Resumes a media player"),
            _function("HassMediaNext", "Skips to the next track"),
            _function("HassMediaPlayerMute", "Mutes a media player"),
            _function("HassSetVolume", "Sets the volume of a media player", {"volume_level": percent}),
        ],
        "vacuum": [
            _function("HassVacuumStart", "Starts a vacuum"),
            _function("HassVacuumReturnToBase", "Returns a vacuum to its base"),
        ],
        "todo": [_function("HassListAddItem", "Adds an item to a to-do list", {"item": {"type": "string"}})],
        "climate": [_function("HassClimateSetTemperature", "Sets a target", {"temperature": {"type": "number"}})],
    }
    own = {**own, "valve": own["cover"]}
    added = {tool["function"]["name"]: tool for domain in domains for tool in own.get(domain, ())}
    return [*found, *added.values()]


def _function(
    name: str, description: str, more: Mapping[str, Any] | None = None, *, named: bool = True
) -> dict[str, Any]:
    where = {"name": {"type": "string"}, "area": {"type": "string"}} if named else {}
    required = [key for key in more or {} if key != "domain"]
    parameters = {"type": "object", "properties": {**where, **(more or {})}, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def call(home: Sequence[Entity], name: str, arguments: Mapping[str, Any]) -> str:
    """Let an intent change a home. Returns what the language model reads of it."""
    if name == "GetLiveContext":
        return "\n".join(map(_live, home))
    chosen = [entity for entity in home if _is_meant(entity, name, arguments)]
    if not chosen:
        return "Error: there is no such device"
    for entity in chosen:
        _change(entity, name, arguments)
    return f"Done: {', '.join(entity.name for entity in chosen)}"


def _described(entity: Entity) -> str:
    """A device in the form in which Home Assistant lists them."""
    return f"- names: {entity.name}\n  domain: {entity.domain}" + (f"\n  areas: {entity.area}" if entity.area else "")


def _live(entity: Entity) -> str:
    keys = (*_COMPARED, "current_temperature", "brightness")
    details = "".join(f"\n  {key}: {entity.attributes[key]}" for key in keys if key in entity.attributes)
    unit = entity.attributes.get("native_unit_of_measurement", "")
    return f"{_described(entity)}\n  state: {entity.state}{unit}{details}"


_DOMAINS = {
    "HassLightSet": ("light",), "HassSetPosition": ("cover", "valve"), "HassListAddItem": ("todo",),
    "HassClimateSetTemperature": ("climate",),
}  # fmt: skip
_SWITCHED = ("light", "fan", "switch", "media_player", "lock", "cover", "valve", "climate", "vacuum")


def _is_meant(entity: Entity, name: str, arguments: Mapping[str, Any]) -> bool:
    default = ("media_player",) if "Media" in name or "Volume" in name else _SWITCHED
    allowed = ("vacuum",) if "Vacuum" in name else _DOMAINS.get(name, default)
    wanted, area, domain = (str(arguments.get(key, "")).strip().lower() for key in ("name", "area", "domain"))
    if entity.domain not in allowed or (domain and entity.domain != domain):
        return False
    if not (wanted or area or domain):
        return name not in ("HassTurnOn", "HassTurnOff")  # without a target, the only one of its kind
    return (not wanted or wanted in (entity.name.lower(), entity.id)) and (not area or entity.area.lower() == area)


def _change(entity: Entity, name: str, arguments: Mapping[str, Any]) -> None:
    match name:
        case "HassTurnOn" | "HassTurnOff":
            states, other = (_ON, "on") if name == "HassTurnOn" else (_OFF, "off")
            entity.state = states.get(entity.domain, other)
            if entity.domain in ("cover", "valve"):
                entity.attributes["current_position"] = 100 if name == "HassTurnOn" else 0
        case "HassLightSet":
            entity.state, entity.attributes["brightness"] = "on", round(255 * arguments["brightness"] / 100)
        case "HassSetPosition":
            entity.attributes["current_position"] = arguments["position"]
            entity.state = "open" if arguments["position"] else "closed"
        case "HassMediaPause":
            entity.state = "paused"
        case "HassMediaUnpause":
            entity.state = "playing"
        case "HassMediaNext":
            entity.attributes["media_track"] = entity.attributes.get("media_track", 0) + 1
        case "HassMediaPlayerMute":
            entity.attributes["volume_level"] = 0.0
        case "HassSetVolume":
            entity.attributes["volume_level"] = arguments["volume_level"] / 100
        case "HassVacuumStart":
            entity.state = "cleaning"
        case "HassVacuumReturnToBase":
            entity.state = "returning"
        case "HassListAddItem":
            entity.state = str(int(entity.state) + 1)
        case "HassClimateSetTemperature":
            entity.attributes["temperature"] = arguments["temperature"]


def is_right(task: Task, after: Sequence[Entity], text: str) -> bool:
    """Whether a home is as expected, and the answer has one of the words."""
    for before, entity in zip(task.home, after, strict=True):
        expected = task.changes.get(entity.id)
        if expected is None:
            if (before.state, before.attributes) != (entity.state, entity.attributes):
                return False
            continue
        if str(expected.get("state", entity.state)) != entity.state:
            return False
        wanted = expected.get("attributes") or {}
        compared = [*_COMPARED, *(["brightness"] if wanted.get("brightness") else [])]
        for key in set(compared) - set(task.ignored.get(entity.id, ())):
            if wanted.get(key) is not None and wanted[key] != entity.attributes.get(key):
                return False
    return not task.words or any(word.lower() in text.lower() for word in task.words)


async def ask(client: httpx.AsyncClient, task: Task) -> Result:
    """Let the server carry out a task in a copy of its home. Raises httpx.HTTPError."""
    home = deepcopy(list(task.home))
    overview = "\n".join(map(_described, home))
    messages: list[Any] = [
        {"role": "system", "content": _INSTRUCTIONS + overview},
        {"role": "user", "content": task.sentence},
    ]
    calls, text = list[str](), ""
    body = {"model": "rejoinder", "temperature": 0, "max_tokens": _MAX_TOKENS, "tools": tools_for(home)}
    for _ in range(_MAX_ROUNDS):
        response = await client.post("/v1/chat/completions", json={**body, "messages": messages})
        response.raise_for_status()
        message = response.json()["choices"][0]["message"]
        text = message["content"] or ""
        messages.append(message)
        if not message.get("tool_calls"):
            break
        for one in message["tool_calls"]:
            name, arguments = one["function"]["name"], one["function"]["arguments"]
            calls.append(f"{name}({arguments})")
            output = call(home, name, json.loads(arguments))
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": output})
    return Result(task.sentence, is_right(task, home, text), calls, text)


async def _run(tasks: Sequence[Task], options: Sequence[str]) -> list[Result]:
    async with own_server(options) as address:
        url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
            return [await ask(client, task) for task in track(tasks, "asking", console=Console(stderr=True))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask everything once, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder `datasets` of the benchmark")
    parser.add_argument("--set", choices=SETS, default=SETS[0])
    parser.add_argument("--out", type=Path, help="write a JSON line for each task")
    parser.add_argument("--show", action="store_true", help="print the calls and answers that are wrong")
    parser.add_argument("server_options", nargs="*", help="options of `rejoinder serve`, after --")
    options = parser.parse_args(arguments)
    tasks = list(read_tasks(options.data / options.set))
    if not tasks:
        sys.exit(f"there are no tasks in {options.data / options.set}")
    results = asyncio.run(_run(tasks, options.server_options))
    if options.out:
        options.out.write_text("".join(f"{json.dumps(asdict(result))}\n" for result in results))
    table = Table("set", "n", "right", "called nothing")
    right, idle = sum(result.right for result in results), sum(not result.calls for result in results)
    table.add_row(options.set, str(len(results)), f"{right} ({right / len(results):.0%})", str(idle))
    Console(width=100).print(table)
    if options.show:
        for result in results:
            if not result.right:
                print(f"{result.sentence}\n  {'; '.join(result.calls) or 'no call'}\n  {result.text}")


if __name__ == "__main__":
    main()
