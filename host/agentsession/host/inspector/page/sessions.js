// The list of the sessions of each agent, and deleting one. Which one is open the page says.
import { Problem } from "./api.js";
import { button, el } from "./dom.js";
import { escape, line } from "./text.js";

const $ = (id) => document.getElementById(id);

export function hashOf(agent, id) {
  return "#/" + encodeURIComponent(agent) + "/" + encodeURIComponent(id);
}

export class Sessions {
  #shown = "";
  #soon = null;
  #doomed = null;

  // `actions`: open(agent) starts a session, listed() was read anew, gone(agent, id) was deleted, login() needs a token.
  constructor(api, actions) {
    this.api = api;
    this.actions = actions;
    this.agents = [];
    $("delete-yes").addEventListener("click", () => this.#delete());
    $("delete-no").addEventListener("click", () => $("delete").close());
  }

  async read() {
    const told = await this.api.call("GET", "/agents");
    this.agents = await Promise.all(
      told.agents.map(async (agent) => ({ ...agent, sessions: (await this.api.call("GET", this.api.session(agent.name))).sessions })),
    );
    this.#draw();
    this.actions.listed();
  }

  soon() {
    this.#soon ??= setTimeout(() => {
      this.#soon = null;
      this.read().catch(() => {}); // the list is looked at again later; what is open tells its own trouble
    }, 400);
  }

  // Which one is open: {agent, id}, or null.
  mark(here) {
    for (const link of $("agents").querySelectorAll("a")) {
      if (here && link.dataset.key === escape("open " + here.agent + "/" + here.id)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  // Made anew only where something changed, and then what had the focus has it again.
  #draw() {
    const told = JSON.stringify(this.agents);
    if (told === this.#shown) return;
    this.#shown = told;
    const focused = document.activeElement.closest("#agents [data-key]");
    $("agents").replaceChildren(
      ...this.agents.map((agent) =>
        el("section", el("h3", line((agent.descriptor && agent.descriptor.displayName) || agent.name, 60)),
          el("button", { type: "button", "data-key": "new " + agent.name, onclick: () => this.actions.open(agent.name) }, "New session"),
          el("ul", agent.sessions.map((info) => this.#entry(agent, info)))),
      ),
    );
    const again = focused && [...$("agents").querySelectorAll("[data-key]")].find((one) => one.dataset.key === focused.dataset.key);
    if (again) again.focus({ preventScroll: true });
  }

  #entry({ name: agent, descriptor }, info) {
    const word = { running: "running", input_required: info.pending ? "" : "paused", closed: "closed" }[info.state] || "";
    const turns = info.turns !== undefined ? info.turns + (info.turns === 1 ? " turn" : " turns") : "";
    const facts = [word, info.pending ? info.pending + " waiting" : "", turns].filter(Boolean).join(", ");
    const title = line(info.title || info.sessionId, 60), key = agent + "/" + info.sessionId;
    const link = el("a", { href: hashOf(agent, info.sessionId), "data-key": "open " + key }, el("span", title), el("span.dim", facts));
    const can = descriptor && Array.isArray(descriptor.capabilities) && descriptor.capabilities.includes("delete");
    const ask = () => this.#ask(agent, info.sessionId, title);
    return el("li", link, can ? el("button.quiet", { type: "button", "data-key": "delete " + key, "aria-label": "Delete session " + title, onclick: ask }, "×") : null);
  }

  // Asked about first: it cannot be taken back.
  #ask(agent, id, title) {
    this.#doomed = { agent, id };
    $("delete-which").textContent = escape(title);
    $("delete-problem").textContent = "";
    $("delete").showModal();
  }

  async #delete() {
    const { agent, id } = this.#doomed;
    $("delete-yes").disabled = true;
    try {
      await this.api.call("DELETE", this.api.session(agent, id)).catch((error) => {
        if (!(error instanceof Problem) || error.status !== 404) throw error; // somebody else was quicker
      });
      $("delete").close();
      this.actions.gone(agent, id);
      await this.read();
    } catch (error) {
      if (error instanceof Problem && error.status === 401) $("delete").close(), this.actions.login();
      else $("delete-problem").textContent = escape("Not deleted: " + (error instanceof TypeError ? "the server cannot be reached" : error.message));
    }
    $("delete-yes").disabled = false;
  }
}
