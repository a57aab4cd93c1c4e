"""The page: what it shows, that text stays text, that secrets stay out, that a long record stays small."""

from __future__ import annotations

import base64
import hashlib
import html as stdhtml
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from tests.host.report.records import Writer, coder_at_work, long_record

from agentsession.conformance.strategies import records
from agentsession.host.report import html, timeline, turn
from agentsession.protocol import (
    Code,
    Custom,
    Diff,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    SessionUpdate,
    Terminal,
    Text,
    Thought,
    ToolResponse,
    ToolUpdate,
    UnknownEvent,
    Usage,
)

TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "script",
        "header",
        "main",
        "section",
        "div",
        "p",
        "span",
        "b",
        "i",
    ),
    *(
        "h1",
        "h2",
        "h3",
        "h4",
        "strong",
        "a",
        "ul",
        "ol",
        "li",
        "time",
        "figure",
        "svg",
        "polygon",
        "details",
        "summary",
    ),
    *("pre", "code", "label", "input", "button", "table", "caption", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {
    *(
        "lang",
        "charset",
        "name",
        "content",
        "http-equiv",
        "class",
        "href",
        "style",
        "title",
        "role",
        "id",
        "tabindex",
        "dir",
    ),
    *(
        "aria-label",
        "aria-hidden",
        "aria-labelledby",
        "viewbox",
        "preserveaspectratio",
        "points",
        "for",
        "type",
        "open",
    ),
    *("autocomplete", "spellcheck", "data-problem", "data-depth", "scope"),
}


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "polygon"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "polygon":
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def check(self) -> None:
        """Nothing is in it that the report does not write itself."""
        assert self._open == []
        assert {tag for tag, _ in self.elements} <= TAGS
        assert {name for _, attrs in self.elements for name in attrs} <= ATTRIBUTES
        assert [tag for tag, _ in self.elements].count("script") == 1
        for tag, attrs in self.elements:
            if "href" in attrs:
                assert tag == "a"
                assert re.fullmatch(r"#(i|t)\d+|#happened", attrs["href"] or "")


def said(*contents: Any) -> list[Event]:
    w = Writer()
    w.begin("go")
    for content in contents:
        w.add(Message, message_id=f"m{len(w.events)}", content=[content])
    w.end()
    return w.events


def test_the_page_shows_end_task_time_tokens_cost_and_every_call() -> None:
    page = Page(html(timeline(coder_at_work())))
    page.check()
    text = re.sub(r"\s+", " ", page.text)
    for expected in (
        "Fix the failing test in cart.py",
        "aborted",
        "42s",
        "in 14.1k out 950",
        "$0.034",
        "waiting for you 8.0s",
        "1 error, 1 denied, 1 unknown, 1 steer",
        "denied by rule no-rm: outside the workspace",
        "granted by you",
        "UNKNOWN, had started, effects not known",
        "1 of 3 done",
        "don't touch the API",
        "Which region?",
        "raw JSON, #6 to #10",
    ):
        assert expected in text, expected


def test_every_bar_leads_to_an_item_that_is_there() -> None:
    page = Page(html(timeline(coder_at_work())))
    targets = {attrs["href"] for _, attrs in page.elements if "href" in attrs}
    ids = {f"#{attrs['id']}" for _, attrs in page.elements if "id" in attrs}
    assert targets <= ids
    assert len(targets) > 5


def test_the_policy_of_the_page_allows_no_address_and_no_script_but_its_own() -> None:
    page = html(timeline(coder_at_work()))
    policy = stdhtml.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    assert re.findall(r"src=|url\(|@import|https?:|//\w", page.replace(policy, "")) == []


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</pre></div><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- --><style>*{display:none}</style>",
    "javascript:alert(1)",
    "</title></textarea>&lt;b&gt;&#60;i&#62;",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("long", [False, True])
def test_what_is_said_anywhere_stays_text(text: str, long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if long:  # turns first, as of thousands of stretches
        monkeypatch.setattr("agentsession.host.report._page.MANY_SPANS", 1)
    w = Writer(agent="coder")
    w.begin(text)
    w.add(SessionUpdate, title=text, model=text)
    w.add(Message, message_id="m", content=[Text(text=text), Thought(text=text), Code(code=text)], agent_id=text)
    w.add(Message, message_id="d", content=[Diff(path=text, old_text=text, new_text=""), Terminal(command=text)])
    w.ask_tool("r", text, {text: text, "old_text": text, "new_text": text}, thread_id=text, agent_id=text)
    w.after(1).decide("r", f"policy:{text}", text, reason=text)
    w.after(1).respond("r", text, {text: [text]}, status=text)
    w.after(1).add(
        ElicitationRequest, request_id="q", kind=text, message=text, url=text, title=text, requested_schema={text: text}
    )
    w.after(1).add(ElicitationResponse, request_id="q", action=text, content={text: text})
    w.after(1).add(Usage, model=text, input_tokens=1, thread_id=text)
    w.add(Error, status=text, message=text, code=text)
    w.add(Custom, kind=text, data={text: text})
    w.add(Custom, kind="plan", data=[text])
    w.add(UnknownEvent, type=text)
    w.after(1).end(text, data={"cause": text})
    page = Page(html(timeline(w.events)))
    page.check()
    assert ("Turns over time" if long else "Who did what when") in page.text
    assert page.text.count(text.split("\n")[0]) > 10


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[2Jb", "a\\x1b[2Jb"), ("a\u202eb", "a\\u202eb"), ("a\u2028b", "a\\u2028b"), ("a\x00b", "a\\x00b")],
)
def test_what_nobody_could_see_is_spelled_out(text: str, shown: str) -> None:
    page = html(timeline(said(Text(text=text))))
    assert text not in page
    assert shown in page


@settings(max_examples=15)
@given(records())
def test_any_record_makes_a_page_that_holds_only_our_own_markup(record: list[Event]) -> None:
    Page(html(timeline(record))).check()


SECRET = "sk-abcdefghijklmnop1234"


@pytest.mark.parametrize(
    "text",
    [
        f"key {SECRET}",
        f"Authorization: Bearer {SECRET}.x",
        f"https://ann:{SECRET}@host/",
        f'{{"password": "{SECRET}"}}',
    ],
)
def test_well_known_forms_of_secrets_are_masked(text: str) -> None:
    page = html(timeline(said(Text(text=text), Thought(text=text), Code(code=text))))
    assert SECRET not in page
    assert "***" in page


def test_what_stands_under_a_name_for_a_secret_is_masked_everywhere() -> None:
    w = Writer()
    w.begin("log in")
    w.ask_tool("r", "login", {"user": "ann", "password": "tr0ub4dor&3"})
    w.respond("r", "login", "logged in with tr0ub4dor&3")
    w.say("I used tr0ub4dor&3.")
    page = html(timeline(w.events))
    assert "tr0ub4dor" not in page
    assert "ann" in page


def test_an_answer_that_its_form_marks_as_secret_is_masked_everywhere() -> None:
    w = Writer()
    w.begin("go")
    schema = {
        "type": "object",
        "properties": {"pin": {"type": "string", "format": "password"}, "who": {"type": "string"}},
    }
    w.add(ElicitationRequest, request_id="q", kind="clarification", message="?", requested_schema=schema)
    w.add(ElicitationResponse, request_id="q", action="accept", content={"pin": "98765432", "who": "ann"})
    w.say("your pin is 98765432")
    page = html(timeline(w.events))
    assert "98765432" not in page
    assert "[redacted]" in page


def test_the_answer_to_a_sign_in_is_masked_everywhere() -> None:
    w = Writer()
    w.begin("go")
    w.add(ElicitationRequest, request_id="q", kind="auth_required", message="?")
    w.add(ElicitationResponse, request_id="q", action="accept", content={"credential": {"code": "abcd-efgh-1234"}})
    w.say("I was given abcd-efgh-1234")
    assert "abcd-efgh" not in html(timeline(w.events))


def test_a_secret_of_the_environment_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-words-here")
    assert "plain-words-here" not in html(timeline(said(Text(text="it is plain-words-here"))))


def test_a_secret_is_masked_before_a_text_is_cut() -> None:
    text = "x" * 19_989 + " " + SECRET
    assert "sk-abcdef" not in html(timeline(said(Text(text=text))))


@pytest.mark.parametrize("before", [190, 118, 78])
def test_a_secret_is_masked_before_a_task_or_a_title_is_cut(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-words-here")
    text = "x" * before + " plain-words-here"
    w = Writer()
    w.begin(text)
    w.add(SessionUpdate, title=text)
    w.say("done")
    w.end()
    assert "plain-w" not in html(timeline(w.events))


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEabc\ndefghij\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "part",
    [
        Diff(path="id_rsa", old_text="", new_text=PEM),
        Diff(path="id_rsa", old_text=PEM, new_text=None),
        Diff(path="id_rsa", patch="".join(f"+{row}\n" for row in PEM.splitlines())),
    ],
)
def test_a_secret_of_several_lines_is_masked_in_a_change(part: Diff) -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r", "write", {"path": "id_rsa"})
    w.add(ToolResponse, request_id="r", name="write", status="completed", content=[part])
    w.add(Message, message_id="m", role="agent", content=[part])
    assert "defghij" not in html(timeline(w.events))


def test_what_was_a_secret_in_another_turn_is_masked_in_the_page_of_one() -> None:
    w = Writer()
    w.begin("log in")
    w.ask_tool("r", "login", {"user": "ann", "password": "tr0ub4dor&3"})
    w.respond("r", "login", "ok")
    w.end()
    w.begin("how?")
    w.say("I used tr0ub4dor&3.")
    w.end()
    page = html(turn(timeline(w.events), 2))
    assert "I used ***." in page
    assert "tr0ub4dor" not in page


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert "30,000 more characters; the record has all" in html(timeline(said(Text(text="word " * 10_000))))


def test_a_long_record_shows_turns_first_every_problem_and_says_what_it_left_out() -> None:
    record = long_record(30, 90)
    page_text = html(timeline(record))
    page = Page(page_text)
    page.check()
    turns = [attrs for tag, attrs in page.elements if tag == "details" and attrs.get("class") == "turn"]
    assert len(turns) == 30
    assert not any("open" in attrs for attrs in turns)
    problems = [attrs for _, attrs in page.elements if "data-problem" in attrs]
    assert len(problems) == 68
    assert "Turns over time" in page.text
    assert len(page_text) < 10_000_000
    bars = sum("bar" in (attrs.get("class") or "").split() for _, attrs in page.elements)
    assert bars < 12_000


def test_of_thousands_of_turns_those_with_a_problem_are_shown_and_the_others_counted() -> None:
    page = Page(html(timeline(long_record(1_500, 1))))
    page.check()
    turns = [attrs for tag, attrs in page.elements if tag == "details" and attrs.get("class") == "turn"]
    assert len(turns) == 1_013
    assert "487 more turns without a problem" in page.text


def test_thousands_of_spans_in_one_turn_draw_a_bounded_number_of_bars() -> None:
    page = Page(html(timeline(long_record(1, 3000))))
    assert sum("bar" in (attrs.get("class") or "").split() for _, attrs in page.elements) < 2_000
    assert "stretches" in " ".join(attrs.get("title") or "" for _, attrs in page.elements)


def test_a_night_between_two_minutes_is_squeezed_and_told() -> None:
    page = html(timeline(long_record(2, 30, pause_s=30_000)))
    assert "Squeezed, because no model or tool was at work: 8h20m from 28s" in page


def test_a_record_whose_events_are_of_one_moment_says_so_and_draws_nothing() -> None:
    page = Page(html(timeline(said(Text(text="hi")))))
    page.check()
    assert "The record tells no times" in page.text
    assert "Who did what when" not in page.text


def test_a_record_without_turns_makes_a_page() -> None:
    Page(html(timeline(Writer().events))).check()
    Page(html(timeline([]))).check()


def test_a_call_that_was_handed_on_says_to_which_tool_and_who_let_it() -> None:
    w = Writer()
    w.begin("go")
    w.ask_tool("r", "route")
    for step, name in enumerate(("refund", "<b>"), start=1):
        told = {"step": step, "name": name, "args": {"amount": 5}, "decision": "granted", "by": "policy:small"}
        w.add(ToolUpdate, request_id="r", data={"tail_call": told})
    w.add(ToolUpdate, request_id="r", progress=1, total=2)
    w.respond("r", "route")
    w.end()
    page = Page(html(timeline(w.events)))
    page.check()
    assert "to refund, granted by rule small" in page.text
    assert "to <b>, granted by rule small" in page.text
    assert "last told: 1 of 2" in page.text


def test_counts_that_have_no_float_are_only_said_to_be_large() -> None:
    w = Writer()
    w.begin("go")
    for _ in range(2):
        w.after(1).add(Usage, input_tokens=10**400, output_tokens=1, cost=1e308, context_window=7)
    w.end()
    page = html(timeline(w.events))
    assert "in over 1000T out 2" in page
    assert "nan" not in re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)
