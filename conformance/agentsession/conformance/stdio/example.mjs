// A whole executor in plain Node (20 or newer), without dependencies: `node example.mjs` speaks to the suite.
//
// For: authors of executors in other languages than Python, beside docs/reference/conformance-stdio.md.
// Not for: real agents. Where one would call a model, this one plays the script that the suite sends.
//
// The idea that keeps it small: the record is the only state. Every event goes through Session.apply(), live as well as
// when a record is loaded; what waits, which agents are open and where the agent is in its script follow from that. So
// to be killed is nothing special: a turn that waits goes on in another process as it would have in this one.
//
// This file holds the methods of the wire. In the folder beside it: wire.mjs (lines and errors), play.mjs (the script),
// record.mjs (the record on disk), session.mjs (turns and their ends), answers.mjs (what a host answers), agent.mjs
// (the steps of the script), checks.mjs (schemas, secrets, a clear yes).

import { randomUUID } from "node:crypto";
import { respond } from "./example/answers.mjs";
import { Agent } from "./example/agent.mjs";
import { NAME, begin, descriptor, marks, play } from "./example/play.mjs";
import { RecordFile, counting, isEphemeral } from "./example/record.mjs";
import { Session, checkLimits } from "./example/session.mjs";
import { Fail, VERSION, answer, answerError, write } from "./example/wire.mjs";

const sessions = new Map(); // those that are or were open here, by id

const isOpen = (sessionId) => (sessions.get(sessionId)?.state ?? "closed") !== "closed";

function opened(sessionId) {
  const session = sessions.get(sessionId);
  if (session === undefined) throw new Fail("SessionNotFound", `session ${sessionId} is not open here`);
  if (session.state === "closed") throw new Fail("SessionClosed", "the session is closed");
  return session;
}

function stored(sessionId, userId = "local") {
  const file = new RecordFile(play.folder, userId, sessionId);
  if (!file.exists()) throw new Fail("SessionNotFound", `no session ${sessionId} of user ${userId}`);
  return file;
}

/** A new session and its file. */
function made(options) {
  const { sessionId = `s-${randomUUID()}`, userId = "local", execution = {} } = options;
  checkLimits(execution);
  const file = new RecordFile(play.folder, userId, sessionId);
  if (isOpen(sessionId) || file.exists()) throw new Fail("SessionExists", `session ${sessionId} exists`);
  file.create();
  return new Session(sessionId, options, file);
}

/** A stored session, mended where its process was killed. */
function loaded(sessionId, options) {
  const file = stored(sessionId, options.userId);
  if (isOpen(sessionId)) throw new Fail("SessionBusy", `session ${sessionId} is open here`);
  const record = file.read();
  if (record.events.length === 0) throw new Fail("SessionNotFound", `session ${sessionId} has no beginning`);
  const session = new Session(sessionId, options, file);
  session.load(record);
  session.repair();
  return session;
}

/** Answer with a session and its whole record. */
function begun(id, session) {
  session.store(); // what is in the answer is not sent again
  session.seen = session.lastSeq;
  sessions.set(session.id, session);
  answer(id, { sessionId: session.id, record: session.events });
}

/** Where a session stood when its record ended at this seq. */
function stateAt(events, seq) {
  const session = new Session("", {}, undefined);
  session.load({ events: events.filter((event) => event.seq <= seq), seq });
  return session.state;
}

function rewind(session, to) {
  if (session.state === "running") throw new Fail("StreamActive", "a session at work cannot be rewound");
  if (!(to > 0 && to <= session.lastSeq)) throw new Fail("CursorGone", `seq ${to} is not in the record`);
  const durable = session.events.filter((event) => !isEphemeral(event));
  const isThere = counting(durable).some((event) => event.seq === to);
  if (!isThere || !["new", "idle"].includes(stateAt(durable, to))) {
    throw new Fail("InvalidInput", `this record cannot be rewound to seq ${to}`);
  }
  if (to === session.lastSeq) return;
  if (session.state === "input_required") session.settleTurn("aborted", "rewind");
  session.emit("custom", { kind: "rewind", data: { to_seq: to } }, "host");
}

