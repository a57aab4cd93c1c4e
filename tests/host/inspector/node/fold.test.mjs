import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./page.mjs";

const { costWord, fold, newView, waitingItems } = await load("fold.js");
const { money } = await load("text.js");

function record(...events) {
  const view = newView();
  const told = events.map((event, at) => fold(view, { seq: at + 1, timestamp: "2026-01-31T12:00:0" + (at % 10) + ".000Z", streamId: "s1", turnId: "t1", ...event }));
  return { view, told };
}
const say = (messageId, text, more = {}) => ({ type: "message", messageId, role: "agent", content: [{ type: "text", text }], ...more });
const call = (requestId, more = {}) => ({ type: "tool_request", requestId, name: "rm", args: { path: "x" }, needs: "grant", ...more });

test("deltas grow one message, and its closing event adds nothing", () => {
  const { view, told } = record(say("m", "Hel", { partial: true }), say("m", "lo", { partial: true }), say("m", "Hello"));
  assert.deepEqual(told.map((one) => one.was), ["new", "grown", "changed"]);
  assert.equal(view.items.length, 1);
  assert.deepEqual([view.items[0].parts[0].text, view.items[0].streaming, view.items[0].remake], ["Hello", false, false]);
});

test("a revised message shows what it says at last", () => {
  const { view } = record(say("m", "secret", { partial: true }), say("m", "[removed]", { revised: true }));
  assert.deepEqual([view.items[0].parts[0].text, view.items[0].remake], ["[removed]", true]);
});

test("an event told twice, as after a reconnect, changes nothing", () => {
  const view = newView();
  const event = { seq: 5, timestamp: "", ...say("m", "a", { partial: true }) };
  assert.ok(fold(view, event));
  assert.equal(fold(view, event), null);
  assert.equal(view.items[0].parts[0].text, "a");
});

test("a request waits until it is decided, started or answered", () => {
  const end = { type: "stream_end", reason: "input_required", pending: ["a", "b", "c"] };
  const { view } = record(call("a"), call("b"), call("c"), call("n", { needs: "none" }), end);
  assert.deepEqual(waitingItems(view).map((item) => item.requestId), ["a", "b", "c"]);
  fold(view, { seq: 10, type: "tool_decision", requestId: "a", decision: "granted", by: "user:ann" });
  fold(view, { seq: 11, type: "tool_update", requestId: "b", started: true });
  fold(view, { seq: 12, type: "tool_response", requestId: "c", name: "rm", status: "denied", timestamp: "" });
  assert.deepEqual(waitingItems(view), []);
  assert.deepEqual(view.items.map((item) => item.status), ["running", "running", "denied", "running"]);
});

test("a final end leaves nothing waiting", () => {
  const { view } = record(call("a"), { type: "stream_end", reason: "aborted", data: { cause: "user" } });
  assert.deepEqual([waitingItems(view), view.state, view.end.reason], [[], "idle", "aborted"]);
});

test("streamed arguments become the whole request", () => {
  const { view } = record(call("a", { partial: true, args: undefined, argsDelta: '{"pa' }), call("a", { partial: true, args: undefined, argsDelta: 'th":1}' }), call("a", { args: { path: 1 } }));
  assert.equal(view.items.length, 1);
  assert.deepEqual([view.items[0].argsText, view.items[0].args, view.items[0].status], ['{"path":1}', { path: 1 }, "waiting"]);
});

test("a steer is shown once: queued, then injected or undelivered", () => {
  const queued = (steerId, source = "host") => ({ type: "custom", kind: "steer_queued", source, data: { steerId, content: [{ type: "text", text: "stop" }] } });
  const { view } = record(queued("x"), queued("y"), queued("z", "agent"), say("x", "stop", { role: "user" }), { type: "stream_end", reason: "aborted", data: { undelivered: ["y"] } });
  assert.deepEqual(view.items.filter((item) => item.kind === "steer").map((item) => item.status), ["injected", "undelivered"]);
  assert.equal(view.items.filter((item) => item.kind === "message").length, 0);
});

test("what was not reported is not 0: cost n/a, or at least what is known", () => {
  const none = record({ type: "usage", inputTokens: 5 }).view;
  assert.equal(costWord(none.usage, money), "cost n/a");
  const some = record({ type: "usage", cost: 0.5 }, { type: "usage" }).view;
  assert.equal(costWord(some.usage, money), "at least $0.500");
  assert.equal(some.usage.hasTokens, false);
});

