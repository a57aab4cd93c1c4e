// A form made of a JSON Schema, beside the same as JSON. What is typed lives in the elements alone.
import { button, el } from "./dom.js";
import { formOf, hasSecrets, readAll, unfit } from "./schema.js";
import { json, parse } from "./text.js";

let forms = 0;

// {node, read()}: `read()` gives {value}, or null after the problems were shown.
export function schemaForm(schema, initial, { withJson = false } = {}) {
  const form = formOf(schema, initial);
  forms += 1;
  const inputs = new Map();
  const rows = form.fields.map((one, at) => row(one, "f" + forms + "-" + at, inputs));
  const whole = el("textarea.code", { id: "f" + forms + "-json", rows: 8, spellcheck: "false", "aria-label": "as JSON" });
  const trouble = el("p.problem", { role: "alert" });
  const fields = el("div", ...rows);
  const box = el("div", { hidden: true }, whole);
  let isJson = false, made = ""; // the JSON that the form made: where it is as it was, so is the form
  const typed = () => Object.fromEntries([...inputs].map(([name, one]) => [name, one.get()]));
  const fill = (value) => {
    for (const one of form.fields) inputs.get(one.name).set(!form.isObject ? value : Object.hasOwn(value, one.name) ? value[one.name] : undefined);
  };
  const parsed = () => {
    try {
      const value = parse(whole.value);
      if (form.isObject && (typeof value !== "object" || value === null || Array.isArray(value))) throw new Error("an object is needed");
      return { value };
    } catch (error) {
      return { problem: "This is not JSON that fits: " + error.message };
    }
  };
  const swap = button("as JSON", () => {
    trouble.textContent = "";
    if (!isJson) {
      const got = readAll(form, typed());
      whole.value = made = json(form.isObject || !got.problems ? got.value : initial ?? null);
    } else if (whole.value !== made) {
      const got = parsed();
      if (got.problem) return void (trouble.textContent = got.problem);
      fill(got.value);
      const odd = unfit(form, typed(), got.value);
      if (odd.length) return void trouble.append(el("span", "The form cannot hold " + odd.join(", ") + ": send it as JSON."));
    }
    isJson = !isJson;
    fields.hidden = isJson;
    box.hidden = !isJson;
    swap.textContent = isJson ? "as a form" : "as JSON";
  }, ".quiet");
  const canJson = withJson && !hasSecrets(form);
  // Enter in a field sends nothing: only the card's button does.
  const node = el("form.form", { autocomplete: "off", novalidate: true, onsubmit: (event) => event.preventDefault() }, fields, box, trouble, canJson ? swap : null);
  const read = () => {
    trouble.textContent = "";
    if (isJson) {
      const got = parsed();
      if (!got.problem) return got;
      trouble.textContent = got.problem;
      whole.focus();
      return null;
    }
    const got = readAll(form, typed());
    let first = null;
    for (const one of form.fields) {
      const problem = got.problems && Object.hasOwn(got.problems, one.name) && got.problems[one.name];
      inputs.get(one.name).tell(problem || "");
      if (problem && !first) first = inputs.get(one.name);
    }
    if (first) first.focus();
    return got.problems ? null : got;
  };
  return { node, read };
}

function row(one, id, inputs) {
  const problem = el("p.problem", { id: id + "-p", role: "alert" });
  const hint = one.hint ? el("span.dim", one.hint) : null;
  const about = typeof one.schema.description === "string" ? el("p.dim", one.schema.description) : null;
  const title = typeof one.schema.title === "string" ? one.schema.title : one.name || "answer";
  const input = makeInput(one, id);
  const star = one.isRequired ? el("b", { title: "needed" }, "*") : null;
  if (!input.isGroup) for (const control of input.controls) if (one.isRequired) control.setAttribute("aria-required", "true");
  const label = input.isGroup ? el("legend", title, star, " ", hint) : el("label", { for: id }, title, star, " ", hint);
  input.tell ??= (text) => {
    problem.textContent = "";
    if (text) problem.append(el("span", title + " " + text));
    for (const control of input.controls) text ? control.setAttribute("aria-invalid", "true") : control.removeAttribute("aria-invalid");
  };
  for (const control of input.controls) control.setAttribute("aria-describedby", id + "-p");
  input.focus ??= () => input.controls[0] && input.controls[0].focus();
  inputs.set(one.name, input);
  return el((input.isGroup ? "fieldset" : "div") + ".field", label, about, input.node, problem);
}

function makeInput(one, id) {
  if (one.kind === "object") return makeGroup(one, id);
  const place = (value) => one.options.findIndex((option) => option.value === value);
  if (one.kind === "choices") {
    const boxes = one.options.map((option, at) => el("input", { type: "checkbox", id: id + "-" + at }));
    const set = (value) => boxes.forEach((box, at) => (box.checked = Array.isArray(value) && value.includes(one.options[at].value)));
    set(one.start);
    const node = el("div", ...boxes.map((box, at) => el("label.check", box, one.options[at].label)));
    return { node, controls: boxes, isGroup: true, set, get: () => boxes.flatMap((box, at) => (box.checked ? [at] : [])) };
  }
  if (one.kind === "choice" || one.kind === "boolean") {
    const options = one.kind === "boolean" ? [["true", "yes"], ["false", "no"]] : one.options.map((option, at) => [String(at), option.label]);
    const select = el("select", { id, name: one.name }, el("option", { value: "" }, "choose"), ...options.map(([value, label]) => el("option", { value }, label)));
    for (let at = 0; at < options.length; at += 1) select.options[at + 1].value = options[at][0];
    const set = (value) => {
      select.value = value === undefined ? "" : one.kind === "boolean" ? String(value) : place(value) < 0 ? "" : String(place(value));
    };
    set(one.start);
    return { node: select, controls: [select], set, get: () => select.value };
  }
  let shown = "", start = "";
  const text = (value) => (value === undefined ? "" : one.kind === "json" ? json(value) : String(value));
  const isLong = one.kind === "json" || (one.kind === "string" && (String(one.start ?? "").includes("\n") || String(one.start ?? "").length > 80 || one.schema.maxLength > 200));
  const input = isLong
    ? el("textarea" + (one.kind === "json" ? ".code" : ""), { id, rows: 4, spellcheck: one.kind === "json" ? "false" : undefined })
    : el("input", {
        id,
        type: { secret: "password", date: "date" }[one.kind] || "text",
        inputmode: { integer: "numeric", number: "decimal" }[one.kind],
        autocomplete: one.kind === "secret" ? "new-password" : "off",
      });
  // A box changes the ends of lines: what nobody touched is read as it was given.
  const set = (value) => {
    input.value = start = text(value);
    shown = input.value;
  };
  set(one.start);
  return { node: input, controls: [input], set, get: () => (input.value === shown ? start : input.value) };
}

// An object in an object: a group of fields of its own.
function makeGroup(one, id) {
  const inputs = new Map();
  const rows = one.fields.map((each, at) => row(each, id + "-" + at, inputs));
  const all = (act) => one.fields.forEach((each) => act(inputs.get(each.name), each.name));
  let first = null;
  return {
    node: el("div.group", rows), controls: [], isGroup: true,
    set: (value) => all((input, name) => input.set(typeof value === "object" && value !== null && Object.hasOwn(value, name) ? value[name] : undefined)),
    get: () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.get()])),
    tell: (problems) => {
      first = null;
      all((input, name) => {
        const problem = problems && Object.hasOwn(problems, name) ? problems[name] : "";
        input.tell(problem);
        if (problem) first ??= input;
      });
    },
    focus: () => first && first.focus(),
  };
}
