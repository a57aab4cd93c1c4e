import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./page.mjs";

const { formOf, hasSecrets, read, readAll, unfit } = await load("schema.js");
const one = (schema, isRequired = true) => formOf({ type: "object", properties: { x: schema }, required: isRequired ? ["x"] : [] }).fields[0];

test("each kind of field is known", () => {
  const kinds = [
    [{ type: "string" }, "string"], [{ type: "number" }, "number"], [{ type: "integer" }, "integer"], [{ type: "boolean" }, "boolean"],
    [{ enum: ["a", 1, null] }, "choice"], [{ oneOf: [{ const: "a", title: "A" }] }, "choice"], [{ type: "array", items: { enum: ["a"] } }, "choices"],
    [{ type: "string", format: "date" }, "date"], [{ type: "string", format: "password" }, "secret"], [{ type: "string", writeOnly: true }, "secret"],
    [{ type: "object", properties: {} }, "json"], [{ type: "array", items: { type: "object" } }, "json"], [{}, "json"], [true, "json"],
    [{ anyOf: [{ type: "integer" }, { type: "null" }] }, "integer"], [{ type: ["string", "null"] }, "string"],
  ];
  for (const [schema, kind] of kinds) assert.equal(one(schema).kind, kind, JSON.stringify(schema));
});

test("a reference inside the schema is followed, and one that goes in circles ends", () => {
  const form = formOf({ type: "object", properties: { x: { $ref: "#/$defs/N" }, y: { $ref: "#/$defs/L" } }, $defs: { N: { type: "integer" }, L: { $ref: "#/$defs/L" } } });
  assert.deepEqual(form.fields.map((field) => field.kind), ["integer", "json"]);
});

test("what does not fit is told and not sent", () => {
  const wrong = [
    [{ type: "integer", minimum: 1, maximum: 9 }, "12", "12 is more than 9"], [{ type: "integer" }, "1.5", "is not a whole number"], [{ type: "integer" }, "0x10", "is not a whole number"],
    [{ type: "number" }, "Infinity", "is not a number"], [{ type: "number", exclusiveMinimum: 0 }, "0", "0 is not more than 0"], [{ type: "integer" }, "90071992547409931", "is too large to be exact here: use JSON"],
    [{ type: "string", minLength: 3 }, "ab", "needs at least 3 characters"], [{ type: "string", maxLength: 1 }, "😀😀", "takes at most 1 characters"],
    [{ type: "string", pattern: "^a+$" }, "b", "is not like ^a+$"], [{ type: "string", minLength: 1 }, "", "is needed"], [{ type: "object" }, "{", null],
  ];
  for (const [schema, typed, problem] of wrong) {
    const got = read(one(schema), typed);
    assert.ok(got.problem, JSON.stringify(schema));
    if (problem) assert.equal(got.problem, problem);
  }
});

test("what fits has its type", () => {
  const good = [
    [{ type: "integer", minimum: 1, maximum: 9 }, " 3 ", 3], [{ type: "number" }, "-1.5e2", -150], [{ type: "boolean" }, "false", false], [{ enum: ["1", 1, null] }, "1", 1], [{ enum: ["1", 1, null] }, "2", null],
    [{ type: "array", items: { enum: ["a", "b"] } }, [1], ["b"]], [{ type: "string" }, "", ""], [{}, '{"a":[1]}', { a: [1] }],
  ];
  for (const [schema, typed, value] of good) assert.deepEqual(read(one(schema), typed), { value });
});

test("a yes is never assumed: a boolean that was not chosen is needed, or absent", () => {
  assert.equal(one({ type: "boolean" }).start, undefined);
  assert.deepEqual(read(one({ type: "boolean" }), ""), { problem: "is needed" });
  assert.deepEqual(read(one({ type: "boolean" }, false), ""), { absent: true });
});

test("an edit keeps arguments that the schema does not name", () => {
  const form = formOf({ type: "object", properties: { path: { type: "string" } } }, { path: "a", mode: 7, deep: { k: 1 } });
  const typed = { path: "b", mode: "7", deep: '{"k":1}' };
  assert.deepEqual(readAll(form, typed), { value: { path: "b", mode: 7, deep: { k: 1 } } });
});

test("a field called __proto__ is a field", () => {
  const form = formOf(JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}'));
  const { value } = readAll(form, Object.fromEntries([["__proto__", "x"]]));
  assert.deepEqual(Object.keys(value), ["__proto__"]);
  assert.equal(JSON.stringify(value), '{"__proto__":"x"}');
});

