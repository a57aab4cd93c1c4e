"""The suite for hosts: an adversarial executor plays scenes to a host, and every host rule gets a verdict.

May hold: the port, the executor, the scenes and the runner. Re-exports nothing. An author of a host reads
``harness.py``; ``suite.py`` brings it to pytest.
"""
