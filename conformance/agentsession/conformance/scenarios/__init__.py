"""What a host does to show whether a rule holds, one module for each group of rules.

May hold: coroutine functions over a ``Scene``, registered with ``@scenario(rule, …)``, most telling first. Each plays a
short script, drives sessions through the public calls alone, and raises ``Break`` of the rule that it finds broken. It
waits for events and marks, never for time. A test (``tests/conformance/broken``) shows for each what it catches.
"""
