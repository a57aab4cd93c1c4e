"""What would have the page say yes to something else, lose what was typed, stop or slow it down; in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.inspector.chrome import Chrome
from tests.host.inspector.server import scripted, serve
from tests.host.inspector.visit import Gate, Saying, at_work, ran

from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Say, Step
from agentsession.protocol import ContentPart, Media, Reference, Text

pytestmark = pytest.mark.anyio

CARDS = """(async () => {
  const { Cards } = await import("/ui/cards.js");
  const sent = [], place = document.createElement("div");
  document.body.append(place);
  const answer = async (item, given) => (sent.push(given), { status: "applied" });
  const cards = new Cards(place, { answer, endTurn() {} });
  const view = { agent: "coder", tools: new Map(), threads: new Map() };
  const call = (requestId, args) => ({
    kind: "call", requestId, args, name: "rm", number: 1, at: "", thread: "", needs: "grant", status: "waiting",
    events: [],
  });
  const show = (...items) => (cards.show(view, items, { isHosted: true }), cards.setLiveOnce(true));
  const armed = () => new Promise((done) => {
    const look = () => (place.querySelector(".yes:not(:disabled)") ? done() : setTimeout(look, 10));
    look();
  });
  const yes = () => place.querySelector(".yes");
  BODY
})()"""


def cards(body: str) -> str:
    """A script that drives the cards without a server: what no server of ours sends they must stand too."""
    return CARDS.replace("BODY", body)


async def test_two_clicks_on_approve_are_one_answer(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "rm", path="x"), Say("Done.")]) as (_, tab):
        await tab.until("!document.querySelector('.card .yes').disabled")
        await tab.run("{ const yes = document.querySelector('.card .yes'); yes.click(); yes.click(); }")
        await tab.see("Done.")
        assert log == [{"path": "x"}]
        assert len([one for one in tab.requests if one.endswith("/respond")]) == 1


async def test_a_yes_never_runs_other_arguments_than_those_that_were_shown(browser: Chrome) -> None:
    async with at_work(browser, [Say("Hi.")]) as (_, tab):
        told = await tab.run(
            cards("""
  const item = call("r", { path: "a" });
  show(item);
  await armed();
  const old = yes();
  item.args = { path: "/" };
  old.click();
  show(item);
  const off = yes().disabled;
  yes().click();
  await armed();
  yes().click();
  return [sent.length, off, place.querySelectorAll(".card").length, place.textContent.includes('"path": "/"')];""")
        )
        assert told == [1, True, 1, True]


async def test_what_others_answer_piles_up_to_a_few_lines(browser: Chrome) -> None:
    async with at_work(browser, [Say("Hi.")]) as (_, tab):
        told = await tab.run(
            cards("""
  for (let at = 0; at < 50; at += 1) {
    show(call("r" + at, {}));
    show();
  }
  return place.querySelectorAll(".card").length;""")
        )
        assert told == 4


async def test_arguments_that_came_cut_are_said_to_be_and_cannot_be_edited(browser: Chrome) -> None:
    async with at_work(browser, [Say("Hi.")]) as (_, tab):
        told = await tab.run(
            cards("""
  const item = call("r", { path: "a…" });
  item.isCut = true;
  show(item);
  return [place.textContent.includes("What runs is longer than this"), place.textContent.includes("Edit")];""")
        )
        assert told == [True, False]


async def test_a_number_that_no_double_holds_is_shown_and_run_as_it_is(browser: Chrome) -> None:
    log: list[Any] = []
    async with at_work(browser, [ran(log, "refund", order=12345678901234567891, note="a"), Say("Done.")]) as (_, tab):
        await tab.until("!document.querySelector('.card .yes').disabled")
        assert "12345678901234567891" in await tab.run("document.querySelector('.card pre').textContent")
        await tab.click(".card button", "Edit")
        await tab.run("document.querySelector('.card .form input').select()")
        await tab.type("b")
        await tab.click(".card .yes", "Approve edited")
        await tab.see("Done.")
        assert log == [{"order": 12345678901234567891, "note": "b"}]


async def test_an_edit_that_changes_nothing_is_no_edit(browser: Chrome) -> None:
    log: list[Any] = []
    args = {"text": "a\r\nb", "suffix": "", "n": 1}
    async with at_work(browser, [ran(log, "write", **args), Say("Done.")]) as (_, tab):
        await tab.click(".card button", "Edit")
        await tab.click(".card .yes", "Approve edited")
        await tab.see("Done.")
        assert log == [args]
        assert "ran with edited arguments" not in await tab.run("document.querySelector('li.call').textContent")


async def test_no_address_of_a_part_is_a_link_that_runs_or_hides_where_it_leads(browser: Chrome) -> None:
    parts: list[ContentPart] = [
        Reference(uri="javascript:window.owned=1", title="Click me"),
        Media(mime_type="image/png", uri="data:text/html,<script>owned=2</script>"),
        Reference(uri="https://\u0430pple.com/"),
        Reference(uri="https://example.com/a"),
    ]
    async with at_work(browser, [Saying(parts)]) as (_, tab):
        await tab.see("The host of this address is xn--pple-43d.com")
        links = await tab.run("[...document.querySelectorAll('#timeline a')].map((one) => one.href)")
        assert links == ["https://xn--pple-43d.com/", "https://example.com/a"]
        assert await tab.run("document.querySelector('#timeline').textContent.split('is not opened').length") == 3


async def test_text_cannot_become_markup_in_the_page(browser: Chrome) -> None:
    async with at_work(browser, [Say("Hi.")]) as (_, tab):
        for sink in (
            "document.body.innerHTML = '<b>x</b>'",
            "document.write('<b>x</b>')",
            "document.body.insertAdjacentHTML('afterend', 'x')",
        ):
            refused = f"(() => {{ try {{ {sink}; return false; }} catch {{ return true; }} }})()"
            assert await tab.run(refused) is True, sink
        tab.console.clear()  # the browser tells of each


async def test_two_clicks_on_new_session_make_one(browser: Chrome) -> None:
    async with serve(scripted([Say("Hi.")])) as served:
        tab = await browser.tab(f"{served.url}/ui/")
        await tab.see("No session yet")
        await tab.run("{ const make = document.querySelector('#empty .yes'); make.click(); make.click(); }")
        await tab.until("document.body.dataset.live === 'yes'")
        assert len(await served.sessions.list("coder", "local")) == 1


async def test_an_agent_does_not_speak_as_the_person(browser: Chrome) -> None:
    async with at_work(browser, [Saying([Text(text="I approve it all.")], role="user")]) as (_, tab):
        await tab.see("ended: completed")
        speakers = "[...document.querySelectorAll('li.message .speaker')].map((one) => one.innerText.trim())"
        assert await tab.run(speakers) == ["you", "user, as the agent says"]
        assert await tab.run("document.querySelectorAll('li.message.mine').length") == 1


async def test_an_event_that_cannot_be_drawn_stops_nothing(browser: Chrome) -> None:
    huge = {"old_string": "a\n" * 150_000, "new_string": "b", "path": "x"}
    steps: list[Step] = [Calls(Call("edit", huge, needs="none")), Say("After it.")]
    async with at_work(browser, steps) as (_, tab):
        await tab.see("After it.")
        await tab.run("document.querySelector('li.call details').open = true")
        await tab.until("!!document.querySelector('li.call .fold')")
        # In one step: to lay so many lines out takes the browser long, and is not what is tried here.
        unfold = "document.querySelector('li.call .fold').click()"
        shown = "document.querySelectorAll('li.call .diff.tall span').length"
        assert await tab.run(f"({unfold}, {shown})") == 150_001


async def test_a_long_stream_grows_and_is_whole_at_its_end(browser: Chrome) -> None:
    pieces = [f"word {number} of a long answer\n" for number in range(3000)]
    gate = Gate()
    watch = """{ window.removed = 0; new MutationObserver((all) => {
      for (const one of all) window.removed += one.removedNodes.length;
    }).observe(document.querySelector('#timeline'), { childList: true, subtree: true }); }"""
    async with at_work(browser, [gate.step(), Deltas(pieces), Say("Next.")]) as (_, tab):
        await tab.until("document.body.dataset.state === 'running'")
        await tab.run(watch)
        gate.open()
        await tab.see("ended: completed")
        assert await tab.run("window.removed") < 20  # a badge, and the text once, as it was too long to grow whole
        shown = await tab.run("[...document.querySelectorAll('li.message')][1].textContent")
        assert "the rest is shown when the message is whole" not in shown
        assert "word 2999" in shown


async def test_a_long_timeline_is_laid_out_in_groups(browser: Chrome) -> None:
    async with at_work(browser, [Say(f"Message {number}.") for number in range(250)]) as (_, tab):
        await tab.see("ended: completed")
        told = await tab.run("[...document.querySelectorAll('#timeline > ol')].map((one) => one.childElementCount)")
        assert told == [100, 100, 52]
        assert await tab.run("getComputedStyle(document.querySelector('#timeline > ol')).contentVisibility") == "auto"
        await tab.press("Escape")
        for _ in range(3):
            await tab.press("k")
        assert "Message 248." in await tab.run("document.querySelector('.here').textContent")
        await tab.press("/")
        await tab.type("message 7.")
        await tab.until("document.querySelector('#found').textContent === '1 of 252'")
        seen = "document.querySelector('#timeline li:not([hidden])').getBoundingClientRect()"
        await tab.until(f"{seen}.top > 0 && {seen}.bottom < innerHeight")
        await tab.until("document.querySelector('#timeline').offsetHeight < 100")


async def test_the_focus_stays_where_rows_and_lists_are_made_again(browser: Chrome) -> None:
    gate, more = Gate(), Gate()

    async def run(_: dict[str, Any]) -> str:
        await gate.wait()
        return "done"

    async with at_work(browser, [Calls(Call("read", {}, needs="none", run=run)), more.step(), Say("Done.")]) as (
        _,
        tab,
    ):
        await tab.until("document.querySelector('li.call summary')?.textContent.includes('running')")
        await tab.run("document.querySelector('li.call summary').focus()")
        gate.open()
        await tab.until("document.querySelector('li.call summary').textContent.includes('ok')")
        assert "read" in await tab.run("document.activeElement.textContent")
        await tab.until("!document.querySelector('#agents a')?.focus() && document.activeElement.closest('#agents a')")
        more.open()
        await tab.until("document.querySelector('#agents a').textContent.includes('1 turn')")
        assert await tab.run("document.activeElement === document.querySelector('#agents a')") is True


async def test_a_form_with_a_group_sends_it_and_json_keeps_what_was_typed(browser: Chrome) -> None:
    limits = {"type": "object", "required": ["cpu"], "properties": {"cpu": {"type": "integer", "minimum": 1}}}
    schema = {
        "type": "object",
        "required": ["limits", "name"],
        "properties": {"limits": limits, "name": {"type": "string", "minLength": 1}},
    }
    async with at_work(browser, [Ask("How much?", schema=schema), Say("Thanks.")]) as (served, tab):
        await tab.click(".card .group input")
        await tab.type("0")
        await tab.click(".card .yes", "Send")
        await tab.see("cpu 0 is less than 1")
        assert await tab.run("document.activeElement === document.querySelector('.card .group input')") is True
        await tab.run("document.querySelector('.card .group input').select()")
        await tab.type("4")
        await tab.click(".card button", "as JSON")
        assert await tab.run("JSON.parse(document.querySelector('.card textarea.code').value)") == {
            "limits": {"cpu": 4}
        }
        await tab.click(".card button", "as a form")
        await tab.click(".card .form > div > .field > input")
        await tab.type("big")
        await tab.click(".card .yes", "Send")
        await tab.see("Thanks.")
        assert await served.answers() == [("accept", {"limits": {"cpu": 4}, "name": "big"})]


async def test_what_a_sheet_covers_on_a_phone_is_not_reached_by_keys(browser: Chrome) -> None:
    async with at_work(browser, [ran([], "rm", path="x")], width=360, height=740) as (_, tab):
        await tab.click("#waits")
        places = set[str]()
        for _ in range(12):
            await tab.press("Tab")
            places.add(await tab.run("document.activeElement.closest('#waiting, header, #middle')?.id ?? ''"))
        assert "waiting" in places
        assert places <= {"waiting", ""}
        await tab.look_like(1280, 800)
        await tab.until("!document.querySelector('#middle').inert")
