"""Credentials of every kind, from the question to the API that takes them: real exchanges, over the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.credential_service.in_memory_credential_service import InMemoryCredentialService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.openapi_tool.openapi_spec_parser.openapi_toolset import OpenAPIToolset
from tests.adapters.adk.credential_kinds import KINDS, Weather, client_credentials, weather_tool
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    texts,
    verify,
)
from tests.adapters.adk.make import old_agent
from tests.adapters.adk.provider import CLIENT_SECRET, Provider, provider

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    ElicitationRequest,
    HostCapabilities,
    MemoryRecordStore,
    NothingToContinue,
    OpenOptions,
    ToolResponse,
    accept,
    cancel,
    decline,
    grant,
)

pytestmark = pytest.mark.anyio

REFUSED = '{"error": "the user gave no credential for this call"}'


@pytest.fixture
def server() -> Iterator[Provider]:
    with provider() as made:
        yield made


def tree(where: str, tool: BaseTool | BaseToolset, *, name: str = "weather", calls_made: int = 1) -> Any:
    """A root agent that comes to call ``tool``: itself, in an AgentTool's child, or in a pipeline."""
    step = [call(name, id=f"c{number}") for number in range(calls_made)]
    if where == "root":
        return agent(*[item for made in step for item in (made, say("done"))], tools=[tool])
    inner = agent(*[item for made in step for item in (made, say("inner done"))], name="inner", tools=[tool])
    if where == "child":
        asks = call("inner", {"request": "go"})
        return agent(*[item for _ in step for item in (asks, say("done"))], tools=[AgentTool(inner)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return old_agent("SequentialAgent", name="pipe", sub_agents=[inner, agent(*[say("done")] * 2, name="last")])


def question_of(desk: Driven) -> ElicitationRequest:
    (question,) = desk.session.pending
    assert isinstance(question, ElicitationRequest)
    return question


async def to_question(desk: Driven, message: Any = "go") -> ElicitationRequest:
    """Through the grant to the question for a credential."""
    await desk.stream(message)
    paused = await desk.stream(grant(desk.pending("weather")))
    assert paused.reason == "input_required"
    question = question_of(desk)
    assert question.kind == "auth_required"
    return question


# -- each kind, in each place -----------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-01", "HITL-03", "HITL-10")
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize(
    ("name", "how"),
    # ADK exchanges a service account's key only for a tool that declares what it needs.
    [(name, "declared") for name in KINDS] + [(name, "inside") for name in KINDS if name != "service_account"],
)
async def test_a_credential_of_each_kind_is_asked_for_once_and_taken_by_the_api(
    name: str, where: str, how: str, server: Provider
) -> None:
    kind, weather = KINDS[name], Weather(server)
    root = tree(where, weather_tool(weather, kind.config(server), how))
    async with driven(root) as desk:
        question = await to_question(desk)
        assert weather.runs == 0
        done = await desk.stream(accept(question.request_id, kind.give(server, question)))
        assert (done.reason, done.texts[-1]) == ("completed", "done")
        assert (weather.runs, weather.statuses) == (1, [200])
        assert desk.responses()["weather"] == "completed"
        assert desk.types("elicitation_request") == ["elicitation_request"]


@pytest.mark.rule("PER-01", "SEC-01")
@pytest.mark.parametrize("name", KINDS)
async def test_r46_a_question_for_each_kind_outlives_the_process_and_its_answer_is_taken(
    name: str, server: Provider, tmp_path: Path
) -> None:
    """R46: an OAuth configuration could not be stored, so the question was lost with the process."""
    kind, weather, store = KINDS[name], Weather(server), MemoryRecordStore()
    tool = weather_tool(weather, kind.config(server))
    path = str(tmp_path / "adk.db")
    first = agent(call("weather", id="c1"), tools=[tool])
    async with AdkExecutor(first, session_service=SqliteSessionService(path), store=store) as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1")))
        asked = await to_question(desk)
    again = agent(say("done"), tools=[weather_tool(weather, kind.config(server))])
    async with AdkExecutor(again, session_service=SqliteSessionService(path), store=store) as executor:
        desk = Driven(executor, await executor.load("s1"))
        assert question_of(desk) == asked
        done = await desk.stream(accept(asked.request_id, kind.give(server, asked)))
        assert (done.reason, done.texts, weather.statuses) == ("completed", ["done"], [200])
        assert_valid_history(again.model)
        verify(desk.session)
    stored = (tmp_path / "adk.db").read_bytes()
    assert [secret for secret in server.issued if secret.encode() in stored] == []


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize(("name", "answer"), [*((name, decline) for name in KINDS), ("oauth2", cancel)])
async def test_a_credential_that_is_refused_runs_nothing_and_is_not_asked_for_again(
    name: str, where: str, answer: Callable[[str], Any], server: Provider
) -> None:
    weather = Weather(server)
    root = tree(where, weather_tool(weather, KINDS[name].config(server)))
    async with driven(root) as desk:
        question = await to_question(desk)
        done = await desk.stream(answer(question.request_id))
        assert (done.reason, done.texts[-1], weather.runs) == ("completed", "done", 0)
        assert desk.responses()["weather"] == "failed"
        assert desk.types("elicitation_request") == ["elicitation_request"]
        assert server.grants == []


@pytest.mark.rule("HITL-07", "HITL-02")
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize(
    "host",
    [HostCapabilities(elicitation_kinds=["tool_confirmation"]), HostCapabilities(elicitation_modes=["form"])],
)
async def test_a_sign_in_that_the_host_cannot_show_is_cancelled_and_runs_nothing(
    host: HostCapabilities, where: str, server: Provider
) -> None:
    weather = Weather(server)
    root = tree(where, weather_tool(weather, KINDS["oauth2"].config(server)))
    async with driven(root, options=OpenOptions(host=host)) as desk:
        await desk.stream("go")
        done = await desk.stream(grant(desk.pending("weather")))
        assert (done.reason, done.texts[-1], weather.runs) == ("completed", "done", 0)
        assert [event.action for event in done.of("elicitation_response")] == ["cancel"]
        assert desk.responses()["weather"] == "failed"


@pytest.mark.rule("HITL-07")
async def test_a_host_without_sign_ins_is_still_asked_for_a_key(server: Provider) -> None:
    weather = Weather(server)
    root = tree("root", weather_tool(weather, KINDS["api_key"].config(server)))
    async with driven(root, options=OpenOptions(host=HostCapabilities(elicitation_modes=["form"]))) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS["api_key"].give(server, question)))
        assert weather.statuses == [200]


