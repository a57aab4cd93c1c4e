// The page: one session at a time, what waits beside it, and the box below.
import { Api, Problem, setToken } from "./api.js";
import { Cards } from "./cards.js";
import { button, el } from "./dom.js";
import { costWord, fold, newView, waitingItems } from "./fold.js";
import { Sessions, hashOf } from "./sessions.js";
import { Timeline } from "./timeline.js";
import { count, duration, escape, line, money } from "./text.js";

const $ = (id) => document.getElementById(id);
const api = new Api(document.querySelector('meta[name="agentsession-api"]').content);
// Where a host on the server decides, it is asked after each of these whether it asks, and why. A call that it says nothing
// of is shown after the last: so does one that waited when the server was started again.
const WHY_MS = [250, 400, 1500];
const STUCK_MS = 1500;

const timeline = new Timeline(
  { list: $("timeline"), scroller: $("scroller"), news: $("news"), log: $("log"), found: $("found") },
  { takeBack: (text) => takeBack(text) },
);
const cards = new Cards($("cards"), { answer: (item, answer) => respond(item, answer), endTurn: () => abort() });

const sessions = new Sessions(api, {
  open: (agent) => open(agent),
  listed: () => (sessions.mark(here), here || emptyState()),
  gone: (agent, id) => {
    if (here && here.agent === agent && here.id === id) leave(), (location.hash = "");
    drafts.delete(agent + "/" + id);
  },
  login: () => login(),
});

let here = null; // {agent, id, view, isHosted, stop, live, upTo, key}
const drafts = new Map();

// -- a session ---------------------------------------------------------------------------------------------------------

async function show(agent, id) {
  leave();
  const now = (here = { agent, id, view: newView(), isHosted: false, stop: new AbortController(), live: false, upTo: 0, isClosed: false, key: null, steers: new Set(), whys: new Map(), tried: new Map(), timer: null, stuckAt: null });
  timeline.clear();
  cards.clear();
  $("box").value = drafts.get(agent + "/" + id) || "";
  tell("");
  $("empty").replaceChildren();
  sessions.mark(here);
  try {
    const told = await api.call("GET", api.session(agent, id), undefined, { signal: now.stop.signal });
    now.isHosted = told.isHosted;
    now.upTo = told.lastSeq;
    learn(now, told.pending);
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
    sessions.soon();
  }
  if (told === null || told.was !== "grown" || told.also) drawSoon();
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
    for (const id of ["compose", "abort", "waits"]) $(id).hidden = true;
    for (const id of ["state", "numbers", "connection"]) $(id).textContent = "";
    $("title").textContent = "agentsession";
    return;
  }
  const { view, live } = here;
  const isRunning = view.state === "running";
  const items = ripe();
  cards.show(view, items, { isHosted: here.isHosted });
  cards.tellWhy(here.whys);
  cards.setLiveOnce(live);
  askWhySoon(here);
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
  $("state").className = "tag " + (waiting ? "ask" : isRunning ? "run" : { completed: "good", failed: "bad" }[view.end && view.end.reason] || "dim");
  numbers();
  const inTurn = isRunning || view.state === "input_required";
  $("abort").hidden = !inTurn;
  $("abort").disabled = !live;
  $("box-label").textContent = isRunning ? "Steer: goes in before the next model call" : view.state === "input_required" && waiting ? "Message: sending one cancels what waits" : "Message";
  $("send").textContent = isRunning ? "Steer" : "Send";
  $("send").disabled = !live || here.isSending === true;
  $("go-on").hidden = !isStuck(here);
  $("go-on").disabled = !live;
  speakWaiting(items);
}

// Bare, who answered last has the turn go on. Where that did not happen, as when a page was closed, a person can do it.
function isStuck(now) {
  const { view } = now;
  if (now.isHosted || view.state !== "input_required" || view.waiting.size) {
    now.stuckAt = null;
    return false;
  }
  now.stuckAt ??= performance.now();
  const left = now.stuckAt + STUCK_MS - performance.now();
  if (left > 0) setTimeout(drawSoon, left + 5);
  return left <= 0;
}

