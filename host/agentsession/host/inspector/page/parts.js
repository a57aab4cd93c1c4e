// Content parts, outputs and changes as elements: text only, what is long folded with its head and its tail.
import { button, el } from "./dom.js";
import { DIFF_LINES, changeOf, diffLines, escape, fold, json, mayOpen, patchLines } from "./text.js";

// A block of text in a fixed width.
export function output(given, most) {
  const text = typeof given === "string" ? given : json(given);
  const cut = fold(text, most);
  if (!cut) return el("pre", text);
  const whole = button("… " + cut.hidden.toLocaleString("en") + " " + cut.unit + " folded: show all", () => {
    box.replaceChildren(el("pre.tall", { tabindex: "0" }, text));
    box.firstChild.focus();
  }, ".fold");
  const box = el("div.folded", el("pre", cut.head), whole, el("pre", cut.tail));
  return box;
}

export function change(path, lines) {
  const rows = (some) => some.map(([sign, text]) => el("span" + ({ "+": ".added", "-": ".removed", "@": ".dim" }[sign] || ""), (sign === "@" ? "  … " : sign + " ") + text + "\n"));
  const title = el("p.path", path || "change", " ", el("span.dim", "+" + lines.filter(([sign]) => sign === "+").length + " -" + lines.filter(([sign]) => sign === "-").length));
  const box = el("pre.diff", { tabindex: "0" });
  if (lines.length <= DIFF_LINES) box.append(...rows(lines));
  else {
    const head = Math.floor((DIFF_LINES * 2) / 3), tail = DIFF_LINES - head;
    const more = button("… " + (lines.length - DIFF_LINES).toLocaleString("en") + " lines folded: show all", () => {
      box.replaceChildren();
      for (const row of rows(lines)) box.append(row);
      box.classList.add("tall");
      box.focus();
    }, ".fold");
    box.append(...rows(lines.slice(0, head)), more, ...rows(lines.slice(-tail)));
  }
  return el("div", title, box);
}

export function args(value) {
  const told = changeOf(value);
  if (!told) return value === undefined ? el("p.dim", "no arguments") : output(json(value));
  const rest = Object.keys(told.rest).filter((name) => told.rest[name] !== told.path);
  return el("div", change(told.path, told.lines), rest.length ? output(json(told.rest)) : null);
}

// An address: whole, and a link only where it may be opened; nothing is fetched before a click.
export function address(text) {
  if (!mayOpen(text)) return el("p.address", el("code", text), " ", el("span.problem", "This address is not opened from here."));
  const { host } = new URL(text);
  // A name in other letters may look like one that is known: what it really is stands beside it.
  const real = text.includes(host) ? null : el("p.problem", "The host of this address is " + host);
  return el("div", el("p.address", el("a", { href: text, target: "_blank", rel: "noopener noreferrer" }, text)), real);
}

export function part(one) {
  if (typeof one !== "object" || one === null) return output(json(one));
  switch (one.type) {
    case "text":
      return said(one.text);
    case "thought":
      return el("details.thought", el("summary", "thought"), said(one.text));
    case "refusal":
      return el("div", el("p.tag.bad", "refused"), said(one.text));
    case "code":
      return el("div", el("p.dim", one.language || "code"), output(one.code));
    case "code_result":
      return el("div", el("p.dim", "result of code" + (one.outcome ? ": " + one.outcome : "")), output(one.output));
    case "diff":
      return change(one.path, typeof one.patch === "string" ? patchLines(one.patch) : diffLines(one.oldText || "", one.newText || ""));
    case "terminal": {
      const code = one.exitCode === undefined ? "" : one.exitCode === 0 ? "exit 0" : "exit " + one.exitCode + " (failed)";
      return el("div.terminal", el("p.path", "$ " + (one.command || one.terminalId || ""), " ", el("span.dim", code)), one.output ? output(one.output) : null);
    }
    case "media":
      return el("div.dim", "media " + one.mimeType + (one.name ? " " + one.name : "") + (one.data ? ", " + Math.round((one.data.length * 3) / 4).toLocaleString("en") + " bytes" : ""), one.uri ? address(one.uri) : null);
    case "reference":
      return el("div", one.title ? el("p.dim", one.title) : null, address(one.uri));
    default:
      return el("div", el("p.dim", "part of type " + String(one.type)), output(json(one)));
  }
}

const LONG = 40_000;

// Prose. Very long text is cut for the page's sake, and says so.
export function said(given) {
  const text = typeof given === "string" ? given : json(given);
  if (text.length <= LONG) return el("p.said", { dir: "auto" }, text);
  return output(text, 200);
}

// Text that grows: each piece is a text node of its own, so n pieces cost n.
export class Growing {
  constructor(type) {
    this.text = el("p.said", { dir: "auto" });
    this.node = type === "thought" ? el("details.thought", el("summary", "thought"), this.text) : this.text;
    this.length = 0;
    this.isCut = false;
  }

  grow(pieces) {
    if (this.isCut) return;
    const text = pieces.join("");
    this.length += text.length;
    this.text.append(escape(text));
    this.isCut = this.length > LONG;
    if (this.isCut) this.text.after(el("p.dim", "… very long: the rest is shown when the message is whole"));
  }
}

// What a tool gave back.
export function result(response) {
  const parts = (response.content || []).map((one) => (one && one.type === "text" ? output(one.text) : part(one)));
  const shown = parts.length ? parts : response.data !== undefined ? [output(typeof response.data === "string" ? response.data : json(response.data))] : [];
  return shown.length ? el("div", ...shown) : el("p.dim", "no output");
}