REPO = Path(__file__).parents[3]


@pytest.mark.rule("PER-01", "SEC-01")
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("oauth2", ["start"]),
        ("oauth2_public", ["start"]),
        ("open_id", ["start"]),
        ("oauth2", ["wait", "grant"]),  # killed while the grant waits, and once more while the sign-in does
    ],
)
def test_a_sign_in_that_waits_when_its_process_is_killed_is_made_in_another_one(
    name: str, steps: list[str], server: Provider, tmp_path: Path
) -> None:
    def run(step: str, exits: int) -> str:
        paths = [REPO, *(REPO / part for part in ("protocol", "adapters", "host", "conformance"))]
        script = [sys.executable, "-W", "ignore", "-m", "tests.adapters.adk.killed_signed_in"]
        done = subprocess.run(
            [*script, str(tmp_path), server.url, name, step],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            capture_output=True,
            timeout=150,
            check=False,
            text=True,
        )
        assert done.returncode == exits, done.stderr
        return done.stdout

    for step in steps:
        run(step, 9)
    made = json.loads(run("resume", 0))
    assert made == {"reason": "completed", "texts": ["done"], "api": [200], "responses": {"weather": "completed"}}
    assert server.grants == ["authorization_code"]
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [secret for secret in [*server.issued, CLIENT_SECRET] if secret.encode() in files] == []


# -- what cannot be an answer -----------------------------------------------------------------------------------------

