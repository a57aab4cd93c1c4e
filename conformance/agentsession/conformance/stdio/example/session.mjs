// One conversation: its record, what follows from that, and the turns of its host.

import { checkAnswer, respond } from "./answers.mjs";
import { Run } from "./agent.mjs";
import { isEphemeral } from "./record.mjs";
import { Fail, write } from "./wire.mjs";

const RESERVE = 256; // how many seqs are set aside at once for events that are not stored

const depth = (thread) => (thread === undefined ? 0 : thread.split(".").length);
const isQuestion = ({ event }) => event.type === "elicitation_request";

export class Session {
  constructor(id, options, file) {
    this.id = id;
    this.options = options;
    this.file = file;
    this.events = [];
    this.seq = 0; // the last that was used
    this.reserved = 0; // no seq up to here is used again after a restart
    this.fresh = []; // events that are neither stored nor sent
    this.seen = 0; // how far the suite has read
    this.onSeen = () => {};
    this.secrets = new Map(); // secret answers that the agent has not taken yet
    this.run = null; // the agent at work
    // All else follows from the events; see apply().
    this.state = "new";
    this.streamId = undefined;
    this.turnId = undefined;
    this.turns = new Set();
    this.requests = new Map(); // without a response: {event, status: waiting | granted | in_flight, args, isConfirmed}
    this.resolved = new Set();
    this.agents = new Map(); // open ones, by thread ("" for the main one)
    this.paused = []; // those that the last pause has closed, in the order to open them again
    this.messages = new Map(); // with deltas and no whole message
    this.closedMessages = new Set();
    this.handedOut = new Set(); // ids that newId() has made in this life
    this.steers = new Map(); // queued and not injected
    this.isAnswered = false; // whether an answer came since the pause
  }

  /** The options of the turn over those of the session. */
  get execution() {
    return { ...this.options.execution, ...this.turnOptions };
  }

  get lastSeq() {
    return this.events.at(-1)?.seq ?? 0;
  }

  /** The events of the turn that runs or waits. */
  get turn() {
    return this.events.filter((event) => event.turnId === this.turnId);
  }

  isWaiting = (id) => this.requests.get(id)?.status === "waiting";

  // -- the record --------------------------------------------------------------------------------------------------

  /** An id that was never used and will never be: it holds the seq of the event that it comes with. */
  newId(prefix) {
    let id = `${prefix}${this.seq + 1}`;
    // A message takes its id before its first event is made: another may ask in between.
    const isTaken = (made) => [this.handedOut, this.closedMessages, this.resolved, this.requests].some((ids) => ids.has(made));
    while (isTaken(id)) id += "x";
    this.handedOut.add(id);
    return id;
  }

  /** Add an event. It is stored and sent by flush(), which comes by itself when nothing else calls it before. */
  emit(type, fields, source = "agent") {
    this.seq += 1;
    const { id: sessionId, seq, streamId, turnId } = this;
    const stamp = { id: `e${seq}`, seq, timestamp: new Date().toISOString(), type, sessionId, streamId, turnId };
    const event = { ...stamp, source, ...fields };
    this.apply(event);
    this.events.push(event);
    this.fresh.push(event);
    if (this.fresh.length === 1) setImmediate(() => this.flush());
    return event;
  }

  /** Put on disk what is not there yet; what is new, to be sent. */
  store() {
    const { fresh } = this;
    this.fresh = [];
    const durable = fresh.filter((event) => !isEphemeral(event));
    const isBehind = fresh.some(isEphemeral) && this.seq > this.reserved;
    if (isBehind) this.reserved = this.seq + RESERVE;
    if (durable.length > 0 || isBehind) this.file.append({ events: durable, reserved: this.reserved });
    return fresh;
  }

  /** Store what is new, then send it. In between goes an answer that must come before its events. */
  flush(between = () => {}) {
    const fresh = this.store();
    between();
    for (const event of fresh) write({ event });
  }

