// Making elements. The one way text gets into the page: as text nodes, spelled out by `escape`.
import { escape } from "./text.js";

// el("p.dim", "text", node, ...) or el("input", {type: "text", onclick: f}, ...)
export function el(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  put(node, rest);
  return node;
}

function put(node, one) {
  if (one === null || one === undefined || one === false) return;
  if (one instanceof Node) node.append(one);
  else if (Array.isArray(one)) for (const each of one) put(node, each);
  else if (typeof one !== "object") node.append(escape(String(one)));
  else
    for (const [name, value] of Object.entries(one)) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "value") node.value = value;
      else node.setAttribute(name, value === true ? "" : escape(String(value)));
    }
}

export function button(label, onclick, classes = "") {
  return el("button" + classes, { type: "button", onclick }, label);
}
