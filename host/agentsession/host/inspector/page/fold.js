// A record becomes what is shown: fold one event after the other into a view. Pure, so it is tested without a browser.
//
// `fold(view, event)` changes the view and says what changed: {item, was: "new" | "changed" | "grown"}, with `also`, a list of
// more such, or null.

export function newView() {
  return {
    title: null, agent: null, model: null, mode: null, descriptor: null, tools: new Map(),
    lastSeq: 0, state: "new", items: [], byKey: new Map(), waiting: new Map(), threads: new Map(),
    usage: noUsage(), calls: [],
    turn: null, began: null, waitedSince: null, end: null, numbers: 0,
  };
}

function noUsage() {
  return { calls: 0, input: 0, output: 0, hasTokens: false, cost: 0, priced: 0, contextShare: null };
}

export function fold(view, event) {
  if (typeof event !== "object" || event === null || typeof event.seq !== "number") return null;
  if (event.seq <= view.lastSeq) return null; // told twice, after a reconnect
  view.lastSeq = event.seq;
  if (event.streamId && event.type !== "stream_end") {
    view.state = "running";
    view.end = null;
    if (event.turnId && view.turn !== event.turnId) {
      view.turn = event.turnId;
      view.began = event.timestamp;
    }
  }
  return apply(view, event);
}

// What is not as the contract has it is shown as it came, and what comes after it is shown too.
function apply(view, event) {
  try {
    return (Object.hasOwn(FOLDS, event.type) ? FOLDS[event.type] : raw)(view, event);
  } catch {
    return raw(view, event);
  }
}

// What waits for a person, the oldest first.
export function waitingItems(view) {
  return [...view.waiting.values()];
}

export function costWord(usage, money) {
  if (!usage.calls || !usage.priced) return "cost n/a";
  return (usage.priced < usage.calls ? "at least " : "") + money(usage.cost);
}

function add(view, event, key, kind, fields) {
  const item = {
    key, kind, seq: event.seq, at: event.timestamp, thread: event.threadId || "", agent: event.agentId || null,
    depth: event.threadId ? event.threadId.split(".").length : 0, events: [event], ...fields,
  };
  view.items.push(item);
  view.byKey.set(key, item);
  return { item, was: "new" };
}

function keep(item, event) {
  if (!event.partial && !(event.type === "tool_update" && !event.started)) item.events.push(event);
}

function tools(view, list) {
  for (const tool of list || []) if (tool && typeof tool.name === "string") view.tools.set(tool.name, tool);
}

function initialize(view, event) {
  view.descriptor = event.descriptor;
  view.agent = event.descriptor.displayName || event.descriptor.name;
  tools(view, event.descriptor.ownTools);
  for (const sub of event.descriptor.subAgents || []) tools(view, sub.ownTools);
  view.state = "idle";
  return null;
}

function session_update(view, event) {
  if (event.title !== undefined) view.title = event.title;
  if (event.model !== undefined) view.model = event.model;
  if (event.permissionMode !== undefined) view.mode = event.permissionMode;
  tools(view, event.tools);
  const told = [];
  for (const [name, word] of [["title", "title"], ["model", "model"], ["permissionMode", "mode"]])
    if (event[name] !== undefined) told.push(word + " " + event[name]);
  for (const [name, word] of [["tools", "tools"], ["stateDelta", "state"], ["statePatch", "state"], ["stateSnapshot", "state"], ["config", "config"]])
    if (event[name] !== undefined) told.push(word + " changed");
  return add(view, event, "n:" + event.seq, "note", { text: told.join(", ") || "session updated" });
}

function agent_start(view, event) {
  view.threads.set(event.threadId || "", event.agentId);
  if (!event.threadId || event.resumed) return null;
  return add(view, event, "n:" + event.seq, "note", { text: "@" + event.agentId + " started" });
}

