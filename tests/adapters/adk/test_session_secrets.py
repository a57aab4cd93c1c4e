"""No secret that a person gives, or that is got with it, is anywhere but where its tool takes it (SEC-01)."""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from fastapi.openapi.models import APIKey
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
    ServiceAccountCredential,
)
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.auth.credential_service.in_memory_credential_service import InMemoryCredentialService
from google.adk.auth.credential_service.session_state_credential_service import SessionStateCredentialService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.telemetry import tracing
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from tests.adapters.adk.credential_kinds import KINDS, Weather, oauth_flow, weather_tool
from tests.adapters.adk.driving import Driven, agent, driven, verify
from tests.adapters.adk.provider import BACK, CLIENT, CLIENT_SECRET, Provider, provider
from tests.adapters.adk.test_session_credentials import api, question_of, to_question, tree

from agentsession.adapters.adk import AdkExecutor, call, say
from agentsession.host import SqliteRecordStore
from agentsession.protocol import ElicitationAnswer, OpenOptions, accept, decline, grant

pytestmark = pytest.mark.rule("SEC-01")

LOGS_ITSELF = ("google_adk.google.adk.auth.exchanger", "google_adk.google.adk.auth.refresher")
"""ADK's loggers that repeat what a provider said of a failure; docs/adk-limits.md tells of them."""


class Ear(logging.Handler):
    """Hears everything that is logged, with the text of exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, logging.Formatter("%(message)s").format(record)))


class Heard(NamedTuple):
    ear: Ear
    spans: InMemorySpanExporter

    def everything(self) -> dict[str, str]:
        told = [line for name, line in self.ear.lines if not name.startswith(LOGS_ITSELF)]
        spans = [span.to_json() for span in self.spans.get_finished_spans()]
        assert spans, "nothing was traced, so nothing was looked through"
        return {"logs": "\n".join(told), "spans": "\n".join(spans)}


@pytest.fixture(scope="module")
def heard() -> Iterator[Heard]:
    """Every logger at DEBUG, and ADK's spans with what they tell of tools and models."""
    ear, spans = Ear(), InMemorySpanExporter()
    traces = TracerProvider(sampler=ALWAYS_ON)  # also below a span of another test that is not recorded
    traces.add_span_processor(SimpleSpanProcessor(spans))
    loggers = [logging.getLogger(name) for name in [None, *list(logging.root.manager.loggerDict)]]
    kept = [(each, each.level, each.disabled) for each in loggers]
    tracer, tracing.tracer = tracing.tracer, traces.get_tracer("test")
    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    for each in loggers:
        each.setLevel(logging.DEBUG)
        each.disabled = False
    logging.root.addHandler(ear)
    try:
        yield Heard(ear, spans)
    finally:
        logging.root.removeHandler(ear)
        for each, level, off in kept:
            each.setLevel(level)
            each.disabled = off
        logging.disable(disabled)
        tracing.tracer = tracer


def reprs() -> str:
    """What every object of this project says of itself."""
    ours = [item for item in gc.get_objects() if str(type(item).__module__).startswith("agentsession.")]
    return "\n".join(repr(item) for item in ours)


def assert_nowhere(secrets: list[str], places: dict[str, str]) -> None:
    found = [(place, secret) for place, text in places.items() for secret in secrets if secret in text]
    assert found == []


SERVICES: dict[str, Any] = {
    "none": lambda: None,
    "session_state": SessionStateCredentialService,
    "in_memory": InMemoryCredentialService,
}
ENDS = ("taken", "exchange fails", "declined", "lost before it is taken", "aborted", "tool raises", "tool asks again")


class Way(NamedTuple):
    kind: str
    where: str
    how: str
    end: str
    service: str
    restarted: bool


PATHS = st.builds(
    Way,
    kind=st.sampled_from([name for name in KINDS if name != "service_account"]),
    where=st.sampled_from(["root", "child", "pipeline"]),
    how=st.sampled_from(["declared", "inside", "api"]),
    end=st.sampled_from(ENDS),
    service=st.sampled_from(list(SERVICES)),
    restarted=st.booleans(),
)


class Raises(Weather):
    """A tool whose exception has the secret in its text."""

    def ask(self, credential: AuthCredential) -> dict[str, Any]:
        super().ask(credential)
        raise ConnectionError(f"refused: {credential.model_dump()}")


class Twice(Weather):
    """A tool to which the first credential is of no use."""

    def ask(self, credential: AuthCredential) -> dict[str, Any]:
        super().ask(credential)
        return {"error": "not this one"}


