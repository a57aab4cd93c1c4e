// Text of agents, tools and people as it may be shown. Pure functions.
//
// What they say is data: it never becomes markup (only text nodes hold it), and no sign of it is obeyed or unseen.

// Control, bidirectional and zero-width characters and halves of surrogate pairs; line feed and tab are not here.
const SUSPECT =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu;
const PICTURE = /\p{So}[\ufe0f\p{Sk}]*$/u;

export const OUTPUT_LINES = 12;
export const DIFF_LINES = 60;
const LONGEST_LINE = 2000;

// `text` with every character spelled out that nobody would see, or that would reorder or hide what is beside it.
export function escape(text) {
  return text.replace(/\r\n/g, "\n").replace(SUSPECT, (sign, at, whole) => {
    if (sign === "\u200d" && PICTURE.test(whole.slice(Math.max(0, at - 8), at))) return sign;
    const code = sign.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
  });
}

// On one line and cut, for titles.
export function line(text, limit = 120) {
  const flat = escape(text).replace(/\s+/g, " ").trim();
  return flat.length > limit ? flat.slice(0, limit - 1) + "…" : flat;
}

export function json(value) {
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

// JSON text as a value. A number that would be another one here keeps its digits, where the browser can: what is shown
// for approval is what runs, and an edit beside it does not change it.
export function parse(text) {
  return JSON.parse(text, (name, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value) || !context || !JSON.rawJSON) return value;
    return Number.isFinite(value) && /[.eE]/.test(context.source) ? value : JSON.rawJSON(context.source);
  });
}

// Whether two values are the same JSON; the order of an object's fields does not count.
export function same(one, other) {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

function sorted(value) {
  if (typeof value !== "object" || value === null || (JSON.isRawJSON && JSON.isRawJSON(value))) return value;
  if (Array.isArray(value)) return value.map(sorted);
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, each]) => [name, sorted(each)]));
}

// A long text: its first and last lines, and how many are between. `null` where it is short enough to be whole.
export function fold(text, most = OUTPUT_LINES) {
  const lines = text.split("\n");
  if (lines.length <= most && text.length <= most * LONGEST_LINE) return null;
  if (lines.length <= most) {
    const kept = (most * LONGEST_LINE) / 4;
    const head = text.slice(0, kept), tail = text.slice(-kept);
    return { head, tail, hidden: text.length - head.length - tail.length, unit: "characters" };
  }
  const last = Math.max(1, Math.floor(most / 3));
  const cut = (one) => (one.length > LONGEST_LINE ? one.slice(0, LONGEST_LINE) + "…" : one);
  return {
    head: lines.slice(0, most - last).map(cut).join("\n"),
    tail: lines.slice(-last).map(cut).join("\n"),
    hidden: lines.length - most,
    unit: "lines",
  };
}

export function count(number) {
  if (number < 1000) return String(number);
  if (number < 1e6) return (number / 1000).toFixed(number < 1e5 ? 1 : 0) + "k";
  return (number / 1e6).toFixed(1) + "M";
}

export function money(cost) {
  return "$" + (cost < 0.01 && cost > 0 ? cost.toPrecision(2) : cost < 1 ? cost.toFixed(3) : cost.toFixed(2));
}

export function duration(seconds) {
  if (seconds < 60) return seconds < 10 ? seconds.toFixed(1) + "s" : Math.round(seconds) + "s";
  const whole = Math.round(seconds);
  const hours = Math.floor(whole / 3600), minutes = Math.floor((whole % 3600) / 60), rest = String(whole % 60).padStart(2, "0");
  return hours ? hours + ":" + String(minutes).padStart(2, "0") + ":" + rest : minutes + ":" + rest;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }); // dear to make

export function clock(stamp) {
  const at = new Date(stamp);
  return Number.isNaN(at.getTime()) ? "" : CLOCK.format(at);
}

