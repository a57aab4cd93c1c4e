"""The conformance suite: what an executor promises by its descriptor, as tests.

Re-exports nothing: the pytest plugin is loaded at every pytest start and must cost nothing. Import the module needed.
"""
