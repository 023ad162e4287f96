"use strict";
// The page is one file: this script reads the rows beside it and asks nothing of the network.
const data = JSON.parse(document.getElementById("data").textContent);
const { chips, ops, findings, programs, changes, risks } = data;
const byId = (id) => document.getElementById(id);
const STATUS = { n: "native", d: "decomposed", r: "rejected", o: "too large", k: "risk", h: "on the host" };
const BOUND = { c: "compute", w: "weights", a: "activations", d: "dispatch" };
const ENGINES = { NE: "multiply-accumulate", PE: "planar", TE: "texture", DMA: "copies", view: "nothing to do", host: "host" };
const INFERRED = new Set(["predicted", "inferred", "unknown"]);
const ROW = 30;
const first = (test) => chips.findIndex((chip) => chip.program !== undefined && test(chip));
const state = { chip: Math.max(0, first((chip) => chip.label === "M1") < 0 ? first(() => true) : first((chip) => chip.label === "M1")) };

function el(tag, attrs = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attrs = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
  for (const child of children.flat(Infinity)) node.append(child);
  return node;
}

const number = (value, digits = 3) => value === undefined || value === null ? "?" :
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(digits));
const micro = (us) => us >= 10000 ? `${number(us / 1000)} ms` : `${number(us)} µs`;
function bytes(count) {
  for (const unit of ["B", "KB", "MB"]) { if (count < 1024) return `${unit === "B" ? count : count.toFixed(1)} ${unit}`; count /= 1024; }
  return `${count.toFixed(2)} GB`;
}
const shape = (extents) => (extents && extents.length ? extents.join(" × ") : "one number");
const label = (name) => (chips.find((chip) => chip.name === name) || { label: name }).label;
const badge = (word, kind) => el("span", { class: `badge ${kind}` }, word);

// Lists of any length: rows are made when they come into view.
class LongList {
  constructor(place, head, build) {
    Object.assign(this, { place, build, items: [] });
    this.rows = el("div", { class: "rows", role: "presentation" });
    place.replaceChildren(...(head ? [head] : []), this.rows);
    this.made = new Map();
    place.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(place);
  }
  show(items) {
    this.items = items;
    this.made.clear();
    this.rows.replaceChildren();
    this.rows.style.height = `${items.length * ROW}px`;
    this.place.style.height = `${Math.min(items.length * ROW + this.rows.offsetTop + 18, window.innerHeight * 0.75)}px`;
    this.draw();
  }
  draw() {
    const top = this.place.scrollTop - this.rows.offsetTop;
    const first = Math.max(0, Math.floor(top / ROW) - 6);
    const last = Math.min(this.items.length, Math.ceil((top + this.place.clientHeight) / ROW) + 6);
    for (const [at, row] of this.made) if (at < first || at >= last) { row.remove(); this.made.delete(at); }
    for (let at = first; at < last; at++) {
      if (this.made.has(at)) continue;
      const row = this.build(this.items[at], at);
      row.style.top = `${at * ROW}px`;
      row.style.height = `${ROW}px`;
      this.made.set(at, row);
      this.rows.append(row);
    }
  }
  reach(at) { this.place.scrollTop = Math.max(0, at * ROW - this.place.clientHeight / 3); this.draw(); }
}

// Where findings are, by operation and chip: the gravest comes first in the list.
const findingAt = new Map();
findings.forEach((finding, place) => {
  for (const node of finding.nodes || []) for (const chip of finding.chips) {
    const key = `${node} ${chip}`;
    if (!findingAt.has(key)) findingAt.set(key, place);
  }
});

// Verdicts.
const table = byId("chips");
table.addEventListener("click", (event) => {
  const sorter = event.target.closest("[data-sort]");
  if (sorter) return sortChips(sorter);
  const row = event.target.closest("tr[data-chip]");
  if (row) choose(+row.dataset.chip);
});
function sortChips(button) {
  const down = button.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("[data-sort]")) other.removeAttribute("aria-sort");
  button.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = { label: (c) => c.label, verdict: (c) => -c.engine_ops / Math.max(1, c.ops), engine: (c) => c.engine_ops, us: (c) => c.us ?? Infinity,
    span: (c) => c.us ?? Infinity, energy: (c) => c.energy_mj ?? Infinity, mostly: (c) => mostly(c), basis: (c) => (c.basis_measured ? 0 : 1) }[button.dataset.sort];
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, two) => {
    const [a, b] = [key(chips[+one.dataset.chip]), key(chips[+two.dataset.chip])];
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  });
  table.tBodies[0].append(...rows);
}
const mostly = (chip) => Object.entries(chip.shares || {}).sort((a, b) => b[1] - a[1])[0]?.[0] || "";

