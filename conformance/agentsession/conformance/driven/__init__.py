"""A session that is driven at random: what its agent plays, what its host does, where it must stand, what must hold.

Re-exports nothing. ``machine.py`` beside this package lets hypothesis choose the steps; nothing in here needs it.
May hold: scripts (``plans``) and the small model of where they lead (``course``); the session (``session``), its
readers (``readings``), and the steps of its host (``answering`` with ``hosts``, ``control``, ``reads``, ``lives``);
what must hold after each (``checks``); sequences of steps (``moves``), and the smallest of them (``smaller``).
"""