function agent_end(view, event) {
  if (event.reason === "handoff") return add(view, event, "n:" + event.seq, "note", { text: "@" + event.agentId + " handed over" });
  if (!event.threadId || event.reason === "input_required") return null;
  return add(view, event, "n:" + event.seq, "note", { text: "@" + event.agentId + " ended: " + event.reason });
}

function message(view, event) {
  const key = "m:" + event.messageId;
  let item = view.byKey.get(key);
  if (event.partial) {
    const isNew = item === undefined;
    if (isNew) {
      add(view, event, key, "message", { role: event.role, source: event.source, parts: [], streaming: true });
      item = view.byKey.get(key);
      item.events = [];
    }
    let grown = null;
    for (const part of event.content) {
      const last = item.parts[item.parts.length - 1];
      if (last && last.type === part.type && typeof part.text === "string" && (part.type === "text" || part.type === "thought")) {
        last.text += part.text;
        last.pieces.push(part.text);
        grown = grown || { item, was: "grown" };
      } else {
        item.parts.push(typeof part.text === "string" ? { ...part, pieces: [part.text] } : part);
        if (!isNew) grown = { item, was: "grown" };
      }
    }
    return isNew ? { item, was: "new" } : grown;
  }
  const steer = view.byKey.get("s:" + event.messageId);
  if (steer) {
    steer.status = "injected";
    keep(steer, event);
    view.byKey.delete("s:" + event.messageId);
    return { item: steer, was: "changed" };
  }
  const closing = { streaming: false, interrupted: event.interrupted === true, revised: event.revised === true };
  if (item) {
    const agrees = !closing.revised && sameText(item.parts, event.content);
    Object.assign(item, closing, { parts: agrees ? item.parts : event.content, remake: !agrees });
    keep(item, event);
    return { item, was: "changed" };
  }
  return add(view, event, key, "message", { role: event.role, source: event.source, parts: event.content, ...closing });
}

function sameText(shown, whole) {
  return shown.length === whole.length && shown.every((part, at) => part.type === whole[at].type && part.text === whole[at].text && part.text !== undefined);
}

function tool_request(view, event) {
  const key = "r:" + event.requestId;
  let item = view.byKey.get(key);
  if (!item) {
    view.numbers += 1;
    add(view, event, key, "call", {
      number: view.numbers, requestId: event.requestId, name: event.name, args: event.args, argsText: "", owner: event.owner,
      needs: event.needs, status: "streaming", decision: null, response: null, progress: null, content: [], answered: null,
    });
    item = view.byKey.get(key);
    if (event.partial) {
      item.events = [];
      item.argsText = event.argsDelta || "";
      return { item, was: "new" };
    }
  } else if (event.partial) {
    item.argsText += event.argsDelta || "";
    return { item, was: "changed" };
  } else keep(item, event);
  const was = item.status === "streaming" && item.events.length > 1 ? "changed" : "new";
  Object.assign(item, { name: event.name, args: event.args || {}, owner: event.owner, needs: event.needs, whole: true, asked: event.timestamp, isCut: Boolean(event._meta && event._meta.cut === true) });
  item.status = event.needs === "none" ? "running" : "waiting";
  if (item.status === "waiting") view.waiting.set(event.requestId, item);
  return { item, was: item.shown ? "changed" : was };
}

function tool_decision(view, event) {
  const item = view.byKey.get("r:" + event.requestId);
  if (!item) return raw(view, event);
  item.decision = event;
  keep(item, event);
  if (event.decision === "granted") item.status = "running";
  view.waiting.delete(event.requestId);
  return { item, was: "changed" };
}

function tool_update(view, event) {
  const item = view.byKey.get("r:" + event.requestId);
  if (!item) return raw(view, event);
  if (event.data && Array.isArray(event.data.childEvents) && item.owner !== "agent") return children(view, event);
  keep(item, event);
  if (event.started) {
    item.status = "running";
    item.startedAt = event.timestamp;
    view.waiting.delete(event.requestId);
  }
  if (typeof event.progress === "number") item.progress = { done: event.progress, total: event.total };
  if (event.content) item.content = event.content;
  if (event.display && typeof event.display === "object" && event.display.childSessionId) item.child = event.display.childSessionId;
  if (event.data && typeof event.data === "object" && event.data.childSessionId) item.child = event.data.childSessionId;
  return { item, was: "changed" };
}

