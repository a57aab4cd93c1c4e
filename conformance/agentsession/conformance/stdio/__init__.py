"""Executors in any language: the suite talks to a process over stdin and stdout, one JSON message a line.

``harness.py`` is what the suite is given, ``client.py`` the suite's end of the wire, ``server.py`` serves any harness
in Python, ``example.mjs`` is a whole executor in plain Node. The wire is docs/reference/conformance-stdio.md.

Re-exports nothing: import the module needed.
"""
