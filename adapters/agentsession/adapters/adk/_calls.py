"""The book of calls: which contract request stands for which ADK function call, and what is still open.

Not for: deciding anything about a call. Rules carried: TOOL-01, TOOL-03 (ids are never reused), TOOL-10, TOOL-11.
May import: ``_values``, the standard library.

ADK's ids come from the model and are no identity: they may be missing, repeat in a later turn, or differ between the
streamed pieces of a call and the call. The contract's ids are unique in the session. The book maps both ways.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from agentsession.adapters.adk._values import clean_id

__all__ = ["Call", "CallBook", "CallKind"]

CallKind = Literal["tool", "tool_confirmation", "auth_required", "clarification"]


@dataclasses.dataclass(slots=True)
class Call:
    """One request: a tool call, or a question that ADK dresses as a call."""

    request_id: str
    """The contract's id, unique in the session."""
    adk_id: str
    """ADK's id, which a FunctionResponse must carry; empty when the event had none."""
    name: str
    kind: CallKind = "tool"
    needs: str = "none"
    long_running: bool = False
    hidden: bool = False
    """Not shown: the adapter's own gate, a delegation, a call that cannot be run. Its responses are hidden as well."""
    invocation_id: str = ""
    event_id: str = ""
    """ADK's id of the event that made the call."""
    agent_id: str | None = None
    thread_id: str | None = None
    tool_request_id: str | None = None
    """For a question: the tool request that it belongs to."""
    open: bool = True
    declined: bool = False
    """For a tool: its own confirmation was declined."""
    settled: bool = False
    """Closed by the session (``Translator.resolve``): what ADK says of it later is not shown."""

    @property
    def waits(self) -> bool:
        """Whether the host owes an answer, as far as ADK's events say."""
        return self.open and not self.hidden and (self.kind != "tool" or self.needs != "none")


class CallBook:
    """All calls of a session, by both ids. One book may serve the translators of an agent and of its children."""

    def __init__(self) -> None:
        self._by_request: dict[str, Call] = {}
        self._by_adk: dict[str, list[Call]] = {}
        self._reserved: set[str] = set()

    def __iter__(self) -> Iterator[Call]:
        return iter(self._by_request.values())

    def fresh_id(self, preferred: str, otherwise: str) -> str:
        """``preferred`` if it was never used, else an id made from ``otherwise``; never given twice."""
        candidate = clean_id(preferred)
        if not candidate or candidate in self._reserved:
            candidate = clean_id(otherwise)
        if candidate and candidate not in self._reserved:
            self._reserved.add(candidate)
            return candidate
        number = 2
        base = clean_id(otherwise) or clean_id(preferred) or "call"
        while f"{base}.{number}" in self._reserved:
            number += 1
        self._reserved.add(f"{base}.{number}")
        return f"{base}.{number}"

    def reserve(self, request_id: str) -> bool:
        """Take an id that the adapter itself made; ``False``: a call has it already."""
        if request_id in self._reserved:
            return False
        self._reserved.add(request_id)
        return True

    def add(self, call: Call) -> Call:
        """Enter a call; its ``request_id`` comes from :meth:`fresh_id` or :meth:`reserve`."""
        self._by_request[call.request_id] = call
        if call.adk_id:
            self._by_adk.setdefault(call.adk_id, []).append(call)
        return call

    def get(self, request_id: str) -> Call | None:
        """The call behind a contract id."""
        return self._by_request.get(request_id)

    def known(self, adk_id: str) -> Call | None:
        """The latest call with this ADK id, open or not."""
        calls = self._by_adk.get(adk_id)
        return calls[-1] if calls else None

    def match(
        self, adk_id: str, name: str, invocation_id: str, thread: str | Literal[False] | None = False
    ) -> Call | None:
        """The open call that a response belongs to.

        By id; when several open calls share it, the one of this invocation, of this name, of the latest event, for ADK
        looks for it from the end, too. A response without an id goes to the first open call of its name, in its
        invocation if there is one. ``thread``: an agent's own result, which is more likely of a call on its thread.
        """
        if adk_id:
            known = self._by_adk.get(adk_id, ())
            if len(known) == 1:
                return known[0] if known[0].open else None
            same = [call for call in known if call.open]
            best = [call for call in same if call.invocation_id == invocation_id] or same
            named = [call for call in best if call.name == name] or best
            here = [call for call in named if thread is not False and call.thread_id == thread] or named
            # Two calls of one event may share an id: they are answered in order.
            return next((call for call in here if call.event_id == here[-1].event_id), None)
        same = [call for call in self if call.open and not call.adk_id and call.name == name]
        best = [call for call in same if call.invocation_id == invocation_id] or same
        return best[0] if best else None

    def open_calls(self) -> list[Call]:
        """What is open, hidden calls left out, in the order of the requests."""
        return [call for call in self if call.open and not call.hidden]
