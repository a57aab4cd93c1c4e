"""AG-UI 1.0: any agent behind a web page that speaks it, and no wire format of our own.

Not for: the contract over HTTP (``agentsession.host.http``). Needs the extra ``serve``.
May import: ``ag_ui``, ``agentsession.host.live``, the modules beside it.
"""

try:
    import ag_ui as ag_ui
    import starlette as starlette
except ImportError as error:
    raise ImportError(
        'serving AG-UI needs ag-ui-protocol and starlette: pip install "agent-session-protocol[serve]"'
    ) from error

from agentsession.host.agui._app import AguiApp, agui_app
from agentsession.host.agui._out import OutOptions, RunMapper
from agentsession.host.agui._out_capabilities import capabilities
from agentsession.host.agui._out_interrupts import interrupt_of
from agentsession.host.agui._out_known import Known, client_message_id, result_display
from agentsession.host.agui._out_snapshots import merged_meta, message_ids, messages_snapshot
from agentsession.host.agui._out_wire import encode

__all__ = [
    "AguiApp",
    "Known",
    "OutOptions",
    "RunMapper",
    "agui_app",
    "capabilities",
    "client_message_id",
    "encode",
    "interrupt_of",
    "merged_meta",
    "message_ids",
    "messages_snapshot",
    "result_display",
]