  /** What an event changes: the one place that decides where a session stands, live and when a record is loaded. */
  apply(event) {
    const { type, threadId = "", requestId } = event;
    if (event.streamId !== undefined) this.enter(event.streamId, event.turnId);
    const isResponse = type === "tool_response" || type === "elicitation_response";
    if (type === "agent_start") {
      this.agents.set(threadId, event);
      this.paused = this.paused.filter((agent) => (agent.threadId ?? "") !== threadId);
    } else if (type === "agent_end") {
      this.agents.delete(threadId);
      if (event.reason === "input_required") this.paused.unshift(event);
    } else if (type === "message" && event.partial) {
      const before = this.messages.get(event.messageId)?.text ?? "";
      this.messages.set(event.messageId, { ...event, text: before + event.content[0].text });
    } else if (type === "message") {
      this.messages.delete(event.messageId);
      this.closedMessages.add(event.messageId);
      this.steers.delete(event.messageId);
    } else if (type === "tool_request" || type === "elicitation_request") {
      const status = event.needs === "none" ? "in_flight" : "waiting";
      this.requests.set(requestId, { event, status, args: event.args });
    } else if (type === "tool_decision" && event.decision === "granted") {
      const request = this.requests.get(requestId);
      Object.assign(request, { status: "granted", args: event.args ?? request.args });
    } else if (type === "tool_update" && event.started) {
      this.requests.get(requestId).isStarted = true;
    } else if (isResponse) {
      const about = this.requests.get(this.requests.get(requestId).event.toolRequestId);
      if (about !== undefined) about.isConfirmed = event.action === "accept";
      this.requests.delete(requestId);
      this.resolved.add(requestId);
    } else if (type === "custom" && event.kind === "steer_queued") {
      this.steers.set(event.data.steerId, event.data.content);
    } else if (type === "stream_end") {
      this.exit(event.pending.length > 0);
    }
    if (this.state === "input_required" && (isResponse || type === "tool_decision")) this.isAnswered = true;
  }

  /** A stream is open. */
  enter(streamId, turnId) {
    if (this.streamId === streamId) return;
    Object.assign(this, { streamId, turnId, state: "running" });
    this.turns.add(turnId);
  }

  /** The stream is over, and with it the turn unless that waits. */
  exit(waits) {
    Object.assign(this, { streamId: undefined, isAnswered: false, state: waits ? "input_required" : "idle" });
    if (waits) return;
    Object.assign(this, { turnId: undefined, turnOptions: undefined, paused: [] });
    this.steers.clear();
  }

  /** Take a stored record as one's own. */
  load({ events, seq }) {
    for (const event of events) this.apply(event);
    this.events = [...events];
    this.seq = this.reserved = seq;
  }

  /** Mend what a process that was killed has left (PER-04). */
  repair() {
    if (this.state === "running") this.finish("failed", { cause: "lost" });
    else this.watch();
  }

  // -- ends --------------------------------------------------------------------------------------------------------

  /** Answer requests in nobody's place: what waited is cancelled, of what had started the effects are unknown. */
  settle(isWanted = () => true) {
    const chosen = [...this.requests.values()].filter(isWanted);
    const inOrder = [...chosen.filter(isQuestion), ...chosen.filter((request) => !isQuestion(request))];
    for (const request of inOrder) {
      const { requestId, name, threadId, agentId } = request.event;
      const about = { requestId, threadId, agentId };
      const isHeld = request.status === "waiting" || (request.event._meta?.confirm && !request.isConfirmed);
      const status = isHeld && !request.isStarted ? "cancelled" : "unknown";
      const failed = { name, content: [], isError: true, status };
      if (isQuestion(request)) this.emit("elicitation_response", { ...about, action: "cancel" }, "host");
      else this.emit("tool_response", { ...about, ...failed }, "host");
    }
  }

  settleWaiting() {
    this.settle(({ status }) => status === "waiting");
  }

  closeAgents(reason) {
    const open = [...this.agents.values()].sort((a, b) => depth(b.threadId) - depth(a.threadId));
    for (const { agentId, threadId, _meta } of open) this.emit("agent_end", { agentId, threadId, reason, _meta });
  }