async def walk(path: Way, server: Provider, folder: Path) -> str:
    """One or two sessions' lives, by a path; the reprs from when a secret was held."""
    weather = (Raises if path.end == "tool raises" else Twice if path.end == "tool asks again" else Weather)(server)
    kind = KINDS[path.kind]
    service: BaseCredentialService | None = SERVICES[path.service]()

    def made() -> AdkExecutor:
        if path.how == "api" and path.kind != "oauth2_public":
            tool: Any = api(server, path.kind)
        else:
            tool = weather_tool(weather, kind.config(server), "declared" if path.how == "api" else path.how)
        return AdkExecutor(
            tree(path.where, tool, calls_made=2),
            session_service=SqliteSessionService(str(folder / "adk.db")),
            store=store,
            credential_service=service,
        )

    store = SqliteRecordStore(str(folder / "record.db"))
    try:
        async with made() as executor:
            desk = Driven(executor, await executor.open(OpenOptions(session_id="s1")))
            question = await to_question(desk)
            if path.restarted and path.where == "root":
                await desk.session.aclose()
                desk = Driven(executor, await executor.load("s1"))
            answer: ElicitationAnswer = accept(question.request_id, kind.give(server, question))
            server.refuses = path.end == "exchange fails"
            if path.end == "declined":
                await desk.stream(decline(question.request_id))
                return reprs()
            await desk.session.respond(answer)
            held = reprs() + repr(answer)
            if path.end == "lost before it is taken":
                return held
            await desk.stream()
            held += reprs()
            if path.end == "aborted":
                await desk.session.abort()
                return held
            for _ in range(2):
                for item in desk.session.pending:
                    if item.to_wire().get("needs") == "grant":
                        await desk.stream(grant(item.request_id))
                if not desk.session.pending:
                    await desk.stream("again")
            held += reprs()
            verify(desk.session)
        return held
    finally:
        await store.aclose()


@pytest.mark.usefixtures("_no_warnings")
@settings(max_examples=10)
@given(path=PATHS)
@example(path=Way("oauth2", "root", "api", "taken", "session_state", False))
@example(path=Way("oauth2", "child", "api", "taken", "none", False))
@example(path=Way("oauth2", "root", "declared", "exchange fails", "none", True))
@example(path=Way("oauth2", "pipeline", "inside", "tool raises", "session_state", False))
@example(path=Way("service_account", "root", "declared", "taken", "none", True))
@example(path=Way("basic", "root", "declared", "lost before it is taken", "none", True))
def test_r112_a_planted_secret_is_found_nowhere_on_any_path(path: Way, heard: Heard) -> None:
    """R112: client secrets, keys and tokens were shown to the client and listed with the session's state."""
    with provider() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        held = anyio.run(walk, path, server, folder, backend="asyncio")
        assert server.issued or path.end == "declined"
        files = {file.name: file.read_bytes().decode("latin-1") for file in folder.iterdir()}
        assert {"adk.db", "record.db"} <= files.keys()
        assert_nowhere([*server.issued, CLIENT_SECRET], {**files, **heard.everything(), "reprs": held})


@pytest.fixture
def _no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    """ADK warns of what it calls experimental, once for each class."""


# -- what a question shows --------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Provider]:
    with provider() as made:
        yield made


PLANTED = "planted-by-the-agent"


def configurations(server: Provider) -> dict[str, AuthConfig]:
    """Configurations of agents that hold the agent's own secrets, also under names that ADK does not know."""
    flow = oauth_flow(server)
    own = OAuth2Auth(
        client_id=CLIENT,
        client_secret=PLANTED,
        redirect_uri=BACK,
        access_token=PLANTED,
        refresh_token=PLANTED,
        id_token=PLANTED,
        auth_code=PLANTED,
        code_verifier=PLANTED * 3,
    )
    odd = OAuth2Auth.model_validate(
        {"client_id": CLIENT, "redirect_uri": BACK, "sesame": PLANTED, "deep": {"x": PLANTED}}
    )
    http = HttpAuth(
        scheme="bearer",
        credentials=HttpCredentials(token=PLANTED, password=PLANTED),
        additional_headers={"X-Tenant": PLANTED},
    )
    key = APIKey.model_validate({"in": "header", "name": "X-Key"})
    return {
        "client": AuthConfig(
            auth_scheme=flow, raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=own)
        ),
        "unknown fields": AuthConfig(
            auth_scheme=flow, raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=odd)
        ),
        "api key": AuthConfig(
            auth_scheme=key,
            raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=PLANTED),
        ),
        "http": AuthConfig(
            auth_scheme=key, raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)
        ),
        "account": AuthConfig.model_validate(
            {
                "auth_scheme": {"type": "http", "scheme": "bearer"},
                "raw_auth_credential": {
                    "auth_type": "serviceAccount",
                    "service_account": {
                        "scopes": ["read"],
                        "service_account_credential": {
                            **dict.fromkeys(ServiceAccountCredential.model_fields, ""),
                            **dict.fromkeys(["private_key_id", "private_key", "sesame"], PLANTED),
                        },
                    },
                },
            }
        ),
    }


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize("name", ["client", "unknown fields", "api key", "http", "account"])
async def test_r112_a_question_shows_how_to_sign_in_and_nothing_that_is_the_agents_own(
    name: str, where: str, server: Provider
) -> None:
    config = configurations(server)[name]

    def weather(tool_context: ToolContext) -> Any:
        """Tell the weather."""
        tool_context.request_credential(config)

    async with driven(tree(where, FunctionTool(weather))) as desk:
        question = await to_question(desk)
        assert PLANTED not in "".join(event.to_wire_json() for event in desk.session.record)
        context = question.context
        assert isinstance(context, dict)
        assert context["authScheme"]["type"] == config.auth_scheme.type_.value  # type: ignore[union-attr]
        if question.url is not None:
            assert f"client_id={CLIENT}" in question.url
            assert context["exchangedAuthCredential"]["oauth2"]["clientId"] == CLIENT
            assert context["authScheme"]["flows"]["authorizationCode"]["scopes"] == {"read": ""}
        await desk.session.abort()