// What a sub-agent of the host did, and asks: its events in the update of the request that it works for, with ids and
// threads of this session.
const INSIDE = ["agent_start", "agent_end", "message", "tool_request", "tool_decision", "tool_update", "tool_response", "elicitation_request", "elicitation_response", "usage", "error", "stream_end"];

function children(view, event) {
  const also = [], call = view.byKey.get("r:" + event.requestId);
  if (call.status === "waiting") {
    call.status = "running"; // it was allowed, or no sub-agent would be at work
    view.waiting.delete(event.requestId);
    also.push({ item: call, was: "changed" });
  }
  for (const child of event.data.childEvents) {
    if (typeof child !== "object" || child === null || !INSIDE.includes(child.type)) continue;
    if (child.type === "tool_update" && child.data && child.data.childEvents) continue;
    // It tells of its own thread, and of nothing that is not its own: else what is shown for approval could be changed here.
    const key = child.requestId !== undefined ? "r:" + child.requestId : child.messageId !== undefined ? "m:" + child.messageId : null;
    const known = key === null ? undefined : view.byKey.get(key);
    if (typeof child.threadId !== "string" || !child.threadId || (known && known.below !== event.requestId)) continue;
    if (view.byKey.has("s:" + child.messageId)) continue;
    const inside = { timestamp: event.timestamp, ...child, seq: event.seq };
    const told = child.type === "stream_end" ? childEnd(view, inside) : apply(view, inside);
    if (!told) continue;
    told.item.below = event.requestId;
    also.push(told);
  }
  const first = also.shift();
  return first ? { ...first, also } : null;
}

function childEnd(view, event) {
  if (event.reason === "input_required") return null;
  for (const [id, item] of view.waiting) if (item.below !== undefined && item.thread === (event.threadId || "")) view.waiting.delete(id);
  return add(view, event, "z:" + event.seq + ":" + event.threadId, "note", { text: "@" + event.agentId + " ended: " + event.reason });
}

function tool_response(view, event) {
  const item = view.byKey.get("r:" + event.requestId);
  if (!item) return raw(view, event);
  item.response = event;
  item.status = event.status || "completed";
  item.tookS = (Date.parse(event.timestamp) - Date.parse(item.startedAt || (item.decision && item.decision.timestamp) || item.asked || item.at)) / 1000;
  keep(item, event);
  view.waiting.delete(event.requestId);
  for (const [id, one] of view.waiting) if (one.below === event.requestId) view.waiting.delete(id);
  return { item, was: "changed" };
}

function elicitation_request(view, event) {
  const told = add(view, event, "r:" + event.requestId, "question", {
    requestId: event.requestId, ask: event, status: "waiting", response: null,
    tool: event.toolRequestId ? view.byKey.get("r:" + event.toolRequestId) || null : null,
  });
  view.waiting.set(event.requestId, told.item);
  return told;
}

function elicitation_response(view, event) {
  const item = view.byKey.get("r:" + event.requestId);
  if (!item) return raw(view, event);
  item.response = event;
  item.status = event.action;
  keep(item, event);
  view.waiting.delete(event.requestId);
  return { item, was: "changed" };
}

function usage(view, event) {
  view.calls.push(event);
  count(view.usage, event);
  if (event.model && !event.threadId) view.usedModel = event.model;
  return null;
}