BAD = {
    "nothing at all": ("api_key", None, "a credential is given as"),
    "the bare secret": ("api_key", "planted-secret", "a credential is given as"),
    "a bare credential": ("api_key", {"type": "api_key", "api_key": "planted-secret"}, "give one of"),
    "ADK's own form": ("api_key", {"exchangedAuthCredential": {"apiKey": "planted-secret"}}, "give one of"),
    "two answers": ("oauth2", {"credential": {"type": "oauth2"}, "auth_response_uri": "x"}, "give one of"),
    "an unknown type": ("api_key", {"credential": {"type": "passkey", "value": "planted-secret"}}, "the type of"),
    "no type": ("api_key", {"credential": {"api_key": "planted-secret"}}, "the type of"),
    "the type of another scheme": ("api_key", {"credential": {"type": "bearer", "token": "planted-secret"}}, "takes"),
    "a key that is no text": ("api_key", {"credential": {"type": "api_key", "api_key": ["planted-secret"]}}, "api_key"),
    "an empty key": ("api_key", {"credential": {"type": "api_key", "api_key": ""}}, "api_key must be"),
    "a key that ends a header": ("api_key", {"credential": {"type": "api_key", "key": "planted\r\nX: 1"}}, "control"),
    "no token": ("bearer", {"credential": {"type": "bearer"}}, "token must be"),
    "no user name": ("basic", {"credential": {"type": "basic", "password": "planted-secret"}}, "username must be"),
    "no password": ("basic", {"credential": {"type": "basic", "username": "me"}}, "password must be"),
    "no access token": ("oauth2", {"credential": {"type": "oauth2"}}, "needs an access_token"),
    "a key for a sign-in": ("oauth2", {"credential": {"type": "api_key", "value": "planted-secret"}}, "takes"),
    "an address for a key": ("api_key", {"auth_response_uri": "https://host.example/back?code=planted"}, "no sign-in"),
    "no code": ("oauth2", {"auth_response_uri": "https://host.example/back"}, "has no code"),
    "no state": ("oauth2", {"auth_response_uri": "https://host.example/back?code=planted"}, "another sign-in"),
    "a wrong state": ("open_id", {"auth_response_uri": "https://h/?code=planted&state=other"}, "another sign-in"),
    "a code alone": ("oauth2", {"credential": {"type": "oauth2", "auth_code": "planted-code"}}, "another sign-in"),
    "a refused sign-in": ("oauth2", {"auth_response_uri": "https://h/?error=access_denied&state=x"}, "was refused"),
    "no address": ("oauth2", {"auth_response_uri": "https://[planted"}, "is no address"),
    "a key with parts missing": (
        "service_account",
        {"credential": {"type": "service_account", "private_key": "planted-secret", "client_email": "a@b"}},
        "project_id, private_key_id, client_id",
    ),
    "the machine's own account": (
        "service_account",
        {"credential": {"type": "service_account", "use_default_credential": True}},
        "lacks or misstates",
    ),
}


@pytest.mark.rule("HITL-08", "TOOL-14", "SEC-01")
@pytest.mark.parametrize("what", BAD)
async def test_r14_an_answer_that_can_be_no_credential_is_refused_in_words_and_the_question_waits_on(
    what: str, server: Provider
) -> None:
    """R14: an answer of the wrong shape was taken without a word, and the tool never came back."""
    name, content, why = BAD[what]
    weather = Weather(server)
    root = tree("root", weather_tool(weather, KINDS[name].config(server)))
    async with driven(root) as desk:
        question = await to_question(desk)
        (receipt,) = await desk.session.respond(accept(question.request_id, content))
        assert (receipt.status, receipt.rule) == ("invalid", "HITL-08")
        assert why in (receipt.reason or "")
        assert "planted" not in repr(receipt)
        with pytest.raises(NothingToContinue, match="invalid") as raised:
            await desk.stream(accept(question.request_id, content))
        assert "planted" not in str(raised.value)
        assert (question_of(desk), weather.runs) == (question, 0)
        good = await desk.stream(accept(question.request_id, KINDS[name].give(server, question)))
        assert (good.reason, weather.statuses) == ("completed", [200])


@pytest.mark.rule("TOOL-10", "TOOL-14", "TOOL-09")
async def test_r14_an_answer_under_another_id_is_named_as_such(server: Provider) -> None:
    """R14: an answer to the tool's call, instead of the question about it, was lost in silence."""
    weather = Weather(server)
    root = tree("root", weather_tool(weather, KINDS["api_key"].config(server)))
    async with driven(root) as desk:
        question = await to_question(desk)
        content = KINDS["api_key"].give(server, question)
        tool = question.tool_request_id or ""
        receipts = await desk.session.respond(accept(tool, content), accept("c1", content), accept("never", content))
        assert [receipt.status for receipt in receipts] == ["stale", "not_found", "not_found"]
        assert weather.runs == 0
        await desk.stream(accept(question.request_id, content))
        (late,) = await desk.session.respond(accept(question.request_id, content))
        assert (late.status, weather.statuses) == ("stale", [200])


