"""The scenarios of the host suite, by what they are about. Each module registers its own when it is imported.

May hold: coroutine functions over a ``HostScene``, and what several of them share.
"""
