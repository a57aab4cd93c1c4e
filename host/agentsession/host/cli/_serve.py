"""``serve``: agents behind a port: the contract over HTTP, AG-UI, and the page to watch and steer them.

Not for: the routes (``agentsession.host.http``, ``.agui``, ``.inspector``), or what may run (the policy of ``run``).
May import: uvicorn, those packages and the modules beside it; all of them only when it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import inspect
import os
import shlex
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agentsession.host.cli._agents import descriptor_of
from agentsession.host.cli._command_policy import CommandPolicy
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._load import Kind, kind_of, load_object
from agentsession.host.cli._out import CommandError, Out, ReaderGone
from agentsession.host.cli._setup import Loaded, RunOptions, make_host, open_store, prepare
from agentsession.host.cli._signals import signals
from agentsession.protocol import ConfigurationError

if TYPE_CHECKING:
    from agentsession.host.http import Verifier
    from agentsession.host.live import LiveSessions

__all__ = ["ServeOptions", "serve"]

_TOKEN: Final = "AGENTSESSION_TOKEN"
"""The environment variable that holds the one user's token."""
_MAKE_ONE: Final = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
_GRACE_S: Final = 1
"""How long connections may take to end when the server is stopped."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What was asked for on the command line of ``serve``; ``run`` has what it shares with ``run``."""

    run: RunOptions
    address: str = "127.0.0.1"
    port: int = 8000
    agui: bool = False
    ui: bool = False
    bare: bool = False
    tokens: str | None = None
    auth: str | None = None
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    on_disconnect: Literal["cancel", "carry_on"] = "cancel"


def serve(options: ServeOptions) -> Exit:
    """Serve until Ctrl-C or SIGTERM; what runs is aborted then, what waits stays in the record."""
    _check(options)
    verify = _verifier(options)
    loaded = prepare(options.run, "serve")
    ended = asyncio.run(_serve(options, loaded, verify))
    _say(
        options,
        "stopped\n" if options.run.store is None else f"stopped; the sessions are kept in {options.run.store}\n",
    )
    return ended


def _check(options: ServeOptions) -> None:
    if not options.bare:
        return
    given = {
        "--tools": options.run.tools,
        "--policy": options.run.policy,
        "--allow": options.run.allow,
        "--deny": options.run.deny,
        "--yes-read-only": options.run.yes_read_only,
        "--hooks": options.run.hooks,
        (options.run.limits.words or [""])[0]: options.run.limits.words,
        "--agui": options.agui,
    }
    refused = next((option for option, value in given.items() if value), None)
    if refused is not None:  # a denial that nobody reads would look like one that holds
        raise CommandError(
            f"{refused} does not go with --bare",
            where="serve",
            expected="with --bare the client is the host: it decides on every call and runs the tools",
            fix=f"leave out {refused}, or --bare",
        )


# --- who may connect -------------------------------------------------------------------------------------------------


def _verifier(options: ServeOptions) -> Verifier | None:
    if options.auth is not None and options.tokens is not None:
        raise CommandError("--auth and --tokens were given", where="serve", fix="leave one of them out")
    if options.auth is not None:
        found = load_object(options.auth, "serve --auth", _VERIFIER)
        if not _is_verifier(found):
            raise CommandError(
                f"{options.auth} is {kind_of(found)}",
                id=_VERIFIER.error,
                where="serve --auth",
                expected=_VERIFIER.expected,
                fix="agentsession explain auth-invalid",
            )
        verifier: Verifier = found
        return verifier
    try:
        from agentsession.host.http import BearerTokens, Principal
    except ImportError as error:
        raise CommandError(
            str(error).partition(":")[0],
            id="extra-missing",
            where="serve",
            fix='pip install "agent-session-protocol[serve]"',
        ) from error

    token = os.environ.get(_TOKEN)
    if options.tokens is not None:
        users, where = {token: user for user, token in _read_tokens(options.tokens)}, f"serve --tokens {options.tokens}"
    elif token:
        users, where = {token: "local"}, f"the environment variable {_TOKEN}"
    else:
        return None
    try:
        return BearerTokens({token: Principal(user_id=user) for token, user in users.items()})
    except ConfigurationError as error:
        raise CommandError(
            error.what, id="auth-invalid", where=where, expected=error.expected, fix=error.fix
        ) from error


def _is_verifier(found: object) -> bool:
    verify = getattr(found, "verify", None)
    if isinstance(found, type) or not callable(verify):
        return False
    return inspect.iscoroutinefunction(inspect.unwrap(verify)) or not inspect.isroutine(verify)


_VERIFIER: Final = Kind(
    noun="a verifier",
    error="auth-invalid",
    expected="an object with async verify(request) -> Principal | None",
    fits=_is_verifier,
)
"""What ``--auth`` names."""