function choose(place) {
  if (chips[place].program === undefined) return;
  state.chip = place;
  for (const row of table.tBodies[0].rows) row.classList.toggle("chosen", +row.dataset.chip === place);
  byId("placed-chip").value = String(place);
  for (const spot of document.querySelectorAll(".of-chip")) spot.textContent = chips[place].label;
  drawPlaced();
  drawCharts();
  drawWeights();
  drawOps();
}

// Operations by chips.
const chosenStatuses = new Set(Object.keys(STATUS));
const matrixHead = el("div", { class: "head-row" }, el("div", { class: "cell pin name-cell" }, "operation"),
  el("div", { class: "cell kind-cell" }, "kind"), chips.map((chip) => el("div", { class: "slanted" }, el("span", { title: chip.target }, chip.label))));
const matrix = new LongList(byId("matrix-grid"), matrixHead, (op) => el("div", { class: "row" },
  el("div", { class: "cell pin name-cell" }, opButton(op.number)),
  el("div", { class: "cell quiet kind-cell" }, op.op),
  [...op.statuses].map((letter, at) => {
    const place = findingAt.get(`${op.number} ${chips[at].name}`);
    const why = place === undefined ? STATUS[letter] : `${STATUS[letter]}: ${findings[place].message} ${findings[place].evidence}`;
    return el("div", { class: `mark ${letter}`, title: `${chips[at].label}: ${why}`, "aria-label": `${chips[at].label} ${STATUS[letter]}`, role: "img" }, letter === "n" ? "·" : letter);
  })));
function opButton(at) {
  return el("button", { type: "button", class: "name", title: ops[at].name, on: { click: () => openOp(at) } }, ops[at].name);
}
for (const [letter, word] of Object.entries(STATUS)) {
  const count = ops.reduce((sum, op) => sum + (op.statuses.includes(letter) ? 1 : 0), 0);
  if (!count) { chosenStatuses.delete(letter); continue; }
  const box = el("input", { type: "checkbox", checked: true, on: { change: () => { box.checked ? chosenStatuses.add(letter) : chosenStatuses.delete(letter); filterMatrix(); } } });
  byId("matrix-statuses").append(el("label", {}, box, ` ${word} (${count.toLocaleString("en")})`));
}
const WORST = "rokhdn";
function filterMatrix() {
  const query = byId("matrix-query").value.trim().toLowerCase();
  let shown = ops.filter((op) => [...op.statuses].some((letter) => chosenStatuses.has(letter)) && (!query || `${op.name} ${op.op}`.toLowerCase().includes(query)));
  if (byId("matrix-order").value === "worst") {
    const weight = (op) => [...op.statuses].reduce((sum, letter) => sum + (5 - WORST.indexOf(letter)) ** 3, 0);
    shown = shown.map((op) => [weight(op), op]).sort((a, b) => b[0] - a[0] || a[1].number - b[1].number).map((pair) => pair[1]);
  }
  byId("matrix-count").textContent = `${shown.length.toLocaleString("en")} of ${ops.length.toLocaleString("en")} operations`;
  matrix.show(shown);
}
byId("matrix-query").addEventListener("input", filterMatrix);
byId("matrix-order").addEventListener("change", filterMatrix);

