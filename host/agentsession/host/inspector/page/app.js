// The page: one session at a time, what waits beside it, and the box below.
import { Api, Problem, setToken } from "./api.js";
import { Cards } from "./cards.js";
import { button, el } from "./dom.js";
import { costWord, fold, newView, waitingItems } from "./fold.js";
import { Timeline } from "./timeline.js";
import { count, duration, escape, line, money } from "./text.js";

const $ = (id) => document.getElementById(id);
const api = new Api(document.querySelector('meta[name="agentsession-api"]').content);
// What a policy settles at once is not put before a person for a blink.
const SETTLE_MS = 250;

const timeline = new Timeline(
  { list: $("timeline"), scroller: $("scroller"), news: $("news"), log: $("log"), found: $("found") },
  { takeBack: (text) => takeBack(text) },
);
const cards = new Cards($("cards"), { answer: (item, answer) => respond(item, answer), endTurn: () => abort() });

let here = null; // {agent, id, view, isHosted, stop, live, upTo, key}
const drafts = new Map();
let agents = [];

// -- a session ---------------------------------------------------------------------------------------------------------

async function show(agent, id) {
  leave();
  const now = (here = { agent, id, view: newView(), isHosted: false, stop: new AbortController(), live: false, upTo: 0, isClosed: false, seen: new Map(), key: null, steers: new Set() });
  timeline.clear();
  cards.clear();
  $("box").value = drafts.get(agent + "/" + id) || "";
  tell("");
  $("empty").replaceChildren();
  markSession();
  try {
    const told = await api.call("GET", api.session(agent, id), undefined, { signal: now.stop.signal });
    now.isHosted = told.isHosted;
    now.upTo = told.lastSeq;
    $("compose").hidden = false;
    timeline.isLoud = now.upTo === 0;
    draw();
    const end = await api.follow(agent, id, 0, {
      signal: now.stop.signal,
      onEvent: (event) => take(now, event),
      onState: (state, last) => connected(now, state, last),
    });
    if (end === "left") return;
    now.isClosed = true;
    connected(now, "closed", 0);
  } catch (error) {
    if (now !== here || error.name === "AbortError") return;
    connected(now, "lost", 0);
    failed(error);
  }
}

function leave() {
  if (!here) return;
  drafts.set(here.agent + "/" + here.id, $("box").value);
  here.stop.abort();
  here = null;
}

function take(now, event) {
  if (now !== here) return;
  const told = fold(now.view, event);
  if (told) timeline.note(told);
  if (!timeline.isLoud && event.seq >= now.upTo) {
    timeline.flush();
    timeline.isLoud = true;
  }
  if (event.type === "stream_end") {
    for (const id of (event.data && event.data.undelivered) || []) giveBack(now, id);
    listSoon();
  }
  if (told === null || told.was !== "grown") drawSoon();
}

// An undelivered steer that was typed here goes back into the box, where that is empty; else a button in the timeline does it.
function giveBack(now, id) {
  const item = now.view.items.find((one) => one.kind === "steer" && one.steerId === id);
  if (!now.steers.delete(id) || !item || $("box").value.trim()) return;
  takeBack(item.parts.filter((one) => one.type === "text").map((one) => one.text).join("\n"));
  tell("Your steer was not delivered; it is in the box again.");
}

function takeBack(text) {
  const box = $("box");
  box.value = box.value.trim() ? box.value + "\n" + text : text;
}

function connected(now, state, last) {
  if (now !== here) return;
  now.live = state === "live";
  const words = { live: "", reconnecting: "reconnecting from #" + last, closed: "closed on the server", lost: "not connected" };
  $("connection").replaceChildren(el("span", words[state]), state === "closed" || state === "lost" ? button("Open again", () => show(now.agent, now.id), ".quiet") : "");
  draw();
}

// -- drawing -----------------------------------------------------------------------------------------------------------

let drawing = null;
function drawSoon() {
  drawing ??= setTimeout(() => {
    drawing = null;
    draw();
  }, 30);
}