@pytest.mark.rule("HITL-08", "SEC-01")
async def test_the_answers_to_two_sign_ins_cannot_be_mixed_up(server: Provider) -> None:
    first, second = Weather(server), Weather(server)
    one, two = KINDS["oauth2"].config(server), KINDS["open_id"].config(server)
    tools = [weather_tool(first, one, name="first"), weather_tool(second, two, name="second")]
    root = agent(calls(call("first", id="c1"), call("second", id="c2")), say("done"), tools=tools)
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream([grant(item.request_id) for item in desk.session.pending])
        questions = [each for each in desk.session.pending if isinstance(each, ElicitationRequest)]
        a, b = questions
        answers = [KINDS["oauth2"].give(server, each) for each in (a, b)]
        swapped = await desk.session.respond(accept(a.request_id, answers[1]), accept(b.request_id, answers[0]))
        assert [receipt.status for receipt in swapped] == ["invalid", "invalid"]
        done = await desk.stream([accept(a.request_id, answers[0]), accept(b.request_id, answers[1])])
        assert (done.reason, first.statuses, second.statuses) == ("completed", [200], [200])
        assert_valid_history(root.model)


# -- several calls ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-07", "TOOL-08", "HITL-03")
@pytest.mark.parametrize("where", ["root", "child"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_calls_that_need_different_credentials_are_answered_in_any_order(
    order: tuple[int, int], where: str, server: Provider
) -> None:
    work = {"key": Weather(server), "sign_in": Weather(server)}
    kinds = {"key": KINDS["api_key"], "sign_in": KINDS["oauth2"]}
    tools = [weather_tool(work[name], kinds[name].config(server), name=name) for name in work]
    step = calls(call("key", id="c1"), call("sign_in", id="c2"))
    if where == "root":
        root = agent(step, say("done"), tools=tools)
    else:
        kid = agent(step, say("kid done"), name="kid", tools=tools)
        root = agent(call("kid", {"request": "go"}), say("done"), tools=[AgentTool(kid)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream([grant(item.request_id) for item in desk.session.pending])
        questions = [each for each in desk.session.pending if isinstance(each, ElicitationRequest)]
        assert [question.kind for question in questions] == ["auth_required"] * 2
        for number in order:
            kind = kinds["sign_in" if questions[number].url else "key"]
            await desk.stream(accept(questions[number].request_id, kind.give(server, questions[number])))
        assert texts(desk.session.record)[-1] == "done"
        assert [made.statuses for made in work.values()] == [[200], [200]]


@pytest.mark.rule("HITL-02", "HITL-03")
@pytest.mark.parametrize("refused", ["key", "sign_in"])
async def test_one_refused_credential_leaves_the_call_with_the_other_one_alone(refused: str, server: Provider) -> None:
    work = {"key": Weather(server), "sign_in": Weather(server)}
    kinds = {"key": KINDS["api_key"], "sign_in": KINDS["oauth2"]}
    tools = [weather_tool(work[name], kinds[name].config(server), name=name) for name in work]
    root = agent(calls(call("key", id="c1"), call("sign_in", id="c2")), say("done"), tools=tools)
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream([grant(item.request_id) for item in desk.session.pending])
        answers = []
        for question in desk.session.pending:
            assert isinstance(question, ElicitationRequest)
            name = "sign_in" if question.url else "key"
            give = kinds[name].give
            asked = question.request_id
            answers.append(decline(asked) if name == refused else accept(asked, give(server, question)))
        done = await desk.stream(answers)
        assert (done.reason, done.texts) == ("completed", ["done"])
        assert {name: made.statuses for name, made in work.items()} == {
            name: [] if name == refused else [200] for name in work
        }
        assert desk.responses() == {name: "failed" if name == refused else "completed" for name in work}
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-02", "HITL-03")
@pytest.mark.parametrize("yes", [(True, True), (True, False), (False, False)])
async def test_calls_of_a_child_that_need_one_credential_each_have_their_question(
    yes: tuple[bool, bool], server: Provider
) -> None:
    """ADK asks once for such calls of an agent that it can enter again; here each call waits for itself."""
    weather, kind = Weather(server), KINDS["api_key"]
    tool = weather_tool(weather, kind.config(server))
    kid = agent(calls(call("weather", id="k1"), call("weather", id="k2")), say("kid"), name="kid", tools=[tool])
    root = agent(call("kid", {"request": "go"}), say("done"), tools=[AgentTool(kid)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream([grant(item.request_id) for item in desk.session.pending])
        answers = []
        for good, question in zip(yes, desk.session.pending, strict=True):
            assert isinstance(question, ElicitationRequest)
            asked = question.request_id
            answers.append(accept(asked, kind.give(server, question)) if good else decline(asked))
        done = await desk.stream(answers)
        assert (done.reason, done.texts[-1], weather.statuses) == ("completed", "done", [200] * sum(yes))


# -- what is kept, and for how long -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
@pytest.mark.parametrize("name", ["api_key", "oauth2", "open_id"])
async def test_r44_what_was_given_is_not_asked_for_again_in_the_session(
    name: str, where: str, server: Provider
) -> None:
    """R44: after the sign-in the next turn asked for it again."""
    weather = Weather(server)
    root = tree(where, weather_tool(weather, KINDS[name].config(server)), calls_made=2)
    async with driven(root) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS[name].give(server, question)))
        await desk.stream("again")
        done = await desk.stream(grant(desk.pending("weather")))
        assert (done.reason, weather.statuses) == ("completed", [200, 200])
        assert desk.types("elicitation_request") == ["elicitation_request"]


async def test_a_credential_is_for_the_session_of_the_person_who_gave_it(server: Provider) -> None:
    weather = Weather(server)
    tool = weather_tool(weather, KINDS["api_key"].config(server))
    root = agent(*[call("weather"), say("done")] * 2, tools=[tool])
    async with driven(root) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS["api_key"].give(server, question)))
        other = Driven(desk.executor, await desk.executor.open(OpenOptions(user_id="somebody else")))
        await to_question(other)
        await other.session.aclose()


async def test_a_credential_service_of_the_users_is_asked_and_keeps_what_it_is_given(server: Provider) -> None:
    service, weather = InMemoryCredentialService(), Weather(server)
    root = agent(*[call("weather"), say("done")] * 2, tools=[weather_tool(weather, KINDS["oauth2"].config(server))])
    async with driven(root, credential_service=service) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS["oauth2"].give(server, question)))
        other = Driven(desk.executor, await desk.executor.open(OpenOptions(session_id="another")))
        await other.stream("go")
        done = await other.stream(grant(other.pending("weather")))
        assert (done.reason, weather.statuses) == ("completed", [200, 200])
        await other.session.aclose()


