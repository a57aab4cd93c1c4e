// The agent at work: a run plays the steps of a turn from one stream's beginning to its end.
//
// Nothing waits in here when the turn waits for the host: the run ends at the pause, and the next one finds its place
// in the script by the requests in the record, each of which bears its own (`_meta.at`).

import { recordAnswer, takeSecrets } from "./answers.mjs";
import { fits, same } from "./checks.mjs";
import { NAME, marks, play, schemaOf } from "./play.mjs";
import { write } from "./wire.mjs";

const WINDOW = 256; // how many events the agent may be ahead of what the suite has read

/** Thrown out of everything that waits when the run is to end: at a pause, an abort, a limit. */
class Ended extends Error {}

export class Run {
  constructor(session) {
    this.session = session;
    this.working = 1; // how many agents do not wait for the host
    this.waits = []; // of those that do: {ids, go}
    this.isPaused = false;
    this.cause = undefined; // why it was asked to end
    this.ended = new Promise((_, reject) => (this.cut = () => reject(new Ended())));
    this.ended.catch(() => {}); // perhaps nobody waits
    this.isOver = this.main();
  }

  async main() {
    const { session } = this;
    const { turns } = play.script;
    const over = [{ step: "say", text: `(the script has ${turns.length} turns, this is turn ${session.turns.size})` }];
    try {
      session.finish(await new Agent(this, NAME).main(turns[session.turns.size - 1] ?? over));
    } catch (error) {
      if (error instanceof Ended) {
        if (this.cause !== undefined) session.finish(this.reason, { cause: this.cause });
      } else {
        console.error(error); // what it says may hold a secret: it goes to the log, not into the record (SEC-01)
        session.emit("error", { status: "INTERNAL", message: "the executor failed", fatal: true, agentId: NAME });
        session.finish("failed");
      }
    }
    session.run = null;
  }

  /** End the turn with this reason. */
  stop(reason, cause) {
    Object.assign(this, { reason, cause });
    this.cut();
  }

  /** Wait for something, unless the run ends before. */
  until = (promise) => Promise.race([promise, this.ended]);

  /** Wait until each of these requests has its answer. When every agent waits, the stream pauses. */
  async answered(ids) {
    takeSecrets(this.session, ids);
    if (!ids.some(this.session.isWaiting)) return;
    const answered = new Promise((go) => this.waits.push({ ids, go }));
    this.rest();
    await this.until(answered);
  }

  /** An answer came: let those go on that have all of theirs. */
  wake() {
    const { secrets, isWaiting } = this.session;
    const ready = this.waits.filter(({ ids }) => !ids.some((id) => isWaiting(id) && !secrets.has(id)));
    this.waits = this.waits.filter((wait) => !ready.includes(wait));
    for (const { ids, go } of ready) {
      this.working += 1;
      takeSecrets(this.session, ids);
      go();
    }
  }

  /** One agent works no more; after the last one the host has the turn. */
  rest() {
    this.working -= 1;
    if (this.working > 0 || this.cause !== undefined) return;
    this.isPaused = true;
    this.session.closeAgents("input_required");
    this.session.end("input_required");
    this.cut();
  }
}

/** An agent on a thread of its own. Each step of the script is a method; what it returns ends the turn. */
export class Agent {
  constructor(run, name, thread = undefined, at = []) {
    Object.assign(this, { run, session: run.session, name, thread, at });
  }

  emit(type, fields) {
    if (this.run.cause !== undefined || this.run.isPaused) throw new Ended();
    return this.session.emit(type, { agentId: this.name, threadId: this.thread, ...fields });
  }

  /** Give way to what comes in, and to readers that hold the agent (ORD-11). */
  async breathe() {
    const { session, run } = this;
    await run.until(new Promise(setImmediate));
    while (session.seq - session.seen >= WINDOW) await run.until(new Promise((go) => (session.onSeen = go)));
  }

  /** The whole turn; the reason of its end. */
  async main(steps) {
    if (!this.session.agents.has("")) this.emit("agent_start", {});
    const reason = await this.play(steps);
    this.takeSteers();
    return reason ?? "completed";
  }

  /** Play the steps from the one that asked last: what came before it was done by an earlier run. */
  async play(steps) {
    for (let index = this.lastStep(); index < steps.length; index += 1) {
      await this.breathe();
      if (this.thread === undefined) {
        const code = this.passedLimit(steps.slice(0, index));
        const status = "RESOURCE_EXHAUSTED";
        if (code) this.emit("error", { status, message: "the turn may make no more model calls", fatal: false, code });
        if (code) return code;
        this.takeSteers();
      }
      const step = steps[index];
      const reason = await this[step.step](step, [...this.at, index]);
      if (reason !== undefined) return reason;
    }
    return undefined;
  }

