"""The suite for record stores: what a session needs of a store, as scenarios.

Re-exports nothing: ``suite.py`` needs pytest. An author reads ``scene.py``; a verdict comes from ``runner.py``.
"""