test("a pattern that could take for ever is left to the server", () => {
  assert.deepEqual(read(one({ type: "string", pattern: "^(a+)+$" }), "a".repeat(40) + "b"), { value: "a".repeat(40) + "b" });
});

test("a schema of a bare value is one field, and secrets are known", () => {
  const form = formOf({ type: "integer" });
  assert.deepEqual(readAll(form, { "": "4" }), { value: 4 });
  assert.equal(hasSecrets(formOf({ type: "object", properties: { t: { type: "string", format: "password" } } })), true);
});

test("an object in an object is a group of fields, and one that nobody filled in is absent", () => {
  const limits = { type: "object", required: ["cpu"], properties: { cpu: { type: "integer", minimum: 1 }, memory: { type: "string" } } };
  const form = formOf({ type: "object", properties: { limits, name: { type: "string" } } });
  assert.deepEqual([form.fields[0].kind, form.fields[0].fields.map((field) => field.kind)], ["object", ["integer", "string"]]);
  assert.deepEqual(readAll(form, { limits: { cpu: "2", memory: "" }, name: "" }), { value: { limits: { cpu: 2 } } });
  assert.deepEqual(readAll(form, { limits: { cpu: "", memory: "" }, name: "a" }), { value: { name: "a" } });
  assert.deepEqual(readAll(form, { limits: { cpu: "0", memory: "x" }, name: "a" }).problems, { limits: { cpu: "0 is less than 1" } });
  assert.deepEqual(readAll(form, { limits: { cpu: "", memory: "x" }, name: "a" }).problems, { limits: { cpu: "is needed" } });
});

test("a schema that holds itself ends in JSON", () => {
  const form = formOf({ $ref: "#/$defs/N", $defs: { N: { type: "object", properties: { next: { $ref: "#/$defs/N" } } } } });
  const kinds = [];
  for (let fields = form.fields; fields; fields = fields[0].fields) kinds.push(fields[0].kind);
  assert.deepEqual(kinds, ["object", "object", "object", "json"]);
});

test("secrets in a group are known", () => {
  assert.equal(hasSecrets(formOf({ type: "object", properties: { a: { type: "object", properties: { t: { type: "string", writeOnly: true } } } } })), true);
});

test("an edit that touches nothing changes nothing: what a field cannot hold is JSON", () => {
  const schema = { type: "object", properties: { mode: { enum: ["slow"] }, tags: { type: "array", items: { enum: ["a", "b"] } }, day: { type: "string", format: "date" }, suffix: { type: "string" }, deep: { type: "object", properties: { k: { type: "integer" } } } } };
  const args = { mode: "fast", tags: ["b", "c"], day: "2026-01-31T10:00:00Z", suffix: "", deep: { k: 1, other: [1] } };
  const form = formOf(schema, args);
  const typed = (fields) => Object.fromEntries(fields.map((one) => [one.name, one.kind === "object" ? typed(one.fields) : one.kind === "json" ? JSON.stringify(one.start) : String(one.start ?? "")]));
  assert.deepEqual(readAll(form, typed(form.fields)), { value: args });
  const empty = formOf(schema, { tags: [], deep: {} });
  assert.deepEqual(readAll(empty, { mode: "", tags: [], day: "", suffix: "", deep: { k: "" } }), { value: { tags: [], deep: {} } });
});

test("a pattern that goes too many ways is left to the server", () => {
  const bad = "a".repeat(200) + "!";
  for (const pattern of ["^(aa?)*b$", "^(a|a)*$", "a*a*a*a*a*a*b", "^((a)(a)?)*$", "(a|a)".repeat(30) + "b", "^(a)\\1*\\1*b$", "a?".repeat(90) + "b", "^([a)]+)+$"]) {
    const began = Date.now();
    assert.deepEqual(read(one({ type: "string", pattern }), bad), { value: bad }, pattern);
    assert.ok(Date.now() - began < 500, pattern);
  }
  for (const pattern of ["^[a-z]+-\\d{4}$", "^[^@]+@[^@]+$", "^(eu|us)$"]) assert.ok(read(one({ type: "string", pattern }), bad).problem, pattern);
});

test("JSON that the form would change or drop is told", () => {
  const form = formOf({ type: "object", properties: { a: { type: "integer" }, mode: { enum: ["x"] } } });
  assert.deepEqual(unfit(form, { a: "1", mode: "" }, { a: 1 }), []);
  assert.deepEqual(unfit(form, { a: "", mode: "" }, { mode: "y", constructor: 1 }), ["mode", "constructor"]);
});
