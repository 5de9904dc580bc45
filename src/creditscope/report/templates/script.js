"use strict";
(() => {
  document.documentElement.classList.add("js");
  const SVG = "http://www.w3.org/2000/svg";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  let parsed = null;
  const data = () => (parsed ??= JSON.parse(document.getElementById("data").textContent));
  const symbolOf = (quantity) => data().quantities[quantity].symbol;
  const show = (value) => (value === null || value === undefined ? "–" : String(value).replace(/^-/, "−"));
  const pickAt = (byEpoch, column, i) => (Array.isArray(byEpoch[column]) ? byEpoch[column][i] : byEpoch[column]);
  const seedValues = (method, quantity, column, tap) => {
    const byEpoch = method.values[quantity];
    return byEpoch ? method.seeds.map((_, i) => pickAt(byEpoch, column, tap * method.seeds.length + i)) : [];
  };
  const meanOf = (quantity, values) => {
    const known = values.filter((value) => value != null);
    if (!known.length) return null;
    const logs = data().quantities[quantity].size && known.every((value) => value > 0);
    const sum = known.reduce((total, value) => total + (logs ? Math.log(value) : value), 0) / known.length;
    return Number((logs ? Math.exp(sum) : sum).toPrecision(3));
  };

  const geometry = (svg) => [22, 3, ...svg.dataset.cell.split(",").map(Number)];
  const methodOf = (svg) => data().methods[Number(svg.dataset.heatmap)];
  const frame = (svg, kind, column, row, columns, rows) => {
    const [left, top, wide, tall] = geometry(svg);
    let rect = svg.querySelector("." + kind);
    if (!rect) {
      rect = document.createElementNS(SVG, "rect");
      rect.setAttribute("class", kind);
      svg.append(rect);
    }
    const place = { x: left + column * wide, y: top + row * tall, width: wide * columns, height: tall * rows };
    for (const [name, value] of Object.entries(place)) rect.setAttribute(name, value);
    return rect;
  };

  const columnFor = (epochs, epoch) => {
    let found = -1;
    epochs.forEach((e, i) => { if (e <= epoch) found = i; });
    return found;
  };
  const fill = (moment) => {
    const setting = data().settings[Number(moment.dataset.moment)];
    const epoch = setting.epochs[Number(moment.querySelector("input").value)];
    const block = moment.closest("details");
    const place = block.querySelector(".at-epoch");
    const quantity = place.querySelector("select").value;
    moment.querySelector("output").textContent = epoch;
    moment.querySelector("input").setAttribute("aria-valuetext", setting.axis + " " + epoch);
    for (const svg of all("svg.heat", block)) {
      const method = methodOf(svg);
      const column = columnFor(method.epochs, epoch);
      if (column >= 0) frame(svg, "column", column, 0, 1, method.taps.length);
      else svg.querySelector(".column")?.remove();
    }
    const methods = setting.methods.map((key) => data().methods[key]);
    const table = make("table");
    table.append(make("caption", symbolOf(quantity) + " at " + setting.axis + " " + epoch + ", mean over seeds"));
    const head = table.createTHead().insertRow();
    head.append(make("th", "tap", { scope: "col" }));
    for (const method of methods) {
      const own = method.epochs[columnFor(method.epochs, epoch)];
      const late = own === undefined || own === epoch ? "" : " (" + setting.axis + " " + own + ")";
      head.append(make("th", method.name + late, { scope: "col" }));
    }
    const body = table.createTBody();
    const taps = methods.reduce((most, method) => (method.taps.length > most.length ? method.taps : most), []);
    for (let tap = taps.length - 1; tap >= 0; tap--) {
      const row = body.insertRow();
      row.append(make("th", tap + " " + taps[tap], { scope: "row" }));
      for (const method of methods) {
        const column = columnFor(method.epochs, epoch);
        const there = column >= 0 && tap < method.taps.length;
        row.append(make("td", there ? show(meanOf(quantity, seedValues(method, quantity, column, tap))) : ""));
      }
    }
    place.querySelector(".values").replaceChildren(table);
  };
  const moments = new WeakSet();
  const begin = (block) => {
    const moment = block.querySelector("[data-moment]");
    if (!moment || moments.has(moment)) return;
    moments.add(moment);
    const place = block.querySelector(".at-epoch");
    const setting = data().settings[Number(moment.dataset.moment)];
    const known = Object.keys(data().quantities).filter((q) => setting.methods.some((key) => q in data().methods[key].values));
    const select = make("select", undefined, { "aria-label": "Quantity of the table" });
    for (const quantity of known) select.append(make("option", symbolOf(quantity), { value: quantity }));
    const told = setting.methods.every((key) => data().methods[key].exact.length === data().methods[key].taps.length);
    if (told && known.includes("g_norm")) select.value = "g_norm"; // the cosine is 1 everywhere
    const label = make("p", "Values of ");
    label.append(select, " at the chosen epoch");
    place.append(label, make("div", undefined, { class: "values scroll", tabindex: "0", role: "group", "aria-label": "Values at the chosen epoch" }));
    moment.addEventListener("input", () => fill(moment));
    place.addEventListener("input", () => fill(moment));
    fill(moment);
  };
  for (const block of all("#layers details.setting")) {
    if (block.open) begin(block);
    else block.addEventListener("toggle", () => { if (block.open) begin(block); });
  }

  const detail = document.getElementById("detail");
  let chosen = null;
  const close = () => {
    detail.replaceChildren();
    chosen?.svg.querySelector(".chosen")?.remove();
    if (chosen) chosen.svg.focus();
    chosen = null;
  };
  const sides = ["", "left", "top", "left top"];
  const uncover = (cell) => {
    cell.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    const box = cell.getBoundingClientRect();
    for (const side of [detail.dataset.side ?? "", ...sides]) {
      detail.dataset.side = side;
      const panel = detail.getBoundingClientRect();
      if (box.right < panel.left || box.left > panel.right || box.bottom < panel.top || box.top > panel.bottom) return;
    }
  };
  const choose = (svg, column, tap) => {
    const method = methodOf(svg);
    const rows = method.taps.length;
    column = Math.max(0, Math.min(column, method.epochs.length - 1));
    tap = Math.max(0, Math.min(tap, rows - 1));
    if (chosen && chosen.svg !== svg) chosen.svg.querySelector(".chosen")?.remove();
    chosen = { svg, column, tap };
    const cell = frame(svg, "chosen", column, rows - 1 - tap, 1, 1);
    const quantity = svg.dataset.quantity;
    const seeds = method.seeds;
    const values = seedValues(method, quantity, column, tap);
    const known = values.filter((value) => value !== null).length;
    const value = meanOf(quantity, values);
    const title = make("h4", method.name + " · " + symbolOf(quantity) + " · tap " + tap + " (" + method.taps[tap] + ") · " + data().settings[method.setting].axis + " " + method.epochs[column]);
    const big = make("p", value === null ? "not measured" : show(value) + " mean over " + known + (known === 1 ? " seed" : " seeds"), { class: "big" });
    const list = make("dl"), bySeed = make("dl", undefined, seeds.length > 6 ? { class: "many" } : {});
    const say = (name, text, where = list) => where.append(make("dt", name), make("dd", text));
    say("n", known);
    say("rows used (fewest)", show(pickAt(method.rows_used, column, tap)));
    say("rows without gradient (most)", show(pickAt(method.rows_no_gradient, column, tap)));
    say("rounding noise (worst)", show(pickAt(method.g_noise, column, tap)));
    say("null sd of the mean cos", show(pickAt(method.null_sd, column, tap)));
    if (method.exact.includes(tap)) say("credit here", "the exact gradient");
    seeds.forEach((seed, i) => say("seed " + seed, show(values[i]), bySeed));
    const button = make("button", "Close", { type: "button" });
    button.addEventListener("click", close);
    detail.replaceChildren(title, big, list, bySeed, button);
    uncover(cell);
  };
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  for (const svg of all("svg.heat")) {
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-roledescription", "heatmap");
    svg.setAttribute("aria-label", svg.getAttribute("aria-label") + ". Enter and arrow keys show values.");
  }
  document.addEventListener("click", (event) => {
    const svg = event.target.closest?.("svg.heat");
    if (!svg) return;
    const [left, top, wide, tall] = geometry(svg);
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * scale - left) / wide);
    const row = Math.floor(((event.clientY - box.top) * scale - top) / tall);
    const method = methodOf(svg);
    if (column < 0 || row < 0 || column >= method.epochs.length || row >= method.taps.length) return;
    choose(svg, column, method.taps.length - 1 - row);
  });
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && chosen) return close();
    const svg = event.target.closest?.("svg.heat");
    if (!svg) return;
    const step = steps[event.key];
    if (!step && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const method = methodOf(svg);
    const from = chosen?.svg === svg ? chosen : { column: method.epochs.length - 1, tap: method.taps.length - 1 };
    const move = step && chosen?.svg === svg ? step : [0, 0];
    choose(svg, from.column + move[0], from.tap + move[1]);
  });

  const reveal = () => {
    let target = null;
    try {
      target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch {
      return; // an address that nobody here has written
    }
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
      at.classList?.remove("filtered-out");
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  if (location.hash) reveal();

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const pre = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(pre.textContent);
    } catch {
      getSelection().selectAllChildren(pre);
      if (!document.execCommand("copy")) return;
    }
    button.textContent = "Copied";
  });

  const filter = document.getElementById("filter");
  const settings = all("details.setting");
  let texts = null;
  filter?.addEventListener("input", () => {
    if (!texts) {
      texts = {};
      for (const block of all("#verdicts details.setting")) texts[block.dataset.setting] = block.textContent.toLowerCase().replace(/\s+/g, " ");
    }
    const words = filter.value.toLowerCase().split(",").map((part) => part.trim()).filter(Boolean);
    const kept = new Set(Object.keys(texts).filter((key) => words.every((word) => texts[key].includes(word))));
    for (const block of settings) block.classList.toggle("filtered-out", !kept.has(block.dataset.setting));
    document.getElementById("filtered").textContent = words.length ? kept.size + " of " + Object.keys(texts).length + " settings" : "";
  });

  const roles = { THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
  for (const table of all("table.verdicts")) {
    table.setAttribute("role", "table");
    for (const part of all("thead, tbody, tr, td, th", table)) {
      part.setAttribute("role", roles[part.tagName] ?? (part.scope === "row" ? "rowheader" : "columnheader"));
    }
  }

  let unfolded = [];
  addEventListener("beforeprint", () => {
    const settings = all("#verdicts details.setting:not([open])");
    unfolded = [...settings, ...all("details.setting[open] details:not([open])")];
    for (const block of settings) block.classList.add("for-paper");
    for (const block of unfolded) block.open = true;
  });
  addEventListener("afterprint", () => {
    for (const block of unfolded) block.open = false;
    for (const block of unfolded) block.classList.remove("for-paper");
    unfolded = [];
  });
})();