  /** Close all that is open, in the one legal order, and the stream with it. */
  finish(reason, data = {}) {
    this.settleWaiting();
    for (const { messageId, role, agentId, threadId, text } of [...this.messages.values()]) {
      const content = [{ type: "text", text }];
      this.emit("message", { messageId, role, agentId, threadId, content, interrupted: true });
    }
    this.settle();
    this.closeAgents(reason);
    this.end(reason, data);
  }

  /** The stream's end, and nothing else. */
  end(reason, data = {}) {
    const isFinal = reason !== "input_required";
    if (reason === "completed" && !this.turn.some(saysSomething)) data = { ...data, empty: true };
    if (isFinal && this.steers.size > 0) data = { ...data, undelivered: [...this.steers.keys()] };
    if (isFinal) this.secrets.clear();
    const pending = isFinal ? [] : [...this.requests.keys()].filter(this.isWaiting);
    this.emit("stream_end", { reason, pending, data: Object.keys(data).length > 0 ? data : undefined }, "host");
    clearTimeout(this.workTimer);
    if (isFinal) clearTimeout(this.deadlineTimer);
  }

  /** End a turn that waits, in a stream of its own. Nothing is executed by it. */
  settleTurn(reason, cause) {
    const streamId = this.newId("s");
    this.enter(streamId, this.turnId);
    this.settle();
    this.end(reason, { cause });
    return streamId;
  }

  /** Ask the agent to end: what waits is settled at once, the rest when it has ended. */
  interrupt(reason, cause) {
    if (this.run === null || this.run.cause !== undefined) return;
    this.settleWaiting();
    this.run.stop(reason, cause);
  }

  async abort(cause) {
    if (this.state === "input_required") return { status: "aborted", streamId: this.settleTurn("aborted", cause) };
    if (this.state !== "running") return { status: "idle" };
    const { streamId, run } = this;
    this.interrupt("aborted", cause);
    await run.isOver;
    const { reason } = this.events.findLast((event) => event.type === "stream_end" && event.streamId === streamId);
    return { status: reason === "aborted" ? "aborted" : "too_late", streamId };
  }

  /** A turn that waits stays for load(). */
  async close() {
    if (this.state === "running") await this.abort("closed");
    this.flush();
    clearTimeout(this.deadlineTimer);
    this.state = "closed";
    if (this.options.execution?.ephemeral) this.file.delete();
  }

  // -- limits ------------------------------------------------------------------------------------------------------

  /** Let time end the turn: the deadline whether it runs or waits, the time at work while it runs. */
  watch() {
    const { deadline, limits } = this.execution;
    const { turnId } = this;
    if (deadline !== undefined && turnId !== undefined) {
      clearTimeout(this.deadlineTimer);
      this.deadlineTimer = after(Date.parse(deadline) - Date.now(), () => this.turnId === turnId && this.isLate());
    }
    if (limits?.maxTimeSeconds !== undefined && this.state === "running") {
      const leftMs = limits.maxTimeSeconds * 1000 - this.workedMs();
      this.workTimer = after(leftMs, () => this.isOver("max_time", "the turn was at work for as long as it may"));
    }
  }

  isLate() {
    if (this.state === "input_required") this.settleTurn("aborted", "deadline");
    else if (this.state === "running") this.isOver("deadline", "the turn's deadline has come");
  }

  isOver(reason, message) {
    if (this.run === null || this.run.cause !== undefined) return;
    this.emit("error", { status: "DEADLINE_EXCEEDED", message, fatal: false, code: reason }, "host");
    this.interrupt(reason, reason);
  }

  /** How long the turn's earlier streams were open: a person's time does not count (HITL-11). */
  workedMs() {
    const spans = new Map();
    for (const { streamId, timestamp } of this.turn.filter((event) => event.streamId !== undefined)) {
      const at = Date.parse(timestamp);
      spans.set(streamId, [spans.get(streamId)?.[0] ?? at, at]);
    }
    spans.delete(this.streamId);
    return [...spans.values()].reduce((sum, [first, last]) => sum + last - first, 0);
  }

