import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./page.mjs";

const { SseParser } = await load("api.js");
const WIRE = 'retry: 1000\n\n: hello\n\nid: 7\ndata: {"a":1}\n\nevent: problem\ndata: x\ndata: y\n\nid: 8\ndata: {"b":"é"}\n\nid: 9\ndata: cut';

test("events come out whole wherever the text is cut", () => {
  const whole = new SseParser().feed(WIRE);
  assert.deepEqual(whole, [
    { event: "message", data: '{"a":1}', id: "7" }, { event: "problem", data: "x\ny", id: "" }, { event: "message", data: '{"b":"é"}', id: "8" },
  ]);
  for (let at = 0; at <= WIRE.length; at += 1) {
    const parser = new SseParser();
    assert.deepEqual([...parser.feed(WIRE.slice(0, at)), ...parser.feed(WIRE.slice(at))], whole);
  }
  const parser = new SseParser();
  assert.deepEqual([...WIRE].flatMap((sign) => parser.feed(sign)), whole);
});
