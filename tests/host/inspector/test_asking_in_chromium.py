"""What is put before a person, in a real browser: why, whose sub-agent, a sign-in, a result to give."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.inspector.chrome import Chrome, Tab
from tests.host.inspector.server import Served, scripted, serve
from tests.host.inspector.visit import Gate, at_work, ran

from agentsession.adapters.scripted import Call, Calls, Say, Step
from agentsession.host import Host, PolicyDecision, PolicyRequest, Rule, RulePolicy, SubagentTool
from agentsession.protocol import ToolResponse, grant

pytestmark = pytest.mark.anyio


class Wiper:
    def __init__(self) -> None:
        self.ran: list[str] = []

    def wipe(self, path: str) -> str:
        """Delete a file."""
        self.ran.append(path)
        return f"{path[:9]} is gone"


class Asks:
    """A policy of a file, with a rule that has something to say."""

    def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        return PolicyDecision("ask_user", "policy:wipes-ask", "<b>it deletes files</b>", where="/srv/policy.toml:12")


async def test_who_is_asked_to_approve_sees_which_rule_asks(browser: Chrome) -> None:
    wiper = Wiper()
    steps: list[Step] = [Call("wipe", {"path": "a"}), Say("Done.")]
    async with at_work(browser, steps, host=Host(tools=[wiper.wipe], policy=Asks())) as (_, tab):
        await tab.until("document.querySelector('.card')")
        why = "why: rule wipes-ask, policy.toml:12, <b>it deletes files</b>"
        await tab.until("!document.querySelector('.card .yes').disabled")
        assert why in await tab.run("document.querySelector('.card').innerText")
        await tab.click(".card .yes", "Approve")
        await tab.see("Done.")
        assert wiper.ran == ["a"]


class Thinks:
    """A policy that takes its time."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def evaluate(self, request: PolicyRequest) -> PolicyDecision:
        await self.gate.wait()
        return PolicyDecision("ask_user", "policy:slow")


async def test_a_call_that_the_server_says_nothing_of_is_shown_all_the_same(browser: Chrome) -> None:
    wiper, policy = Wiper(), Thinks()
    steps: list[Step] = [Call("wipe", {"path": "a"}), Say("Done.")]
    async with at_work(browser, steps, host=Host(tools=[wiper.wipe], policy=policy)) as (_, tab):
        await tab.until("document.querySelector('.card')")
        assert "why:" not in await tab.run("document.querySelector('.card').innerText")
        await tab.click(".card .yes", "Approve")
        await tab.until("document.querySelector('.card .no').disabled")
        assert wiper.ran == []
        policy.gate.open()
        await tab.see("Done.")
        assert wiper.ran == ["a"]


@pytest.mark.parametrize("path", ["a", "a" * 20_000], ids=["short", "cut in the timeline"])
async def test_what_a_sub_agent_asks_is_approved_whole_and_its_work_is_indented(browser: Chrome, path: str) -> None:
    wiper = Wiper()
    fixer = scripted([Say("I wipe."), Call("wipe", {"path": path}), Say("Wiped.")])
    fixer.descriptor = fixer.descriptor.model_copy(update={"name": "fixer"})
    policy = RulePolicy([Rule("allow", "fixer"), Rule("ask_user", "wipe", reason="it deletes", id="wipes-ask")])
    host = Host(tools=[wiper.wipe, SubagentTool(fixer, tools=["wipe"])], policy=policy)
    steps: list[Step] = [Calls(Call("fixer", {"task": "Wipe it."})), Say("All done.")]
    async with fixer, at_work(browser, steps, host=host) as (_, tab):
        await tab.until("!document.querySelector('.card .yes').disabled")
        card = await tab.run("document.querySelector('.card').innerText")
        assert "asked by coder > fixer" in card
        assert "why: rule wipes-ask, it deletes" in card
        assert "What runs is longer than this" not in card
        assert await tab.run("document.querySelectorAll('.card').length") == 1
        inside = "[...document.querySelectorAll('#timeline > ol > li[data-thread]')]"
        assert await tab.run(f"{inside}.map((one) => one.style.getPropertyValue('--depth')).join('')") == "1111"
        assert "I wipe." in await tab.run(f"{inside}.map((one) => one.textContent).join()")
        await tab.click(".card .yes", "Approve")
        await tab.see("All done.")
        assert wiper.ran == [path]


