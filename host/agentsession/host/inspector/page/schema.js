// A JSON Schema becomes the fields of a form, and what was typed into them a value. Pure.
//
// What a person can fill in one line each becomes a field, an object in an object a group of them; what else is nested is
// a box for JSON. The server checks everything again: a form here helps, it decides nothing.
import { parse, same } from "./text.js";

const DEEPEST = 3; // groups in groups; then JSON

// {fields, isWhole}: the fields of an object schema, or one field named "" for a schema of something else.
export function formOf(schema, initial) {
  const root = plain(schema, schema);
  const isObject = root.type === "object" || (root.type === undefined && typeof root.properties === "object");
  if (!isObject) return { isObject: false, fields: [field("", root, true, initial, root, 0)] };
  return { isObject: true, fields: fieldsOf(root, initial, root, 0) };
}

function fieldsOf(group, initial, whole, depth) {
  const required = new Set(Array.isArray(group.required) ? group.required : []);
  const given = isPlainObject(initial) ? initial : {};
  const properties = isPlainObject(group.properties) ? group.properties : {};
  const fields = Object.keys(properties).map((name) =>
    field(name, plain(properties[name], whole), required.has(name), Object.hasOwn(given, name) ? given[name] : undefined, whole, depth),
  );
  // What was given and the schema does not name is kept: an edit never drops an argument unseen.
  for (const name of Object.keys(given))
    if (!Object.hasOwn(properties, name)) fields.push(field(name, { type: typeOf(given[name]) }, false, given[name], whole, depth));
  return fields;
}

function isPlainObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// A schema without what only leads to another: a local $ref, and "or null".
function plain(schema, whole) {
  let one = schema;
  for (let depth = 0; depth < 8; depth += 1) {
    if (typeof one !== "object" || one === null) return {};
    if (typeof one.$ref === "string" && one.$ref.startsWith("#/")) {
      const { $ref, ...rest } = one;
      let at = whole;
      for (const step of $ref.slice(2).split("/")) {
        const name = step.replace(/~1/g, "/").replace(/~0/g, "~");
        at = typeof at === "object" && at !== null && Object.hasOwn(at, name) ? at[name] : undefined;
      }
      one = { ...(typeof at === "object" && at !== null ? at : {}), ...rest };
      continue;
    }
    const some = Array.isArray(one.anyOf) ? one.anyOf.filter((part) => !(part && part.type === "null")) : [];
    if (some.length !== 1 || some.length === one.anyOf.length) return one;
    const { anyOf, ...rest } = one;
    one = { ...some[0], ...rest };
  }
  return {};
}

function typeOf(value) {
  if (value === null || typeof value === "object") return undefined;
  return typeof value === "number" && Number.isInteger(value) ? "integer" : typeof value;
}

function field(name, schema, isRequired, given, whole, depth) {
  const root = typeof schema === "object" && schema !== null ? schema : {};
  const types = (Array.isArray(root.type) ? root.type : [root.type]).filter((type) => type !== "null");
  const options = optionsOf(root);
  const items = typeof root.items === "object" && root.items !== null ? optionsOf(root.items) : null;
  const start = given !== undefined ? given : root.default;
  let kind = "json";
  const isGroup = types.length === 1 && (types[0] === "object" || types[0] === undefined) && isPlainObject(root.properties) && Object.keys(root.properties).length;
  if (options) kind = "choice";
  else if (isGroup && depth < DEEPEST && (start === undefined || isPlainObject(start)))
    return { name, kind: "object", schema: root, isRequired, options: null, start, hint: isRequired || start !== undefined ? "" : "may be left empty", fields: fieldsOf(root, start, whole, depth + 1) };
  else if (types.length === 1 && types[0] === "array" && items) kind = "choices";
  else if (types.length === 1 && (types[0] === "integer" || types[0] === "number" || types[0] === "boolean")) kind = types[0];
  else if (types.length === 1 && types[0] === "string") {
    if (root.format === "password" || root.writeOnly === true) kind = "secret";
    else if (root.format === "date") kind = "date";
    else kind = "string";
  }
  // What the field cannot hold as it is would be dropped or changed unseen.
  const has = (some, value) => some.some((option) => option.value === value);
  const fits = start === undefined || kind === "json" || (kind === "choice" ? has(options, start)
    : kind === "choices" ? Array.isArray(start) && start.every((one, at) => has(items, one) && start.indexOf(one) === at)
      : kind === "date" ? /^\d{4}-\d\d-\d\d$/.test(start)
        : typeof start === { boolean: "boolean", integer: "number", number: "number" }[kind] || (typeof start === "string" && (kind === "string" || kind === "secret")));
  if (!fits) kind = "json";
  return { name, kind, schema: root, isRequired, options: options || items, start, hint: hintOf(kind, root) };
}