// Why not.
function findingCard(finding) {
  const nodes = finding.nodes || [];
  const facts = [["rule", el("code", {}, finding.rule || "none")], ["answer", `${finding.verdict}, at ${finding.stage} by the ${finding.route} route`]];
  if (finding.limit !== undefined || finding.extent !== undefined) facts.push(["limit", `${finding.limit ?? "none stated"}${finding.extent !== undefined ? `, here ${finding.extent}` : ""}`]);
  if (finding.says) facts.push(["compiler says", el("code", {}, finding.says)]);
  if (finding.rewrite) facts.push(["rewritten by", el("code", {}, finding.rewrite)]);
  if (finding.bound) facts.push(["error of it", finding.bound]);
  if (finding.hint) facts.push(["do", finding.hint]);
  facts.push(["chips", finding.chips.map(label).join(", ")], ["evidence", `${finding.evidence}${finding.conflict ? `; aneforge explain ${finding.conflict}` : ""}`]);
  const shown = nodes.slice(0, 40).map((at) => el("li", {}, opButton(at), ` ${ops[at].op} ${shape(ops[at].shape)}`));
  if (nodes.length > 40) shown.push(el("li", { class: "quiet" }, `and ${nodes.length - 40} more`));
  const after = (finding.changes || []).map((at) => el("li", {}, `${changes[at].what}: ${estimates(changes[at])}`));
  return el("details", { class: "finding", id: `finding-${finding.id}`, "data-inferred": INFERRED.has(finding.confidence) },
    el("summary", {}, badge(finding.grade, finding.grade), ` ${nodes.length === 1 ? ops[nodes[0]].name : `${nodes.length.toLocaleString("en")} operations`}: ${finding.message} `,
      el("a", { href: `#finding-${finding.id}`, title: "link to this reason" }, "#")),
    el("div", { class: "inside" }, el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("ul", { class: "plain" }, shown), after.length ? [el("strong", {}, "Estimated after a change"), el("ul", { class: "plain" }, after)] : null));
}
function estimates(change) {
  return Object.entries(change.us).slice(0, 6).map(([name, us]) => `${label(name)} ${micro(us)} (${Math.round(100 * change.saved[name])} % less)`).join(", ");
}
byId("why-list").append(...(findings.length ? findings.map(findingCard) : [el("p", {}, "Nothing: every operation is native on every chip.")]));

// The program as placed.
const chipSelect = byId("placed-chip");
chips.forEach((chip, place) => { if (chip.program !== undefined) chipSelect.append(el("option", { value: place }, chip.label)); });
chipSelect.addEventListener("change", () => choose(+chipSelect.value));
byId("placed-legend").append(...Object.entries(ENGINES).map(([name, what]) => el("span", {}, el("span", { class: "swatch", style: `background:var(--${name.toLowerCase()})` }), `${name === "view" || name === "host" ? "" : `${name}: `}${what}`)));
const LANES = ["NE", "PE", "TE", "DMA", "host"];
const lanesHead = el("div", { class: "head-row" }, el("div", { class: "cell", style: "width:4rem" }, "step"), LANES.map((name) => el("div", { class: "lane" }, name === "NE" ? "NE (MAC)" : name)),
  el("div", { class: "cell number", style: "width:5.5rem" }, "starts at"), el("div", { class: "time-bar" }, "takes"), el("div", { class: "cell", style: "width:7rem" }, "result in"), el("div", { class: "cell", style: "width:22rem" }, "from"));