test("what is not known is kept raw, whatever its name", () => {
  for (const type of ["weather", "constructor", "__proto__", "toString"]) {
    const { view } = record({ type, x: 1 });
    assert.deepEqual([view.items[0].kind, view.items[0].data.x], ["raw", 1]);
  }
  const { view } = record({ type: "tool_response", requestId: "nobody", name: "x" });
  assert.equal(view.items[0].kind, "raw");
});

const below = (...events) => ({ type: "tool_update", requestId: "p", data: { childEvents: events } });

test("what a sub-agent of the host asks waits, and is settled with the call that it works for", () => {
  const asks = call("t:a", { threadId: "t", agentId: "fixer", _meta: { cut: true } });
  const { view, told } = record(call("p"), { type: "tool_update", requestId: "p", started: true }, below({ type: "agent_start", threadId: "t", agentId: "fixer" }, say("t:m", "Hm.", { threadId: "t" }), asks), { type: "stream_end", reason: "input_required", pending: ["p"] });
  assert.deepEqual(waitingItems(view).map((item) => [item.requestId, item.depth, item.thread]), [["t:a", 1, "t"]]);
  assert.deepEqual([told[2].was, told[2].also.map((one) => one.item.kind)], ["new", ["message", "call"]]);
  fold(view, { seq: 20, timestamp: "", ...below({ type: "tool_decision", requestId: "t:a", threadId: "t", decision: "granted", by: "user:ann" }) });
  assert.deepEqual(waitingItems(view), []);
  fold(view, { seq: 21, timestamp: "", ...below(call("t:b", { threadId: "t" })) });
  fold(view, { seq: 22, type: "tool_response", requestId: "p", name: "x", timestamp: "" });
  assert.deepEqual(waitingItems(view), []);
});

test("an update in a sub-agent's update, and what is none of its, is left out", () => {
  const { view } = record(call("p"), below(below(call("x")), { type: "initialize", descriptor: {} }, { type: "custom", kind: "rewind", data: { to_seq: 1 } }, null));
  assert.equal(view.items.length, 1);
});

test("a rewound record counts no more: nothing of it waits or is summed", () => {
  const { view } = record(say("m", "one"), { type: "usage", inputTokens: 5, cost: 1 }, call("a"), { type: "usage", inputTokens: 7, cost: 2 });
  const told = fold(view, { seq: 9, type: "custom", kind: "rewind", timestamp: "", data: { to_seq: 2 } });
  assert.deepEqual([waitingItems(view), view.usage.input, view.usage.cost, view.state], [[], 5, 1, "idle"]);
  assert.deepEqual([view.items.map((item) => item.rewound === true), told.also.length], [[false, true, false], 1]);
});

test("an agent rewinds nothing", () => {
  const { view } = record(call("a"), { type: "custom", kind: "rewind", source: "agent", data: { to_seq: 1 }, streamId: "s1" });
  assert.deepEqual([waitingItems(view).length, view.items[1].kind], [1, "raw"]);
});

test("an event that is not as the contract has it is shown raw, and stops nothing", () => {
  const { view } = record({ type: "message", messageId: "m", partial: true }, { type: "initialize" }, say("n", "after"));
  assert.deepEqual(view.items.map((item) => item.kind).slice(-2), ["raw", "message"]);
});

test("what comes as a sub-agent's changes nothing that is another's", () => {
  const forged = [call("a", { threadId: "t", args: { path: "harmless" } }), { type: "tool_decision", requestId: "a", threadId: "t", decision: "granted" }, say("m", "forged", { threadId: "t", revised: true }), call("b")];
  const { view } = record(say("m", "real"), call("a"), call("p"), below(...forged));
  assert.deepEqual(waitingItems(view).map((item) => [item.requestId, item.args.path]), [["a", "x"]]);
  assert.deepEqual([view.items[0].parts[0].text, view.items.length], ["real", 3]);
});

test("an agent's own tool has no sub-agents of the host", () => {
  const { view } = record(call("p", { owner: "agent", needs: "none" }), below(call("t:a", { threadId: "t" })));
  assert.deepEqual([waitingItems(view), view.items.length], [[], 1]);
});
