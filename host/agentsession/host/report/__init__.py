"""A record as one page: where the time went, who did what when, what it used, and every call with all that came of it.

::

    from agentsession.host.report import html, timeline

    page = html(timeline(events))

:func:`timeline` is a pure function of the events; :func:`html` makes one page of it that needs no network, in which
what agents and tools said is text alone and secrets are masked. ``agentsession report`` is the same from a shell.
A stored session's sub-agents have records of their own: :func:`stored` reads it with theirs.
Not for: reading other records (``read_ndjson`` does). May import: ``agentsession.protocol``, its own modules.
"""

from __future__ import annotations

from agentsession.host.report._build import timeline, turn
from agentsession.host.report._model import Item, Span, Spent, Timeline, Turn, UsagePoint
from agentsession.host.report._page import html
from agentsession.host.report._stored import stored

__all__ = ["Item", "Span", "Spent", "Timeline", "Turn", "UsagePoint", "html", "stored", "timeline", "turn"]