  /** The step that asked last. */
  lastStep() {
    const { length } = this.at;
    const isBelow = ({ _meta }) => _meta?.at?.length > length && same(_meta.at.slice(0, length), this.at);
    const last = this.session.turn.findLast((event) => isRequest(event) && isBelow(event));
    return last === undefined ? 0 : last._meta.at[length];
  }

  /** One step that asks is one model call; the limit that another one would pass (CTL-08). */
  passedLimit(done) {
    const asks = ({ step }) => step === "calls" || step === "ask";
    if (done.length === 0 || !asks(done.at(-1))) return undefined;
    const made = done.filter(asks).length;
    const { maxLlmCalls = Infinity, maxTurns = Infinity } = this.session.execution.limits ?? {};
    if (made >= maxLlmCalls) return "max_llm_calls";
    return made >= maxTurns ? "max_turns" : undefined;
  }

  /** What the host has put in goes into the record, once, before the next model call (CTL-06). */
  takeSteers() {
    for (const [messageId, content] of [...this.session.steers]) {
      const place = { agentId: this.name, threadId: this.thread };
      this.session.emit("message", { messageId, role: "user", content, ...place }, "user");
    }
  }

  // -- what the model says -----------------------------------------------------------------------------------------

  message(part) {
    this.emit("message", { messageId: this.session.newId("m"), role: "agent", content: [part] });
  }

  async say({ text }) {
    this.message({ type: "text", text });
  }

  async think({ text }) {
    this.message({ type: "thought", text });
  }

  async stream({ pieces, hold }) {
    const messageId = this.session.newId("m");
    const said = (text) => ({ messageId, role: "agent", content: [{ type: "text", text }] });
    for (const [index, text] of pieces.entries()) {
      if (hold && index === pieces.length - 1) await this.hold({ mark: hold });
      await this.breathe();
      this.emit("message", { ...said(text), partial: true, index });
    }
    this.emit("message", said(pieces.join("")));
  }

  async recite() {
    const { turn } = this.session;
    const isMine = (event) => event.threadId === this.thread && event.toolRequestId === undefined;
    const told = turn.filter(isRequest).filter(isMine).map(({ type, requestId, name, args }) => {
      const response = turn.find((event) => isResponse(event) && event.requestId === requestId);
      const { action = null, content = null, data = null, isError = null } = response ?? {};
      return type === "tool_request" ? { name, args, data, is_error: isError } : { action, content };
    });
    await this.say({ text: JSON.stringify(told) });
  }

  async count({ input_tokens: inputTokens, output_tokens: outputTokens }) {
    this.emit("usage", { inputTokens, outputTokens });
  }

  // -- how it ends, or waits ---------------------------------------------------------------------------------------

  async hold({ mark }) {
    this.session.flush(); // the mark comes after what was said before it
    write({ reached: { mark } });
    await this.run.until(marks.wait(mark));
  }

  async fail({ message }) {
    this.emit("error", { status: "UNAVAILABLE", message, fatal: false });
  }

  async raise({ message }) {
    throw new Error(message);
  }

  async refuse({ text }) {
    this.message({ type: "refusal", text });
    return "refusal";
  }

  async stop({ reason }) {
    return reason;
  }

  // -- what it asks ------------------------------------------------------------------------------------------------

  /** What this step has asked already, in an earlier run. */
  asked = (at) => this.session.turn.filter((event) => isRequest(event) && same(event._meta?.at ?? null, at));

  async ask({ message, kind = "clarification", requested_schema: schema }, at) {
    const [before] = this.asked(at);
    const question = before ?? this.question({ kind, message, requestedSchema: schema ?? undefined, _meta: { at } });
    await this.run.answered([question.requestId]);
  }

  /** Ask; what the host cannot show is cancelled in the same breath (HITL-07). */
  question(fields) {
    const { elicitationKinds: kinds, elicitationModes: modes } = this.session.options.host ?? {};
    const { requestId, kind } = this.emit("elicitation_request", { requestId: this.session.newId("q"), ...fields });
    const isShown = (kinds?.includes(kind) ?? true) && (modes?.includes("form") ?? true);
    if (!isShown) recordAnswer(this.session, { kind: "elicitation_response", requestId, action: "cancel" });
    return { requestId };
  }

