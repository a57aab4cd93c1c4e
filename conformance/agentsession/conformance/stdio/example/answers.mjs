// The host's answers: what becomes of each, and the events that it leaves.

import { contradictsYes, digest, fits, isSecret, redact, same } from "./checks.mjs";
import { schemaOf } from "./play.mjs";

const CONFIRMATIONS = ["tool_confirmation", "user_approval"];

/** Take an answer, if it is good. A secret one is kept in memory until the agent takes it, and recorded only then. */
export function respond(session, given) {
  const receipt = checkAnswer(session, given);
  if (receipt.status !== "applied") return receipt;
  const { event } = session.requests.get(given.requestId);
  if (given.kind === "elicitation_response" && given.action === "accept" && isSecret(event)) {
    session.secrets.set(given.requestId, given);
    session.isAnswered = true;
  } else {
    recordAnswer(session, given);
  }
  return receipt;
}

/** The receipt that an answer gets. */
export function checkAnswer(session, given) {
  const { requestId, kind, name } = given;
  const no = (status, rule, reason) => ({ status, requestId, rule, reason });
  const request = session.requests.get(requestId);
  const isResolved = session.resolved.has(requestId) || session.secrets.has(requestId);
  if (request === undefined && !isResolved) return no("not_found", "TOOL-10", "there is no request with this id");
  if (isResolved) return no("stale", "TOOL-09", "it was answered or settled before");
  const { event, status } = request;
  const isQuestion = event.type === "elicitation_request";
  const isMisnamed = name !== undefined && name !== (event.name ?? event.kind);
  if (isMisnamed) return no("invalid", "TOOL-14", "the request has another name");
  if (kind === "tool_progress") {
    const isRunByHost = !isQuestion && event.needs === "result" && status === "waiting";
    if (!isRunByHost) return no("invalid", "TOOL-14", "the host does not run this");
    const isSecond = given.started === true && request.isStarted === true;
    return isSecond ? no("stale", "TOOL-16", "it was started before") : { status: "applied", requestId };
  }
  if (event.needs === "none") return no("invalid", "TOOL-14", "this request is shown, not asked");
  if (status !== "waiting") return no("stale", "TOOL-09", "it was answered before");
  const forTools = ["tool_result", "tool_denial", ...(event.needs === "grant" ? ["tool_grant"] : [])];
  const kinds = isQuestion ? ["elicitation_response"] : forTools;
  if (!kinds.includes(kind)) return no("invalid", "TOOL-14", `this takes: ${kinds.join(", ")}`);
  if (isQuestion) return checkPerson(event, given);
  const isDeniedTooLate = kind === "tool_denial" && request.isStarted === true;
  if (isDeniedTooLate) return no("invalid", "TOOL-16", "it was started: send its result, perhaps as unknown");
  if (kind === "tool_grant" && given.args !== undefined && !fits(schemaOf(event.name), given.args)) {
    return no("invalid", "TOOL-04", "the edited arguments do not fit the tool's schema");
  }
  return { status: "applied", requestId };
}

function checkPerson(question, { requestId, action, ...given }) {
  const no = (rule, reason) => ({ status: "invalid", requestId, rule, reason });
  const yes = { status: "applied", requestId };
  const content = given.content ?? null;
  if (!["accept", "decline", "cancel"].includes(action)) return no("HITL-02", "accept, decline or cancel");
  if (action !== "accept") return content === null ? yes : no("HITL-09", `${action} carries no content`);
  const isConfirmation = CONFIRMATIONS.includes(question.kind);
  if (isConfirmation && contradictsYes(content)) return no("HITL-08", "the content contradicts the acceptance");
  const isBare = isConfirmation && !Object.hasOwn(given, "content");
  const isFit = isBare || question.requestedSchema === undefined || fits(question.requestedSchema, content);
  return isFit ? yes : no("HITL-08", "the content does not satisfy the question's schema"); // and nothing of it is told
}

/** Record an answer that is good. */
export function recordAnswer(session, given) {
  const { event, args = {} } = session.requests.get(given.requestId);
  const { requestId, name, threadId, agentId } = event;
  const emit = (type, fields) => session.emit(type, { requestId, threadId, agentId, ...fields }, "host");
  const decide = (decision) => {
    const edited = given.args !== undefined && !same(given.args, args) ? given.args : undefined;
    const { by = "host", reason = given.reason } = given.decision ?? {};
    emit("tool_decision", { decision, args: edited, argsDigest: digest(edited ?? args), by, reason });
  };
  if (given.kind === "tool_progress") {
    const { content = [], data, progress, total } = given;
    emit("tool_update", { content, data, progress, total, started: given.started === true ? true : undefined });
  } else if (given.kind === "tool_grant") {
    decide("granted");
  } else if (given.kind === "tool_denial") {
    decide("denied");
    const data = { error: given.reason ?? given.decision?.reason ?? "denied by the host", denied: true };
    emit("tool_response", { name, content: [], data, isError: true, status: "denied" });
  } else if (given.kind === "tool_result") {
    if (given.decision !== undefined || given.args !== undefined) decide("granted");
    const { content = [], data, display, unknown: isUnknown = false } = given;
    const isError = given.isError === true || isUnknown;
    const status = isUnknown ? "unknown" : isError ? "failed" : "completed";
    emit("tool_response", { name, content, data, isError, status, display });
  } else {
    const isGiven = given.action === "accept" && given.content !== undefined;
    emit("elicitation_response", { action: given.action, content: isGiven ? redact(event, given.content) : undefined });
  }
}

/** The agent takes the secret answers to these requests now: they are recorded, without their secrets. */
export function takeSecrets(session, ids) {
  for (const id of ids.filter((wanted) => session.secrets.has(wanted))) {
    const given = session.secrets.get(id);
    session.secrets.delete(id);
    recordAnswer(session, given);
  }
}