function draw() {
  if (!here) {
    document.body.dataset.state = "";
    for (const id of ["compose", "abort"]) $(id).hidden = true;
    for (const id of ["state", "numbers", "connection"]) $(id).textContent = "";
    $("title").textContent = "agentsession";
    return;
  }
  const { view, live } = here;
  const isRunning = view.state === "running";
  const items = ripe();
  cards.show(view, items, { isHosted: here.isHosted });
  cards.setLiveOnce(live);
  const waiting = cards.count;
  $("calm").hidden = waiting > 0;
  $("waits").hidden = !waiting;
  $("waits").textContent = "! " + waiting + " waiting: tap";
  document.body.dataset.state = view.state;
  document.body.dataset.live = live ? "yes" : "no";
  const said = view.items.find((one) => one.kind === "message" && one.role === "user");
  const first = said && said.parts.find((one) => one.type === "text");
  $("title").textContent = line((view.agent || here.agent) + ": " + (view.title || (first ? first.text : here.id)), 90);
  document.title = (waiting ? "(" + waiting + ") " : "") + $("title").textContent;
  $("state").textContent = here.isClosed ? "CLOSED" : waiting ? "WAITS FOR YOU" : isRunning ? "RUNNING" : view.end && view.end.reason !== "input_required" ? line(view.end.reason, 30).toUpperCase() : view.state === "input_required" ? (here.isHosted ? "WORKING" : "PAUSED") : "READY";
  $("state").className = "tag " + (waiting ? "ask" : isRunning ? "run" : view.end && view.end.reason === "completed" ? "good" : "dim");
  numbers();
  const inTurn = isRunning || view.state === "input_required";
  $("abort").hidden = !inTurn;
  $("abort").disabled = !live;
  $("box-label").textContent = isRunning ? "Steer: goes in before the next model call" : view.state === "input_required" && waiting ? "Message: sending one cancels what waits" : "Message";
  $("send").textContent = isRunning ? "Steer" : "Send";
  $("send").disabled = !live || here.isSending === true;
  speakWaiting(items);
}

function numbers() {
  const { view } = here, { usage } = view;
  const parts = [];
  if (view.turn && view.began && view.state !== "idle") parts.push(duration(Math.max(0, (Date.now() - Date.parse(view.began)) / 1000)));
  if (usage.calls) parts.push(usage.hasTokens ? "in " + count(usage.input) + " out " + count(usage.output) : "tokens n/a", costWord(usage, money));
  if (usage.contextShare !== null) parts.push("ctx " + Math.round(usage.contextShare * 100) + "%");
  if (view.model || view.usedModel) parts.push(line(view.model || view.usedModel, 40));
  if (view.mode) parts.push("mode " + line(view.mode, 30));
  parts.push(here.isHosted ? "the server's rules decide" : "you are the host");
  $("numbers").replaceChildren(...parts.flatMap((one) => [el("span", one), " "]));
}

// Where a host on the server decides, a request is shown once it has waited a moment.
function ripe() {
  const items = waitingItems(here.view);
  if (!here.isHosted) return items;
  const now = performance.now();
  let next = Infinity;
  const out = items.filter((item) => {
    const since = here.seen.get(item) ?? now;
    here.seen.set(item, since);
    const left = item.kind === "question" ? 0 : since + SETTLE_MS - now;
    if (left > 0) next = Math.min(next, left);
    return left <= 0;
  });
  if (next < Infinity) setTimeout(drawSoon, next + 5);
  return out;
}

const spoken = new WeakSet();
function speakWaiting(items) {
  for (const item of items) {
    if (spoken.has(item)) continue;
    spoken.add(item);
    $("alert").textContent = escape("waits for you: " + (item.kind === "call" ? "call " + item.number + " " + item.name : item.ask.message));
  }
}

// -- what a person does --------------------------------------------------------------------------------------------------

