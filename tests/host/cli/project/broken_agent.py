"""Fails while it is imported."""

raise RuntimeError("no database")
