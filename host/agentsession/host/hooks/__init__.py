"""Hooks of a host: several as one chain, Python functions and programs as hooks, and files of them.

``Host(hooks=[...])`` takes them. What they are told and may answer is in ``agentsession.protocol`` (``HOOK_POINTS``).
"""

from agentsession.host.hooks._callables import FunctionHook, ask_user, hook
from agentsession.host.hooks._chain import ASK, HookChain
from agentsession.host.hooks._command import CommandHook
from agentsession.host.hooks._consent import WORKSPACE_FILE, HookConsent, WorkspaceHooks, workspace_hooks
from agentsession.host.hooks._entries import TIERS, Entry, HookFailed
from agentsession.host.hooks._file import load_hooks
from agentsession.host.hooks._host_hooks import HostHooks

__all__ = [
    "ASK",
    "TIERS",
    "WORKSPACE_FILE",
    "CommandHook",
    "Entry",
    "FunctionHook",
    "HookChain",
    "HookConsent",
    "HookFailed",
    "HostHooks",
    "WorkspaceHooks",
    "ask_user",
    "hook",
    "load_hooks",
    "workspace_hooks",
]
