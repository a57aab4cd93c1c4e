"""What a stream of AG-UI events must be: three opinions on one, for the tests of whatever makes one.

``ag_ui.core`` says what an event is, ``ag-ui-validate`` what a stream is, and :class:`Client` what the protocol's own
client in JavaScript throws at: its rules are told again here from what it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ag_ui.core import Event as AgEvent
from ag_ui_validate import Diagnostic, create_validator
from pydantic import TypeAdapter
from pydantic_core import from_json

from agentsession.host.agui import RunMapper, encode
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import Event

__all__ = ["Client", "check", "check_models", "kinds", "of_type", "run", "validated"]

_EVENT: Final[TypeAdapter[Any]] = TypeAdapter(AgEvent)
_NOT_FAULTS: Final = frozenset({"AGUI208", "AGUI301", "AGUI304", "AGUI902"})
"""Remarks: a call's message may have no text, a delta may stand on the client's own state, a snapshot may come after
deltas, and a run of no event of ours has no time."""


def run(mapper: RunMapper, events: Iterable[Event], **start: Any) -> list[Wire]:
    """A whole run over ``events``."""
    record = list(events)
    out = mapper.start(**start)
    for event in record:
        out += mapper.feed(event)
    return out + mapper.finish(history=record)


def kinds(events: Iterable[Wire]) -> list[str]:
    """The types, in order."""
    return [event["type"] for event in events]


def of_type(events: Iterable[Wire], *types: str) -> list[Wire]:
    """The events of those types, without their times."""
    return [
        {key: item for key, item in event.items() if key != "timestamp"} for event in events if event["type"] in types
    ]


def check(events: Sequence[Wire], *, is_resumed: bool = False, client: Client | None = None) -> Client:
    """All three opinions. ``is_resumed``: results may answer calls of an earlier run."""
    check_models(events)
    faults = [item for item in validated(events) if not (is_resumed and item.rule == "AGUI207")]
    assert not faults, [(item.rule, item.message) for item in faults]
    client = client or Client()
    client.receive(events)
    return client


def check_models(events: Iterable[Wire]) -> None:
    """Each event is one of the models', who write it as we do: nothing absent is null, no field is ours alone."""
    for event in events:
        model = _EVENT.validate_python(event)
        assert from_json(model.model_dump_json(by_alias=True)) == from_json(encode(event)[len(b"data: ") :]), event
        assert not list(_extra(model)), event
        frame = encode(event)
        assert frame.endswith(b"\n\n")
        assert b"\r" not in frame
        assert frame.count(b"\n") == 2


def _extra(model: Any) -> Iterator[str]:
    yield from model.model_extra or ()


def validated(events: Iterable[Wire]) -> list[Diagnostic]:
    """What ``ag-ui-validate`` finds, without remarks and its rule on a result's parts, which the protocol allows."""
    validator = create_validator()
    for event in events:
        validator.feed(event)
    validator.finalize()
    report = validator.report()
    assert not report.internal_errors
    return [item for item in report.diagnostics if item.rule not in _NOT_FAULTS and not _is_result_parts(item)]


def _is_result_parts(item: Diagnostic) -> bool:
    return item.rule == "AGUI504" and item.event_type == "TOOL_CALL_RESULT" and item.pointer == "/content"


