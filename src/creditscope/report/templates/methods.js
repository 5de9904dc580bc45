// the table: filters, order, what a row opens, the grid, and the rows as CSV
const table = document.getElementById("table");
const rows = table ? [...table.tBodies[0].rows] : [];
const CELLS = { method: 0, task: 1, net: 2, depth: 3, accuracy: 4, gamma: 5, answers: [6, 7, 8] };
const HEADS = table ? [...table.tHead.rows[0].cells].map((head) => head.textContent.trim()) : [];
const WORDS = all(".tile").map((tile) => tile.dataset.word);
const ownText = (cell) => (cell.firstChild?.textContent ?? "").trim();
const cellText = (cell) => [...cell.childNodes].map((part) => part.textContent).join(" ");
const numberIn = (text) => {
  const found = text.replace("−", "-").match(/-?\+?\d*\.?\d+/);
  return found ? Number(found[0]) : NaN;
};
// what the search looks at: line by line, as no word begins in one cell and ends in the next
const searchText = (row) => [row.dataset.setting, ...[...row.cells].map(cellText), `depth ${ownText(row.cells[CELLS.depth])}`]
  .map((text) => text.toLowerCase().replace(/\s+/g, " ").trim()).join("\n");
const facts = new Map(rows.map((row, place) => {
  const answers = CELLS.answers.map((i) => ownText(row.cells[i]));
  return [row, {
    place, answers, text: searchText(row),
    task: ownText(row.cells[CELLS.task]), net: ownText(row.cells[CELLS.net]), depth: ownText(row.cells[CELLS.depth]),
    rule: row.dataset.rule, verdict: row.dataset.verdict,
    fired: (row.dataset.fired ?? "").split(" ").filter(Boolean),
    open: (row.dataset.open ?? "").split(" ").filter(Boolean),
    lacks: (row.dataset.lacks ?? "").split(" ").filter(Boolean),
  }];
}));
const codeKinds = { fired: "fired", open: "left open", lacks: "not measured" };

// what a row must be to be shown
const hasCode = (fact, asked) => {
  const [kind, code] = asked.includes(" ") ? asked.split(" ") : ["fired", asked];
  return Object.keys(codeKinds).includes(kind) && fact[kind].includes(code);
};
// a whole number at the end is that number: depth 2 is not depth 20
const escaped = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const within = (text, word) => (/(^|\s)\d+$/.test(word)
  ? new RegExp(`(?<!\\d)${escaped(word)}(?!\\.?\\d)`).test(text) : text.includes(word));
const hasWord = (fact, word) => (/^cs\d{3}$/.test(word) ? fact.fired.includes(word.toUpperCase()) : within(fact.text, word));
// commas between parts, as --only has them; a part that no row has as it stands is taken word by word
const wordsOf = (text) => {
  const parts = text.toLowerCase().split(",").map((part) => part.trim().replace(/\s+/g, " ")).filter(Boolean);
  const known = (part) => [...facts.values()].some((fact) => hasWord(fact, part));
  return parts.flatMap((part) => (known(part) ? [part] : part.split(" ")));
};
const passes = (fact, words) => (!view.verdict || split(view.verdict).includes(fact.verdict))
  && ["task", "net", "depth", "rule"].every((name) => !view[name] || view[name] === fact[name])
  && (!view.answer || fact.answers.includes(view.answer))
  && (!view.code || hasCode(fact, view.code))
  && words.every((word) => hasWord(fact, word));
const keptRows = () => {
  const words = wordsOf(view.q);
  return rows.filter((row) => passes(facts.get(row), words));
};

// order
const keys = {
  method: (row) => row.cells[CELLS.method].textContent.toLowerCase(),
  task: (row) => facts.get(row).task, net: (row) => row.cells[CELLS.net].textContent,
  depth: (row) => Number(facts.get(row).depth),
  accuracy: (row) => numberIn(row.cells[CELLS.accuracy].textContent),
  gamma: (row) => numberIn(row.cells[CELLS.gamma].textContent),
  a1: (row) => facts.get(row).answers[0], a2: (row) => facts.get(row).answers[1],
  a3: (row) => numberIn(row.cells[CELLS.answers[2]].textContent),
  verdict: (row) => `${WORDS.indexOf(row.dataset.verdict)} ${facts.get(row).fired.join()}`,
};
const KEYS = Object.keys(keys);
const sortedBy = () => KEYS.find((key) => key === view.sort.replace(/^-/, "")); // an address may name anything
const ordered = () => {
  if (!sortedBy()) return rows;
  const key = keys[sortedBy()];
  const sign = view.sort.startsWith("-") ? -1 : 1;
  const known = new Map(rows.map((row) => [row, key(row)]));
  const absent = (value) => Number.isNaN(value) || value === "";
  return [...rows].sort((one, other) => {
    const [a, b] = [known.get(one), known.get(other)];
    if (absent(a) || absent(b)) return absent(a) - absent(b);
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true })) || facts.get(one).place - facts.get(other).place;
  });
};

