// values beside the pointer, and by the keyboard: of sparklines, heatmaps and charts
const tip = document.getElementById("tip");
const quantities = page.quantities;
const SVG = "http://www.w3.org/2000/svg";
const show = (value) => (value === null || value === undefined ? "–" : String(value).replace(/^-/, "−"));
const pickAt = (byEpoch, column, i) => (Array.isArray(byEpoch[column]) ? byEpoch[column][i] : byEpoch[column]);
const meanOf = (quantity, values) => {
  const known = values.filter((value) => value != null);
  if (!known.length) return null;
  const logs = quantities[quantity].size && known.every((value) => value > 0);
  const sum = known.reduce((total, value) => total + (logs ? Math.log(value) : value), 0) / known.length;
  return Number((logs ? Math.exp(sum) : sum).toPrecision(3));
};
let marked = null, anchor = null;
const hideTip = () => {
  tip.replaceChildren();
  marked?.remove();
  marked = anchor = null;
};
const showTip = (lines, beside) => {
  tip.replaceChildren(...lines);
  anchor = beside;
  placeTip();
};
const placeTip = () => {
  const box = anchor?.getBoundingClientRect();
  if (!box || box.bottom < 0 || box.top > innerHeight) return hideTip();
  const own = tip.getBoundingClientRect();
  const left = Math.max(4, Math.min(box.left + box.width / 2 - own.width / 2, innerWidth - own.width - 4));
  const above = box.top - own.height - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above >= 4 ? above : Math.min(box.bottom + 8, innerHeight - own.height - 4)}px`;
};
const mark = (svg, tag, attributes) => {
  marked?.remove();
  marked = document.createElementNS(SVG, tag);
  marked.setAttribute("class", "chosen");
  for (const [name, value] of Object.entries(attributes)) marked.setAttribute(name, value);
  svg.append(marked);
  return marked;
};
const inside = (svg, event) => {
  const box = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
};
const methodOf = (svg) => svg.closest("tr.opened").method;

// a cell of a heatmap
const LEFT = 22, TOP = 3, MOST_SEEDS = 10;
const showCell = (svg, column, tap) => {
  const method = methodOf(svg);
  const { epochs, taps, seeds, values, null_sd: nullSd, rows_used: used, rows_no_gradient: lost, g_noise: noise, exact } = method.values;
  column = Math.max(0, Math.min(column, epochs.length - 1));
  tap = Math.max(0, Math.min(tap, taps.length - 1));
  const [wide, tall] = svg.dataset.cell.split(",").map(Number);
  const cell = mark(svg, "rect", { x: LEFT + column * wide, y: TOP + (taps.length - 1 - tap) * tall, width: wide, height: tall });
  const quantity = svg.dataset.quantity;
  const own = seeds.map((_, i) => pickAt(values[quantity] ?? [], column, tap * seeds.length + i));
  const measured = own.filter((value) => value != null);
  const known = measured.length;
  const mean = meanOf(quantity, own);
  const title = make("b", `${quantities[quantity].symbol} · tap ${tap} (${taps[tap]}) · ${method.axis} ${epochs[column]}`);
  const lines = [title, make("p", mean === null ? "not measured" : `${show(mean)} mean over ${known} ${known === 1 ? "seed" : "seeds"}`, { class: "big" })];
  if (quantity === "cos" && exact.includes(tap)) lines.push(make("p", "the exact gradient"));
  else if (quantity === "g_norm") lines.push(make("p", `rounding noise ${show(pickAt(noise, column, tap))}, rows without gradient ${show(pickAt(lost, column, tap))}`));
  else if (quantity === "cos") lines.push(make("p", `null sd of the mean ${show(pickAt(nullSd, column, tap))}, rows used ${show(pickAt(used, column, tap))}`));
  const bySeed = known > MOST_SEEDS ? `from ${show(Math.min(...measured))} to ${show(Math.max(...measured))}` : seeds.map((seed, i) => `seed ${seed} ${show(own[i])}`).join(" · ");
  if (known > 1) lines.push(make("p", bySeed, { class: "seeds" }));
  showTip(lines, cell);
  svg.chosen = [column, tap];
};
const cellAt = (svg, event) => {
  const [x, y] = inside(svg, event);
  const [wide, tall] = svg.dataset.cell.split(",").map(Number);
  const { epochs, taps } = methodOf(svg).values;
  const [column, row] = [Math.floor((x - LEFT) / wide), Math.floor((y - TOP) / tall)];
  if (column < 0 || row < 0 || column >= epochs.length || row >= taps.length) return hideTip();
  showCell(svg, column, taps.length - 1 - row);
};

// an epoch of a chart
const chartEpochs = (svg) => (svg.epochs ??= [...new Set((svg.curves ??= JSON.parse(svg.dataset.curves)).flatMap(([, epochs]) => epochs))].sort((a, b) => a - b));
const showEpoch = (svg, place) => {
  const epochs = chartEpochs(svg);
  place = Math.max(0, Math.min(place, epochs.length - 1));
  const epoch = epochs[place];
  const [left, right, last] = svg.dataset.frame.split(" ").map(Number);
  const x = left + (right - left) * Math.log1p(epoch) / (Math.log1p(last) || 1);
  const line = mark(svg, "path", { d: `M${x} 8V${svg.viewBox.baseVal.height - 30}` });
  const list = make("dl");
  for (const [name, own, means] of svg.curves) {
    const at = own.indexOf(epoch);
    if (at >= 0) list.append(make("dt", name), make("dd", show(means[at])));
  }
  showTip([make("b", `${methodOf(svg).axis} ${epoch}`), list], line);
  svg.chosen = [place];
};
const epochAt = (svg, event) => {
  const [left, right, last] = svg.dataset.frame.split(" ").map(Number);
  const wanted = (inside(svg, event)[0] - left) / (right - left) * Math.log1p(last);
  const away = chartEpochs(svg).map((epoch) => Math.abs(Math.log1p(epoch) - wanted));
  showEpoch(svg, away.indexOf(Math.min(...away)));
};

// a tap of a sparkline
const showTap = (svg, event) => {
  const taps = svg.getAttribute("aria-label").split("; ");
  const box = svg.getBoundingClientRect();
  const at = Math.max(0, Math.min(taps.length - 1, Math.floor((event.clientX - box.left) / box.width * taps.length)));
  showTip([make("b", taps[at])], svg);
};

// all reasons of a row, where the table shows their headlines
const showWhy = (cell) => {
  if (cell.querySelector("span:not(.verdict)")?.checkVisibility() === false) showTip([make("p", cell.textContent)], cell);
};

const drawings = { heat: cellAt, chart: epochAt, spark: showTap, why: showWhy };
const drawingOf = (event) => event.target.closest?.("svg.heat, svg.chart, svg.spark, td.why");
document.addEventListener("pointermove", (event) => {
  const svg = drawingOf(event);
  if (svg) drawings[svg.classList[0]](svg, event);
  else if (tip.childElementCount && !document.activeElement.matches?.("svg")) hideTip();
});
document.addEventListener("click", (event) => {
  const svg = drawingOf(event);
  if (svg) drawings[svg.classList[0]](svg, event);
});
document.addEventListener("focusin", (event) => {
  const row = event.target.matches?.("tr[data-verdict] > th a:focus-visible") && event.target.closest("tr");
  if (!row) return;
  const said = [row.querySelector(".spark")?.getAttribute("aria-label"), row.querySelector(".why").textContent];
  showTip(said.filter(Boolean).map((text) => make("p", text)), row);
});
document.addEventListener("focusout", hideTip);
addEventListener("scroll", placeTip, { passive: true });
const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Enter: [0, 0] };
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") return hideTip();
  const svg = event.target.closest?.("svg.heat, svg.chart");
  const step = svg && steps[event.key];
  if (!step) return;
  event.preventDefault();
  const first = !svg.chosen || !tip.childElementCount;
  if (svg.classList.contains("chart")) return showEpoch(svg, first && !svg.chosen ? Infinity : svg.chosen[0] + (first ? 0 : step[0]));
  const [column, tap] = svg.chosen ?? [Infinity, Infinity];
  showCell(svg, column + (first ? 0 : step[0]), tap + (first ? 0 : step[1]));
});

arrive();
if (table && rows.length === 1 && !location.hash) go({ open: rows[0].id }, { keep: true });