// `policy:no-rm` as "rule no-rm".
export function byWhom(by) {
  if (!by) return "the host";
  const at = by.indexOf(":");
  const kind = at < 0 ? by : by.slice(0, at), name = at < 0 ? "" : by.slice(at + 1);
  const word = { user: "a person", policy: "rule", remembered: "remembered answer", hook: "hook", host: "the host" }[kind];
  if (kind === "user" && name) return line(name, 60);
  return line(((word || kind) + " " + name).trim(), 80);
}

const STATUS = {
  completed: "ok",
  failed: "FAILED",
  denied: "DENIED",
  cancelled: "CANCELLED, never started",
  unknown: "UNKNOWN, had started, effects not known",
};

export function statusWord(status) {
  return STATUS[status] || line(status, 40);
}

const NEXT = {
  completed: "send a message to go on",
  input_required: "answer what waits, and the turn goes on",
  failed: "send a message to try again",
  aborted: "send a message to go on",
  refusal: "ask in another way",
  max_tokens: "send a message to let it go on",
  deadline: "raise the deadline, or send a message",
};

export function nextStep(reason) {
  if (NEXT[reason]) return NEXT[reason];
  return /^max_/.test(reason) ? "raise the limit, or send a message to go on" : "send a message to go on";
}

// The lines of a change: [sign, text] with " ", "+" or "-". Quadratic in what differs, so that is bounded.
export function diffLines(before, after) {
  const a = before === "" ? [] : before.replace(/\n$/, "").split("\n"), b = after === "" ? [] : after.replace(/\n$/, "").split("\n");
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end);
  const out = [];
  const around = 3;
  if (start > around) out.push(["@", start - around + " lines as before"]);
  for (const one of a.slice(Math.max(0, start - around), start)) out.push([" ", one]);
  if (x.length * y.length > 400_000) {
    for (const one of x) out.push(["-", one]);
    for (const one of y) out.push(["+", one]);
  } else for (const one of middle(x, y)) out.push(one);
  for (const one of a.slice(a.length - end, a.length - end + around)) out.push([" ", one]);
  if (end > around) out.push(["@", end - around + " lines as before"]);
  return out;
}

function middle(x, y) {
  const wide = y.length + 1;
  const longest = new Uint32Array((x.length + 1) * wide);
  for (let i = x.length - 1; i >= 0; i -= 1)
    for (let j = y.length - 1; j >= 0; j -= 1)
      longest[i * wide + j] =
        x[i] === y[j]
          ? longest[(i + 1) * wide + j + 1] + 1
          : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  const out = [];
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) out.push([" ", x[i]]), (i += 1), (j += 1);
    else if (j >= y.length || (i < x.length && longest[(i + 1) * wide + j] >= longest[i * wide + j + 1])) out.push(["-", x[i]]), (i += 1);
    else out.push(["+", y[j]]), (j += 1);
  }
  return out;
}

// The lines of a unified patch.
export function patchLines(patch) {
  return patch.replace(/\n$/, "").split("\n").map((one) => (/^[-+ @]/.test(one) ? [one[0], one.slice(1)] : ["@", one]));
}

const OLD_AND_NEW = [["old_text", "new_text"], ["old_string", "new_string"], ["oldText", "newText"], ["old", "new"]];

// What a tool call would change, where its arguments say it: {path, lines}, else null.
export function changeOf(args) {
  if (args === null || typeof args !== "object") return null;
  if (!CHANGES.has(args)) CHANGES.set(args, change(args));
  return CHANGES.get(args);
}

const CHANGES = new WeakMap(); // a call is drawn again with each progress of it

function change(args) {
  for (const [before, after] of OLD_AND_NEW)
    if (typeof args[before] === "string" && typeof args[after] === "string") {
      const path = [args.path, args.file, args.file_path, args.filename].find((one) => typeof one === "string");
      return { path, lines: diffLines(args[before], args[after]), rest: Object.fromEntries(Object.entries(args).filter(([name]) => name !== before && name !== after)) };
    }
  return null;
}

// An address may be opened when it is https, or http of this machine, and names no user.
export function mayOpen(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return false;
  }
  if (url.username || url.password || escape(address) !== address || /\s/.test(address)) return false;
  if (url.protocol === "https:") return true;
  return url.protocol === "http:" && /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
}