# -- what is kept in the state ----------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("prefix", ["", "user:", "app:", "temp:"])
async def test_a_credential_that_code_puts_into_the_state_is_there_for_later_runs_and_stored_nowhere(
    prefix: str, tmp_path: Path
) -> None:
    found: list[bool] = []
    credential = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=PLANTED)

    def keep(tool_context: ToolContext) -> str:
        """Keep a credential."""
        tool_context.state[f"{prefix}mine"] = credential
        tool_context.state["plain"] = {"n": 1}
        return "kept"

    def find(tool_context: ToolContext) -> str:
        """Find it again."""
        found.append(tool_context.state.get(f"{prefix}mine") == credential)
        return "found"

    root = agent(call("keep"), call("find"), say("one"), call("find"), say("two"), tools=[keep, find])
    async with driven(root, session_service=SqliteSessionService(str(tmp_path / "adk.db"))) as desk:
        await desk.turn("go")
        await desk.turn("again")
        assert found == [True, prefix != "temp:"]
        shown = [
            event.to_wire()["stateDelta"]
            for event in desk.session.record
            if event.to_wire()["type"] == "session_update"
        ]
        assert shown == [{"plain": {"n": 1}}]
        assert PLANTED not in "".join(event.to_wire_json() for event in desk.session.record)
    assert PLANTED.encode() not in (tmp_path / "adk.db").read_bytes()


@pytest.mark.anyio
async def test_what_takes_a_credentials_place_in_the_state_is_what_later_runs_find() -> None:
    found: list[Any] = []

    def keep(value: str, tool_context: ToolContext) -> str:
        """Keep."""
        credential = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=value)
        tool_context.state["mine"] = credential.model_dump() if value else None
        found.append(tool_context.state["mine"])
        return "kept"

    def find(tool_context: ToolContext) -> str:
        """Find."""
        found.append(tool_context.state.get("mine"))
        return "found"

    script = [call("keep", {"value": PLANTED}), say("one"), call("find"), say("two")]
    script += [call("keep", {"value": ""}), say("three"), call("find"), say("four")]
    async with driven(agent(*script, tools=[keep, find])) as desk:
        for _ in range(4):
            await desk.turn("go")
    assert [item is not None for item in found] == [True, True, False, False]


def test_no_answer_shows_its_credential_in_its_repr() -> None:
    for content in ({"credential": {"type": "api_key", "value": PLANTED}}, {"auth_response_uri": PLANTED}):
        assert PLANTED not in repr(accept("q1", content))
        assert PLANTED not in str(accept("q1", content))
    assert "'q1'" in repr(accept("q1", {"credential": {"type": "api_key", "value": PLANTED}}))


@pytest.mark.anyio
async def test_what_takes_no_credential_is_told_without_it(server: Provider) -> None:
    weather = Weather(server)
    root = tree("root", weather_tool(weather, KINDS["api_key"].config(server)))
    async with driven(root) as desk:
        await to_question(desk)
        question = question_of(desk)
        with pytest.raises(Exception, match="invalid") as raised:
            await desk.stream(accept(question.request_id, {"credential": {"type": PLANTED, PLANTED: PLANTED}}))
        told: BaseException | None = raised.value
        while told is not None:
            assert PLANTED not in f"{told!r} {told}"
            told = told.__cause__ or told.__context__
