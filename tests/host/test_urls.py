"""Which addresses a person may be sent to."""

from __future__ import annotations

import pytest

from agentsession.host._urls import unsafe_url


@pytest.mark.parametrize(
    "url",
    [
        "https://login.example/start?state=a%20b#top",
        "https://xn--bcher-kva.example:8443/",
        "http://localhost:8080/callback",
        "http://127.0.0.1/",
        "http://[::1]:9000/",
        "HTTPS://login.example/",
    ],
)
def test_https_and_this_machine_are_taken(url: str) -> None:
    assert unsafe_url(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://login.example/",
        "http://127.0.0.1.example/",
        "http://localhost.example/",
        "ftp://login.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html,x",
        "https:///path",
        "https://",
        "//login.example/",
        "login.example",
        "https://bank.example@evil.example/",
        "https://user:password@login.example/",
        "https://login.example\\@evil.example/",
        "https://login.example/a b",
        "https://login.example/\n",
        "https://b\u00fccher.example/",
        "https://login.example/\u202etxt",
        "https://login.example:99999/",
        "https://[::1/",
        "https://login.example/" + "a" * 9000,
    ],
)
def test_everything_else_is_refused(url: str) -> None:
    assert unsafe_url(url) is not None
