"""Hooks of a host: several as one chain, and Python functions as hooks.

``Host(hooks=[...])`` takes them. What they are told and may answer is in ``agentsession.protocol`` (``HOOK_POINTS``).
"""

from agentsession.host.hooks._callables import FunctionHook, ask_user, hook
from agentsession.host.hooks._chain import ASK, HookChain
from agentsession.host.hooks._entries import TIERS, Entry, HookFailed
from agentsession.host.hooks._host_hooks import HostHooks

__all__ = ["ASK", "TIERS", "Entry", "FunctionHook", "HookChain", "HookFailed", "HostHooks", "ask_user", "hook"]