async function respond(item, answer) {
  const now = here;
  const { receipts } = await api.call("POST", api.session(now.agent, now.id) + "/respond", { answers: [answer] });
  // Bare: this page is the host, so it lets a turn go on for which nothing waits any more.
  if (!now.isHosted && receipts[0] && receipts[0].status === "applied") await goOn(now);
  return receipts[0];
}

async function goOn(now) {
  const told = await api.call("GET", api.session(now.agent, now.id));
  if (told.state !== "input_required" || told.pending.length) return;
  try {
    await api.call("POST", api.session(now.agent, now.id) + "/stream", {});
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 409) throw error; // another page was quicker
  }
}

async function abort() {
  const now = here;
  $("abort").disabled = true;
  try {
    await api.call("POST", api.session(now.agent, now.id) + "/abort", { reason: "user" });
  } catch (error) {
    failed(error);
  }
  drawSoon();
}

async function send() {
  const now = here, text = $("box").value;
  if (!now || !text.trim() || !now.live || now.isSending) return;
  if (!now.key || now.key.text !== text) now.key = { text, id: crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2) + Date.now() };
  const isSteer = now.view.state === "running";
  now.isSending = true;
  draw();
  try {
    const path = api.session(now.agent, now.id) + (isSteer ? "/steer" : "/stream");
    const body = isSteer ? { message: text } : { input: { kind: "message", content: [{ type: "text", text }] } };
    const got = await api.call("POST", path, body, { key: now.key.id + (isSteer ? "-s" : "-m") });
    if (isSteer && got.status !== "queued" && got.status !== "applied") throw new Error("The steer was not taken: " + (got.reason || got.status));
    if (isSteer && got.requestId) now.steers.add(got.requestId);
    now.key = null;
    if (now === here) {
      if ($("box").value.startsWith(text)) $("box").value = $("box").value.slice(text.length);
      tell(isSteer ? "Steer queued." : "");
      timeline.toEnd();
    } else drafts.delete(now.agent + "/" + now.id);
  } catch (error) {
    if (now === here) failed(error, "Not sent, it is still in the box: ");
  }
  now.isSending = false;
  drawSoon();
}

function tell(text) {
  $("told").textContent = escape(text);
}

function failed(error, before = "") {
  if (error instanceof Problem && error.status === 401) return login(error.message);
  const fix = error instanceof Problem && typeof error.problem.fix === "string" ? " Try: " + error.problem.fix : "";
  const text = before + (error instanceof TypeError ? "the server cannot be reached" : error.message) + fix;
  if ($("compose").hidden) $("empty").replaceChildren(el("p.problem", { role: "alert" }, text), button("Try again", start));
  else tell(text);
}

// -- sessions ------------------------------------------------------------------------------------------------------------

async function list() {
  const told = await api.call("GET", "/agents");
  agents = await Promise.all(
    told.agents.map(async (agent) => ({ ...agent, sessions: (await api.call("GET", api.session(agent.name))).sessions })),
  );
  $("agents").replaceChildren(
    ...agents.map((agent) =>
      el("section", el("h3", line((agent.descriptor && agent.descriptor.displayName) || agent.name, 60)), button("New session", () => open(agent.name)),
        el("ul", ...agent.sessions.map((info) => entry(agent.name, info)))),
    ),
  );
  markSession();
  if (!here) emptyState();
}

function entry(agent, info) {
  const word = { running: "running", input_required: "waits", closed: "closed" }[info.state] || "";
  const facts = [word, info.pending ? info.pending + " waiting" : "", info.turns !== undefined ? info.turns + (info.turns === 1 ? " turn" : " turns") : ""].filter(Boolean).join(", ");
  const link = el("a", { href: hashOf(agent, info.sessionId), "data-id": agent + "/" + info.sessionId }, el("span", line(info.title || info.sessionId, 60)), el("span.dim", facts));
  return el("li", link);
}

function hashOf(agent, id) {
  return "#/" + encodeURIComponent(agent) + "/" + encodeURIComponent(id);
}

let listing = null;
function listSoon() {
  listing ??= setTimeout(() => {
    listing = null;
    list().catch(() => {}); // the list is looked at again later; what is open tells its own trouble
  }, 400);
}

