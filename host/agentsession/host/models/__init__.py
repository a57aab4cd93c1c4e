"""Models of a host: which one answers when one fails, and how much of old tool outputs it is shown.

``Host(hooks=[ModelRouter([...]), ToolOutputs(...)])``. Both are hooks; each can be used alone.
"""

from agentsession.host.models._availability import Failure, Health, classify, next_delay, transition
from agentsession.host.models._output_view import Limits as OutputLimits
from agentsession.host.models._output_view import estimate_tokens
from agentsession.host.models._outputs import READ_OUTPUT, ToolOutputs
from agentsession.host.models._router import MODEL_UNAVAILABLE, FallbackPolicy, ModelRouter, RouteFunction

__all__ = [
    "MODEL_UNAVAILABLE",
    "READ_OUTPUT",
    "Failure",
    "FallbackPolicy",
    "Health",
    "ModelRouter",
    "OutputLimits",
    "RouteFunction",
    "ToolOutputs",
    "classify",
    "estimate_tokens",
    "next_delay",
    "transition",
]
