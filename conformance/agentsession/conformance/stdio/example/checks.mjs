// Checks of values: digests, schemas, ids, what is a secret and what is a yes.

import { createHash } from "node:crypto";
import { Fail } from "./wire.mjs";

const REDACTED = "[redacted]";

const words = (text) => text.split(" ");
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** RFC 8785: sorted keys, no spaces; JavaScript writes numbers and texts as it asks. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const pairs = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
  return `{${pairs.join(",")}}`;
}

/** What an approval is bound to (HITL-04). */
export const digest = (args) => createHash("sha256").update(canonical(args ?? {})).digest("hex");

export const same = (a, b) => canonical(a) === canonical(b);

/** An id that a host has chosen, if it can be one: it becomes a file's name. */
export function checkId(value, what) {
  const isText = typeof value === "string" && value.length > 0 && value.length <= 256 && value === value.trim();
  if (!isText || /[\p{C}\p{Zl}\p{Zp}/\\%]/u.test(value) || /^\.+$/.test(value)) {
    throw new Fail("InvalidInput", `this ${what} cannot be used`);
  }
  return value;
}

// --- schemas ------------------------------------------------------------------------------------------------------

const TYPES = {
  object: isObject,
  array: Array.isArray,
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: Number.isInteger,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};
const REMARKS = words("title description default examples format writeOnly readOnly $schema $comment");

/** The keywords of JSON Schema that are checked here: whether a value satisfies them. */
const KEYWORDS = {
  type: (value, types) => [types].flat().some((type) => TYPES[type]?.(value)),
  enum: (value, allowed) => allowed.some((item) => same(item, value)),
  const: (value, only) => same(only, value),
  properties: (value, parts) =>
    !isObject(value) ||
    Object.entries(parts).every(([key, part]) => !Object.hasOwn(value, key) || fits(part, value[key])),
  required: (value, keys) => !isObject(value) || keys.every((key) => Object.hasOwn(value, key)),
  additionalProperties: (value, part, schema) =>
    !isObject(value) ||
    Object.keys(value).every((key) => Object.hasOwn(schema.properties ?? {}, key) || fits(part, value[key])),
  items: (value, part) => !Array.isArray(value) || value.every((item) => fits(part, item)),
  minimum: (value, least) => typeof value !== "number" || value >= least,
  maximum: (value, most) => typeof value !== "number" || value <= most,
  minLength: (value, least) => typeof value !== "string" || [...value].length >= least,
  maxLength: (value, most) => typeof value !== "string" || [...value].length <= most,
};

/** Whether a value satisfies a schema; one with a keyword that is not known here is satisfied by nothing. */
export function fits(schema, value) {
  if (typeof schema === "boolean") return schema;
  const isKnown = Object.keys(schema).every((key) => REMARKS.includes(key) || Object.hasOwn(KEYWORDS, key));
  return isKnown && Object.entries(schema).every(([key, given]) => KEYWORDS[key]?.(value, given, schema) ?? true);
}

// --- secrets ------------------------------------------------------------------------------------------------------

const isMarked = (schema) => schema.writeOnly === true || schema.format === "password";

/** Whether anything in a schema is marked as a secret. */
function marksSecret(schema) {
  if (Array.isArray(schema)) return schema.some(marksSecret);
  return isObject(schema) && (isMarked(schema) || Object.values(schema).some(marksSecret));
}

/** A question whose answer is kept out of the record, and is recorded without its secret when the agent takes it. */
export const isSecret = (question) => question.kind === "auth_required" || marksSecret(question.requestedSchema);

/** What may be recorded of an answer: of a credential its type, of a form what is not marked. */
export function redact(question, content) {
  if (question.kind !== "auth_required") return redactMarked(question.requestedSchema, content);
  const type = content?.credential?.type;
  return typeof type === "string" ? { credential: { type, value: REDACTED } } : REDACTED;
}

function redactMarked(schema, content) {
  if (!marksSecret(schema)) return content;
  if (isMarked(schema) || !isObject(content)) return REDACTED;
  const parts = Object.entries(content).map(([key, value]) => [key, redactMarked(schema.properties?.[key], value)]);
  return Object.fromEntries(parts);
}

// --- a clear yes --------------------------------------------------------------------------------------------------

const YES = words(
  "y yes ok okay true accept accepted agree agreed allow allowed approve approved confirm confirmed grant granted",
);
const NO = words(
  "n no false abort block blocked cancel cancelled canceled decline declined deny denied disagree disallow forbid " +
    "never refuse refused reject rejected skip stop",
);
const TELLING = words("decision action answer outcome response verdict");
const word = (text) => text.trim().toLowerCase();

/** Whether the content of an acceptance says no, or might: nothing but a clear yes lets a tool run (HITL-08). */
export function contradictsYes(content) {
  if (content === undefined || content === null || content === true) return false;
  if (typeof content === "string") return !YES.includes(word(content));
  if (!isObject(content)) return true;
  let isTold = false;
  for (const [key, value] of Object.entries(content)) {
    const name = word(key);
    const isTelling = TELLING.includes(name);
    if (NO.includes(name)) {
      if (value !== false) return true;
    } else if (isTelling || YES.includes(name)) {
      const isYes = value === true || (isTelling && typeof value === "string" && YES.includes(word(value)));
      if (!isYes) return true;
      isTold = true;
    }
  }
  return !isTold && Object.values(content).some((value) => typeof value === "string" && NO.includes(word(value)));
}
