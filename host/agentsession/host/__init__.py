"""The host's side: tools, policy, the person, whole turns, and where records are kept.

``from agentsession.host import Host, tool``. Needs no database: :class:`SqliteRecordStore` and :class:`SqlRecordStore`
are loaded when they are first asked for, and say how to get what they need.
"""

from __future__ import annotations

from agentsession.host._elicitation import (
    Approval,
    CallbackChannel,
    ElicitationChannel,
    NoChannel,
    Position,
    ScriptedChannel,
)
from agentsession.host._host import Host
from agentsession.host._policy import (
    AnnotationPolicy,
    Policy,
    PolicyDecision,
    PolicyEvaluator,
    PolicyRequest,
    Rule,
    RulePolicy,
    StrictestPolicy,
    allow_all,
    ask_all,
    deny_all,
)
from agentsession.host._results import Answered, TurnResult, UsageTotals
from agentsession.host._settings import AnswerObserver, Observer
from agentsession.host._toolcontext import ToolCancelled, ToolContext
from agentsession.host._tools import Tool, ToolBox, ToolError, ToolLike, ToolOutcome, ToolProvider, tool

__all__ = [
    # turns
    "AnswerObserver",
    "Answered",
    "Host",
    "Observer",
    "TurnResult",
    "UsageTotals",
    # tools
    "Tool",
    "ToolBox",
    "ToolCancelled",
    "ToolContext",
    "ToolError",
    "ToolLike",
    "ToolOutcome",
    "ToolProvider",
    "tool",
    # policy
    "AnnotationPolicy",
    "Policy",
    "PolicyDecision",
    "PolicyEvaluator",
    "PolicyRequest",
    "Rule",
    "RulePolicy",
    "StrictestPolicy",
    "allow_all",
    "ask_all",
    "deny_all",
    # people
    "Approval",
    "CallbackChannel",
    "ElicitationChannel",
    "NoChannel",
    "Position",
    "ScriptedChannel",
]
