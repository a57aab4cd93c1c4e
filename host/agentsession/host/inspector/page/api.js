// The contract over HTTP, as docs/reference/http.md has it. Nothing here knows the page.
import { parse } from "./text.js";

const TOKEN = "agentsession.token";

// An answer from 400 on. `problem` is the body, as far as it was one.
export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || "HTTP " + status);
    this.status = status;
    this.problem = problem;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

export class Api {
  constructor(base) {
    this.base = base;
  }

  session(agent, id) {
    return "/agents/" + encodeURIComponent(agent) + "/sessions" + (id === undefined ? "" : "/" + encodeURIComponent(id));
  }

  async call(method, path, body, { key, signal } = {}) {
    const headers = { Accept: "application/json", ...auth() };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (key) headers["Idempotency-Key"] = key;
    const answer = await fetch(this.base + path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer",
    });
    if (!answer.ok) throw await problemOf(answer);
    return answer.status === 204 ? null : parse(await answer.text());
  }

  // The events after `cursor`, one `onEvent` each, for as long as it takes. Resolves when there is nothing left to come.
  // A connection that breaks is made again with Last-Event-ID; `onState("live" | "reconnecting")` tells.
  async follow(agent, id, cursor, { onEvent, onState, signal }) {
    let last = cursor, tries = 0;
    while (!signal.aborted) {
      try {
        const answer = await fetch(this.base + this.session(agent, id) + "/events?follow=true&after=" + cursor, {
          headers: { Accept: "text/event-stream", ...(last > cursor ? { "Last-Event-ID": String(last) } : {}), ...auth() },
          signal, cache: "no-store", credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer",
        });
        if (answer.status === 204) return "ended";
        if (!answer.ok) throw await problemOf(answer);
        onState("live", last);
        for await (const one of sseEvents(answer.body)) {
          if (one.event === "closed") return "closed";
          if (one.event === "problem") break;
          if (one.event !== "message") continue;
          onEvent(parse(one.data));
          if (one.id) last = Number(one.id);
          tries = 0;
        }
      } catch (error) {
        if (signal.aborted) return "left";
        if (error instanceof Problem && error.status < 500 && ![408, 423, 429].includes(error.status)) throw error;
      }
      onState("reconnecting", last);
      await wait(Math.min(10_000, 250 * 2 ** Math.min(tries, 6)), signal);
      tries += 1;
    }
    return "left";
  }
}

function auth() {
  const own = token();
  return own ? { Authorization: "Bearer " + own } : {};
}

async function problemOf(answer) {
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // not ours: a proxy's page
  }
  return new Problem(answer.status, typeof body === "object" && body !== null ? body : {});
}

// Ends early when the network is back or the page is looked at again.
function wait(ms, signal) {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      document.removeEventListener("visibilitychange", end);
      signal.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    window.addEventListener("online", end);
    document.addEventListener("visibilitychange", end);
    signal.addEventListener("abort", end);
  });
}

async function* sseEvents(body) {
  const parser = new SseParser();
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Server-sent events out of text that is cut anywhere. An event that is not whole at the end is dropped, as the standard says.
export class SseParser {
  #parts = [];
  #one = { event: "message", data: [], id: "" };

  feed(text) {
    if (!text.includes("\n")) {
      this.#parts.push(text);
      return [];
    }
    const lines = (this.#parts.join("") + text).split("\n");
    this.#parts = [lines.pop()];
    const out = [];
    for (const whole of lines) {
      const line = whole.endsWith("\r") ? whole.slice(0, -1) : whole;
      if (line === "") {
        if (this.#one.data.length) out.push({ ...this.#one, data: this.#one.data.join("\n") });
        this.#one = { event: "message", data: [], id: "" };
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (name === "data") this.#one.data.push(value);
      else if (name === "event") this.#one.event = value;
      else if (name === "id") this.#one.id = value;
    }
    return out;
  }
}