const lanes = new LongList(byId("placed-lanes"), lanesHead, (item) => {
  const lane = item.engine === "view" ? "DMA" : item.engine;
  const words = `${item.op}${item.fused && item.fused.length ? ` + ${item.fused.join(" + ")}` : ""}`;
  const open = () => (item.host ? openRegion(item) : openLayer(item.number));
  return el("div", { class: "row link", id: item.host ? undefined : `row-${item.number}`, on: { click: open } },
    el("div", { class: "cell number quiet", style: "width:4rem" }, item.host ? "" : item.step),
    LANES.map((name) => el("div", { class: "lane" }, name === lane ? el("button", { type: "button", class: `box ${item.engine}`, style: "border:0", title: `${words} ${shape(item.shape)}` }, words) : "")),
    el("div", { class: "cell number quiet", style: "width:5.5rem" }, micro(item.start)),
    el("div", { class: "time-bar" }, el("span", { style: `width:${Math.max(0.5, 62 * item.us / item.longest)}%` }), el("em", {}, micro(item.us))),
    el("div", { class: "cell quiet", style: "width:7rem" }, item.host ? "" : item.space === "l2" ? `on chip${item.chained ? ", chained" : ""}` : item.space),
    el("div", { class: "cell quiet", style: "width:22rem" }, (item.sources || []).map((at) => ops[at].name).join(", ")));
});
function placedItems(chip) {
  const program = programs[chip.program];
  const items = [];
  const longest = Math.max(1e-9, ...chip.layer_us);
  const perRegion = new Map();
  program.layers.forEach((layer, at) => {
    if (!perRegion.has(layer.region)) perRegion.set(layer.region, []);
    perRegion.get(layer.region).push({ ...layer, us: chip.layer_us[at], bound: BOUND[chip.layer_bounds[at]], longest });
  });
  for (const region of program.regions) {
    if (region.device === "host") items.push({ host: true, engine: "host", op: `${(region.ops || []).length} ops`, sources: region.ops, us: region.us || 0, longest: Math.max(longest, region.us || 0), region: region.number });
    else items.push(...(perRegion.get(region.number) || []));
  }
  let start = 0;
  for (const item of items) { item.start = start; start += item.beside !== undefined && item.us < chip.layer_us[item.beside] ? 0 : item.us; }
  return items;
}
let placed = [];
function drawPlaced() {
  const chip = chips[state.chip];
  const program = programs[chip.program];
  placed = placedItems(chip);
  const hosts = program.regions.filter((region) => region.device === "host").length;
  byId("placed-summary").textContent = `${program.layers.length.toLocaleString("en")} layers in ${program.stats.segments} segment${program.stats.segments === 1 ? "" : "s"} and ` +
    `${program.stats.task_groups} task groups${hosts ? `, ${hosts} regions on the host` : ""}; the same program on ${program.chips.map(label).join(", ")}`;
  filterPlaced();
}
function filterPlaced() {
  const query = byId("placed-query").value.trim().toLowerCase();
  const shown = query ? placed.filter((item) => `${item.op} ${(item.fused || []).join(" ")} ${(item.sources || []).map((at) => ops[at].name).join(" ")}`.toLowerCase().includes(query)) : placed;
  byId("placed-count").textContent = `${shown.length.toLocaleString("en")} of ${placed.length.toLocaleString("en")} rows`;
  lanes.show(shown);
}
byId("placed-query").addEventListener("input", filterPlaced);

