"""The inspector: a page to watch sessions and to steer them, as ``agentsession serve --ui`` serves it.

Not for: the calls that the page makes (``agentsession.host.http``). Rules carried: SEC-01 as far as showing goes.
May import: starlette, which the extra ``serve`` brings.
"""

try:
    import starlette as starlette
except ImportError as error:
    raise ImportError('the inspector needs starlette: pip install "agent-session-protocol[serve]"') from error

from agentsession.host.inspector._app import POLICY, inspector_app, inspector_routes

__all__ = ["POLICY", "inspector_app", "inspector_routes"]
