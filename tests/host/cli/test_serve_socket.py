"""The socket of ``serve``: what connections have from it."""

from __future__ import annotations

import socket

import pytest

from agentsession.host.cli._serve import ServeOptions, _listen
from agentsession.host.cli._setup import RunOptions
from agentsession.host.http import Limits


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone has it")
def test_a_client_that_never_reads_keeps_no_connection_after_it_was_dropped() -> None:
    with _listen(ServeOptions(run=RunOptions(target="a:b"), port=0)) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                cut_off_ms = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert Limits().stall_s * 1000 < cut_off_ms <= 2 * Limits().stall_s * 1000
