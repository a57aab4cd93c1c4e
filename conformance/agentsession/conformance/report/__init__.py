"""A report as text, JSON, JUnit XML, one HTML page and a badge. Each module makes one of them of a ``Report``.

May hold: pure functions from a report to text. Re-exports nothing.
"""
