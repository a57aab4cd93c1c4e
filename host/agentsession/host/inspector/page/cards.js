// What waits for a person: a card each, the oldest first. Only a click on a focused, armed button says yes.
import { button, el } from "./dom.js";
import { schemaForm } from "./forms.js";
import { address, args, output } from "./parts.js";
import { byWhom, clock, escape, json, line, same } from "./text.js";

export const ARM_MS = 400;
const MOST_GONE = 4; // lines of what others answered; nobody may be here to dismiss them
let made = 0;

const CREDENTIAL = {
  type: "object",
  required: ["kind", "value"],
  properties: {
    kind: { title: "What you have", oneOf: [{ const: "api_key", title: "API key" }, { const: "bearer", title: "bearer token" }, { const: "oauth2", title: "access token (OAuth 2)" }, { const: "basic", title: "name and password" }, { const: "uri", title: "the address that the sign-in came back to" }] },
    username: { type: "string", title: "Name", description: "With a password." },
    value: { type: "string", title: "Key, token, password or address", format: "password" },
  },
};

const KNOWN = new Set(["tool_confirmation", "user_approval", "auth_required", "clarification"]); // a word of the title says it

function credential({ kind, username, value }) {
  if (kind === "uri") return { auth_response_uri: value };
  const named = { api_key: { api_key: value }, bearer: { token: value }, oauth2: { access_token: value }, basic: { username: username || "", password: value } }[kind];
  return { credential: { type: kind, ...named } };
}

export class Cards {
  #cards = new Map();
  #timer = null;
  #live = false;

  // `answer(item, answer)` sends one and gives its receipt; `endTurn()` aborts.
  constructor(place, actions) {
    this.place = place;
    this.actions = actions;
  }

