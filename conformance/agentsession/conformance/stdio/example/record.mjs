// A record on disk: lines of JSON, only ever appended to.

import fs from "node:fs";
import path from "node:path";
import { checkId } from "./checks.mjs";

/** What may be gone once its stream has ended: deltas and progress. It is never stored. */
export const isEphemeral = (event) => event.partial === true || (event.type === "tool_update" && !event.started);

/** One record's file. One write is one line, and what was cut off in the middle of a line does not count. */
export class RecordFile {
  constructor(folder, user, session) {
    this.folder = path.join(folder, "records", encodeURIComponent(checkId(user, "user id")));
    this.path = path.join(this.folder, `${encodeURIComponent(checkId(session, "session id"))}.ndjson`);
  }

  /** The sessions of one user. */
  static sessionsOf(folder, user) {
    const place = new RecordFile(folder, user, "any").folder;
    const names = fs.existsSync(place) ? fs.readdirSync(place) : [];
    return names.map((name) => decodeURIComponent(name.replace(/\.ndjson$/, "")));
  }

  exists = () => fs.existsSync(this.path);
  delete = () => fs.rmSync(this.path);

  create() {
    fs.mkdirSync(this.folder, { recursive: true });
    const number = fs.readdirSync(this.folder).length;
    fs.writeFileSync(this.path, "", { flag: "wx", mode: 0o600 });
    this.append({ number });
  }

  /** Store a line: when this returns it is on the disk. */
  append(line) {
    const file = fs.openSync(this.path, "a", 0o600);
    try {
      fs.writeSync(file, `${JSON.stringify(line)}\n`);
      fs.fsyncSync(file);
    } finally {
      fs.closeSync(file);
    }
  }

  /** The events, the last seq that may have been used, and which record of its user's it is. */
  read() {
    const text = fs.readFileSync(this.path, "utf8");
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    if (whole.length < text.length) fs.truncateSync(this.path, Buffer.byteLength(whole));
    const lines = whole
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));
    const events = lines.flatMap((line) => line.events ?? []);
    const seq = Math.max(0, events.at(-1)?.seq ?? 0, ...lines.map((line) => line.reserved ?? 0));
    return { events, seq, number: lines[0]?.number ?? 0 };
  }
}

/** The events that still count: what was rewound is left out (PER-06). */
export function counting(events) {
  let kept = [];
  for (const event of events) {
    if (event.type === "custom" && event.kind === "rewind") kept = kept.filter(({ seq }) => seq <= event.data.to_seq);
    else kept.push(event);
  }
  return kept;
}
