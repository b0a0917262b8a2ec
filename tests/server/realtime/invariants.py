"""What holds for the server events of every conversation, whatever the client does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.server.realtime.conversation_client import OPENAI_SERVER_EVENT


class Invariants:
    """Checks server events one by one.

    Attributes:
        open_responses: responses in progress, with whether they are part of the conversation.
        open_items: output items in progress, with their responses.
        client_event_ids: ids of the events that the client has sent.
    """

    def __init__(self) -> None:
        self.open_responses: dict[str, bool] = {}
        self.open_items: dict[str, str] = {}
        self.client_event_ids: set[str] = set()
        self._open_parts: set[str] = set()
        self._done_responses: set[str] = set()
        self._event_ids: set[str] = set()
        self._item_ids: set[str] = set()
        self._call_ids: set[str] = set()
        self._arguments: dict[str, str] = {}
        self._cancelled_calls: set[str] = set()

    def check(self, event: Mapping[str, Any]) -> None:
        """Check one event against all earlier ones."""
        if not event["type"].startswith("rejoinder."):
            OPENAI_SERVER_EVENT.validate_python(event)
        assert event["event_id"] not in self._event_ids, "event ids are unique"
        self._event_ids.add(event["event_id"])
        kind = event["type"]
        if kind == "error":
            assert event["error"]["event_id"] in self.client_event_ids, "an error names the event that caused it"
            assert event["error"]["code"] != "internal_error", event["error"]
        elif kind == "response.created":
            self._check_created(event["response"])
        elif kind == "response.done":
            self._check_done(event["response"])
        elif kind.startswith("response."):
            self._check_part_of_response(event)
        elif kind == "conversation.item.added":
            self._check_added(event)
        elif kind == "conversation.item.deleted":
            self._item_ids.remove(event["item_id"])

    def check_end(self) -> None:
        """Check that whatever started has ended."""
        assert not self.open_responses
        assert not self.open_items
        assert not self._cancelled_calls, "a cancelled call gets an output"

    def _check_created(self, response: Mapping[str, Any]) -> None:
        in_conversation = response["conversation_id"] is not None
        assert response["id"] not in self._done_responses | set(self.open_responses), "response ids are unique"
        assert not (in_conversation and True in self.open_responses.values()), (
            "one response of the conversation at a time"
        )
        assert (response["status"], response["output"]) == ("in_progress", [])
        self.open_responses[response["id"]] = in_conversation

    def _check_done(self, response: Mapping[str, Any]) -> None:
        assert response["id"] in self.open_responses, "only what was created is done"
        assert response["id"] not in self.open_items.values(), "the items of a response end before it"
        assert response["status"] in ("completed", "cancelled", "incomplete", "failed")
        assert response["usage"] is not None
        del self.open_responses[response["id"]]
        self._done_responses.add(response["id"])

    def _check_part_of_response(self, event: Mapping[str, Any]) -> None:
        assert event["response_id"] in self.open_responses, "nothing comes after response.done"
        kind = event["type"]
        item_id = event["item"]["id"] if "item" in event else event["item_id"]
        if kind == "response.output_item.added":
            assert item_id not in self.open_items
            self.open_items[item_id] = event["response_id"]
            if event["item"]["type"] == "function_call":
                assert event["item"]["call_id"] not in self._call_ids, "call ids are unique"
                self._call_ids.add(event["item"]["call_id"])
            return
        assert self.open_items.get(item_id) == event["response_id"], "nothing comes after output_item.done"
        if kind == "response.output_item.done":
            assert item_id not in self._open_parts, "content parts end before their item"
            self._note_cancelled_call(event)
            del self.open_items[item_id]
        elif kind == "response.content_part.added":
            self._open_parts.add(item_id)
        elif kind == "response.content_part.done":
            self._open_parts.remove(item_id)
        elif kind == "response.function_call_arguments.delta":
            self._arguments[item_id] = self._arguments.get(item_id, "") + event["delta"]
        elif kind == "response.function_call_arguments.done":
            assert event["arguments"] == self._arguments[item_id], "the deltas make up the arguments"
        else:
            assert item_id in self._open_parts, "text and audio belong to an open content part"

    def _note_cancelled_call(self, event: Mapping[str, Any]) -> None:
        item, in_conversation = event["item"], self.open_responses[event["response_id"]]
        if in_conversation and item["type"] == "function_call" and item["status"] == "incomplete":
            self._cancelled_calls.add(item["call_id"])

    def _check_added(self, event: Mapping[str, Any]) -> None:
        item_id = event["item"]["id"]
        assert item_id not in self._item_ids, "item ids are unique"
        assert event["previous_item_id"] is None or event["previous_item_id"] in self._item_ids
        self._item_ids.add(item_id)
        if event["item"]["type"] == "function_call_output":
            self._cancelled_calls.discard(event["item"]["call_id"])