// Charts.
function drawCharts() {
  const chip = chips[state.chip];
  byId("shares-chart").replaceChildren(sharesChart(chip));
  byId("roof-chart").replaceChildren(roofChart(chip));
  byId("memory-chart").replaceChildren(memoryChart(chip));
}
function sharesChart(chip) {
  const parts = Object.entries(chip.shares || {}).sort((a, b) => b[1] - a[1]);
  const total = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  const rows = parts.map(([name, us], at) => [
    svg("text", { x: 0, y: 18 + at * 26 }, name), svg("rect", { x: 90, y: 7 + at * 26, width: Math.max(1, 190 * us / total), height: 15, rx: 2, fill: "var(--ne)" }),
    svg("text", { x: 96 + 190 * us / total, y: 18 + at * 26 }, `${micro(us)}, ${Math.round(100 * us / total)} %`)]);
  return svg("svg", { viewBox: `0 0 400 ${Math.max(40, parts.length * 26 + 8)}`, role: "img", "aria-label": `Of ${micro(total)}: ${parts.map(([name, us]) => `${name} ${micro(us)}`).join(", ")}` }, rows);
}
const decade = (value) => Math.log10(value);
function roofChart(chip) {
  const program = programs[chip.program];
  const points = program.layers.map((layer, at) => ({ layer, us: chip.layer_us[at] })).filter(({ layer, us }) => layer.flops > 0 && layer.traffic > 0 && us > 0)
    .map(({ layer, us }) => ({ layer, us, x: layer.flops / layer.traffic, y: layer.flops / us }));
  const [left, right, top, bottom] = [46, 392, 12, 214];
  const xs = [0.1, 10000], ys = [Math.min(chip.peak / 1e5, ...points.map((point) => point.y)), chip.peak * 1.6];
  const x = (value) => left + (right - left) * (decade(Math.min(xs[1], Math.max(xs[0], value))) - decade(xs[0])) / (decade(xs[1]) - decade(xs[0]));
  const y = (value) => bottom - (bottom - top) * (decade(Math.max(ys[0], value)) - decade(ys[0])) / (decade(ys[1]) - decade(ys[0]));
  const marks = [];
  for (let power = -1; power <= 4; power++) marks.push(svg("line", { class: "axis", x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: bottom }), svg("text", { x: x(10 ** power) - 8, y: bottom + 14 }, String(+(10 ** power).toPrecision(1))));
  for (let power = Math.ceil(decade(ys[0])); power <= decade(ys[1]); power++) marks.push(svg("line", { class: "axis", x1: left, x2: right, y1: y(10 ** power), y2: y(10 ** power) }), svg("text", { x: 2, y: y(10 ** power) + 4 }, rate(10 ** power)));
  const ridge = chip.peak / chip.bandwidth;
  const roof = svg("path", { class: "roof", d: `M${x(xs[0])},${y(xs[0] * chip.bandwidth)}L${x(ridge)},${y(chip.peak)}L${right},${y(chip.peak)}` });
  const spread = points.length > 3000 ? points.filter((point, at) => at % Math.ceil(points.length / 3000) === 0) : points;
  const dots = spread.map((point) => svg("circle", { cx: x(point.x), cy: y(point.y), r: Math.max(2, Math.min(9, Math.sqrt(point.us) / 2)), fill: `var(--${point.layer.engine.toLowerCase()})`, "fill-opacity": .6 },
    svg("title", {}, `${point.layer.number} ${point.layer.op}: ${micro(point.us)}, ${number(point.x)} operations a byte, ${rate(point.y)}`)));
  return svg("svg", { viewBox: "0 0 400 246", role: "img", "aria-label": `${points.length} layers; the roof is ${rate(chip.peak)}, reached from ${number(ridge)} operations a byte on` }, marks, dots, roof,
    svg("text", { x: 150, y: 243 }, "operations for each byte moved"));
}
const rate = (perUs) => perUs >= 1e6 ? `${+(perUs / 1e6).toPrecision(2)} T/s` : perUs >= 1e3 ? `${+(perUs / 1e3).toPrecision(2)} G/s` : `${+perUs.toPrecision(2)} M/s`;
function memoryChart(chip) {
  const series = programs[chip.program].on_chip || [];
  const limit = chip.l2_bytes || 0;
  const most = Math.max(1, limit, ...bucketed(series, 1));
  const [left, right, top, bottom] = [52, 392, 12, 204];
  const points = bucketed(series, 340);
  const x = (at) => left + (right - left) * at / Math.max(1, points.length);
  const y = (value) => bottom - (bottom - top) * value / most;
  const path = points.map((value, at) => `H${x(at)}V${y(value)}H${x(at + 1)}`).join("");
  const ticks = [0, .5, 1].map((part) => [svg("line", { class: "axis", x1: left, x2: right, y1: y(part * most), y2: y(part * most) }), svg("text", { x: 0, y: y(part * most) + 4 }, bytes(part * most))]);
  return svg("svg", { viewBox: "0 0 400 234", role: "img", "aria-label": `At most ${bytes(Math.max(0, ...bucketed(series, 1)))} of ${bytes(limit)} on chip over ${series.length} steps` }, ticks,
    svg("path", { class: "area", d: `M${left},${bottom}${path}V${bottom}Z` }), limit ? svg("line", { class: "limit", x1: left, x2: right, y1: y(limit), y2: y(limit) }) : [],
    svg("text", { x: 120, y: 228 }, `steps of the schedule (${series.length.toLocaleString("en")}); dashed: all of it`));
}
function bucketed(series, most) {
  if (series.length <= most) return series;
  const size = series.length / most, found = [];
  for (let at = 0; at < most; at++) {
    let high = 0;
    for (let place = Math.floor(at * size); place < Math.floor((at + 1) * size); place++) if (series[place] > high) high = series[place];
    found.push(high);
  }
  return found;
}

// What would help, and what gets lost.
function rowsTable(heads, rows, place, empty) {
  if (!rows.length) return byId(place).replaceChildren(el("p", {}, empty));
  byId(place).replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows)));
}
rowsTable(["change", "works against", "after it", "numbers", "how it was worked out"], changes.map((change) => el("tr", {},
  el("td", {}, change.what), el("td", {}, change.cause), el("td", {}, estimates(change), Object.keys(change.us).length > 6 ? el("details", {}, el("summary", {}, `all ${Object.keys(change.us).length} chips`),
    el("ul", { class: "plain" }, Object.entries(change.us).map(([name, us]) => el("li", {}, `${label(name)}: ${micro(us)}, ${Math.round(100 * change.saved[name])} % less`)))) : null),
  el("td", {}, change.numbers), el("td", { class: "quiet" }, change.how))), "help-list", "No change that was tried saves 2 % or more.");
