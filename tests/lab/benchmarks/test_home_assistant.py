"""Home Assistant's benchmark: tasks are read, intents change the simulated home, and what is expected is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.benchmarks.home_assistant import Entity, Task, call, is_right, read_tasks, tools_for

FIXTURES = """
areas: [{name: Kitchen, id: kitchen}, {name: Terrace, id: terrace}]
entities:
  - {name: Kitchen Light, id: light.kitchen, area: kitchen, state: "off", attributes: {brightness: 0}}
  - {name: Speakers, id: media_player.speakers, area: terrace, state: playing}
  - {name: Door, id: lock.door, area: kitchen, state: unlocked}
  - {name: Valve, id: valve.garden}
  - {name: Tasks, id: todo.tasks}
"""
TESTS = """
tests:
  - sentences: [Turn on the kitchen light, Light on, Light on]
    setup: {light.kitchen: {state: "off"}}
    expect_changes: {light.kitchen: {state: "on", attributes: {brightness: 0}}}
  - sentences: ["Is the door locked?"]
    expect_response: ["no", unlocked]
"""


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "_fixtures.yaml").write_text(FIXTURES)
    (home / "light.yaml").write_text(TESTS)
    return list(read_tasks(tmp_path))


def test_each_sentence_is_one_task_with_the_home_as_it_is_set_up(tasks: list[Task]) -> None:
    assert [task.sentence for task in tasks] == ["Turn on the kitchen light", "Light on", "Is the door locked?"]
    light, *_, todo = tasks[0].home
    assert light == Entity("light.kitchen", "Kitchen Light", "Kitchen", "off", {"brightness": 0})
    assert (todo.area, todo.state) == ("", "0")
    names = {tool["function"]["name"] for tool in tools_for(tasks[0].home)}
    assert {"HassTurnOn", "HassLightSet", "HassSetPosition", "HassListAddItem", "GetLiveContext"} <= names
    assert "HassVacuumStart" not in names


@pytest.mark.parametrize(
    ("name", "arguments", "entity", "state"),
    [
        ("HassTurnOn", {"name": "kitchen light"}, "light.kitchen", "on"),
        ("HassTurnOn", {"area": "Kitchen", "domain": "light"}, "light.kitchen", "on"),
        ("HassTurnOn", {"name": "Door"}, "lock.door", "locked"),
        ("HassTurnOff", {"name": "Valve", "domain": "valve"}, "valve.garden", "closed"),
        ("HassSetPosition", {"name": "Valve", "position": 50}, "valve.garden", "open"),
        ("HassMediaPause", {"area": "terrace"}, "media_player.speakers", "paused"),
        ("HassMediaUnpause", {}, "media_player.speakers", "playing"),
        ("HassListAddItem", {"name": "tasks", "item": "milk"}, "todo.tasks", "1"),
    ],
)
def test_an_intent_changes_what_it_names(
    tasks: list[Task], name: str, arguments: dict[str, object], entity: str, state: str
) -> None:
    home = list(tasks[0].home)
    assert call(home, name, arguments).startswith("Done: ")
    assert {one.id: one.state for one in home}[entity] == state


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("HassTurnOn", {"name": "bedroom light"}),
        ("HassTurnOn", {"name": "kitchen light", "domain": "lock"}),
        ("HassTurnOn", {}),
        ("HassMediaPause", {"name": "kitchen light"}),
    ],
)
def test_what_is_not_there_is_an_error(tasks: list[Task], name: str, arguments: dict[str, object]) -> None:
    assert call(tasks[0].home, name, arguments).startswith("Error")


def test_a_task_is_right_if_only_what_is_expected_has_changed(tasks: list[Task]) -> None:
    task, after = tasks[0], list(read_home(tasks[0]))
    assert not is_right(task, after, "")
    call(after, "HassTurnOn", {"name": "kitchen light"})
    assert is_right(task, after, "")
    call(after, "HassTurnOn", {"name": "door"})
    assert not is_right(task, after, "")
    asked = tasks[-1]
    assert is_right(asked, read_home(asked), "It is unlocked.") and not is_right(asked, read_home(asked), "Yes.")


def read_home(task: Task) -> list[Entity]:
    """A copy of a task's home."""
    return [Entity(one.id, one.name, one.area, one.state, dict(one.attributes)) for one in task.home]
