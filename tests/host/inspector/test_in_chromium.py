"""The inspector in a real browser, against a real server: what a person sees, and what a click does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.inspector.chrome import Chrome
from tests.host.inspector.server import scripted, serve
from tests.host.inspector.visit import Gate, at_work, ran

from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Say, Step, Think
from agentsession.host import Host, ask_all
from agentsession.host.http import BearerTokens, Principal

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-the-tests"
FORM = {
    "type": "object",
    "required": ["region", "replicas", "token"],
    "properties": {
        "region": {"oneOf": [{"const": "eu", "title": "Europe"}, {"const": "us", "title": "States"}]},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "token": {"type": "string", "format": "password"},
        "when": {"type": "string", "format": "date"},
        "sure": {"type": "boolean"},
    },
}


async def test_a_message_is_sent_and_the_answer_streams_in_without_being_made_again(browser: Chrome) -> None:
    pieces = [f"w{number} " for number in range(2000)]
    async with at_work(browser, [Think("Hm."), Deltas(pieces)]) as (_, tab):
        await tab.see("ended: completed")
        text = "[...document.querySelectorAll('li.message .said')].at(-1)"
        assert await tab.run(f"{text}.textContent") == "".join(pieces)
        assert await tab.run(f"{text}.childNodes.length") <= 2000
        assert await tab.run("document.querySelector('#box').value") == ""
        assert await tab.run("document.querySelector('details.thought').open") is False
        assert "cost" not in await tab.run("document.querySelector('#numbers').textContent")


async def test_approve_is_off_at_first_never_has_the_focus_and_runs_the_tool_once(browser: Chrome) -> None:
    log: list[Any] = []
    watch = """new MutationObserver(() => {
      const yes = document.querySelector('.card .yes');
      if (yes && !window.first) window.first = { off: yes.disabled, focus: document.activeElement.id };
    }).observe(document.body, { childList: true, subtree: true });"""
    async with serve(scripted([ran(log, "rm", path="x"), Say("Done.")])) as served:
        tab = await browser.tab(f"{served.url}/ui/")
        await tab.click("#empty button", "New session")
        await tab.until("document.body.dataset.live === 'yes'")
        await tab.run(watch)
        await tab.click("#box")
        await tab.type("Go.")
        await tab.press("Enter")
        await tab.until("window.first")
        assert await tab.run("window.first") == {"off": True, "focus": "box"}
        await tab.click(".card .yes", "Approve")
        await tab.see("Done.")
        assert log == [{"path": "x"}]
        assert await tab.run("document.querySelectorAll('.card').length") == 0


async def test_an_edit_runs_with_what_was_typed(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "rm", path="a.txt", count=3), Say("Done.")]) as (_, tab):
        await tab.click(".card button", "Edit")
        await tab.run("document.querySelector('.card .form input').select()")
        await tab.type("b.txt")
        await tab.click(".card .yes", "Approve edited")
        await tab.see("Done.")
        assert log == [{"path": "b.txt", "count": 3}]
        assert "ran with edited arguments" in await tab.run("document.querySelector('li.call').textContent")


async def test_a_no_with_its_reason_runs_nothing(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "rm", path="x"), Say("As you like.")]) as (served, tab):
        await tab.click(".card input")
        await tab.type("too risky")
        await tab.click(".card .no")
        await tab.see("As you like.")
        assert log == []
        assert await served.decisions() == [("denied", "user", "too risky")]


async def test_a_yes_to_one_call_is_none_to_the_next_that_moves_under_the_pointer(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "one", "two", path="x"), Say("Done.")]) as (served, tab):
        await tab.click(".card .yes")
        await tab.until("document.querySelectorAll('.card').length === 1")
        assert await tab.run("document.querySelector('.card .yes').disabled") is True
        assert await tab.run("document.activeElement.id") == "cards"
        await tab.press("Enter")
        await tab.until("!document.querySelector('.card .yes').disabled")
        assert [told for told, _, _ in await served.decisions()] == ["granted"]


async def test_a_form_says_what_is_wrong_and_sends_what_fits(browser: Chrome) -> None:
    async with at_work(browser, [Ask("Where to?", schema=FORM), Say("Deployed.")]) as (served, tab):
        await tab.see("Where to?")
        await tab.until("document.querySelector('.card input')")
        await tab.run("{ const one = document.querySelectorAll('.card input')[0]; one.focus(); one.select(); }")
        await tab.type("12")
        await tab.click(".card .yes", "Send")
        await tab.see("replicas 12 is more than 9")
        await tab.see("region is needed")
        await tab.run("document.querySelectorAll('.card input')[0].select()")
        await tab.type("3")
        await tab.run("document.querySelector('.card select').value = '0'")
        await tab.click(".card input[type=password]")
        await tab.type("s3cret-word")
        await tab.click(".card .yes", "Send")
        await tab.see("Deployed.")
        assert await served.answers() == [("accept", {"region": "eu", "replicas": 3, "token": "[redacted]"})]
        assert "s3cret-word" not in await tab.run("document.documentElement.outerHTML")


async def test_the_box_steers_while_the_agent_works(browser: Chrome) -> None:
    gate = Gate()
    async with at_work(browser, [Say("Working."), gate.step(), Say("Done.")]) as (_, tab):
        await tab.see("Working.")
        await tab.until("document.querySelector('#send').textContent === 'Steer'")
        await tab.type("not the API")
        await tab.press("Enter")
        await tab.see("queued, goes in before the next model call")
        gate.open()
        await tab.until("document.querySelector('li.steer').textContent.includes('injected')")
        await tab.see("ended: completed")
        assert await tab.run("document.querySelectorAll('li.steer').length") == 1


async def test_abort_ends_the_turn_and_says_so(browser: Chrome) -> None:
    gate = Gate()
    async with at_work(browser, [Say("Working."), gate.step(), Say("Never said.")]) as (_, tab):
        await tab.see("Working.")
        await tab.click("#abort")
        await tab.see("ended: aborted")
        await tab.click("#box")
        await tab.type("And now?")
        await tab.press("Enter")
        await tab.see("Next turn.")


async def test_a_lost_network_turns_the_buttons_off_and_nothing_is_lost_or_twice(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [Say("Before."), ran(log, "rm", path="x"), Say("After.")], width=360, height=740) as (
        served,
        tab,
    ):
        await tab.see("1 waiting: tap")
        await tab.click("#box")
        await tab.type("half a thought")
        served.network.cut(down=True)
        await tab.see("reconnecting from #")
        await tab.click("#waits")
        assert await tab.run("[...document.querySelectorAll('.card button')].every((one) => one.disabled)") is True
        served.network.is_down = False
        await tab.click(".card .yes", "Approve")
        await tab.click("#waiting .close")
        await tab.see("After.")
        assert await tab.run("document.querySelector('#box').value") == "half a thought"
        assert log == [{"path": "x"}]
        said = "[...document.querySelectorAll('li.message .said')].map((one) => one.textContent)"
        assert await tab.run(said) == ["Go.", "Before.", "After."]
        tab.console.clear()  # the browser itself told of the lost network


async def test_what_another_tab_answers_is_said_to_be_answered(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "rm", path="x"), Say("Done.")]) as (_, tab):
        await tab.see("APPROVE")
        other = await browser.tab(await tab.run("location.href"))
        await other.click(".card .yes", "Approve")
        await tab.see("answered by")
        await tab.see("Done.")
        assert log == [{"path": "x"}]
        assert await tab.run("document.querySelectorAll('.card .yes').length") == 0


async def test_a_host_on_the_server_asks_the_page_and_what_its_policy_denies_is_never_asked(browser: Chrome) -> None:
    log: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        log.append(path)
        return f"{path} is gone"

    host = Host(tools=[wipe], policy=ask_all)
    steps: list[Step] = [Call("wipe", {"path": "a"}), Call("wipe", {"path": "b"}), Say("Done.")]
    async with at_work(browser, steps, host=host) as (served, tab):
        await tab.see("the server's rules decide")
        await tab.click(".card .yes", "Approve")
        await tab.until("document.querySelector('.card h3')?.textContent.includes('[2]')")
        await tab.click(".card .no")
        await tab.see("Done.")
        assert log == ["a"]
        assert [(told, by) for told, by, _ in await served.decisions()] == [
            ("granted", "user:local"),
            ("denied", "user:local"),
        ]


async def test_an_agent_of_adk_is_approved_from_the_page(browser: Chrome) -> None:
    from google.adk.agents import LlmAgent

    from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say

    log: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        log.append(path)
        return f"{path} is gone"

    model = ScriptedLlm(script=[call("wipe", {"path": "old.txt"}), say("It is gone.")])
    executor = AdkExecutor(LlmAgent(name="coder", model=model, tools=[wipe]))
    async with serve(executor, Host(policy=ask_all)) as served:
        tab = await browser.tab(f"{served.url}/ui/")
        await tab.click("#empty button", "New session")
        await tab.until("document.body.dataset.live === 'yes'")
        await tab.click("#box")
        await tab.type("Clean up.")
        await tab.press("Enter")
        await tab.click(".card .yes", "Approve")
        await tab.see("It is gone.")
        assert log == ["old.txt"]


async def test_a_server_with_tokens_is_logged_in_to_and_the_token_stays_in_the_tab(browser: Chrome) -> None:
    tokens = BearerTokens({TOKEN: Principal(user_id="ann")})
    async with serve(scripted([Say("Hello ann.")]), verify=tokens) as served:
        tab = await browser.tab(f"{served.url}/ui/")
        await tab.see("Token of this server")
        await tab.type("wrong")
        await tab.press("Enter")
        await tab.see("This token was not taken.")
        await tab.type("a b")
        await tab.press("Enter")
        await tab.see("A token has no blanks")
        await tab.type(TOKEN)
        await tab.press("Enter")
        await tab.click("#empty button", "New session")
        await tab.until("document.body.dataset.live === 'yes'")
        await tab.click("#box")
        await tab.type("Hi.")
        await tab.press("Enter")
        await tab.see("Hello ann.")
        assert await tab.run("localStorage.length + document.cookie.length") == 0
        assert not [request for request in tab.requests if TOKEN in request]


HOSTILE = [
    "<script>window.owned = 1</script>",
    '<img src=x onerror="window.owned = 2">',
    "[x](javascript:window.owned=3)",
    "a\x1b[2Jb \u202egpj.exe\u2066 \x00",
    "</li></ol></main><iframe srcdoc='<script>parent.owned = 4</script>'>",
]


async def test_what_an_agent_says_stays_text(browser: Chrome) -> None:
    huge = "\n".join(f"{number} {HOSTILE[number % 5]}" for number in range(50_000))
    text = "\n".join(HOSTILE)
    steps: list[Step] = [
        Say(text),
        Deltas([text[at : at + 7] for at in range(0, len(text), 7)]),
        Calls(Call(HOSTILE[0], {HOSTILE[1]: text}, needs="none", run=lambda _: huge)),
        Ask(
            text,
            url="javascript:window.owned=5",
            schema={"type": "object", "properties": {HOSTILE[0]: {"title": text}}},
        ),
    ]
    async with at_work(browser, steps, message=HOSTILE[0]) as (_, tab):
        await tab.see("This address is not opened from here.")
        await tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
        await tab.see("lines folded: show all")
        assert await tab.run("[window.owned, document.scripts.length, document.images.length, frames.length]") == [
            None,
            1,
            0,
            0,
        ]
        assert await tab.run("document.querySelectorAll('.card a, #timeline a').length") == 0
        shown = await tab.run("document.body.innerText")
        assert not {"\x1b", "\u202e", "\u2066", "\x00"} & set(shown)
        assert "a\\x1b[2Jb \\u202egpj.exe\\u2066 \\x00" in shown
        assert (
            await tab.run("document.querySelector('li.call').textContent.length") < 60_000
        )  # of more than two million


@pytest.mark.parametrize("width", [360, 640, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_it_fits_has_contrast_and_targets_that_can_be_hit(browser: Chrome, width: int, dark: bool) -> None:
    steps: list[Step] = [
        Say("A message."),
        Calls(Call("read", {"path": "a"}, needs="none"), Call("rm", {"path": "x" * 200}, needs="grant")),
    ]
    async with at_work(browser, steps, width=width, height=740, dark=dark) as (_, tab):
        await tab.see("waiting: tap" if width <= 768 else "APPROVE")
        await tab.until("[...document.querySelectorAll('.card .yes')].some((one) => !one.disabled)")
        if width <= 768:
            await tab.click("#waits")
        assert await tab.run(LOOKS) == {"wide": False, "small": [], "poor": []}


LOOKS = """(() => {
  const shade = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (one) => {
    for (let up = one; up; up = up.parentElement) {
      const colour = getComputedStyle(up).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const poor = [], small = [];
  for (const one of document.querySelectorAll("body *")) {
    if (!one.getClientRects().length || one.closest(".unseen, .skip, dialog")) continue;
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (own && !one.disabled) {
      const [high, low] = [shade(getComputedStyle(one).color), shade(paper(one))].sort((a, b) => b - a);
      if ((high + 0.05) / (low + 0.05) < 4.5) poor.push(one.outerHTML.slice(0, 80));
    }
    const box = one.getBoundingClientRect();
    const isTarget = one.matches("button, input:not([type=checkbox]), select, textarea, nav a")
      || (innerWidth <= 768 && one.matches("#timeline summary"));
    if (isTarget && box.height < 44) small.push(one.outerHTML.slice(0, 80));
  }
  return { wide: document.documentElement.scrollWidth > innerWidth, small, poor };
})()"""


async def test_keys_walk_search_and_lead_to_what_waits_but_never_say_yes(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [Say("One."), Say("Two."), ran(log, "rm", path="x"), Say("Done.")]) as (_, tab):
        await tab.until("!document.querySelector('.card .yes').disabled")
        await tab.press("Escape")
        await tab.press("j")
        await tab.press("j")
        assert "One." in await tab.run("document.querySelector('.here').textContent")
        await tab.press("/")
        await tab.type("two")
        await tab.until("document.querySelectorAll('#timeline > ol > li:not([hidden])').length === 1")
        await tab.press("Escape")
        await tab.press("w")
        assert await tab.run("document.activeElement.tagName") == "H3"
        await tab.press("Enter")
        await tab.press("y")
        await tab.press("?")
        assert await tab.run("document.querySelector('#help').open") is True
        await tab.press("Escape")
        assert log == []


async def test_scrolled_up_it_stays_there_and_counts_what_is_new(browser: Chrome) -> None:
    gate = Gate()
    steps: list[Step] = [
        *(Say(f"Message {number}.\n" * 3) for number in range(30)),
        gate.step(),
        *(Say("More.") for _ in range(12)),
    ]
    async with at_work(browser, steps) as (_, tab):
        await tab.see("Message 29.")
        wheel = {"type": "mouseWheel", "x": 500, "y": 400, "deltaX": 0, "deltaY": -30_000}
        await tab.call("Input.dispatchMouseEvent", **wheel)
        await tab.until("document.querySelector('#scroller').scrollTop === 0")
        await tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        gate.open()
        await tab.until("document.querySelector('#news').textContent.startsWith('13 new')")
        assert await tab.run("document.querySelector('#scroller').scrollTop") == 0
        await tab.click("#news")
        await tab.until("document.querySelector('#news').hidden")