rowsTable(["operation", "kind", "what", "reaches", "limit", "do", "chips"], risks.slice(0, 200).map((risk) => el("tr", {},
  el("td", {}, risk.node === undefined ? risk.op : opButton(risk.node)), el("td", {}, badge(risk.kind, risk.lost ? "reject" : "risk")), el("td", {}, risk.message),
  el("td", { class: "number" }, number(risk.reaches)), el("td", { class: "number" }, number(risk.limit)), el("td", {}, risk.suggestion || "", risk.rewrite ? el("code", {}, ` ${risk.rewrite}`) : null),
  el("td", {}, risk.chips.map(label).join(", ")))), "numbers-list", "Nothing can be lost for the ranges that were given.");
byId("numbers-list").prepend(el("p", { class: "quiet" }, `${data.max_abs ? `For inputs of magnitude up to ${data.max_abs}` : "For any input that the model allows"}, on one chip of each family (${data.risk_chips.map(label).join(", ")})` +
  `${risks.length > 200 ? `; the first 200 of ${risks.length}` : ""}. Behind a loss nothing more is told.`), ...data.doubts.map((doubt) => el("p", { class: "quiet" }, `Doubtful: ${doubt}`)));

function drawWeights() {
  const program = programs[chips[state.chip].program];
  const kinds = new Map();
  for (const weight of program.weights || []) {
    const key = `${weight.encoding} ${weight.flow || "beside the kernel"}`;
    const sum = kinds.get(key) || { encoding: weight.encoding, flow: weight.flow, count: 0, bytes: 0, stored: 0, largest: weight };
    sum.count += 1; sum.bytes += weight.bytes; sum.stored += weight.stored_bytes;
    if (weight.stored_bytes > sum.largest.stored_bytes) sum.largest = weight;
    kinds.set(key, sum);
  }
  const flow = { stream: "streams", fold: "folds: expanded to fp16", undefined: "coefficients" };
  rowsTable(["stored as", "on the way in", "constants", "bytes", "packed", "largest"], [...kinds.values()].sort((a, b) => b.stored - a.stored).map((sum) => el("tr", {},
    el("td", {}, sum.encoding), el("td", {}, flow[sum.flow]), el("td", { class: "number" }, sum.count.toLocaleString("en")), el("td", { class: "number" }, bytes(sum.bytes)), el("td", { class: "number" }, bytes(sum.stored)),
    el("td", {}, (sum.largest.sources || []).map((at) => opButton(at)), ` ${shape(sum.largest.shape)}`))), "weights-list", "The program has no stored constants.");
  byId("weights-list").prepend(el("p", { class: "quiet" }, `On ${chips[state.chip].label}: ${bytes((program.weights || []).reduce((sum, weight) => sum + weight.stored_bytes, 0))}.`));
  if (data.compression) byId("weights-list").append(compressionTable(data.compression));
}
function compressionTable(advice) {
  return el("div", {}, el("h3", {}, "Stored otherwise"), el("table", {}, el("thead", {}, el("tr", {}, advice.columns.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, advice.rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell === null ? "?" : String(cell))))))));
}

// Every operation with its layers.
const layersOf = new Map();
const opsHead = el("div", { class: "head-row" }, [["operation", 16], ["kind", 8], ["shape", 10], ["becomes", 16], ["layers", 8], ["time", 6], ["from", 14]].map(([name, width], at) => el("div", { class: `cell${at ? "" : " pin"}`, style: `width:${width}rem` }, name)));
const opsList = new LongList(byId("ops-grid"), opsHead, (op) => {
  const own = layersOf.get(op.number) || [];
  const cells = [[opButton(op.number), 16], [op.op, 8], [shape(op.shape), 10], [[...new Set(own.map(({ layer }) => layer.op))].join(", ") || (onHost(op) ? "host" : "nothing of its own"), 16],
    [own.slice(0, 4).map(({ layer }) => layer.number).join(", ") + (own.length > 4 ? "…" : ""), 8], [own.length ? micro(own.reduce((sum, { us }) => sum + us, 0)) : "", 6], [op.where || "", 14]];
  return el("div", { class: "row" }, cells.map(([content, width], at) => el("div", { class: `cell${at ? "" : " pin"}`, style: `width:${width}rem` }, content)));
});
const onHost = (op) => "hro".includes(op.statuses[state.chip]);
function drawOps() {
  layersOf.clear();
  const chip = chips[state.chip];
  programs[chip.program].layers.forEach((layer, at) => {
    for (const source of layer.sources || []) {
      if (!layersOf.has(source)) layersOf.set(source, []);
      layersOf.get(source).push({ layer, us: chip.layer_us[at], bound: BOUND[chip.layer_bounds[at]] });
    }
  });
  filterOps();
}
function filterOps() {
  const query = byId("ops-query").value.trim().toLowerCase();
  const shown = query ? ops.filter((op) => `${op.name} ${op.op} ${(layersOf.get(op.number) || []).map(({ layer }) => layer.op).join(" ")}`.toLowerCase().includes(query)) : ops;
  byId("ops-count").textContent = `${shown.length.toLocaleString("en")} of ${ops.length.toLocaleString("en")} operations on ${chips[state.chip].label}`;
  opsList.show(shown);
}
byId("ops-query").addEventListener("input", filterOps);