async def sign_in(tab: Tab, served: Served, kind: str, secret: str) -> None:
    await tab.see("SIGN IN")
    await tab.run(f"document.querySelector('.card select').value = '{kind}'")
    await tab.click(".card input[type=password]")
    await tab.type(secret)
    await tab.click(".card .yes", "Send")


async def test_a_sign_in_reaches_the_tool_and_nothing_else(browser: Chrome) -> None:
    from fastapi.openapi.models import APIKey
    from google.adk.agents import LlmAgent
    from google.adk.auth.auth_credential import AuthCredential
    from google.adk.auth.auth_tool import AuthConfig
    from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool

    from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say

    keys: list[str | None] = []

    def weather(city: str, credential: AuthCredential) -> str:
        """The weather, from a service that wants a key."""
        keys.append(credential.api_key)
        return "sunny"

    scheme = APIKey.model_validate({"in": "header", "name": "X-Key"})
    needs_key = AuthenticatedFunctionTool(
        func=weather, auth_config=AuthConfig(auth_scheme=scheme, credential_key="weather")
    )
    model = ScriptedLlm(script=[call("weather", {"city": "Rome"}), say("It is sunny.")])
    executor = AdkExecutor(LlmAgent(name="coder", model=model, tools=[needs_key]))
    async with serve(executor, Host(policy=RulePolicy([Rule("allow")]))) as served:
        tab = await browser.tab(f"{served.url}/ui/")
        await tab.click("#empty button", "New session")
        await tab.until("document.body.dataset.live === 'yes'")
        await tab.click("#box")
        await tab.type("How is it?")
        await tab.press("Enter")
        await sign_in(tab, served, "0", "k-very-secret")
        await tab.see("It is sunny.")
        assert keys == ["k-very-secret"]
        assert not [event for event in await served.events() if "k-very-secret" in event.model_dump_json()]
        assert "k-very-secret" not in await tab.run("document.documentElement.outerHTML")
        assert tab.console == []


@pytest.mark.parametrize("failed", [False, True], ids=["a result", "a failure"])
async def test_a_bare_agent_is_given_the_result_of_its_call(browser: Chrome, failed: bool) -> None:
    steps: list[Step] = [Call("look", {"at": "the sky"}), Say("I see.")]
    async with at_work(browser, steps) as (served, tab):
        await tab.see("RESULT NEEDED")
        await tab.click(".card textarea")
        await tab.type("It is blue.")
        if failed:
            await tab.click(".card .check input")
        await tab.click(".card .yes", "Send result")
        await tab.see("I see.")
        (given,) = [event for event in await served.events() if isinstance(event, ToolResponse)]
        assert [getattr(part, "text", None) for part in given.content] == ["It is blue."]
        assert given.is_error is failed
        assert ("FAILED" if failed else "ok") in await tab.run("document.querySelector('li.call summary').innerText")


async def test_a_turn_that_nobody_let_go_on_is_let_go_on_by_hand(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "rm", path="x"), Say("Done.")]) as (served, tab):
        await tab.until("document.querySelector('.card')")
        (info,) = await served.sessions.list("coder", "local")
        session = await served.sessions.get("coder", "local", info.key.session_id)
        (receipt,) = await session.respond(grant(session.pending[0].request_id))
        assert receipt.status == "applied"
        await tab.see("answered by")
        await tab.click("#go-on")
        await tab.see("Done.")
        assert log == [{"path": "x"}]
        await tab.until("document.querySelector('#go-on').hidden")
