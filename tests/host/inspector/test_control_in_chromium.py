"""What a person sees of parts and threads, and does beside answering; in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from tests.host.inspector.chrome import Chrome
from tests.host.inspector.server import scripted, serve
from tests.host.inspector.visit import Gate, Saying, at_work, ran

from agentsession.adapters.scripted import Call, Calls, Deltas, Parallel, Say, Step
from agentsession.protocol import ContentPart, Diff, Terminal

pytestmark = pytest.mark.anyio

AT_END = """(() => {
  const one = document.querySelector('#scroller');
  return one.scrollHeight > one.clientHeight && one.scrollHeight - one.scrollTop - one.clientHeight < 2;
})()"""


async def test_sub_agents_at_work_side_by_side_are_told_apart(browser: Chrome) -> None:
    read = Call("read", {"path": "a.py"}, needs="none")
    steps: list[Step] = [Parallel(fixer=[Say("I fix."), Calls(read)], tester=[Say("I test.")]), Say("Both done.")]
    async with at_work(browser, steps) as (_, tab):
        await tab.see("ended: completed")
        threads = await tab.run(
            "[...document.querySelectorAll('#timeline > ol > li[data-thread]')].map((one) => "
            "[one.dataset.thread.split('-')[0], one.querySelector('.body').innerText.replace(/\\s+/g, ' ').trim()])"
        )
        assert [text for thread, text in threads if thread == "tester"] == [
            "@tester started",
            "@tester I test.",
            "@tester ended: completed",
        ]
        fixes = [text for thread, text in threads if thread == "fixer"]
        assert fixes == ["@fixer started", "@fixer I fix.", "[1] read a.py ok", "@fixer ended: completed"]
        border = "getComputedStyle(document.querySelector('li[data-thread] > .body')).borderLeftWidth"
        assert await tab.run(border) == "2px"
        assert await tab.run("[...document.querySelectorAll('#timeline > ol > li')].at(-2).dataset.thread ?? ''") == ""


async def test_a_change_and_a_terminal_are_shown_as_such(browser: Chrome) -> None:
    output = "\n".join(f"test {number} ok" for number in range(100))
    parts: list[ContentPart] = [
        Diff(path="cart.py", old_text="a\nb\nc\n", new_text="a\nB\nc\n"),
        Diff(path="new.py", new_text="one\ntwo\n"),
        Diff(path="patched.py", patch="--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"),
        Terminal(command="pytest -q", output=output, exit_code=1),
    ]
    async with at_work(browser, [Saying(parts)]) as (_, tab):
        await tab.see("ended: completed")
        told = await tab.run(
            "[...document.querySelectorAll('li.message .diff')].map((one) => ["
            " one.parentElement.querySelector('.path').innerText, ...['removed', 'added'].map((name) =>"
            " [...one.querySelectorAll('.' + name)].map((row) => row.textContent).join(''))])"
        )
        assert told[0] == ["cart.py +1 -1", "- b\n", "+ B\n"]
        assert told[1] == ["new.py +2 -0", "", "+ one\n+ two\n"]
        assert told[2][0].startswith("patched.py")
        assert "+ y\n" in told[2][2]
        terminal = await tab.run("document.querySelector('.terminal').innerText")
        for words in ("$ pytest -q", "exit 1 (failed)", "test 0 ok", "test 99 ok"):
            assert words in terminal
        assert "test 50 ok" not in terminal
        await tab.click(".terminal .fold")
        assert "test 50 ok" in await tab.run("document.querySelector('.terminal').innerText")


@pytest.mark.parametrize("draft", ["", "another thought"], ids=["empty box", "a draft in the box"])
async def test_a_steer_that_was_not_delivered_is_not_lost(browser: Chrome, draft: str) -> None:
    gate = Gate()
    async with at_work(browser, [Say("Working."), gate.step(), Say("Never said.")]) as (_, tab):
        await tab.until("document.querySelector('#send').textContent === 'Steer'")
        await tab.type("not the API")
        await tab.press("Enter")
        await tab.see("queued, goes in before the next model call")
        await tab.until("document.querySelector('#box').value === ''")
        if draft:
            await tab.type(draft)
        await tab.click("#abort")
        await tab.see("NOT delivered")
        if draft:
            assert await tab.run("document.querySelector('#box').value") == draft
            await tab.click("li.steer button")
        await tab.until("document.querySelector('#box').value !== ''")
        assert await tab.run("document.querySelector('#box').value") == "\n".join(filter(None, [draft, "not the API"]))


async def test_a_session_is_deleted_only_after_a_question(browser: Chrome) -> None:
    async with at_work(browser, [ran([], "rm", path="x")]) as (served, tab):
        await tab.until("document.querySelector('.card')")
        for no in ("Escape", "Keep it"):
            await tab.click("#agents button[aria-label^=Delete]")
            await tab.until("document.activeElement.id === 'delete-no'")
            await (tab.press(no) if no == "Escape" else tab.click("#delete-no"))
            await tab.until("!document.querySelector('#delete').open")
            assert len(await served.sessions.list("coder", "local")) == 1
        await tab.click("#agents button[aria-label^=Delete]")
        await tab.click("#delete-yes")
        await tab.see("No session yet")
        assert await tab.run("[location.hash, document.querySelectorAll('.card, #timeline > ol > li').length]") == [
            "",
            0,
        ]
        assert list(await served.sessions.list("coder", "local")) == []


async def test_a_session_that_somebody_else_deleted_says_so(browser: Chrome) -> None:
    async with at_work(browser, [Say("Hi.")]) as (served, tab):
        await tab.see("ended: completed")
        (info,) = await served.sessions.list("coder", "local")
        await served.sessions.delete("coder", "local", info.key.session_id)
        await tab.see("closed on the server")
        await tab.click("#connection button", "Open again")
        await tab.see("not connected")
        assert await tab.run("document.querySelector('#send').disabled") is True
        tab.console.clear()  # the browser itself tells of the 404


async def test_a_turned_phone_and_a_resized_window_stay_at_the_end(browser: Chrome) -> None:
    gate = Gate()
    text = "A long sentence that wraps in a narrow window and not in a wide one, so its height changes. "
    steps: list[Step] = [*(Say(text * 3) for _ in range(30)), gate.step(), Deltas([text] * 20)]
    async with at_work(browser, steps, width=360, height=740) as (_, tab):
        await tab.until("document.querySelectorAll('li.message').length === 31")
        await tab.until(AT_END)
        for width, height in ((740, 360), (360, 740), (1280, 900), (360, 400)):
            await tab.look_like(width, height)
            await tab.until(f"innerWidth === {width} && {AT_END}")
        gate.open()
        await tab.see("ended: completed")
        await tab.until(AT_END)
        assert await tab.run("document.querySelector('#news').hidden") is True


async def test_what_is_opened_to_be_read_does_not_run_away(browser: Chrome) -> None:
    gate = Gate()
    steps: list[Step] = [
        *(Say(f"Message {number}.\n" * 3) for number in range(20)),
        Calls(Call("read", {"path": "a"}, needs="none", run=lambda _: "line\n" * 12)),
        gate.step(),
        *(Say("More.") for _ in range(12)),
    ]
    async with at_work(browser, steps) as (_, tab):
        await tab.until(f"document.querySelector('li.call') && {AT_END}")
        await tab.click("li.call summary")
        await tab.until("document.querySelector('li.call details').open")
        top = "document.querySelector('#scroller').scrollTop"
        before = await tab.run(top)
        gate.open()
        await tab.until("document.querySelector('#news').textContent.startsWith('13 new')")
        assert await tab.run(top) == before


async def test_all_is_done_with_keys_alone(browser: Chrome) -> None:
    log: list[Any] = []
    async with serve(scripted([ran(log, "rm", path="x"), Say("Done.")])) as served:
        tab = await browser.tab(f"{served.url}/ui/")
        await tab.see("No session yet")

        async def tab_to(script: str) -> None:
            for _ in range(40):
                await tab.press("Tab")
                if await tab.run(script):
                    break
            else:
                raise AssertionError(f"no Tab leads to {script}")
            outline = await tab.run("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"

        await tab_to("document.activeElement.textContent === 'New session'")
        await tab.press("Enter")
        await tab.until("document.body.dataset.live === 'yes'")
        await tab_to("document.activeElement.id === 'box'")
        await tab.type("Go.")
        await tab.press("Enter")
        await tab.until("!document.querySelector('.card .yes').disabled")
        await tab_to("document.activeElement.textContent === 'Approve'")
        await tab.press("Enter")
        await tab.see("Done.")
        assert log == [{"path": "x"}]
        await tab.run("document.querySelector('#scroller').focus()")
        await tab.press("k")
        await tab.press("k")
        await tab.press("k")
        await tab.press("Enter")
        await tab.until("document.querySelector('li.call details').open")
        assert tab.console == []
