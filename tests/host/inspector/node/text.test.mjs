import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./page.mjs";

const { changeOf, diffLines, escape, fold, json, mayOpen, money, parse, same } = await load("text.js");

test("what nobody would see or what turns text around is spelled out", () => {
  assert.equal(escape("a\x1b[2Jb\u202egpj.exe\u200b\x00\n\tc"), "a\\x1b[2Jb\\u202egpj.exe\\u200b\\x00\n\tc");
  assert.equal(escape("\u{e0041}"), "\\U000e0041");
  assert.equal(escape("\ud800x"), "\\ud800x");
});

test("letters of any script and joined pictures stay", () => {
  const text = "שלום 你好 é 👩\u200d👧 😀";
  assert.equal(escape(text), text);
});

test("a long text keeps its head and its tail and says how many lines are between", () => {
  const lines = Array.from({ length: 100 }, (_, at) => "line " + at);
  const told = fold(lines.join("\n"), 12);
  assert.equal(told.hidden, 88);
  assert.ok(told.head.startsWith("line 0\n") && told.tail.endsWith("line 99"));
  assert.equal(fold("short\ntext", 12), null);
});

test("one line of a megabyte is folded too", () => {
  const told = fold("x".repeat(1_000_000), 12);
  assert.equal(told.unit, "characters");
  assert.equal(told.head.length + told.tail.length + told.hidden, 1_000_000);
});

test("a change shows what goes and what comes", () => {
  assert.deepEqual(diffLines("a\nb\nc\n", "a\nB\nc\n"), [[" ", "a"], ["-", "b"], ["+", "B"], [" ", "c"]]);
  assert.deepEqual(changeOf({ path: "p", old_string: "x", new_string: "y", n: 1 }), { path: "p", lines: [["-", "x"], ["+", "y"]], rest: { path: "p", n: 1 } });
  assert.equal(changeOf({ old: 1, new: 2 }), null);
});

test("a change of many thousand lines is bounded", () => {
  const many = (sign) => Array.from({ length: 20_000 }, (_, at) => sign + at).join("\n");
  assert.equal(diffLines(many("a"), many("b")).length, 40_000);
});

test("only https and http of this machine may be opened", () => {
  for (const good of ["https://example.com/a?b=1", "http://127.0.0.1:8000/", "http://localhost/x", "http://[::1]:9/"]) assert.ok(mayOpen(good), good);
  for (const bad of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "http://example.com/", "https://user:pw@example.com/", "http://127.0.0.1.evil.com/",
    "file:///etc/passwd", "blob:https://x/1", " https://x.com", "https://x.com/\u202e", "", "//x.com"]) assert.ok(!mayOpen(bad), bad);
});

test("small sums of money keep their digits", () => {
  assert.equal(money(0.00042), "$0.00042");
  assert.equal(money(0.031), "$0.031");
  assert.equal(money(12), "$12.00");
});

test("a change of two hundred thousand lines to one is drawn", () => {
  const told = changeOf({ old_string: "a\n".repeat(200_000), new_string: "b" });
  assert.equal(told.lines.length, 200_001);
});

test("a number keeps its digits, or what is approved is not what runs", { skip: !JSON.rawJSON }, () => {
  const text = '{"id":12345678901234567890,"small":7,"part":0.1,"huge":1e400}';
  assert.equal(JSON.stringify(parse(text)), text);
  assert.equal(json(parse("[9007199254740993]")), "[\n  9007199254740993\n]");
  assert.equal(same(parse('{"a":9007199254740993}'), parse('{"a":9007199254740992}')), false);
});

test("the order of fields makes no other value, that of a list does", () => {
  assert.equal(same({ a: 1, b: { c: 2, d: 3 } }, { b: { d: 3, c: 2 }, a: 1 }), true);
  assert.equal(same([1, 2], [2, 1]), false);
  assert.equal(same({ a: 1 }, { a: true }), false);
});