const METHODS = {
  start(id, { protocolVersion, script, folder }) {
    const major = (version) => version.split(".")[0];
    if (major(protocolVersion) !== major(VERSION)) throw new Fail("UnsupportedVersion", `this speaks ${VERSION}`);
    begin(script, folder, (step) => Object.hasOwn(Agent.prototype, step));
    answer(id, { protocolVersion: VERSION, descriptor: descriptor() });
  },

  open(id, { options }) {
    const session = made(options);
    const { workspace, execution } = options;
    const first = { protocolVersion: VERSION, workspace, descriptor: descriptor(), agentId: NAME };
    session.emit("initialize", first, "host");
    if (execution?.state !== undefined) session.emit("session_update", { stateDelta: execution.state }, "host");
    begun(id, session);
  },

  load(id, { sessionId, options }) {
    begun(id, loaded(sessionId, options));
  },

  fork(id, { sessionId, at, options }) {
    const file = stored(sessionId, options.userId);
    if (isOpen(sessionId)) sessions.get(sessionId).flush();
    const { events, seq } = file.read();
    if (at > seq) throw new Fail("CursorGone", `seq ${at} is beyond the record`);
    const state = stateAt(events, at);
    const kept = events.filter((event) => event.seq <= at);
    if (kept.length === 0 || state === "running") throw new Fail("InvalidInput", `no fork can be made at seq ${at}`);
    const session = made(options);
    const copies = kept.map((event) => ({ ...event, sessionId: session.id }));
    session.file.append({ events: copies, reserved: at });
    session.load({ events: copies, seq: at });
    if (state === "input_required") session.settleTurn("aborted", "fork");
    begun(id, session);
  },

  list(id, { userId }) {
    const names = RecordFile.sessionsOf(play.folder, userId);
    const found = names.map((sessionId) => ({ sessionId, ...stored(sessionId, userId).read() }));
    found.sort((a, b) => b.number - a.number);
    answer(id, { sessions: found.map(({ sessionId, events }) => ({ sessionId, lastSeq: events.at(-1)?.seq ?? 0 })) });
  },

  delete(id, { sessionId, userId }) {
    const file = stored(sessionId, userId);
    if (isOpen(sessionId)) throw new Fail("SessionBusy", `session ${sessionId} is open`);
    file.delete();
    answer(id, {});
  },

  rewind(id, { sessionId, to, userId }) {
    if (isOpen(sessionId)) {
      rewind(sessions.get(sessionId), to);
      sessions.get(sessionId).flush();
    } else {
      const session = loaded(sessionId, { userId });
      rewind(session, to);
      session.store();
    }
    answer(id, {});
  },

  stream(id, { sessionId, message, answers = [], options }) {
    const session = opened(sessionId);
    const begun = message === undefined ? session.goOn(answers, options) : session.start(message, options);
    const { isNew, ...told } = begun;
    session.flush(() => answer(id, told)); // first stored, so that receipts hold; and the id before any event of it
    if (isNew) session.work();
  },

  respond(id, { sessionId, answers }) {
    const session = opened(sessionId);
    const receipts = answers.map((given) => respond(session, given));
    session.run?.wake();
    session.flush();
    answer(id, { receipts });
  },

  steer(id, { sessionId, data }) {
    const session = opened(sessionId);
    const receipt = session.steer(data);
    session.flush();
    answer(id, receipt);
  },

  update(id, { sessionId, config }) {
    const session = opened(sessionId);
    const receipt = session.update(config);
    session.flush();
    answer(id, receipt);
  },

  async abort(id, { sessionId, reason = "abort" }) {
    const session = opened(sessionId);
    const result = await session.abort(reason);
    session.flush();
    answer(id, result);
  },

  async close(id, { sessionId }) {
    await opened(sessionId).close();
    answer(id, {});
  },

  read(id, { sessionId, after }) {
    const session = opened(sessionId);
    session.flush();
    if (!(after >= 0 && after <= session.lastSeq)) throw new Fail("CursorGone", `cursor ${after} is beyond the record`);
    answer(id, { record: session.events.filter((event) => event.seq > after) });
  },

  seen(_, { sessionId, seq }) {
    const session = sessions.get(sessionId);
    if (session === undefined) return;
    session.seen = Math.max(session.seen, seq);
    session.onSeen();
  },

  release(_, { mark }) {
    marks.release(mark);
  },
};

/** One line of the suite's. What a method does at once is done before the next line is looked at. */
async function handle(line) {
  let request;
  try {
    request = JSON.parse(line);
    if (typeof request?.method !== "string") throw new Error("there is no method");
  } catch (error) {
    write({ id: null, error: { code: "InvalidInput", message: error.message } });
    return;
  }
  const { id, method, params = {} } = request;
  try {
    if (!Object.hasOwn(METHODS, method)) throw new Fail("Unimplemented", `there is no method ${method}`);
    if (play.script === undefined && method !== "start") throw new Fail("InvalidInput", `${method} before start`);
    await METHODS[method](id, params);
  } catch (error) {
    answerError(id, error);
  }
}

let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text) => {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines) if (line.trim() !== "") handle(line);
});
process.stdin.on("end", async () => {
  for (const { id } of sessions.values()) if (isOpen(id)) await sessions.get(id).close();
  process.exit(0);
});