async def test_a_key_that_was_never_of_use_is_asked_for_anew_at_the_next_call(server: Provider) -> None:
    weather = Weather(server)
    root = tree("root", weather_tool(weather, KINDS["api_key"].config(server)), calls_made=2)
    async with driven(root) as desk:
        question = await to_question(desk)
        mistyped = {"credential": {"type": "api_key", "api_key": "mistyped"}}
        await desk.stream(accept(question.request_id, mistyped))
        question = await to_question(desk, "again")
        await desk.stream(accept(question.request_id, KINDS["api_key"].give(server, question)))
        assert weather.statuses == [401, 200]


async def test_a_key_that_worked_survives_one_failure_of_its_tool_and_not_two(server: Provider) -> None:
    weather = Weather(server)
    root = tree("root", weather_tool(weather, KINDS["api_key"].config(server)), calls_made=4)
    async with driven(root) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS["api_key"].give(server, question)))
        server.keys.clear()
        for _ in range(2):
            await desk.stream("again")
            assert (await desk.stream(grant(desk.pending("weather")))).reason == "completed"
        await to_question(desk, "again")
        assert weather.statuses == [200, 401, 401]


@pytest.mark.rule("SEC-01")
async def test_a_token_that_ran_out_is_refreshed_without_asking(server: Provider) -> None:
    weather = Weather(server)
    server.expires_in = -100
    root = tree("root", weather_tool(weather, KINDS["oauth2"].config(server)), calls_made=2)
    async with driven(root) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS["oauth2"].give(server, question)))
        await desk.stream("again")
        await desk.stream(grant(desk.pending("weather")))
        assert server.grants == ["authorization_code", "refresh_token", "refresh_token"]
        assert weather.statuses == [200, 200]
        assert desk.types("elicitation_request") == ["elicitation_request"]