class Client:
    """The client: the rules that it keeps of one run, and the messages and the state that it has after some."""

    def __init__(self) -> None:
        self.messages: list[Wire] = []
        self.state: Any = {}
        self._begin()

    def _begin(self) -> None:
        self.text: set[str] = set()
        self.calls: set[str] = set()
        self.spans: set[str] = set()
        self.reasoning: set[str] = set()
        self.steps: set[tuple[str | None, str]] = set()
        self.subs: set[str] = set()
        self.closed_subs: set[str] = set()
        self.owners: dict[tuple[str, str], str | None] = {}
        self.state_of_run = "new"

    def receive(self, events: Iterable[Wire]) -> None:
        """Take a run's events; fails as the client would."""
        for event in events:
            kind = event["type"]
            if kind == "RUN_STARTED":
                assert self.state_of_run != "running", "a run is still active"
                self._begin()
                self.state_of_run = "running"
                continue
            assert self.state_of_run == "running", f"{kind} outside a run"
            assert "subagentRunId" not in event or event["subagentRunId"] is not None
            handler = getattr(self, f"_{kind.lower()}", None)
            if handler is not None:
                handler(event)

    def message(self, message_id: str) -> Wire | None:
        """The message of that id."""
        return next((item for item in self.messages if item["id"] == message_id), None)

    # -- owners ----------------------------------------------------------------------------------------------------

    def _owned(self, kind: str, entity: str, event: Wire) -> None:
        tag = event.get("subagentRunId")
        if (kind, entity) in self.owners:
            assert tag is None or self.owners[kind, entity] == tag, f"{event} is not its owner's"
        else:
            self.owners[kind, entity] = tag

    def _continued(self, kind: str, entity: str, event: Wire) -> None:
        tag = event.get("subagentRunId")
        assert tag is None or self.owners.get((kind, entity), tag) == tag, f"{event} is not its owner's"

    # -- text and reasoning ------------------------------------------------------------------------------------------

    def _text_message_start(self, event: Wire) -> None:
        entity = event["messageId"]
        assert entity not in self.text
        self._owned("message", entity, event)
        self.text.add(entity)
        if self.message(entity) is None:
            self.messages.append({"id": entity, "role": event.get("role", "assistant"), "content": ""})

    def _text_message_content(self, event: Wire) -> None:
        assert event["messageId"] in self.text
        self._continued("message", event["messageId"], event)
        found = self.message(event["messageId"])
        assert found is not None
        found["content"] = (found.get("content") or "") + event["delta"]

    def _text_message_end(self, event: Wire) -> None:
        self.text.remove(event["messageId"])

    def _reasoning_start(self, event: Wire) -> None:
        assert event["messageId"] not in self.spans
        self._owned("reasoning", event["messageId"], event)
        self.spans.add(event["messageId"])

    def _reasoning_message_start(self, event: Wire) -> None:
        entity = event["messageId"]
        assert entity not in self.reasoning
        self._owned("reasoning", entity, event)
        self.reasoning.add(entity)
        if self.message(entity) is None:
            self.messages.append({"id": entity, "role": "reasoning", "content": ""})

    def _reasoning_message_content(self, event: Wire) -> None:
        assert event["messageId"] in self.reasoning
        found = self.message(event["messageId"])
        assert found is not None
        found["content"] += event["delta"]

    def _reasoning_message_end(self, event: Wire) -> None:
        self.reasoning.remove(event["messageId"])

    def _reasoning_end(self, event: Wire) -> None:
        self.spans.remove(event["messageId"])

    def _reasoning_encrypted_value(self, event: Wire) -> None:
        entity = event["entityId"]
        if event["subtype"] == "tool-call":
            self._continued("call", entity, event)
            calls = [call for item in self.messages for call in item.get("toolCalls", ()) if call["id"] == entity]
            for call in calls:
                call["encryptedValue"] = event["encryptedValue"]
            return
        self._continued("message" if ("message", entity) in self.owners else "reasoning", entity, event)
        found = self.message(entity)
        if found is not None:
            found["encryptedValue"] = event["encryptedValue"]

    # -- tools -------------------------------------------------------------------------------------------------------

    def _tool_call_start(self, event: Wire) -> None:
        entity, parent = event["toolCallId"], event.get("parentMessageId")
        assert entity not in self.calls
        tag = event.get("subagentRunId")
        if ("message", parent or "") in self.owners:
            assert tag is None or tag == self.owners["message", parent or ""], "a call belongs to its message"
        self._owned("call", entity, event)
        self.calls.add(entity)
        owner = self.message(parent) if parent is not None else None
        if owner is None:
            owner = Wire(id=parent or entity, role="assistant")
            self.messages.append(owner)
        function: Wire = {"name": event["toolCallName"], "arguments": ""}
        owner.setdefault("toolCalls", []).append({"id": entity, "type": "function", "function": function})

    def _tool_call_args(self, event: Wire) -> None:
        assert event["toolCallId"] in self.calls
        for item in self.messages:
            for call in item.get("toolCalls", ()):
                if call["id"] == event["toolCallId"]:
                    call["function"]["arguments"] += event["delta"]

    def _tool_call_end(self, event: Wire) -> None:
        self.calls.remove(event["toolCallId"])

    def _tool_call_result(self, event: Wire) -> None:
        self.owners["message", event["messageId"]] = event.get("subagentRunId")
        said = {
            "id": event["messageId"],
            "role": "tool",
            "toolCallId": event["toolCallId"],
            "content": event["content"],
        }
        asked = [any(call["id"] == event["toolCallId"] for call in item.get("toolCalls", ())) for item in self.messages]
        at = asked.index(True) + 1 if True in asked else len(self.messages)
        while at < len(self.messages) and self.messages[at]["role"] == "tool":
            at += 1
        self.messages.insert(at, said)

    # -- agents ------------------------------------------------------------------------------------------------------

    def _step_started(self, event: Wire) -> None:
        step = (event.get("subagentRunId"), event["stepName"])
        assert step not in self.steps
        self.steps.add(step)

    def _step_finished(self, event: Wire) -> None:
        self.steps.remove((event.get("subagentRunId"), event["stepName"]))

    def _subagent_started(self, event: Wire) -> None:
        entity = event["subagentRunId"]
        assert entity not in self.subs | self.closed_subs, "started twice in one run"
        parent = event.get("parentSubagentRunId")
        assert parent is None or parent in self.subs | self.closed_subs
        self.subs.add(entity)

    def _subagent_finished(self, event: Wire) -> None:
        self.subs.remove(event["subagentRunId"])
        self.closed_subs.add(event["subagentRunId"])

    _subagent_error = _subagent_finished

    # -- state, snapshots, the end -------------------------------------------------------------------------------------

    def _state_snapshot(self, event: Wire) -> None:
        self.state = event["snapshot"]

    def _state_delta(self, event: Wire) -> None:
        import jsonpatch

        self.state = jsonpatch.apply_patch(self.state, event["delta"])

    def _messages_snapshot(self, event: Wire) -> None:
        given = {item["id"]: item for item in event["messages"]}
        assert len(given) == len(event["messages"]), "two messages of one id"
        has_reasoning = any(item["role"] == "reasoning" for item in event["messages"])
        kept = [
            given.pop(item["id"], item)
            for item in self.messages
            if item["id"] in given or item["role"] == "activity" or (item["role"] == "reasoning" and not has_reasoning)
        ]
        self.messages = [*kept, *given.values()]

    def _activity_snapshot(self, event: Wire) -> None:
        found = self.message(event["messageId"])
        assert found is None or found["role"] == "activity", "an activity in the place of a message"
        if found is None:
            self.messages.append({"id": event["messageId"], "role": "activity", "content": event["content"]})
        else:
            found["content"] = event["content"]

    def _run_finished(self, event: Wire) -> None:
        still = self.text | self.calls | self.spans | self.reasoning | self.subs | {name for _, name in self.steps}
        assert not still, f"RUN_FINISHED while open: {still}"
        self.state_of_run = "over"

    def _run_error(self, event: Wire) -> None:
        still = self.text | self.calls | self.spans | self.reasoning | self.subs | {name for _, name in self.steps}
        assert not still, f"RUN_ERROR before our own closings: {still}"
        self.state_of_run = "over"
