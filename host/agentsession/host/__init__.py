"""The host's side: tools, policy, the person, whole turns, and where records are kept.

``from agentsession.host import Host, tool``. Needs no database and no MCP: :class:`SqliteRecordStore`,
:class:`SqlRecordStore` and :class:`McpTools` are loaded when they are first asked for, and say how to get what they
need. So are :class:`ModelRouter` and :class:`ToolOutputs`, which few hosts have.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agentsession.host._child_events import child_events
from agentsession.host._elicitation import (
    Approval,
    CallbackChannel,
    ElicitationChannel,
    NoChannel,
    Position,
    ScriptedChannel,
)
from agentsession.host._elicitation_cards import Card
from agentsession.host._elicitation_queue import CardChange, QueueChannel
from agentsession.host._host import Host
from agentsession.host._lineage import Child
from agentsession.host._many import Job, JobResult, Jobs
from agentsession.host._outcome import ToolError, ToolOutcome
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
from agentsession.host._registry import ExecutorCreator, SessionFactory
from agentsession.host._results import Answered, TurnResult, UsageTotals
from agentsession.host._settings import AnswerObserver, ClientTools, Observer
from agentsession.host._subagents import SubagentTool
from agentsession.host._tailcalls import TailCall
from agentsession.host._telemetry import trace_headers
from agentsession.host._toolbox import Namespaced, ToolBox, ToolLike, ToolProvider
from agentsession.host._toolcontext import ToolCancelled, ToolContext
from agentsession.host._tools import Tool, tool
from agentsession.host.hooks import HookChain, ask_user, hook
from agentsession.host.policy import PolicyEngine, RememberedAnswers, builtin_rules, load_policy

if TYPE_CHECKING:
    from agentsession.host._sql import SqlRecordStore
    from agentsession.host._sqlite import SqliteRecordStore
    from agentsession.host.mcp import McpTools
    from agentsession.host.models import ModelRouter, ToolOutputs

__all__ = [
    # turns
    "AnswerObserver",
    "Answered",
    "Host",
    "Job",
    "JobResult",
    "Jobs",
    "Observer",
    "TurnResult",
    "UsageTotals",
    # tools
    "McpTools",
    "Namespaced",
    "TailCall",
    "Tool",
    "ToolBox",
    "ToolCancelled",
    "ToolContext",
    "ToolError",
    "ToolLike",
    "ToolOutcome",
    "ToolProvider",
    "tool",
    # sub-agents
    "Child",
    "SubagentTool",
    "child_events",
    # policy
    "AnnotationPolicy",
    "Policy",
    "PolicyDecision",
    "PolicyEngine",
    "PolicyEvaluator",
    "PolicyRequest",
    "RememberedAnswers",
    "Rule",
    "RulePolicy",
    "StrictestPolicy",
    "allow_all",
    "ask_all",
    "builtin_rules",
    "deny_all",
    "load_policy",
    # people
    "Approval",
    "CallbackChannel",
    "ClientTools",
    "Card",
    "CardChange",
    "ElicitationChannel",
    "NoChannel",
    "Position",
    "QueueChannel",
    "ScriptedChannel",
    # hooks
    "HookChain",
    "ask_user",
    "hook",
    # models
    "ModelRouter",
    "ToolOutputs",
    # tracing
    "trace_headers",
    # executors and records
    "ExecutorCreator",
    "SessionFactory",
    "SqlRecordStore",
    "SqliteRecordStore",
]

_LAZY = {
    "SqlRecordStore": "agentsession.host._sql",
    "SqliteRecordStore": "agentsession.host._sqlite",
    "McpTools": "agentsession.host.mcp",
    "ModelRouter": "agentsession.host.models",
    "ToolOutputs": "agentsession.host.models",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