async def test_the_agents_own_client_is_signed_in_without_asking_anybody(server: Provider) -> None:
    weather = Weather(server)
    root = tree("root", weather_tool(weather, client_credentials(server)))
    async with driven(root) as desk:
        await desk.stream("go")
        done = await desk.stream(grant(desk.pending("weather")))
        assert (done.reason, weather.statuses, server.grants) == ("completed", [200], ["client_credentials"])
        assert desk.types("elicitation_request") == []


@pytest.mark.rule("HITL-01")
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
async def test_an_exchange_that_fails_asks_for_a_new_sign_in_and_runs_nothing_before(
    where: str, server: Provider
) -> None:
    weather = Weather(server)
    root = tree(where, weather_tool(weather, KINDS["oauth2"].config(server)))
    async with driven(root) as desk:
        question = await to_question(desk)
        server.refuses = True
        turn = await desk.stream(accept(question.request_id, KINDS["oauth2"].give(server, question)))
        assert (turn.reason, weather.runs) == ("input_required", 0)
        server.refuses = False
        again = question_of(desk)
        assert again.url != question.url
        done = await desk.stream(accept(again.request_id, KINDS["oauth2"].give(server, again)))
        assert (done.reason, weather.statuses) == ("completed", [200])


# -- toolsets ---------------------------------------------------------------------------------------------------------


class Guarded(BaseToolset):
    """A toolset that must be signed in before it can say what tools it has."""

    def __init__(self, config: AuthConfig, weather: Weather) -> None:
        super().__init__()
        self._config = config
        self._weather = weather
        self.listed: list[bool] = []

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        credential = readonly_context.get_credential(self._config.credential_key)
        self.listed.append(credential is not None)
        if "error" in self._weather.ask(credential):
            raise ConnectionError("not signed in")
        return []

    def get_auth_config(self) -> AuthConfig:
        return self._config


@pytest.mark.parametrize("name", ["oauth2", "open_id", "api_key"])
async def test_r44_a_toolset_is_signed_in_once_in_a_session(name: str, server: Provider) -> None:
    weather = Weather(server)
    toolset = Guarded(KINDS[name].config(server), weather)
    root = agent(*[say(f"answer {number}") for number in range(3)], tools=[toolset])
    async with driven(root) as desk:
        assert (await desk.stream("go")).reason == "input_required"
        question = question_of(desk)
        assert (question.tool_request_id, toolset.listed) == (None, [])
        done = await desk.stream(accept(question.request_id, KINDS[name].give(server, question)))
        assert (done.reason, done.texts) == ("completed", ["answer 0"])
        assert (await desk.stream("thanks")).texts == ["answer 1"]
        assert (await desk.stream("bye")).texts == ["answer 2"]
        assert set(weather.statuses) == {200}
        assert desk.types("elicitation_request") == ["elicitation_request"]


async def test_a_toolsets_key_that_is_of_no_use_is_told_and_asked_for_anew(server: Provider) -> None:
    """ADK would go on without the toolset's tools, and say so in its log alone."""
    weather = Weather(server)
    root = agent(say("without tools"), say("hello"), tools=[Guarded(KINDS["api_key"].config(server), weather)])
    async with driven(root) as desk:
        await desk.stream("go")
        mistyped = {"credential": {"type": "api_key", "api_key": "mistyped"}}
        failed = await desk.stream(accept(question_of(desk).request_id, mistyped))
        assert (failed.reason, failed.texts) == ("completed", ["without tools"])
        (told,) = failed.of("error")
        assert (told.code, told.message) == (
            "toolset-failed",
            "the tools of Guarded could not be listed: ConnectionError",
        )
        assert (await desk.stream("go")).reason == "input_required"
        question = question_of(desk)
        done = await desk.stream(accept(question.request_id, KINDS["api_key"].give(server, question)))
        assert (done.reason, done.texts) == ("completed", ["hello"])