// Details.
const panel = byId("panel");
let opener = null;
function openPanel(title, hash, ...content) {
  opener = document.activeElement;
  byId("panel-title").textContent = title;
  byId("panel-body").replaceChildren(...content.flat(Infinity).filter((child) => child !== null && child !== undefined));
  panel.hidden = false;
  panel.scrollTop = 0;
  byId("panel-title").focus({ preventScroll: true });
  if (hash && location.hash !== hash) history.replaceState(null, "", hash);
}
function closePanel() {
  panel.hidden = true;
  if (opener && opener.isConnected) opener.focus({ preventScroll: true });
}
byId("panel-close").addEventListener("click", closePanel);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !panel.hidden) closePanel();
  if (event.key === "/" && !/input|select|textarea/i.test(document.activeElement.tagName)) { event.preventDefault(); byId("matrix-query").focus(); }
});
const pairs = (facts) => el("dl", {}, facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
function openOp(at) {
  const op = ops[at], chip = chips[state.chip], program = programs[chip.program];
  const groups = new Map();
  chips.forEach((each, place) => {
    const found = findingAt.get(`${at} ${each.name}`), key = `${op.statuses[place]} ${found}`;
    if (!groups.has(key)) groups.set(key, { letter: op.statuses[place], found, chips: [] });
    groups.get(key).chips.push(each.label);
  });
  const kind = { n: "native", d: "decompose", r: "reject", o: "oversize", k: "risk", h: "host" };
  const steps = (program.steps || []).filter((step) => step.op === at);
  openPanel(op.name, `#op-${at}`, pairs([["op", op.op], ["result", shape(op.shape)], ["in the model", op.where], ["reads", (op.inputs || []).length ? (op.inputs).map((input) => [opButton(input), " "]) : undefined]]),
    el("h3", {}, "On each chip"), el("ul", { class: "plain" }, [...groups.values()].map((group) => el("li", {}, badge(STATUS[group.letter], kind[group.letter]), ` ${group.chips.join(", ")}`,
      group.found === undefined ? "" : [": ", el("a", { href: `#finding-${findings[group.found].id}` }, findings[group.found].message)]))),
    el("h3", {}, `Pass by pass, for ${chip.label}`), steps.length ? el("ol", { class: "passes" }, steps.map((step) => el("li", {}, el("code", {}, step.pass_), `: ${(step.becomes || []).slice(0, 8).join(", ") || "nothing is left of it"}`,
      el("div", { class: "quiet" }, data.passes[step.pass_]?.purpose || "", data.passes[step.pass_]?.reads?.length ? ` Decided by ${data.passes[step.pass_].reads.join(", ")}.` : "")))) : el("p", { class: "quiet" }, "No pass of this program touches it."),
    el("h3", {}, "Layers"), layerList((layersOf.get(at) || []).map(({ layer }) => layer.number)));
}
function layerList(numbers) {
  if (!numbers.length) return el("p", { class: "quiet" }, "No layer of its own.");
  const chip = chips[state.chip], layers = programs[chip.program].layers;
  return el("ul", { class: "plain" }, numbers.slice(0, 30).map((at) => el("li", {}, el("button", { type: "button", class: "name", on: { click: () => openLayer(at) } }, `${at} ${layers[at].engine} ${layers[at].op}`), ` ${micro(chip.layer_us[at])}`)));
}
function openLayer(at) {
  const chip = chips[state.chip], layer = programs[chip.program].layers[at];
  const place = layer.space === "l2" ? `on chip at ${layer.address === undefined ? "?" : `0x${layer.address.toString(16)}`}` : layer.space === "port" ? "the caller's tensor" : "memory";
  openPanel(`Layer ${at}: ${layer.op}`, `#layer-${programs.indexOf(programs[chip.program])}-${at}`, pairs([["engine", `${layer.engine}, ${ENGINES[layer.engine] || ""}`], ["fused", (layer.fused || []).join(", ")], ["result", shape(layer.shape)],
    ["time", `${micro(chip.layer_us[at])}, mostly ${BOUND[chip.layer_bounds[at]]}`], ["operations", number(layer.flops)], ["bytes moved", bytes(layer.traffic)], ["weights", layer.weight_bytes ? bytes(layer.weight_bytes) : ""],
    ["passes", layer.passes > 1 ? layer.passes : ""], ["kept", `${place}, ${bytes(layer.bytes)}, ${layer.allocation}`], ["needed", layer.live ? `steps ${layer.live[0]} to ${layer.live[1]}` : ""], ["task group", `${layer.task_group}, segment ${layer.segment}`],
    ["beside", layer.beside === undefined ? "" : `layer ${layer.beside}`]]),
    el("h3", {}, "Reads"), el("ul", { class: "plain" }, (layer.inputs || []).map((input) => el("li", {}, typeof input === "number" ? el("button", { type: "button", class: "name", on: { click: () => openLayer(input) } }, `layer ${input}`) : `input ${input}`))),
    el("h3", {}, "Comes from"), el("ul", { class: "plain" }, (layer.sources || []).map((source) => el("li", {}, opButton(source)))));
  const row = placed.findIndex((item) => item.number === at && !item.host);
  if (row >= 0 && !byId("placed-query").value) lanes.reach(row);
}
function openRegion(item) {
  openPanel(`Region ${item.region} on the host`, null, pairs([["time", micro(item.us)], ["operations", (item.sources || []).length]]),
    el("ul", { class: "plain" }, (item.sources || []).slice(0, 200).map((at) => el("li", {}, opButton(at), ` ${ops[at].op}`))));
}

// Links into the page.
function follow() {
  const [, kind, rest] = /^#(op|layer|finding|chip)-(.+)$/.exec(location.hash) || [];
  if (kind === "op" && ops[+rest]) openOp(+rest);
  if (kind === "layer") {
    const [program, layer] = rest.split("-").map(Number);
    const place = chips.findIndex((chip) => chip.program === program);
    if (place >= 0 && programs[program].layers[layer]) { if (chips[state.chip].program !== program) choose(place); openLayer(layer); }
  }
  if (kind === "chip") { const place = chips.findIndex((chip) => chip.name === rest); if (place >= 0) choose(place); }
  if (kind === "finding") {
    const card = byId(`finding-${rest}`);
    if (card) { card.open = true; card.scrollIntoView({ block: "center" }); card.classList.add("target-flash"); setTimeout(() => card.classList.remove("target-flash"), 1600); if (window.innerWidth < 900) closePanel(); }
  }
}
window.addEventListener("hashchange", follow);

// Provenance.
const choices = [...new Set(programs.flatMap((program) => program.assumed || []))];
const sources = [...new Set(findings.flatMap((finding) => finding.sources || []))].sort();
const bases = new Map(chips.filter((chip) => chip.us !== undefined).map((chip) => [chip.basis, []]));
for (const chip of chips) if (chip.us !== undefined) bases.get(chip.basis).push(chip.label);
byId("provenance-list").append(pairs([["choices of ours", choices.length ? `${choices.join(", ")}: where nothing is published, or sources disagree` : "none: published facts only"],
  ["sources of the reasons", sources.join(", ") || "none"], ["distinct programs", `${programs.length} for ${chips.filter((chip) => chip.program !== undefined).length} chips`]]),
  el("details", {}, el("summary", {}, "What the times rest on"), el("ul", { class: "plain" }, [...bases].map(([basis, labels]) => el("li", {}, `${labels.join(", ")}: ${basis}`)))));

// Settings.
const root = document.documentElement;
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) { root.dataset.theme = name; }
setTheme(prefersDark.matches ? "dark" : "light");
byId("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
byId("measured-only").addEventListener("change", (event) => document.body.classList.toggle("measured-only", event.target.checked));

filterMatrix();
if (programs.length) choose(state.chip);
else for (const id of ["placed", "limits", "weights", "ops"]) byId(id).hidden = true;
follow();
root.dataset.ready = "yes";