  async calls({ calls }, at) {
    const before = this.asked(at);
    const requests = calls.map((call, number) => {
      const made = before.find((event) => event._meta.call === number);
      return made ?? this.call(call, [...at], number);
    });
    const open = requests.filter(({ requestId }) => this.session.requests.has(requestId));
    const first = open.map((request) => (request._meta.confirm ? this.confirmation(request, at) : request.requestId));
    await this.run.answered(first);
    for (const request of open) {
      const state = this.session.requests.get(request.requestId);
      if (state !== undefined) await this.finishCall(calls[request._meta.call], request, state, at);
    }
  }

  /** Show a call. An own tool waits for the host's grant unless the host has said that it need not. */
  call({ name, args = {}, needs, confirm }, at, number) {
    const isOwn = needs !== "result";
    const isMisfit = isOwn && !fits(schemaOf(name), args);
    const isFree = confirm || isMisfit || this.session.execution.hostToolExecution === false;
    const _meta = { at, call: number, confirm: confirm && !isMisfit ? true : undefined };
    const shown = isOwn ? { owner: "agent", needs: isFree ? "none" : "grant" } : { owner: "host", needs: "result" };
    const request = this.emit("tool_request", { requestId: this.session.newId("r"), name, args, ...shown, _meta });
    const error = "these arguments do not fit the tool's schema";
    if (isMisfit) this.respond(request, { data: { error }, isError: true, status: "failed" });
    return request;
  }

  /** The id of the question whether a call may run: the one that was asked before, or a new one. */
  confirmation({ requestId, name, args }, at) {
    const asked = this.asked(at).find((event) => event.toolRequestId === requestId);
    const about = { toolRequestId: requestId, context: args, _meta: { at } };
    const question = asked ?? this.question({ kind: "tool_confirmation", message: `Run ${name}?`, ...about });
    return question.requestId;
  }

  /** A call that the host has left to the agent: it is run, or not if a person has to say yes and does not. */
  async finishCall(call, request, state, at) {
    if (call.asks) await this.run.answered([this.confirmation(request, at)]);
    if ((call.asks || call.confirm) && !state.isConfirmed) {
      this.respond(request, { data: { error: "not confirmed" }, isError: true, status: "denied" });
    } else {
      await this.tool(call, request, state.args);
    }
  }

  /** The body of an own tool. That it was allowed is stored, and that it begins is told, before it does anything. */
  async tool({ name, hold, fails }, request, args) {
    this.session.flush();
    write({ ran: { name, args } });
    if (hold) await this.hold({ mark: hold });
    if (fails) this.respond(request, { data: { error: `${name} failed` }, isError: true, status: "failed" });
    else this.respond(request, { data: { ran: name, args } });
  }

  respond({ requestId, name }, fields) {
    this.emit("tool_response", { requestId, name, content: [], isError: false, status: "completed", ...fields });
  }

  // -- others at work ----------------------------------------------------------------------------------------------

  /** Sub-agents side by side; each goes on where it was, and one that is done stays done. */
  async delegate({ agents }, at) {
    const isEnd = (event) => event.type === "agent_end" && event.reason === "completed";
    const ends = this.session.turn.filter(isEnd).map((event) => event._meta?.at ?? null);
    const children = Object.keys(agents).filter((name) => !ends.some((place) => same(place, [...at, name])));
    if (children.length === 0) return;
    this.run.working += children.length - 1; // this agent only waits for them
    let left = children.length;
    const work = async (name) => {
      await this.child(name, agents[name], [...at, name]);
      left -= 1;
      if (left > 0) this.run.rest(); // the last one's place is this agent's again
    };
    const results = await Promise.allSettled(children.map((name) => work(name).catch((error) => this.broke(error))));
    const errors = results.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
    if (errors.length > 0) throw errors.find((error) => !(error instanceof Ended)) ?? errors[0];
  }

  async child(name, steps, at) {
    const thread = this.thread === undefined ? name : `${this.thread}.${name}`;
    const child = new Agent(this.run, name, thread, at);
    if (!this.session.agents.has(thread)) child.emit("agent_start", { parentThreadId: this.thread, _meta: { at } });
    await child.play(steps);
    child.emit("agent_end", { reason: "completed", _meta: { at } });
  }

  /** A child has failed: the others end too. */
  broke(error) {
    if (!(error instanceof Ended)) this.run.cut();
    throw error;
  }
}

const isRequest = ({ type }) => type === "tool_request" || type === "elicitation_request";
const isResponse = ({ type }) => type === "tool_response" || type === "elicitation_response";
