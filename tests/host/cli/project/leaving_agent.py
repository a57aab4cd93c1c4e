"""Leaves the process while it is imported, as a script does that checks its own arguments."""

import sys

sys.exit("usage: leaving_agent.py FILE")
