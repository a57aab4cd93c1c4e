"""The page in a real browser: nothing runs but its own script, it fits, it can be used by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.browser import Browser, find_browser
from tests.host.report.records import Writer, coder_at_work, long_record

from agentsession.host.report import html, timeline
from agentsession.protocol import Code, Event, Message, Text, Thought


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(find_browser(), tmp_path)


def hostile_record() -> list[Event]:
    texts = [
        "<script>window.owned = 1</script>",
        "</script><script>window.owned = 2</script>",
        '"><img src="x:" onerror="window.owned = 3">',
        "a\x1b[2Jb \u2028 \u202eright to left\u202c \x00 " + "שלום עולם",
        "</style></title><svg onload='window.owned = 4'>",
        "x" * 500,
        "plain",
    ]
    w = Writer()
    w.begin(texts[1])
    for number in range(2_500):
        text = texts[number % len(texts)]
        part = (Text(text=text), Thought(text=text), Code(code=text))[number % 3]
        w.after(0.01).add(Message, message_id=f"m{number}", content=[part])
        w.ask_tool(f"r{number}", text[:80], {"text": text})
        w.decide(f"r{number}", "policy:x", reason=text)
        w.respond(f"r{number}", text[:80], text)
    w.end()
    assert len(w.events) >= 10_000
    return w.events


LEAVES = """
const wide = [...document.querySelectorAll("body *")].slice(0, 3000).filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width > 0 && box.right > window.innerWidth + 1 && !one.closest(".scroll, pre, .skip");
});
return {
  owned: window.owned ?? null,
  outside: wide.slice(0, 3).map((one) => one.tagName + "." + one.className),
  scrolls: document.documentElement.scrollWidth > window.innerWidth + 1,
  images: document.images.length,
  scripts: document.scripts.length,
  items: document.querySelectorAll(".items > li").length,
  js: document.documentElement.className,
};
"""


def test_a_hostile_record_of_ten_thousand_events_stays_text(browser: Browser) -> None:
    told = browser.look(html(timeline(hostile_record())), LEAVES)
    assert browser.console == []
    assert (told["owned"], told["images"], told["scripts"], told["js"]) == (None, 0, 1, "js")
    assert told["items"] >= 5_000
    assert told["scrolls"] is False


@pytest.mark.parametrize("width", [360, 640, 1280])
def test_it_fits_a_phone_and_a_page_at_twice_the_size(browser: Browser, width: int) -> None:
    told = browser.look(html(timeline(coder_at_work())), LEAVES, width=width)
    assert browser.console == []
    assert (told["outside"], told["scrolls"]) == ([], False)


def test_search_the_filter_and_the_keys_find_items(browser: Browser) -> None:
    script = """
    const press = (key) => document.dispatchEvent(new window.KeyboardEvent("keydown", { key, bubbles: true }));
    const visible = () => [...document.querySelectorAll(".items > li:not([hidden])")];
    const search = document.getElementById("search"), found = document.getElementById("found");
    const all = visible().length;
    press("p");
    const problems = [visible().length, found.textContent];
    press("p");
    press("/");
    const focused = document.activeElement.id;
    search.value = "don't TOUCH";
    search.dispatchEvent(new window.Event("input"));
    const hits = visible().map((one) => one.className);
    search.value = "";
    search.dispatchEvent(new window.Event("input"));
    search.blur();
    press("j"); press("j"); press("k");
    const here = visible().indexOf(document.querySelector(".here"));
    document.getElementById("open").click();
    const opened = document.querySelectorAll(".items > li > div > details[open]").length;
    const bar = document.querySelector("a.bar.wait");
    bar.click();
    await tick();
    const target = document.querySelector(window.location.hash);
    return { all, problems, focused, hits, here, opened, arrived: target.querySelector("details").open };
    """
    told = browser.look(html(timeline(coder_at_work())), script)
    assert browser.console == []
    assert told["problems"] == [3, f"3 of {told['all']}"]
    assert (told["focused"], told["hits"], told["here"]) == ("search", ["steer"], 0)
    assert told["opened"] >= 8
    assert told["arrived"] is True


def test_text_has_contrast_in_light_and_dark_and_nothing_moves_for_whoever_asks(browser: Browser) -> None:
    script = """
    const shade = (colour) => {
      const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((one) => one / 255)
        .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (one, other) => {
      const [high, low] = [shade(one), shade(other)].sort((a, b) => b - a);
      return (high + 0.05) / (low + 0.05);
    };
    const paper = (one) => {
      for (let up = one; up; up = up.parentElement) {
        const colour = window.getComputedStyle(up).backgroundColor;
        if (colour !== "rgba(0, 0, 0, 0)") return colour;
      }
      return "rgb(255, 255, 255)";
    };
    const poor = [];
    const told = "h1, h2, h3, p, b, time, .tag, .dim, .bar:not(.wait), .tick, .no, .args, label, th";
    for (const one of document.querySelectorAll(told))
      if (one.textContent.trim() && one.getClientRects().length) {
        const found = ratio(window.getComputedStyle(one).color, paper(one));
        if (found < 4.5) poor.push(one.className + " " + found.toFixed(2));
      }
    return poor;
    """
    page = html(timeline(coder_at_work()))
    assert browser.look(page, script) == []
    dark = page.replace("@media (prefers-color-scheme: dark)", "@media all")
    assert dark != page
    assert browser.look(dark, script) == []


def test_without_its_script_everything_is_there_but_the_search(browser: Browser) -> None:
    page = html(timeline(coder_at_work())).replace("script-src", "x-src")  # then the policy allows none
    told = browser.look(
        page,
        """return {
          js: document.documentElement.className,
          search: window.getComputedStyle(document.querySelector(".tools")).display,
          items: document.querySelectorAll(".items > li").length,
        };""",
    )
    assert told == {"js": "", "search": "none", "items": 16}


def test_a_long_record_opens_with_its_turns_and_a_bar_opens_a_turn(browser: Browser) -> None:
    script = """
    const turns = document.querySelectorAll("details.turn");
    const open = [...turns].filter((one) => one.open).length;
    document.querySelector("a.bar.turn").click();
    await tick();
    return { turns: turns.length, open, after: document.getElementById("t1").open };
    """
    told = browser.look(html(timeline(long_record(30, 90))), script)
    assert browser.console == []
    assert told == {"turns": 30, "open": 0, "after": True}