// [{value, label}], or null. A choice is by its place: values may be of any type.
function optionsOf(schema) {
  const scalar = (value) => value === null || typeof value !== "object";
  if (Array.isArray(schema.enum) && schema.enum.length && schema.enum.every(scalar)) {
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return schema.enum.map((value, at) => ({ value, label: typeof names[at] === "string" ? names[at] : String(value) }));
  }
  const list = [schema.oneOf, schema.anyOf].find((one) => Array.isArray(one) && one.length);
  if (list && list.every((one) => typeof one === "object" && one !== null && Object.hasOwn(one, "const") && scalar(one.const)))
    return list.map((one) => ({ value: one.const, label: typeof one.title === "string" ? one.title : String(one.const) }));
  if (Object.hasOwn(schema, "const") && scalar(schema.const)) return [{ value: schema.const, label: String(schema.const) }];
  return null;
}

function hintOf(kind, schema) {
  const told = [];
  const low = schema.minimum ?? schema.exclusiveMinimum, high = schema.maximum ?? schema.exclusiveMaximum;
  if (kind === "integer") told.push("whole number");
  if (kind === "number") told.push("number");
  if (kind === "secret") told.push("secret, never recorded");
  if (kind === "json") told.push("JSON");
  if (low !== undefined && high !== undefined) told.push(low + " to " + high);
  else if (low !== undefined) told.push("from " + low);
  else if (high !== undefined) told.push("up to " + high);
  if (schema.minLength > 0) told.push("at least " + schema.minLength + " characters");
  if (schema.maxLength !== undefined) told.push("at most " + schema.maxLength + " characters");
  if (kind !== "secret" && typeof schema.pattern === "string") told.push("like " + schema.pattern);
  if (kind === "string" && typeof schema.format === "string") told.push(schema.format);
  return told.join(", ");
}

// What a field holds: {value}, {absent: true} or {problem}, of a group {problems}. `typed` is text, for choices a list of
// places, for boolean "true" or "false", for a group what was typed into each of its fields.
export function read(one, typed) {
  const { kind, schema } = one;
  if (kind === "object") return !one.isRequired && one.start === undefined && isEmpty(typed) ? { absent: true } : readAll({ isObject: true, fields: one.fields }, typed);
  if (kind === "choices") {
    const value = typed.map((at) => one.options[at].value);
    if (!value.length && !one.isRequired && one.start === undefined) return { absent: true };
    if (value.length < (schema.minItems ?? 0)) return { problem: "choose at least " + schema.minItems };
    if (value.length > (schema.maxItems ?? Infinity)) return { problem: "choose at most " + schema.maxItems };
    return { value };
  }
  if (typed === "" && kind === "string" && (one.isRequired || one.start === "") && !(schema.minLength > 0) && schema.format === undefined && schema.pattern === undefined) return { value: "" };
  if (typed === "") return one.isRequired ? { problem: "is needed" } : { absent: true };
  if (kind === "choice") return { value: one.options[Number(typed)].value };
  if (kind === "boolean") return { value: typed === "true" };
  if (kind === "integer" || kind === "number") return readNumber(kind, schema, typed.trim());
  if (kind === "json") {
    try {
      return { value: parse(typed) };
    } catch (error) {
      return { problem: "is not JSON: " + error.message };
    }
  }
  return readText(kind, schema, typed);
}

