"""The executor base class: what turns one coroutine into an executor that keeps the whole contract."""

from __future__ import annotations

from agentsession.adapters.base._context import MessageWriter, RunContext, Steer
from agentsession.adapters.base._executor import BaseExecutor, RunResult
from agentsession.adapters.base._run import Reply
from agentsession.adapters.base._session import BaseSession

__all__ = ["BaseExecutor", "BaseSession", "MessageWriter", "Reply", "RunContext", "RunResult", "Steer"]