@pytest.mark.rule("PER-01")
async def test_a_question_of_a_toolset_outlives_the_process(server: Provider, tmp_path: Path) -> None:
    store, path = MemoryRecordStore(), str(tmp_path / "adk.db")

    def made(*script: Any) -> AdkExecutor:
        toolset = Guarded(KINDS["oauth2"].config(server), Weather(server))
        root = agent(*script, tools=[toolset])
        return AdkExecutor(root, session_service=SqliteSessionService(path), store=store)

    async with made() as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1")))
        await desk.stream("go")
        asked = question_of(desk)
    async with made(say("hello")) as executor:
        desk = Driven(executor, await executor.load("s1"))
        assert question_of(desk) == asked
        done = await desk.stream(accept(asked.request_id, KINDS["oauth2"].give(server, asked)))
        assert (done.reason, done.texts) == ("completed", ["hello"])
        verify(desk.session)


def api(server: Provider, name: str, kind: type[OpenAPIToolset] = OpenAPIToolset, **fields: Any) -> OpenAPIToolset:
    """ADK's toolset of an API that its document describes."""
    config = KINDS[name].config(server)
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Weather", "version": "1"},
        "servers": [{"url": server.url}],
        "paths": {
            "/api": {"get": {"operationId": "weather", "summary": "Weather", "responses": {"200": {"description": ""}}}}
        },
    }
    return kind(
        spec_dict=document,
        auth_scheme=config.auth_scheme,
        auth_credential=config.raw_auth_credential,
        credential_key=config.credential_key,
        allow_private_network_access=True,
        **fields,
    )


class SignedInToList(OpenAPIToolset):
    """Declares its credential, as ADK asks of toolsets that need one, though a document lists its tools."""

    def get_auth_config(self) -> AuthConfig | None:
        return self._auth_config


@pytest.mark.parametrize("kind", [OpenAPIToolset, SignedInToList])
async def test_r44_a_toolset_that_is_described_in_a_document_asks_when_its_tool_is_called(
    kind: type[OpenAPIToolset], server: Provider
) -> None:
    """R44: it asked for the sign-in at "hey", before anything was to be done that needs it."""
    root = agent(
        say("hello"),
        call("weather", id="c1"),
        say("blue"),
        call("weather", id="c2"),
        say("still blue"),
        tools=[api(server, "oauth2", kind)],
    )
    async with driven(root) as desk:
        assert (await desk.stream("hey")).texts == ["hello"]
        question = await to_question(desk)
        assert question.tool_request_id is not None
        done = await desk.stream(accept(question.request_id, KINDS["oauth2"].give(server, question)))
        assert (done.reason, done.texts) == ("completed", ["blue"])
        await desk.stream("and now?")
        last = await desk.stream(grant(desk.pending("weather")))
        assert (last.reason, last.texts) == ("completed", ["still blue"])
        assert history(root.model)[-1] == ("result c2", '{"sky": "blue"}')
        assert (desk.types("elicitation_request"), server.grants) == (["elicitation_request"], ["authorization_code"])


@pytest.mark.parametrize("name", ["api_key", "bearer", "basic", "oauth2", "oauth2_token", "open_id"])
@pytest.mark.parametrize("where", ["root", "child", "pipeline"])
async def test_a_tool_of_an_api_takes_a_credential_of_each_kind(where: str, name: str, server: Provider) -> None:
    root = tree(where, api(server, name))
    async with driven(root) as desk:
        question = await to_question(desk)
        await desk.stream(accept(question.request_id, KINDS[name].give(server, question)))
        (told,) = [
            event for event in desk.session.record if isinstance(event, ToolResponse) and event.name == "weather"
        ]
        assert (told.status, told.data) == ("completed", {"sky": "blue"})


@pytest.mark.rule("HITL-02")
async def test_a_refused_sign_in_for_a_tool_of_an_api_calls_nothing(server: Provider) -> None:
    root = tree("root", api(server, "oauth2"))
    async with driven(root) as desk:
        question = await to_question(desk)
        done = await desk.stream(decline(question.request_id))
        assert (done.texts, desk.responses()) == (["done"], {"weather": "failed"})
        assert history(root.model)[-1] == ("result c0", REFUSED)
