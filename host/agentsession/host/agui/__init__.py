"""AG-UI 1.0: any agent behind a web page that speaks it, and no wire format of our own.

Not for: the contract over HTTP (``agentsession.host.http``). Needs the extra ``serve``.
May import: ``ag_ui``, ``agentsession.host.live``, the modules beside it.
"""
