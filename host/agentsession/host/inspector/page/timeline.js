// The timeline: one list item for each item of the view, made once, and changed only where the view changed.
import { el } from "./dom.js";
import { Growing, args, output, part, result } from "./parts.js";
import { byWhom, changeOf, clock, duration, json, line, nextStep, statusWord } from "./text.js";

const GROUP = 100;
const SCROLLS = new Set(["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End", " "]);

export class Timeline {
  #rows = new Map();
  #dirty = new Map();
  #waits = false;
  #unseen = 0;
  #query = "";
  #here = null;
  #moved = -Infinity;

  // `places`: {list, scroller, news, log, found}. `actions.takeBack(text)` puts an undelivered steer into the box again.
  constructor(places, actions) {
    this.places = places;
    this.actions = actions;
    this.isFollowing = true;
    this.isLoud = false; // what is replayed when a session is opened is not announced
    places.scroller.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = places.scroller;
      if (scrollHeight - scrollTop - clientHeight < 40) {
        this.isFollowing = true;
        this.#seen();
      } else if (performance.now() - this.#moved < 1000) this.isFollowing = false;
    });
    // Layout scrolls too; only a person's own move stops following: a wheel, a finger, the scroll bar, a key that scrolls.
    const moved = (event) => {
      if (event.type === "pointerdown" && event.target !== places.scroller) return;
      if (event.type === "keydown" && !SCROLLS.has(event.key)) return;
      this.#moved = performance.now();
    };
    for (const move of ["wheel", "touchmove", "pointerdown", "keydown"]) places.scroller.addEventListener(move, moved, { passive: true });
    // Who opens something reads it: it does not run away.
    places.list.addEventListener("click", (event) => {
      const opens = event.target.closest("summary, .fold");
      if (opens && !(opens.matches("summary") && opens.parentElement.open)) this.isFollowing = false;
    }, true); // before a button that was pressed is gone
    // Rows get their height when they are drawn, and a phone is turned: the end stays the end.
    const stick = new ResizeObserver(() => this.isFollowing && (places.scroller.scrollTop = places.scroller.scrollHeight));
    stick.observe(places.list);
    stick.observe(places.scroller);
    places.news.addEventListener("click", () => this.toEnd());
  }

  clear() {
    this.#rows.clear();
    this.#dirty.clear();
    this.places.list.replaceChildren();
    this.places.log.replaceChildren();
    this.isFollowing = true;
    this.isLoud = false;
    this.#moved = -Infinity;
    this.#here = null;
    this.#seen();
  }

  // Note a change; it is drawn with the next frame, together with all others until then.
  note(told) {
    for (const { item, was } of [told, ...(told.also || [])]) {
      const had = this.#dirty.get(item);
      this.#dirty.set(item, had && had !== "grown" ? had : was);
    }
    if (this.#waits) return;
    this.#waits = true;
    if (document.hidden) setTimeout(() => this.flush(), 100);
    else {
      const draw = requestAnimationFrame(() => (clearTimeout(late), this.flush()));
      const late = setTimeout(() => (cancelAnimationFrame(draw), this.flush()), 250);
    }
  }

  flush() {
    this.#waits = false;
    const fresh = [];
    for (const [item, was] of this.#dirty) {
      let row = this.#rows.get(item);
      if (!row) {
        row = new Row(item, this.actions);
        this.#rows.set(item, row);
        fresh.push(row.node);
        item.shown = true;
      } else if (was === "grown") row.grow();
      else row.remake();
      if (this.isLoud) this.#announce(item, row);
      if (this.#query) this.#match(row);
    }
    this.#dirty.clear();
    for (const node of fresh) this.#place(node);
    if (this.isFollowing) this.places.scroller.scrollTop = this.places.scroller.scrollHeight;
    else if (fresh.length) {
      this.#unseen += fresh.length;
      this.places.news.textContent = this.#unseen + " new ↓";
      this.places.news.hidden = false;
    }
  }

  // In groups: what is not on the screen then costs a layout one step for a hundred rows.
  #place(node) {
    const { list } = this.places;
    if (!list.lastChild || list.lastChild.childElementCount >= GROUP) list.append(el("ol"));
    list.lastChild.append(node);
  }

  toEnd() {
    this.isFollowing = true;
    this.places.scroller.scrollTop = this.places.scroller.scrollHeight;
    this.#seen();
  }

  #seen() {
    this.#unseen = 0;
    this.places.news.hidden = true;
  }

  // Whole messages and how things ended, once each, for those who listen.
  #announce(item, row) {
    const words = row.spoken();
    if (!words || row.said === words) return;
    row.said = words;
    this.places.log.append(el("p", words));
    while (this.places.log.childElementCount > 20) this.places.log.firstChild.remove();
  }

  search(query) {
    this.#query = query.trim().toLowerCase();
    let shown = 0;
    for (const row of this.#rows.values()) if (this.#match(row)) shown += 1;
    this.places.found.textContent = this.#query ? shown + " of " + this.#rows.size : "";
  }

  #match(row) {
    const fits = !this.#query || row.node.textContent.toLowerCase().includes(this.#query);
    row.node.hidden = !fits;
    return fits;
  }

  go(step) {
    const shown = [...this.places.list.querySelectorAll(":scope > ol > li")].filter((node) => !node.hidden);
    if (!shown.length) return;
    const at = shown.indexOf(this.#here);
    const next = shown[Math.min(shown.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : shown.length - 1) : at + step))];
    if (this.#here) this.#here.classList.remove("here");
    this.#here = next;
    next.classList.add("here");
    this.#moved = performance.now();
    next.scrollIntoView({ block: "nearest" });
    next.focus({ preventScroll: true });
  }

  open() {
    if (!this.#here) return;
    const details = [...this.#here.querySelectorAll("details")];
    const isOpen = details.some((one) => one.open);
    if (!isOpen) this.isFollowing = false;
    for (const one of details) one.open = !isOpen;
  }
}

class Row {
  constructor(item, actions) {
    this.item = item;
    this.actions = actions;
    this.growing = [];
    this.body = el("div.body");
    this.node = el("li." + item.kind, { tabindex: "-1" }, el("time", { datetime: item.at }, clock(item.at)), this.body);
    this.node.style.setProperty("--depth", String(Math.min(item.depth, 4)));
    if (item.depth) this.node.dataset.thread = line(item.thread, 60);
    this.remake();
  }

  remake() {
    const { item } = this;
    this.node.classList.toggle("rewound", item.rewound === true);
    const isCut = !item.streaming && this.growing.some((one) => one.isCut); // now it is whole
    if (item.kind === "message" && this.growing.length && !item.remake && !isCut) {
      this.grow();
      this.#badges();
      return;
    }
    item.remake = false;
    const before = [...this.body.querySelectorAll("details")], opened = before.map((one) => one.open);
    const focused = before.findIndex((one) => one.firstChild === document.activeElement);
    this.growing = [];
    this.body.replaceChildren(...this.#made().filter(Boolean));
    this.node.dataset.status = item.status ? line(item.status, 30) : "";
    const after = [...this.body.querySelectorAll("details")];
    after.forEach((one, at) => (one.open = opened[at] ?? one.open));
    if (focused >= 0 && after[focused]) after[focused].firstChild.focus({ preventScroll: true });
  }

  // One item that cannot be drawn is shown raw, and stops no other.
  #made() {
    try {
      return this[this.item.kind]();
    } catch (error) {
      return [el("p.problem", "This cannot be drawn: " + error.message), output(this.item.events.map((event) => JSON.stringify(event)).join("\n"))];
    }
  }

  grow() {
    this.item.parts.forEach((one, at) => {
      if (!this.growing[at]) {
        this.growing[at] = one.pieces ? new Growing(one.type) : { node: part(one), grow() {} };
        this.content.append(this.growing[at].node);
      }
      if (one.pieces && one.pieces.length) {
        this.growing[at].grow(one.pieces);
        one.pieces.length = 0;
      }
    });
  }

  // -- one method for each kind of item ------------------------------------------------------------------------------

  message() {
    const { item } = this;
    const user = item.depth ? "its task" : { user: "you", host: "the host" }[item.source] || "user, as the agent says";
    const who = item.role === "user" ? user : item.role === "developer" ? "developer" : item.agent || "agent";
    this.badges = el("span");
    this.content = el("div");
    if (item.streaming) this.grow();
    else this.content.append(...item.parts.map(part));
    this.#badges();
    this.node.classList.toggle("mine", item.role === "user" && user === "you");
    return [el("p.speaker", (item.depth && item.role !== "user" ? "@" : "") + line(who, 60), " ", this.badges), this.content];
  }

  #badges() {
    const { item } = this;
    this.badges.replaceChildren();
    if (item.streaming) this.badges.append(el("span.tag.dim", "writing"));
    if (item.interrupted) this.badges.append(el("span.tag.warn", "interrupted"));
    if (item.revised) this.badges.append(" ", el("span.tag.dim", "revised"));
  }

  call() {
    const { item } = this;
    const running = item.status === "running", progress = item.progress;
    const word = item.status === "waiting" ? "WAITS" : running ? "running" : item.status === "streaming" ? "writing arguments" : item.response && item.response.isError && item.status === "completed" ? "FAILED" : statusWord(item.status);
    const look = { completed: word === "FAILED" ? ".bad" : ".good", failed: ".bad", denied: ".bad", waiting: ".ask", unknown: ".odd" }[item.status] || ".dim";
    const took = item.response && item.tookS >= 0.05 && item.status !== "denied" ? " " + duration(item.tookS) : "";
    const given = item.decision && item.decision.args ? item.decision.args : item.args;
    const short = given === undefined ? item.argsText : shortly(given);
    const head = el("summary", el("span.no", "[" + item.number + "] "), el("b", line(item.name, 60)), " ", el("span.args", line(short, 90)), " ", el("span.tag" + look, word), el("span.dim", took),
      progress ? el("span.dim", " " + progress.done + (progress.total ? " of " + progress.total : "")) : null);
    const out = [];
    if (item.depth) out.push(el("p.dim", "on thread " + line(item.thread, 80)));
    out.push(el("h4", "arguments"), item.args === undefined ? output(item.argsText) : args(item.args));
    if (item.decision) {
      const { decision, by, reason, args: edited } = item.decision;
      out.push(el("h4", "decision"), el("p", decision === "granted" ? "granted by " : "denied by ", byWhom(by), ", " + clock(item.decision.timestamp), reason ? ": " + reason : ""));
      if (edited) out.push(el("p.tag.ask", "ran with edited arguments"), args(edited));
    }
    if (item.child) out.push(el("p.dim", "its own session: " + line(item.child, 80)));
    if (item.response) out.push(el("h4", "result"), result(item.response));
    else if (item.content.length) out.push(el("h4", "so far"), ...item.content.map(part));
    out.push(rawOf(item));
    const denied = item.status === "denied" && item.response;
    const because = denied && item.decision ? el("p.dim", byWhom(item.decision.by) + (item.decision.reason ? ": " + line(item.decision.reason, 200) : "")) : null;
    const isBad = look === ".bad" || item.status === "unknown";
    return [el("details", { open: false }, head, ...out), because, isBad && !denied && item.response ? el("div.brief", briefly(item.response)) : null];
  }

  question() {
    const { item } = this;
    const word = { waiting: "WAITS", accept: "answered", decline: "declined", cancel: "cancelled" }[item.status] || line(item.status, 30);
    const head = el("summary", "? ", el("b", item.ask.title || "question"), " ", el("span.args", line(item.ask.message, 120)), " ", el("span.tag" + (item.status === "waiting" ? ".ask" : ".dim"), word));
    const out = [el("p.said", item.ask.message)];
    if (item.response && item.response.content !== undefined) out.push(el("h4", "answer"), output(json(item.response.content)));
    return [el("details", head, ...out, rawOf(item))];
  }

  steer() {
    const { item } = this;
    const word = { queued: "queued, goes in before the next model call", injected: "injected", undelivered: "NOT delivered" }[item.status];
    const back = item.status === "undelivered" ? el("button.quiet", { type: "button", onclick: () => this.actions.takeBack(plainText(item.parts)) }, "put it back in the box") : null;
    return [el("p.speaker", "you, steering ", el("span.tag" + (item.status === "undelivered" ? ".bad" : ".dim"), word)), ...item.parts.map(part), back];
  }

  error() {
    const { item } = this;
    return [el("details", el("summary", el("span.tag.bad", "error " + line(item.status, 40)), " ", line(item.text, 200)), el("p.said", item.text), item.code ? el("p.dim", "code " + item.code) : null, rawOf(item))];
  }

  end() {
    const { item } = this;
    const look = item.reason === "completed" ? ".good" : item.reason === "failed" ? ".bad" : ".warn";
    const cause = typeof item.data.cause === "string" ? " (" + line(item.data.cause, 80) + ")" : "";
    const empty = item.data.empty ? ", nothing was said" : "";
    return [el("p", el("span.tag" + look, "ended: " + line(item.reason, 40)), cause + empty, item.tookS !== null ? el("span.dim", " " + duration(item.tookS)) : null, el("span.dim", " next: " + nextStep(item.reason)))];
  }

  plan() {
    return [el("p.speaker", "plan"), el("ul.plan", ...this.item.steps.map((one) => el("li", el("span.tag.dim", line(one.state, 20)), " ", el("span", one.text))))];
  }

  note() {
    return [el("p.dim", this.item.text)];
  }

  raw() {
    const { item } = this;
    return [el("details", el("summary", el("span.tag.dim", line(item.type, 40)), " ", line(item.what, 60)), output(json(item.data)))];
  }

  // What is read out of it: nothing while it is not whole.
  spoken() {
    const { item } = this;
    if (item.kind === "message") return item.streaming || item.role === "user" ? "" : (item.agent || "agent") + ": " + plainText(item.parts).slice(0, 2000);
    if (item.kind === "call" && item.response) return "call " + item.number + " " + item.name + " " + statusWord(item.status);
    if (item.kind === "error") return "error: " + item.text;
    if (item.kind === "end") return "ended: " + item.reason;
    if (item.kind === "steer" && item.status !== "queued") return "steer " + (item.status === "injected" ? "injected" : "not delivered");
    return "";
  }
}

// Arguments on a line: of a change where it is and how large.
function shortly(given) {
  const told = changeOf(given);
  if (told) return [told.path, "+" + told.lines.filter(([sign]) => sign === "+").length, "-" + told.lines.filter(([sign]) => sign === "-").length].filter(Boolean).join(" ");
  return Object.values(given).map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one))).join(" ");
}

function plainText(parts) {
  return parts.filter((one) => one && one.type === "text").map((one) => one.text).join("\n");
}

function briefly(response) {
  const text = (response.content || []).filter((one) => one && one.type === "text").map((one) => one.text).join("\n") || (typeof response.data === "string" ? response.data : json(response.data));
  return text ? output(text, 6) : null;
}

// The events of it as they came, made only when looked at.
function rawOf(item) {
  const box = el("details.raw", el("summary", "raw events"));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) box.append(output(item.events.map((event) => JSON.stringify(event)).join("\n"), 40));
  });
  return box;
}
