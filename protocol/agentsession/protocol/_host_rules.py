"""The rules of hosts: what a host owes its user, whatever the executor behind a session does.

Not for: rules of executors and of the record (``_rules.py``), or checking (the host suite does).
May import: ``_rules``.

Their ``capability`` is a feature of hosts: asked only of those whose harness says that they have it. Ids are stable
like those of the other table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agentsession.protocol._rules import Rule

__all__ = ["HOST_RULES"]


def _rule(number: int, sentence: str, feature: str | None = None, *, fix: str) -> Rule:
    return Rule(f"HOST-{number:02}", sentence, "host", "session", feature, fix, "decision 0024")


_RULES: Final = (
    # What may run.
    _rule(
        1,
        "No tool runs, and none of the agent's own is granted, without an allow of the policy for this call; what is"
        " denied is answered with a denial.",
        fix="ask the policy about each request before anything runs",
    ),
    _rule(
        2,
        "What the policy says nothing of, and a word of it that is no decision, is denied.",
        fix="deny unless the word is allow, or ask and the person said yes",
    ),
    _rule(3, "A policy that fails has denied.", fix="catch what the policy raises, and deny"),
    _rule(
        4,
        "Where nobody can be asked, what would be asked is denied, and no question gets a yes.",
        fix="without a person, deny calls and decline questions",
    ),
    _rule(
        5,
        "Only a clear yes of the person runs a call: not a no, a question that was closed, or a channel that fails.",
        "ask",
        fix="treat whatever is not a yes as a no",
    ),
    _rule(
        6,
        "The person is asked about the tool and the arguments that will run, whatever the agent says of them.",
        "ask",
        fix="show name and arguments of the request, never its texts alone",
    ),
    _rule(
        7,
        "Arguments that the person edited are checked against the schema, and decided on again.",
        "edit",
        fix="send edited arguments through schema and policy, as if the model had sent them",
    ),
    _rule(
        8,
        "The agent's own confirmation of a call does not open what the policy denies.",
        "questions",
        fix="ask the policy about the call that a tool_confirmation is linked to",
    ),
    # Requests and their answers.
    _rule(
        9,
        "Arguments that do not fit the tool's schema, or are no JSON, are answered with an error, and nothing runs.",
        fix="check the arguments before the tool, and answer with is_error",
    ),
    _rule(
        10,
        "A call of a tool that the host does not have is answered with an error, and the turn goes on.",
        fix="answer with is_error, naming the tools that there are",
    ),
    _rule(
        11,
        "Each request that waits for the host is answered once, under its own id.",
        fix="keep the ids that were answered, and answer every pending request",
    ),
    _rule(
        12,
        "No call runs twice, however often it is shown and whatever becomes of its answer.",
        fix="keep the ids that were served; an answer that was refused is not made again by running the tool",
    ),
    _rule(
        13,
        "What was settled elsewhere is stopped, and not answered any more.",
        fix="watch for responses of the record, and cancel what is served for them",
    ),
    _rule(
        14,
        "Only what waits for the host is served: not what is partial, shown only, or answered already.",
        fix="serve what session.pending holds, not whatever request is seen",
    ),
    _rule(
        15,
        "While a request waits, for a person or a slow tool, a call beside it that needs neither is answered.",
        fix="serve each request in a task of its own",
    ),
    _rule(
        16,
        "A tool that fails is answered with an error that holds no traceback, and the turn goes on.",
        fix="catch what tools raise, and answer with is_error",
    ),
    _rule(
        17,
        "Where the host is set so, the agent is not told the text of a tool's exception.",
        "quiet_errors",
        fix="answer with the exception's type alone",
    ),
    _rule(
        18,
        "A tool that runs longer than its limit is answered with an error, and the turn goes on.",
        "tool_limit",
        fix="bound each run, and answer when the time is over",
    ),
    # People.
    _rule(
        19,
        "A question of the agent is answered as the person did; decline and cancel carry no content.",
        "questions",
        fix="pass the person's action on, and content only with accept",
    ),
    _rule(
        20,
        "The answer to a question is not given again without end where the session refuses it.",
        "questions",
        fix="count the refusals, and cancel the question",
    ),
    _rule(
        21,
        "What a person answers in confidence is in no log, no error and nothing that is shown.",
        "questions",
        fix="log kinds and ids of answers, never their content",
    ),
    # Ends.
    _rule(
        22,
        "Abort stops the tools that run, withdraws what people are asked, and ends the turn at the executor.",
        fix="cancel what is served, then call session.abort()",
    ),
    _rule(
        23,
        "After an abort nothing of that turn begins, and neither a yes nor a result that is not an error is sent.",
        fix="mark the turn as aborted before anything is awaited",
    ),
    _rule(
        24,
        "After a turn that was aborted the host takes another of the same session.",
        fix="keep nothing of a turn that has ended",
    ),
    _rule(
        25,
        "Where the executor is lost, in a stream or in an answer, the turn ends with an error and its tools stop.",
        fix="end the turn when a call of the session raises, and cancel what is served",
    ),
    _rule(
        26,
        "A stream that stops without its stream_end is an error, never the end of a turn.",
        fix="raise when the iteration is over and stream.end is not set",
    ),
    _rule(
        27,
        "An executor that does not end, or fails, at an abort or as it is closed holds up neither that call nor the"
        " turn for ever.",
        fix="bound session.abort() and session.aclose() by a grace time of the host's own",
    ),
    _rule(
        28,
        "Closing a session while its turn runs stops the tools, withdraws what people are asked, and closes it at the"
        " executor.",
        fix="abort the running turn, then call session.aclose()",
    ),
    _rule(
        29,
        "A turn is continued to its final end, and only once everything that the host answers is answered.",
        fix="after input_required answer all that is pending, then call stream() without a message",
    ),
    # What comes in.
    _rule(
        30,
        "What is not known, be it a type of event or content, a kind of question, or a need, runs nothing and ends"
        " nothing.",
        fix="ignore unknown events, cancel unknown questions, deny unknown needs",
    ),
    _rule(
        31,
        "Events that break the contract are ignored or end the turn with an error of the contract: nothing runs for"
        " them, and no turn hangs.",
        fix="check what is read, and raise ProtocolViolation",
    ),
    _rule(
        32,
        "A flood of events does not pile up: who shows them slowly holds the agent, and what was shown is forgotten.",
        "show",
        fix="take an event only when the one before was shown, and keep no deltas",
    ),
    _rule(
        33,
        "Control characters of the agent's do not reach the person's terminal.",
        "terminal",
        fix="escape what the agent wrote before it is printed",
    ),
    # What a crash leaves.
    _rule(
        34,
        "A tool is in the record as started before it runs, and what another host has started is left to that host.",
        fix="send a tool_progress with started, and run the tool only when its receipt is applied",
    ),
)

HOST_RULES: Final[Mapping[str, Rule]] = MappingProxyType({rule.id: rule for rule in _RULES})
"""Every rule of hosts by its id."""