  get count() {
    return [...this.#cards.values()].filter((card) => !card.gone).length;
  }

  clear() {
    this.#cards.clear();
    this.place.replaceChildren();
  }

  // Show what waits now. What is gone by somebody else's word stays as one line that says so.
  show(view, items, { isHosted }) {
    const now = new Set(items);
    let moved = false;
    // A card says what runs: where that changed it is another one, and its yes has to be given anew.
    for (const [item, card] of this.#cards)
      if (now.has(item) && card.isOutdated) {
        moved = true;
        this.#cards.set(item, this.#made(item, view, isHosted, card));
      }
    for (const [item, card] of this.#cards)
      if (!now.has(item) && !card.gone) {
        moved = true;
        if (card.isMine) this.#drop(item, card);
        else card.settle(() => this.#drop(item, card));
      }
    for (const item of items)
      if (!this.#cards.has(item)) {
        moved = true;
        this.#cards.set(item, this.#made(item, view, isHosted, null));
      }
    const gone = [...this.#cards].filter(([, card]) => card.gone);
    for (const [item, card] of gone.slice(0, -MOST_GONE)) this.#drop(item, card);
    if (moved) this.#arm();
  }

  #made(item, view, isHosted, before) {
    const card = new Card(item, view, isHosted, this.actions, () => this.place.focus());
    if (before && before.node.contains(document.activeElement)) this.place.focus();
    if (before) before.node.replaceWith(card.node);
    else this.place.append(card.node);
    return card;
  }

  // What the server says of why it asks, by request id; none of it is the agent's word.
  tellWhy(whys) {
    let moved = false;
    for (const [item, card] of this.#cards) if (!card.gone && whys.has(item.requestId)) moved = card.tellWhy(whys.get(item.requestId)) || moved;
    if (moved) this.#arm();
  }

  #drop(item, card) {
    const hadFocus = card.node.contains(document.activeElement);
    card.node.remove();
    this.#cards.delete(item);
    if (hadFocus) this.place.focus();
    this.#arm();
  }

  // Cards moved: a click that was on its way must not say yes to another one.
  #arm() {
    clearTimeout(this.#timer);
    for (const card of this.#cards.values()) card.arm(false, this.#live);
    this.#timer = setTimeout(() => {
      for (const card of this.#cards.values()) card.arm(true, this.#live);
    }, ARM_MS);
  }

  setLiveOnce(live) {
    if (this.#live === live) return;
    this.#live = live;
    this.#arm();
  }

  // The next waiting card's title gets the focus, never a button.
  next() {
    const open = [...this.#cards.values()].filter((card) => !card.gone);
    if (!open.length) return false;
    const at = open.findIndex((card) => card.node.contains(document.activeElement));
    const card = open[(at + 1) % open.length];
    card.node.scrollIntoView({ block: "nearest" });
    card.title.focus();
    return true;
  }
}

class Card {
  constructor(item, view, isHosted, actions, leave) {
    made += 1;
    Object.assign(this, { item, view, isHosted, actions, leave, args: item.args, isCut: item.isCut === true, gone: false, isMine: false, isBusy: false, yes: [], others: [] });
    this.title = el("h3", { tabindex: "-1", id: "card-" + made });
    this.why = el("p", { hidden: true });
    this.body = el("div");
    this.problem = el("p.problem", { role: "alert" });
    this.row = el("div.row");
    this.node = el("article.card", { "aria-labelledby": this.title.id }, this.title, this.body, this.problem, this.row);
    if (item.kind === "call") this.#call();
    else this.#question();
  }

  #asker() {
    const { item, view } = this;
    const path = item.thread ? item.thread.split(".") : [];
    const names = [view.agent, ...path.map((name, at) => view.threads.get(path.slice(0, at + 1).join(".")) || name)].filter(Boolean);
    return el("p.dim", "asked by " + line(names.join(" > ") || "the agent", 100) + ", " + clock(item.at));
  }

  // -- a call ----------------------------------------------------------------------------------------------------------

  #call() {
    const { item } = this;
    const wantsResult = !this.isHosted && item.needs !== "grant";
    this.title.append(el("span.tag.ask", wantsResult ? "RESULT NEEDED" : "APPROVE"), " ", el("span", "[" + item.number + "] " + line(item.name, 80)));
    const tool = this.view.tools.get(item.name);
    const marks = tool && tool.annotations ? [tool.annotations.destructive && "may destroy", tool.annotations.readOnly && "says it only reads"].filter(Boolean).join(", ") : "";
    this.body.append(this.#asker(), this.why);
    if (marks) this.body.append(el("p.dim", marks));
    if (this.isCut) this.body.append(el("p.problem", "The arguments are too long to be shown whole here. What runs is longer than this."));
    this.shown = el("div", args(item.args));
    this.body.append(this.shown);
    if (wantsResult) this.#resultButtons();
    else this.#callButtons(tool);
  }

  #callButtons(tool) {
    let form = null;
    const approve = button("Approve", () => {
      if (this.isOutdated) return; // the next drawing shows what it would run
      const edited = form ? form.read() : null;
      if (form && !edited) return;
      const changed = edited && !same(edited.value, this.args);
      this.#send({ kind: "tool_grant", requestId: this.item.requestId, ...(changed ? { args: edited.value } : {}), decision: { by: "user" } });
    }, ".yes");
    const edit = button("Edit", () => {
      if (form) {
        form = null;
        this.shown.replaceChildren(args(this.args));
      } else {
        form = schemaForm((tool && tool.parametersSchema) || { type: "object", properties: {} }, this.args || {}, { withJson: true });
        this.shown.replaceChildren(el("h4", "arguments to run with"), form.node);
        const first = form.node.querySelector("input, select, textarea");
        if (first) first.focus();
      }
      edit.textContent = form ? "Don't edit" : "Edit";
      approve.textContent = form ? "Approve edited" : "Approve";
    });
    this.yes.push(approve);
    this.others.push(edit);
    this.row.append(...this.#denyButtons(), ...(this.isCut ? [] : [edit]), approve);
  }

  #resultButtons() {
    const text = el("textarea", { rows: 4, "aria-label": "what the tool gave back" });
    const failed = el("input", { type: "checkbox" });
    this.body.append(el("p.dim", "You are the host here: run it, and say what came of it."), text, el("label.check", failed, "it failed"));
    const send = button("Send result", () => this.#send({ kind: "tool_result", requestId: this.item.requestId, content: [{ type: "text", text: text.value }], isError: failed.checked, decision: { by: "user" } }), ".yes");
    this.yes.push(send);
    this.row.append(...this.#denyButtons(), send);
  }

  #denyButtons() {
    const reason = el("input", { type: "text", placeholder: "why not (the model is told)", "aria-label": "reason for a no", autocomplete: "off" });
    const no = () => this.#send({ kind: "tool_denial", requestId: this.item.requestId, ...(reason.value.trim() ? { reason: reason.value.trim() } : {}), decision: { by: "user", ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) } });
    reason.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) event.preventDefault(), no();
    });
    const deny = button("Deny", no, ".no");
    const cancel = button("Cancel turn", () => this.actions.endTurn(), ".quiet");
    this.others.push(deny, cancel);
    this.body.append(reason);
    return [cancel, deny];
  }

  // -- a question ------------------------------------------------------------------------------------------------------

  #question() {
    const { ask } = this.item, { kind } = ask;
    const confirms = kind === "tool_confirmation" || kind === "user_approval";
    const word = { tool_confirmation: "CONFIRM", user_approval: "APPROVE", auth_required: "SIGN IN" }[kind] || "QUESTION";
    this.title.append(el("span.tag.ask", word), " ", el("span", line(ask.title || (this.item.tool ? this.item.tool.name : KNOWN.has(kind) ? "" : kind.replaceAll("_", " ")), 80)));
    this.body.append(this.#asker(), el("p.said", { dir: "auto" }, ask.message));
    if (this.item.tool) this.body.append(el("p.dim", "about [" + this.item.tool.number + "] " + line(this.item.tool.name, 80)), args(this.item.tool.args));
    if (ask.context !== undefined && !this.item.tool) this.body.append(el("details", el("summary", "more about it"), output(json(ask.context))));
    if (typeof ask.url === "string") this.body.append(el("p.dim", "It asks you to go to this address. Look at it before you open it:"), address(ask.url));
    if (ask.expiresAt) this.body.append(el("p.dim", "expires " + clock(ask.expiresAt)));
    const isCredential = kind === "auth_required" && !ask.requestedSchema;
    const schema = isCredential ? CREDENTIAL : ask.requestedSchema;
    const asksNothing = !schema || (schema.type === "object" && !Object.keys(schema.properties || {}).length);
    const form = asksNothing ? null : schemaForm(schema, undefined, { withJson: !isCredential });
    if (form) this.body.append(form.node);
    const accept = button(confirms && !form ? "Approve" : typeof ask.url === "string" && !form ? "I have been there" : form ? "Send" : "Accept", () => {
      const got = form ? form.read() : {};
      if (!got) return;
      const content = isCredential ? credential(got.value) : got.value;
      this.#send({ kind: "elicitation_response", requestId: this.item.requestId, action: "accept", ...(form ? { content } : {}) });
    }, ".yes");
    const decline = button("Decline", () => this.#send({ kind: "elicitation_response", requestId: this.item.requestId, action: "decline" }), ".no");
    const cancel = button("Cancel", () => this.#send({ kind: "elicitation_response", requestId: this.item.requestId, action: "cancel" }), ".quiet");
    this.yes.push(accept);
    this.others.push(decline, cancel);
    this.row.append(cancel, decline, accept);
  }

  // What was shown is not what would run.
  get isOutdated() {
    const { item } = this;
    if (this.gone || this.isBusy || item.kind !== "call") return false;
    return (item.isCut === true) !== this.isCut || (item.args !== this.args && !same(item.args, this.args));
  }

  tellWhy(why) {
    const told = "why: " + byWhom(why.by) + [why.where, why.reason].filter((one) => typeof one === "string" && one).map((one) => ", " + line(one, 200)).join("");
    if (this.why.textContent === escape(told)) return false;
    this.why.replaceChildren(el("span", told));
    this.why.hidden = false;
    return true;
  }

  // -- all -------------------------------------------------------------------------------------------------------------

  arm(ready, live) {
    this.isLive = live;
    this.isReady = ready;
    for (const one of this.yes) one.disabled = !ready || !live || this.isBusy;
    for (const one of this.others) one.disabled = !live || this.isBusy;
  }

  async #send(answer) {
    if (!this.isLive || this.isBusy || this.gone) return;
    this.isBusy = this.isMine = true;
    this.problem.replaceChildren();
    if (this.node.contains(document.activeElement)) this.leave(); // before its button is off, or the focus is lost
    this.arm(this.isReady, this.isLive);
    try {
      const receipt = await this.actions.answer(this.item, answer);
      if (receipt && receipt.status === "invalid") throw new Error(receipt.reason || "It was not taken.");
      if (receipt && receipt.status === "stale") this.isMine = false;
      if (!receipt || receipt.status !== "applied") this.isBusy = false;
      if (receipt && receipt.status === "not_found") throw new Error("It waits no longer.");
    } catch (error) {
      this.isBusy = this.isMine = false;
      this.problem.replaceChildren(el("span", error.message));
    }
    this.arm(this.isReady, this.isLive);
  }

  // Somebody else's word came first, or the turn ended.
  settle(dismiss) {
    this.gone = true;
    const { item } = this;
    if (this.node.contains(document.activeElement)) this.leave();
    const by = item.decision ? "answered by " + byWhom(item.decision.by) + " (" + line(item.decision.decision, 20) + "), " + clock(item.decision.timestamp)
      : item.status === "accept" || item.status === "decline" ? "answered elsewhere, " + clock(item.response.timestamp)
        : item.response ? line(item.response.status || item.response.action || "settled", 30) + ", " + clock(item.response.timestamp) : "waits no longer";
    this.node.classList.add("gone");
    this.body.replaceChildren(el("p", by));
    this.problem.replaceChildren();
    this.row.replaceChildren(button("Dismiss", dismiss, ".quiet"));
    this.yes = this.others = [];
  }
}