function readNumber(kind, schema, typed) {
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(typed)) return { problem: "is not a " + (kind === "integer" ? "whole number" : "number") };
  const value = Number(typed);
  if (!Number.isFinite(value)) return { problem: "is too large" };
  if (kind === "integer" && !Number.isInteger(value)) return { problem: "is not a whole number" };
  if (kind === "integer" && !Number.isSafeInteger(value)) return { problem: "is too large to be exact here: use JSON" };
  if (value < schema.minimum) return { problem: typed + " is less than " + schema.minimum };
  if (value > schema.maximum) return { problem: typed + " is more than " + schema.maximum };
  if (value <= schema.exclusiveMinimum) return { problem: typed + " is not more than " + schema.exclusiveMinimum };
  if (value >= schema.exclusiveMaximum) return { problem: typed + " is not less than " + schema.exclusiveMaximum };
  if (schema.multipleOf > 0 && Math.abs(value / schema.multipleOf - Math.round(value / schema.multipleOf)) > 1e-9) return { problem: "is not a multiple of " + schema.multipleOf };
  return { value };
}

function readText(kind, schema, typed) {
  const length = [...typed].length;
  if (length < schema.minLength) return { problem: "needs at least " + schema.minLength + " characters" };
  if (length > schema.maxLength) return { problem: "takes at most " + schema.maxLength + " characters" };
  if (kind === "date" && !/^\d{4}-\d\d-\d\d$/.test(typed)) return { problem: "is not a date such as 2026-01-31" };
  if (typeof schema.pattern === "string" && length <= 1000 && !matches(schema.pattern, typed)) return { problem: "is not like " + schema.pattern };
  return { value: typed };
}

// A pattern comes from an agent, and can take for ever. So only one is tried that can go few ways: two repeats of single
// signs, no repeat of a group, few branches. Others are left to the server.
function matches(pattern, typed) {
  const bare = pattern.replace(/\\[^]/g, "x").replace(/\[[^\]]*\]/g, "x");
  const repeats = bare.match(/[+*?]|\{\d*,\d*\}/g) || [], branches = bare.match(/\|/g) || [];
  if (pattern.length > 200 || repeats.length > 2 || branches.length > 8 || /\)[+*?{]/.test(bare) || /\\[1-9k]/.test(pattern)) return true;
  try {
    return new RegExp(pattern, "u").test(typed);
  } catch {
    return true; // not a pattern of this language: the server checks
  }
}

// All fields: {value}, or {problems: {name: text}} with what has none as `value`.
export function readAll(form, typed) {
  const value = {}, problems = {};
  let has = false;
  for (const one of form.fields) {
    const got = read(one, typed[one.name]);
    if (got.problem || got.problems) set(problems, one.name, got.problem || got.problems), (has = true);
    else if (!got.absent) set(value, one.name, got.value);
  }
  const whole = form.isObject ? value : value[""];
  return has ? { problems, value: whole } : { value: whole };
}

// Also a field called __proto__ is one.
function set(into, name, value) {
  Object.defineProperty(into, name, { value, enumerable: true, configurable: true, writable: true });
}

function isEmpty(typed) {
  if (typeof typed === "object" && typed !== null) return Object.values(typed).every(isEmpty);
  return typed === "" || typed === undefined;
}

// The fields named in `value` that the form would send as something else, or not at all: those are sent as JSON.
export function unfit(form, typed, value) {
  if (!form.isObject) return [];
  const known = new Map(form.fields.map((one) => [one.name, one]));
  return Object.keys(value).filter((name) => {
    const got = known.has(name) ? read(known.get(name), typed[name]) : { absent: true };
    return !got.problem && !got.problems && (got.absent || !same(got.value, value[name]));
  });
}

// Whether anything in it is typed unseen.
export function hasSecrets(form) {
  return form.fields.some((one) => one.kind === "secret" || (one.kind === "object" && hasSecrets(one)));
}
