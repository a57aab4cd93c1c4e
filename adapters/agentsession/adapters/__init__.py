"""Executors: the base class, the scripted and the replay executor, and adapters to agent frameworks.

Re-exports nothing, because adapters have optional dependencies: import the module that you need, such as
``agentsession.adapters.scripted`` or ``agentsession.adapters.adk``.
"""
