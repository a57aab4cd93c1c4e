"""Which addresses a person may be sent to by a question.

Not for: opening one (nobody here does), or what an agent's tools may fetch (policy). Rules carried: SEC-01.
May import: the standard library.

Taken are https, and http to this very machine, where a login comes back. What stands before an ``@`` is refused: it
makes an address look like another one, or is a password. So is what would be shown otherwise than it is read.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

__all__ = ["unsafe_url"]

_LONGEST: Final = 8192


def unsafe_url(url: str) -> str | None:
    """Why a person may not be sent to this address; ``None``: they may."""
    if len(url) > _LONGEST:
        return "it is too long"
    if not url.isascii() or any(sign <= " " or sign == "\x7f" or sign == "\\" for sign in url):
        return "it holds signs that an address does not have"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port is read here: it raises
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("https", "http"):
        return "it is neither https nor http"
    if not host:
        return "it names no host"
    if "@" in parts.netloc:
        return "it names a user"
    if parts.scheme == "http" and not _is_loopback(host):
        return "it is http, and not of this machine"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