function count(sum, event) {
  sum.calls += 1;
  for (const [name, into] of [["inputTokens", "input"], ["outputTokens", "output"], ["reasoningTokens", "output"]])
    if (typeof event[name] === "number") {
      sum[into] += event[name];
      sum.hasTokens = true;
    }
  if (typeof event.cost === "number") {
    sum.cost += event.cost;
    sum.priced += 1;
  }
  if (event.contextWindow > 0 && typeof event.inputTokens === "number" && !event.threadId) sum.contextShare = event.inputTokens / event.contextWindow;
}

function error(view, event) {
  return add(view, event, "x:" + event.seq, "error", { status: event.status, text: event.message, code: event.code, fatal: event.fatal === true });
}

function stream_end(view, event) {
  const data = event.data || {}, also = [];
  for (const id of Array.isArray(data.undelivered) ? data.undelivered : []) {
    const steer = view.byKey.get("s:" + id);
    if (!steer) continue;
    steer.status = "undelivered";
    also.push({ item: steer, was: "changed" });
  }
  view.state = event.reason === "input_required" ? "input_required" : "idle";
  view.end = { reason: event.reason, data, at: event.timestamp };
  if (event.reason === "input_required") {
    const told = new Set(event.pending || []);
    for (const [id, item] of view.waiting) if (!told.has(id) && !told.has(item.below)) view.waiting.delete(id);
    return null;
  }
  view.waiting.clear();
  const took = view.began ? (Date.parse(event.timestamp) - Date.parse(view.began)) / 1000 : null;
  view.turn = null;
  return { ...add(view, event, "z:" + event.seq, "end", { reason: event.reason, data, tookS: took, undelivered: data.undelivered || [] }), also };
}

const LISTS = ["entries", "steps", "items", "todos", "tasks", "plan"];

function custom(view, event) {
  const data = event.data;
  if (event.kind === "steer_queued" && event.source === "host" && data && typeof data.steerId === "string")
    return add(view, event, "s:" + data.steerId, "steer", { steerId: data.steerId, parts: Array.isArray(data.content) ? data.content : [], status: "queued" });
  if (event.kind === "plan") {
    const steps = Array.isArray(data) ? data : data && LISTS.map((name) => data[name]).find(Array.isArray);
    const read = (steps || []).map(step);
    if (read.length && read.every((one) => one !== null)) return add(view, event, "p:" + event.seq, "plan", { steps: read });
  }
  const to = event.kind === "rewind" && event.source !== "agent" && !event.streamId && data ? data.to_seq : null;
  if (Number.isInteger(to) && to > 0 && to < event.seq) return rewind(view, event, to);
  return raw(view, event);
}

// The record was rewound: what came after counts no more. It stays to be seen, marked.
function rewind(view, event, to) {
  const also = [];
  for (const item of view.items)
    if (item.seq > to && !item.rewound) {
      item.rewound = true;
      view.byKey.delete(item.key);
      also.push({ item, was: "changed" });
    }
  for (const [id, item] of view.waiting) if (item.rewound) view.waiting.delete(id);
  view.calls = view.calls.filter((one) => one.seq <= to);
  view.usage = noUsage();
  for (const one of view.calls) count(view.usage, one);
  Object.assign(view, { state: "idle", end: null, turn: null });
  return { ...add(view, event, "n:" + event.seq, "note", { text: "rewound to #" + to }), also };
}

function step(one) {
  if (typeof one === "string") return { text: one, state: "open" };
  if (typeof one !== "object" || one === null) return null;
  const text = ["content", "text", "title", "step", "description", "task", "name"].map((name) => one[name]).find((value) => typeof value === "string");
  if (text === undefined) return null;
  const state = [one.status, one.state, one.done, one.completed].find((value) => value !== undefined);
  return { text, state: state === true ? "done" : typeof state === "string" ? state : "open" };
}

function raw(view, event) {
  return add(view, event, "e:" + event.seq, "raw", { type: event.type, what: event.kind || "", data: event });
}

const FOLDS = {
  initialize, session_update, agent_start, agent_end, message, tool_request, tool_decision, tool_update, tool_response,
  elicitation_request, elicitation_response, usage, error, stream_end, custom,
};