  // -- turns -------------------------------------------------------------------------------------------------------

  /** Start a turn. */
  start(message, options) {
    const { idempotencyKey: key, content, role = "user", messageId = undefined, _meta = {} } = message;
    const before = key !== undefined && this.events.find((event) => event._meta?.idempotencyKey === key);
    if (before) return { streamId: this.lastStream(before.turnId), turnId: before.turnId, receipts: [] };
    if (this.state === "running") throw new Fail("StreamActive", "a stream runs already");
    if (this.closedMessages.has(messageId)) throw new Fail("InvalidInput", "this message is in the record already");
    checkLimits({ ...this.options.execution, ...options });
    if (this.state === "input_required") this.settleTurn("aborted", "superseded");
    this.turnOptions = options;
    this.enter(this.newId("s"), this.newId("t"));
    const { streamId, turnId } = this;
    const meta = key === undefined ? message._meta : { ..._meta, idempotencyKey: key };
    this.emit("message", { messageId: messageId ?? this.newId("m"), role, content, _meta: meta }, "user");
    return { streamId, turnId, receipts: [], isNew: true };
  }

  lastStream = (turnId) => this.events.findLast((event) => event.turnId === turnId && event.streamId).streamId;

  /** Continue the turn that waits, with answers or with what was answered before. */
  goOn(answers, options) {
    if (this.state === "running") throw new Fail("StreamActive", "a stream runs already");
    if (this.state !== "input_required") throw new Fail("NothingToContinue", "no turn is waiting");
    const isGood = (given) => checkAnswer(this, given).status === "applied";
    if (answers.length > 0 ? !answers.some(isGood) : !this.isAnswered) {
      throw new Fail("NothingToContinue", "no answer applies, or nothing was answered since the pause");
    }
    checkLimits(options ?? {});
    this.turnOptions = { ...this.turnOptions, ...options };
    this.enter(this.newId("s"), this.turnId);
    const { streamId, turnId } = this;
    const receipts = answers.map((given) => respond(this, given));
    for (const { agentId, threadId, _meta } of [...this.paused]) {
      const parentThreadId = threadId?.includes(".") ? threadId.slice(0, threadId.lastIndexOf(".")) : undefined;
      this.emit("agent_start", { agentId, threadId, parentThreadId, resumed: true, _meta });
    }
    return { streamId, turnId, receipts, isNew: true };
  }

  /** Let the agent work on the turn that was started or continued. */
  work() {
    this.watch();
    this.run = new Run(this);
  }

  steer({ message, action }) {
    const isAtWork = ["running", "input_required"].includes(this.state) && this.run?.cause === undefined;
    if (action !== undefined) return { status: "rejected", reason: `there is no action ${action}` };
    if (!isAtWork) return { status: "rejected", rule: "CTL-06", reason: "no turn is at work" };
    if (!message?.length) return { status: "rejected", reason: "a steer needs a message" };
    const steerId = this.newId("m");
    this.emit("custom", { kind: "steer_queued", data: { steerId, content: message } }, "host");
    return { status: "queued", requestId: steerId };
  }

  update(config) {
    const given = Object.keys(config);
    const isRefused = given.length === 0 || given.some((name) => !["title", "state"].includes(name));
    if (isRefused) return { status: "rejected", rule: "CTL-07", reason: "what can be changed is title and state" };
    this.emit("session_update", { title: config.title, stateDelta: config.state }, "host");
    return { status: "applied" };
  }
}

const saysSomething = ({ type, source, content }) =>
  type === "message" && source !== "user" && content.some((part) => part.type !== "thought");

const after = (ms, then) => setTimeout(then, Math.min(Math.max(0, ms), 2 ** 31 - 1)).unref();

export function checkLimits({ limits, deadline }) {
  if (limits?.maxBudgetUsd !== undefined) {
    throw new Fail("ConfigurationError", "this executor does not know what its model calls cost");
  }
  if (deadline !== undefined && Number.isNaN(Date.parse(deadline))) {
    throw new Fail("InvalidInput", "the deadline is not a moment in time");
  }
}