function numbers() {
  const { view } = here, { usage } = view;
  const parts = [];
  if (view.turn && view.began && view.state !== "idle") parts.push(duration(Math.max(0, (Date.now() - Date.parse(view.began)) / 1000)));
  if (usage.calls) parts.push(usage.hasTokens ? "in " + count(usage.input) + " out " + count(usage.output) : "tokens n/a", costWord(usage, money));
  if (usage.contextShare !== null) parts.push("ctx " + Math.round(usage.contextShare * 100) + "%");
  if (view.model || view.usedModel) parts.push(line(view.model || view.usedModel, 40));
  if (view.mode) parts.push("mode " + line(view.mode, 30));
  parts.push(here.isHosted ? "the server's rules decide" : "you decide on each call");
  $("numbers").replaceChildren(...parts.flatMap((one) => [el("span", one), " "]));
}

// Where a host on the server decides, a call is shown once it is known that the host asks.
function ripe() {
  const items = waitingItems(here.view);
  return here.isHosted ? items.filter((item) => !isOpen(here, item)) : items;
}

// Whether it is not known yet why the host asks about it. It says so with what waits; the record has it after the decision.
function isOpen(now, item) {
  return item.kind === "call" && !now.whys.has(item.requestId) && (now.tried.get(item) || { count: 0 }).count < WHY_MS.length;
}

function askWhySoon(now) {
  clearTimeout(now.timer);
  const open = now.isHosted ? waitingItems(now.view).filter((item) => isOpen(now, item)) : [];
  for (const item of open) if (!now.tried.has(item)) now.tried.set(item, { count: 0, due: performance.now() + WHY_MS[0] });
  if (open.length) now.timer = setTimeout(() => askWhy(now, open), Math.min(...open.map((item) => now.tried.get(item).due)) - performance.now());
}

async function askWhy(now, open) {
  const at = performance.now() + 5;
  for (const item of open) {
    const one = now.tried.get(item);
    if (one.due <= at) (one.count += 1), (one.due = at + (WHY_MS[one.count] ?? Infinity));
  }
  try {
    learn(now, (await api.call("GET", api.session(now.agent, now.id), undefined, { signal: now.stop.signal })).pending);
  } catch {
    // only a help: a call is shown without, and what else fails tells its own trouble
  }
  drawSoon();
}

function learn(now, pending) {
  for (const { requestId, _meta, args } of pending || []) {
    if (_meta && _meta.why && typeof _meta.why.by === "string") now.whys.set(requestId, _meta.why);
    const item = now.view.waiting.get(requestId);
    if (item && item.isCut && args && !(_meta && _meta.cut)) Object.assign(item, { args, isCut: false }); // here it is whole
  }
}

const spoken = new WeakSet();
function speakWaiting(items) {
  const fresh = items.filter((item) => !spoken.has(item));
  for (const item of fresh) spoken.add(item);
  const words = fresh.map((item) => (item.kind === "call" ? "call " + item.number + " " + item.name : item.ask.message));
  if (words.length) $("alert").textContent = escape("waits for you: " + words.join("; "));
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

let isOpening = false;
async function open(agent) {
  if (isOpening) return; // two clicks are one session
  isOpening = true;
  try {
    const made = await api.call("POST", api.session(agent), {});
    location.hash = hashOf(agent, made.sessionId);
    sessions.soon();
    sheet(null);
  } catch (error) {
    failed(error);
  }
  isOpening = false;
}

function emptyState() {
  const { agents } = sessions, first = agents[0];
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
    await sessions.read();
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
const phone = matchMedia("(max-width: 48rem)");
function sheet(name) {
  if (name) opener = document.activeElement;
  document.body.dataset.sheet = name || "";
  // What a sheet covers is not there for keys and readers either.
  for (const one of document.querySelectorAll("body > header, #waits, #middle")) one.inert = Boolean(name) && phone.matches;
  if (name === "waiting") $("cards").focus({ preventScroll: true });
  else if (name) $("sessions").querySelector(".close").focus();
  else if (opener) opener.focus(), (opener = null);
}

$("login").addEventListener("cancel", (event) => event.preventDefault());
$("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = $("token").value.trim();
  $("token").value = "";
  if (!/^[\x21-\x7e]+$/.test(given)) return void ($("login-problem").textContent = "A token has no blanks, and only ASCII characters.");
  setToken(given);
  $("login").close();
  start();
});
$("compose").addEventListener("submit", (event) => (event.preventDefault(), send()));
$("box").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), send();
});
$("abort").addEventListener("click", abort);
$("go-on").addEventListener("click", () => goOn(here).catch(failed));
phone.addEventListener("change", () => sheet(null));
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
setInterval(() => here && here.view.turn && numbers(), 1000);
setInterval(() => document.hidden || $("login").open || sessions.soon(), 15_000);
start();
