"use strict";
// what all parts share: making elements, the view, and the address that holds it
document.documentElement.classList.add("js");
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
  return element;
};
const page = JSON.parse(document.getElementById("data").textContent);
const split = (text) => (text ? text.split(",") : []);
const toggled = (text, part) => {
  const parts = split(text);
  return (parts.includes(part) ? parts.filter((one) => one !== part) : [...parts, part]).join(",");
};

const NAMES = ["verdict", "task", "net", "depth", "rule", "answer", "code", "q", "sort", "view", "open", "at"];
const view = {};
const drawers = [];
const readAddress = () => {
  for (const name of NAMES) view[name] = "";
  let hash = location.hash.slice(1);
  if (hash.includes("=")) {
    for (const [name, value] of new URLSearchParams(hash)) if (NAMES.includes(name)) view[name] = value;
    return;
  }
  try {
    hash = decodeURIComponent(hash);
  } catch {
    return; // an address that nobody here has written
  }
  const target = hash ? document.getElementById(hash) : null;
  if (target?.dataset.verdict) view.open = hash;
  else if (target) view.at = hash;
};
const addressOf = (wanted) => {
  const found = new URLSearchParams();
  for (const name of NAMES) if (wanted[name]) found.set(name, wanted[name]);
  const text = found.toString();
  return text ? "#" + text : location.pathname + location.search;
};
const draw = () => drawers.forEach((drawer) => drawer());
const go = (changes, { keep = false } = {}) => {
  Object.assign(view, { at: "" }, changes);
  history[keep ? "replaceState" : "pushState"](null, "", addressOf(view));
  draw();
};
const arrive = () => {
  readAddress();
  draw();
  const at = view.at || (split(view.open).length === 1 ? view.open : "");
  if (at) document.getElementById(at)?.scrollIntoView();
};
addEventListener("popstate", arrive);

// a link to a row opens it, one to a place of the page keeps the view
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const target = document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
  if (!target) return;
  event.preventDefault();
  if (link.classList.contains("self")) return go({ ...Object.fromEntries(NAMES.map((name) => [name, ""])), open: target.id });
  if (target.dataset.verdict) return go({ open: toggled(view.open, target.id) });
  go({ at: target.id });
  target.scrollIntoView();
  if (target.tabIndex < 0) target.tabIndex = -1;
  target.focus({ preventScroll: true });
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const text = button.parentElement.querySelector("code, pre");
  try {
    await navigator.clipboard.writeText(text.textContent);
  } catch {
    getSelection().selectAllChildren(text);
    if (!document.execCommand("copy")) return;
  }
  button.textContent = "Copied";
});
