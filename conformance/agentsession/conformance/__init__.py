"""The conformance suite: what an executor promises by its descriptor, as tests.

Re-exports nothing: pytest, hypothesis and typer are wanted by some modules only. Import the one that is needed.
An author reads ``harness.py`` and ``script.py``; a verdict comes from ``engine.py``, ``scenarios`` and ``runner.py``.
"""
