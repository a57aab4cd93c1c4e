"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const $ = (id) => document.getElementById(id);
  const search = $("search"), problems = $("problems"), openAll = $("open"), found = $("found");
  const items = Array.from(document.querySelectorAll(".items > li"));
  const turns = Array.from(document.querySelectorAll("details.turn"));
  const texts = new Map();
  let here = -1;

  const textOf = (item) => {
    let text = texts.get(item);
    if (text === undefined) texts.set(item, (text = item.textContent.toLowerCase()));
    return text;
  };

  function filter() {
    const wanted = search.value.trim().toLowerCase();
    const active = wanted !== "" || problems.checked;
    let shown = 0;
    for (const item of items) {
      const fits = (!problems.checked || item.dataset.problem !== undefined) && (!wanted || textOf(item).includes(wanted));
      item.hidden = !fits;
      if (fits) shown += 1;
    }
    for (const turn of turns) {
      const any = turn.querySelector(".items > li:not([hidden])") !== null;
      turn.hidden = active && !any;
      if (active && any) turn.open = true;
    }
    found.textContent = active ? shown + " of " + items.length : "";
    here = -1;
  }

  function reveal(item) {
    for (let up = item.parentElement; up; up = up.parentElement)
      if (up.tagName === "DETAILS") up.open = true;
  }

  function go(step) {
    const shown = items.filter((item) => !item.hidden);
    if (!shown.length) return;
    for (const item of document.querySelectorAll(".here")) item.classList.remove("here");
    here = Math.min(shown.length - 1, Math.max(0, here + step));
    const item = shown[here];
    reveal(item);
    item.classList.add("here");
    item.scrollIntoView({ block: "nearest" });
    const summary = item.querySelector("summary");
    if (summary) summary.focus({ preventScroll: true });
    else if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  }

  function arrive() {
    if (!/^#[it]\d+$/.test(location.hash)) return;
    const item = $(location.hash.slice(1));
    if (!item) return;
    item.hidden = false;
    reveal(item);
    const own = item.tagName === "DETAILS" ? item : item.querySelector("details");
    if (own) own.open = true;
    item.scrollIntoView({ block: "center" });
    here = items.filter((one) => !one.hidden).indexOf(item);
  }

  search.addEventListener("input", filter);
  problems.addEventListener("change", filter);
  openAll.addEventListener("click", () => {
    const close = openAll.textContent === "close all";
    for (const item of items)
      if (!item.hidden) {
        const own = item.querySelector("details");
        if (own) own.open = !close;
      }
    openAll.textContent = close ? "open all" : "close all";
  });
  window.addEventListener("hashchange", arrive);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && document.activeElement === search) {
      search.value = "";
      filter();
      search.blur();
      return;
    }
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
    if (typing) return;
    if (event.key === "/") { event.preventDefault(); search.focus(); }
    else if (event.key === "p") { problems.checked = !problems.checked; filter(); }
    else if (event.key === "j") go(1);
    else if (event.key === "k") go(-1);
  });
  arrive();
})();