def _read_tokens(path: str) -> list[tuple[str, str]]:
    """``USER TOKEN``, one a line; ``#`` begins a comment. What is wrong is told without the tokens."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not UTF-8'}",
            id="auth-invalid",
            where="serve --tokens",
            fix="give a text file with a line USER TOKEN for each user",
        ) from error
    found: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2 or len(words[1]) < 16:
            raise CommandError(
                f"line {number} of {path} is no user and token",
                id="auth-invalid",
                where="serve --tokens",
                expected="USER TOKEN, the token of 16 characters or more",
                fix=_MAKE_ONE,
            )
        found.append((words[0], words[1]))
    if not found:
        raise CommandError(
            f"{path} names nobody",
            id="auth-invalid",
            where="serve --tokens",
            expected="a line USER TOKEN for each user",
            fix=_MAKE_ONE,
        )
    if len({token for _, token in found}) < len(found):
        raise CommandError(
            f"two users of {path} have one token", id="auth-invalid", where="serve --tokens", fix=_MAKE_ONE
        )
    return found


# --- serving ---------------------------------------------------------------------------------------------------------


async def _serve(options: ServeOptions, loaded: Loaded, verify: Verifier | None) -> Exit:
    from agentsession.host._toolbox import connected
    from agentsession.host.http import check_exposure, serve_app
    from agentsession.host.live import LiveSessions, ServedAgent

    if verify is None and options.allowed_hosts:  # what comes through a proxy comes from this machine, too
        raise CommandError(
            "--allow-host needs users who log in",
            id="auth-invalid",
            where="serve --allow-host",
            fix="add --tokens FILE, a line USER TOKEN for each user",
        )
    try:
        check_exposure(options.address, verify)
    except ConfigurationError as error:
        raise CommandError(
            error.what,
            id="auth-invalid",
            where=f"serve --host {options.address}",
            expected="users who log in",
            fix="add --tokens FILE, a line USER TOKEN for each user, or serve at 127.0.0.1",
        ) from error
    executor = loaded.executor
    listening = _listen(options)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listening.close)
        store = await stack.enter_async_context(open_store(options.run))
        await stack.enter_async_context(connected(loaded.tools))
        host = None if options.bare else _host(options, loaded)
        name = (await descriptor_of(executor)).name
        served = ServedAgent(name, executor, host, store, model=options.run.model)
        sessions = await stack.enter_async_context(LiveSessions([served]))
        app = serve_app(
            sessions,
            verify=verify,
            bound_to=options.address,
            allowed_hosts=options.allowed_hosts,
            allowed_origins=options.allowed_origins,
            agui=options.agui,
            ui=options.ui,
            on_disconnect=options.on_disconnect,
        )
        return await _run_server(app, sessions, listening, options, name)


def _host(options: ServeOptions, loaded: Loaded) -> Any:
    return make_host(
        options.run, loaded.tools, policy=CommandPolicy(options.run), hooks=loaded.hooks, limits=options.run.limits
    )


def _listen(options: ServeOptions) -> socket.socket:
    """The socket, bound before anything is opened: a port that is taken is told at once."""
    from agentsession.host.http import Limits

    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    # The protocol by name: without it asyncio does not see a TCP socket, and small events wait for each other (Nagle).
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name != "nt":  # there it would let two servers share the port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # A client that stays connected and reads nothing is dropped by the app, but its socket waits for what it has
        # not taken, and ASGI has no way to cut it off. Connections have this from here.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * Limits().stall_s * 1000))
    try:
        listening.bind((options.address, options.port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"{options.address}:{options.port} is taken",
                id="port-in-use",
                where="serve",
                fix=f"add --port {options.port % 65535 + 1}, or --port 0 for a free one",
            ) from error
        if isinstance(error, OverflowError):
            got, expected = None, "a port from 0 to 65535"
        else:
            got, expected = error.strerror, "an address of this machine, and a port that you may listen at"
        raise CommandError(
            f"{options.address}:{options.port} cannot be listened at",
            id="port-in-use",
            where="serve",
            got=got,
            expected=expected,
            fix="leave out --host, or add --port 0 for a free port",
        ) from error
    return listening


async def _run_server(
    app: Any, sessions: LiveSessions, listening: socket.socket, options: ServeOptions, name: str
) -> Exit:
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            """They are ours: uvicorn would raise them again once it has ended, before sessions are closed."""
            yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Sessions first: whoever reads one gets its last events and an end, and is not cut off."""
            await sessions.stop()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        ws="none",
    )
    server = Server(config)
    ended: list[Exit] = []

    def stop(code: Exit) -> None:
        server.force_exit = bool(ended)  # asked a second time: do not wait for connections
        ended.append(code)
        server.should_exit = True

    _banner(listening, options, name)
    with signals(lambda: stop(Exit.INTERRUPTED), lambda: stop(Exit.TERMINATED)):
        await server.serve(sockets=[listening])
    return ended[0] if ended else Exit.COMPLETED


def _banner(listening: socket.socket, options: ServeOptions, name: str) -> None:
    """Where to go, on stderr; a program that started the server reads the port from the first line."""
    bound: tuple[str, int] = listening.getsockname()[:2]
    host, port = bound
    # An address that stands for all of them is a name of none: requests to it would be refused.
    is_any = host in ("0.0.0.0", "::")
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{near}]" if ":" in near else near
    base = f"http://{shown}:{port}"
    lines = [f"serving {name} at {base}  (Ctrl-C stops)"]
    lines.append(f"  contract  {base}/api/agents   openapi: {base}/api/openapi.json")
    if options.agui:
        lines.append(f"  AG-UI     {base}/agui/{name}")
    if options.ui:
        lines.append(f"  inspector {base}/")
    if is_any and options.allowed_hosts:
        lines.append(f"  others call it {', '.join(options.allowed_hosts)}")
    elif is_any:
        lines.append("  other machines are refused until --allow-host NAME says by which name or address they call it")
    if options.bare:
        lines.append("  bare: the client is the host, and decides on every call")
    if options.run.store is None:
        store = shlex.join(["--store", "sessions.db"])
        lines.append(f"  sessions live as long as this process; {store} keeps them")
    _say(options, "\n".join(lines) + "\n")


def _say(options: ServeOptions, text: str) -> None:
    with contextlib.suppress(ReaderGone):  # who started it need not read what it says
        Out(sys.stderr, color=options.run.color).text(text)