function markSession() {
  for (const link of $("agents").querySelectorAll("a")) {
    const isHere = here && link.dataset.id === escape(here.agent + "/" + here.id);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function open(agent) {
  try {
    const made = await api.call("POST", api.session(agent), {});
    location.hash = hashOf(agent, made.sessionId);
    listSoon();
    sheet(null);
  } catch (error) {
    failed(error);
  }
}

function emptyState() {
  const first = agents[0];
  const has = agents.some((agent) => agent.sessions.length);
  const command = "curl -X POST " + new URL(api.base + (first ? api.session(first.name) : "/agents"), location.href).href;
  const copied = el("span", { role: "status" });
  $("empty").replaceChildren(
    el("p", has ? "Choose a session, or start one." : "No session yet. Start one here, or from a terminal:"),
    has ? "" : el("p.copy", el("code", command), " ", button("Copy", async () => {
      try {
        await navigator.clipboard.writeText(command);
        copied.textContent = "copied";
      } catch {
        getSelection().selectAllChildren($("empty").querySelector("code"));
        copied.textContent = "selected";
      }
    }), " ", copied),
    first ? button("New session", () => open(first.name), ".yes") : el("p", "This server serves no agent."),
  );
}

// -- getting in ----------------------------------------------------------------------------------------------------------

function login(problem) {
  leave();
  draw();
  timeline.clear();
  cards.clear();
  $("login-problem").textContent = problem && sessionStorage.length ? "This token was not taken. " : "";
  setToken(null);
  if (!$("login").open) $("login").showModal();
}

async function start() {
  try {
    await list();
    arrive();
  } catch (error) {
    failed(error);
  }
}

function arrive() {
  const found = /^#\/([^/]+)\/([^/]+)$/.exec(location.hash);
  if (found) {
    let names;
    try {
      names = found.slice(1).map(decodeURIComponent);
    } catch {
      return;
    }
    show(...names);
  } else {
    leave();
    timeline.clear();
    cards.clear();
    draw();
    emptyState();
  }
  sheet(null);
}

// On a phone one sheet at a time covers the timeline.
let opener = null;
function sheet(name) {
  if (name) opener = document.activeElement;
  document.body.dataset.sheet = name || "";
  if (name === "waiting") $("cards").focus({ preventScroll: true });
  else if (name) $("sessions").querySelector(".close").focus();
  else if (opener) opener.focus(), (opener = null);
}

$("login").addEventListener("cancel", (event) => event.preventDefault());
$("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value.trim());
  $("token").value = "";
  $("login").close();
  start();
});
$("compose").addEventListener("submit", (event) => (event.preventDefault(), send()));
$("box").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), send();
});
$("abort").addEventListener("click", abort);
$("open-sessions").addEventListener("click", () => sheet("sessions"));
$("waits").addEventListener("click", () => sheet("waiting"));
for (const close of document.querySelectorAll(".sheet-head .close")) close.addEventListener("click", () => sheet(null));
$("help-button").addEventListener("click", () => $("help").showModal());
$("search").addEventListener("input", () => timeline.search($("search").value));
window.addEventListener("hashchange", arrive);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const at = event.target;
  if (event.key === "Escape") {
    if (at === $("search")) ($("search").value = ""), timeline.search("");
    if (document.body.dataset.sheet) sheet(null);
    else at.blur();
    return;
  }
  if (at.matches("input, textarea, select")) return;
  const does = {
    j: () => timeline.go(1), k: () => timeline.go(-1), "/": () => $("search").focus(), m: () => $("box").focus(),
    "?": () => $("help").showModal(),
    w: () => {
      if (cards.count && getComputedStyle($("waits")).display !== "none") sheet("waiting");
      cards.next();
    },
    Enter: at.matches("button, a, summary") ? null : () => timeline.open(),
  }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});
setInterval(() => here && here.view.state === "running" && numbers(), 1000);
setInterval(() => document.hidden || $("login").open || listSoon(), 15_000);
start();