// what a row opens lies packed in the page until then
const chunks = {};
const unpack = (place) => (chunks[place] ??= (async () => {
  const packed = Uint8Array.from(atob(all("script.chunk")[place].textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
})());
const shownMethods = new Map();
const LONGEST = 30; // letters of a word that a phone has room for: it is not broken at its hyphens
const makeCommand = (text) => {
  const code = make("code");
  code.append(...text.split(/( )/).map((part) => (/[-/]/.test(part) && part.length <= LONGEST ? make("span", part) : part)));
  return code;
};
const quoted = (text) => `'${text.replaceAll("'", `'"'"'`)}'`; // as a shell takes it
const explainAbsence = (row, why) => {
  const note = make("p", why + " ", { class: "note" });
  note.append(makeCommand(`${page.audit} -v --only ${quoted(row.dataset.setting)}`));
  return note;
};
const openRow = async (row) => {
  const opened = make("tr", undefined, { class: "opened", "data-of": row.id });
  const cell = opened.insertCell();
  cell.colSpan = row.cells.length;
  shownMethods.set(row.id, opened);
  row.after(opened);
  if (row.dataset.chunk === undefined) return void cell.append(explainAbsence(row, "To keep this file small, what stands behind this row is left to"));
  if (typeof DecompressionStream === "undefined") return void cell.append(explainAbsence(row, "This browser is too old to unpack what stands behind this row; it is in"));
  const chunk = await unpack(Number(row.dataset.chunk));
  const method = chunk.methods[row.id];
  const setting = chunk.settings[method.setting];
  cell.innerHTML = method.html; // made of escaped text by creditscope
  opened.method = { ...method, axis: setting.axis };
  const place = cell.querySelector(".charts-here");
  if (setting.charts) {
    place.innerHTML = "<h3>Over training</h3><p class=lead>Line: mean over seeds (norms: geometric); band: lowest to highest seed; the others of the setting beside it. Point at a chart, or focus it and use the arrow keys.</p><div class=charts>" + setting.charts + "</div>";
    for (const part of all("[data-of]", place)) part.classList.toggle("own", part.dataset.of === method.name);
  }
  for (const drawing of all("svg.heat, svg.chart", cell)) {
    drawing.setAttribute("tabindex", "0");
    drawing.setAttribute("role", "application");
    drawing.setAttribute("aria-roledescription", drawing.classList.contains("heat") ? "heatmap" : "chart");
    drawing.setAttribute("aria-label", drawing.getAttribute("aria-label") + ". Arrow keys show values.");
  }
};
document.addEventListener("click", (event) => {
  const close = event.target.closest?.(".close");
  if (!close) return;
  const id = close.closest("tr").dataset.of;
  go({ open: toggled(view.open, id) });
  document.querySelector(`#${CSS.escape(id)} th a`).focus();
});

// moving a row takes the focus from it and scrolls what it holds back: only another order does
let drawnOrder = rows;
const drawOrder = () => {
  const wanted = ordered();
  if (wanted.every((row, i) => row === drawnOrder[i])) return;
  table.tBodies[0].append(...wanted.flatMap((row) => [row, shownMethods.get(row.id)].filter(Boolean)));
  drawnOrder = wanted;
};

const tellFilter = (name) => (name === "q" ? view.q : `${name} ${name === "verdict" ? split(view.verdict).join(" or ") : view[name]}`);
const tellOrder = () => (sortedBy() ? `; by ${HEADS[KEYS.indexOf(sortedBy())]}, ${view.sort.startsWith("-") ? "largest" : "smallest"} first` : "");
const tellSearch = () => {
  const words = wordsOf(view.q).map((word) => `“${word}”`);
  return words.length ? `. Searched for ${words.join(" and ")}; commas or spaces may stand between words` : "";
};
const tellShown = (many) => {
  const asked = NAMES.filter((name) => view[name] && !["open", "at", "view", "sort"].includes(name));
  return `${many.toLocaleString("en")} of ${rows.length.toLocaleString("en")} methods`
    + (asked.length ? ": " + asked.map(tellFilter).join(", ") : "") + tellOrder() + (many ? "" : tellSearch());
};

const drawTable = () => {
  const open = split(view.open);
  const kept = new Set(keptRows());
  for (const row of rows) {
    row.hidden = !kept.has(row);
    const isOpen = open.includes(row.id);
    row.cells[0].firstChild.setAttribute("aria-expanded", isOpen);
    if (isOpen && !shownMethods.has(row.id)) openRow(row);
    if (!isOpen && shownMethods.has(row.id)) {
      shownMethods.get(row.id).remove();
      shownMethods.delete(row.id);
    }
    const opened = shownMethods.get(row.id);
    if (opened) opened.hidden = row.hidden;
  }
  drawOrder();
  document.getElementById("shown").textContent = tellShown(kept.size);
  for (const [i, head] of [...table.tHead.rows[0].cells].entries()) {
    if (KEYS[i] === sortedBy()) head.setAttribute("aria-sort", view.sort.startsWith("-") ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  for (const tile of all(".tile")) tile.setAttribute("aria-pressed", split(view.verdict).includes(tile.dataset.word));
  table.hidden = view.view === "grid";
};

// depth by rule: how many of each verdict
const drawGrid = () => {
  const place = document.getElementById("grid");
  place.hidden = view.view !== "grid";
  if (place.hidden) return place.replaceChildren();
  const kept = keptRows().map((row) => facts.get(row));
  const depths = [...new Set(kept.map((fact) => fact.depth))].sort((a, b) => a - b);
  const rules = [...new Set(kept.map((fact) => fact.rule))];
  const grid = make("table", undefined, { class: "by-depth" });
  grid.append(make("caption", "Methods by rule and depth: how many have each verdict. A cell shows its methods."));
  const head = grid.createTHead().insertRow();
  head.append(make("th", "rule \\ depth", { scope: "col" }), ...depths.map((depth) => make("th", depth, { scope: "col" })));
  const body = grid.createTBody();
  for (const rule of rules) {
    const line = body.insertRow();
    line.append(make("th", rule, { scope: "row" }));
    for (const depth of depths) {
      const cell = line.insertCell();
      const here = kept.filter((fact) => fact.rule === rule && fact.depth === depth);
      if (!here.length) continue;
      const button = make("button", undefined, { type: "button", "data-rule": rule, "data-depth": depth });
      for (const word of WORDS) {
        const many = here.filter((fact) => fact.verdict === word).length;
        if (many) button.append(make("span", `${SIGNS[word]} ${many}`, { class: "v-" + word.replaceAll(" ", "-"), title: word }));
      }
      button.setAttribute("aria-label", `${rule}, depth ${depth}: ` + WORDS.map((word) => [here.filter((fact) => fact.verdict === word).length, word]).filter(([many]) => many).map(([many, word]) => `${many} ${word}`).join(", "));
      cell.append(button);
    }
  }
  place.replaceChildren(grid);
};
const SIGNS = Object.fromEntries(all(".tile").map((tile) => [tile.dataset.word, tile.querySelector("span").textContent.trim()[0]]));

// filters
const CHOICES = { task: "Task", net: "Net", depth: "Depth", rule: "Rule", answer: "Answer", code: "Code" };
const choicesOf = (name) => {
  const found = new Set();
  for (const fact of facts.values()) {
    if (name === "answer") fact.answers.forEach((one) => found.add(one));
    else if (name === "code") for (const kind of Object.keys(codeKinds)) fact[kind].forEach((code) => found.add(`${kind} ${code}`));
    else found.add(fact[name]);
  }
  const order = Object.keys(codeKinds);
  const rank = (text) => (name === "code" ? order.indexOf(text.split(" ")[0]) + text : text);
  return [...found].filter(Boolean).sort((a, b) => rank(a).localeCompare(rank(b), undefined, { numeric: true }));
};
const makeFilters = () => {
  const form = document.getElementById("filters");
  const search = make("input", undefined, { type: "search", name: "q", placeholder: "DFA, cora, CS005 …", autocomplete: "off", "aria-label": "Words, or a code that fired; commas or spaces between" });
  form.append(search);
  for (const [name, label] of Object.entries(CHOICES)) {
    const choices = choicesOf(name);
    if (choices.length < 2) continue;
    const select = make("select", undefined, { name, "aria-label": label });
    select.append(make("option", label, { value: "" }));
    for (const value of choices) {
      const [kind, code] = value.split(" ");
      const text = name === "code" ? `${code} ${codeKinds[kind]}` : name === "depth" ? `depth ${value}` : value;
      select.append(make("option", text, { value: name === "code" && kind === "fired" ? code : value }));
    }
    form.append(select);
  }
  const order = make("select", undefined, { name: "sort", "aria-label": "Order", class: "narrow-only" });
  order.append(make("option", "Order", { value: "" }));
  KEYS.forEach((key, i) => order.append(make("option", HEADS[i] + " ↑", { value: key }), make("option", HEADS[i] + " ↓", { value: "-" + key })));
  const button = (text, action, attributes = {}) => {
    const found = make("button", text, { type: "button", ...attributes });
    found.addEventListener("click", action);
    return found;
  };
  const grid = button("Grid", () => go({ view: view.view === "grid" ? "" : "grid" }), { "aria-pressed": "false" });
  const clear = button("Clear", () => go(Object.fromEntries(NAMES.map((name) => [name, ""]))));
  form.append(order, grid, button("CSV", saveRows, { "aria-label": "Save the rows shown as CSV" }), clear);
  form.addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", () => go({ q: search.value }, { keep: true }));
  form.addEventListener("change", (event) => { if (event.target !== search) go({ [event.target.name]: event.target.value }); });
  drawers.push(() => {
    for (const field of form.elements) {
      if (field.name && field.value !== view[field.name]) field.value = view[field.name];
      if (field.tagName === "SELECT") field.classList.toggle("set", !!field.value);
    }
    grid.setAttribute("aria-pressed", view.view === "grid");
    clear.hidden = !NAMES.some((name) => view[name] && name !== "at");
  });
};

// CSV: every cell is quoted, as some spreadsheets split at semicolons; what one would take for a formula is text
const csvCell = (text) => {
  const plain = text.replace(/\s+/g, " ").trim().replace(/^−(?=[\d.])/, "-");
  const safe = /^[=+@\t-]/.test(plain) && !/^[+-]?[\d.]+$/.test(plain) ? "'" + plain : plain;
  return `"${safe.replaceAll('"', '""')}"`;
};
const rowsAsCsv = () => {
  const small = (head) => head.replace(/[A-Z]/g, (letter) => letter.toLowerCase()); // Γ stays: γ is another symbol
  const heads = ["id", ...HEADS.map(small), "codes fired", "credit by tap"];
  const lines = [...table.tBodies[0].rows].filter((row) => row.id && !row.hidden).map((row) => [
    row.id, ...[...row.cells].map(cellText),
    row.dataset.fired ?? "", row.querySelector(".spark")?.getAttribute("aria-label") ?? "",
  ]);
  return [heads, ...lines].map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
};
const saveRows = () => {
  const link = make("a", undefined, { href: URL.createObjectURL(new Blob(["\ufeff" + rowsAsCsv()], { type: "text/csv" })), download: "methods.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

if (table) {
  for (const [i, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = make("button", head.textContent, { type: "button" });
    button.addEventListener("click", () => go({ sort: view.sort === KEYS[i] ? "-" + KEYS[i] : view.sort === "-" + KEYS[i] ? "" : KEYS[i] }));
    head.replaceChildren(button);
  }
  for (const tile of all(".tile")) tile.addEventListener("click", () => go({ verdict: toggled(view.verdict, tile.dataset.word) }));
  document.getElementById("grid").addEventListener("click", (event) => {
    const cell = event.target.closest("button");
    if (cell) go({ rule: cell.dataset.rule, depth: cell.dataset.depth, view: "" });
  });
  makeFilters();
  const bar = document.getElementById("bar");
  new ResizeObserver(() => document.documentElement.style.setProperty("--bar", (getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0) + "px")).observe(bar);
  drawers.push(drawTable, drawGrid);
}
