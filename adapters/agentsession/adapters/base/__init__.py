"""The executor base class: what turns one coroutine into an executor that keeps the whole contract."""

from __future__ import annotations

from agentsession.adapters.base._answering import recorded_answer
from agentsession.adapters.base._arguments import wrong_args
from agentsession.adapters.base._context import RunContext
from agentsession.adapters.base._executor import BaseExecutor, RunResult
from agentsession.adapters.base._grace import GraceCall
from agentsession.adapters.base._hooked import HookBlocked
from agentsession.adapters.base._hooks import PROCEED, Hooked, Hooks, hook_events
from agentsession.adapters.base._limits import check_limits
from agentsession.adapters.base._message import MessageWriter
from agentsession.adapters.base._run import Reply
from agentsession.adapters.base._session import BaseSession
from agentsession.adapters.base._stamping import restamp, unvalidated
from agentsession.adapters.base._steering import Steer
from agentsession.adapters.base._telemetry import ModelCallSpan

__all__ = [
    "PROCEED",
    "BaseExecutor",
    "BaseSession",
    "GraceCall",
    "HookBlocked",
    "Hooked",
    "Hooks",
    "MessageWriter",
    "ModelCallSpan",
    "Reply",
    "RunContext",
    "RunResult",
    "Steer",
    "check_limits",
    "hook_events",
    "recorded_answer",
    "restamp",
    "unvalidated",
    "wrong_args",
]
