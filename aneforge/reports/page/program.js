// A call piece by piece: layers, and what is around and between them, on one axis of time.
byId("placed-legend").append(...Object.entries(ENGINES).map(([name, what]) => el("span", {}, el("span", { class: `swatch ${name}` }), `${name === "view" || name === "host" ? "" : `${name}: `}${what}`)),
  ...["call", "copies", "crossing"].map((name) => el("span", {}, el("span", { class: `swatch ${name === "crossing" ? "crossings" : name}` }), AROUND[name])));
const axis = el("div", { class: "cell time-axis" });
const lanesHead = el("div", { class: "head-row" }, el("div", { class: "cell pin name-cell" }, "from"), el("div", { class: "cell layer-cell" }, "runs as"), axis, el("div", { class: "cell", style: "width:7rem" }, "result in"));
const namesOf = (item) => (item.sources || []).length ? item.sources.slice(0, 20).map((at) => ops[at].name) : [item.op];
const lanes = new LongList(byId("placed-lanes"), lanesHead, (item) => {
  const words = `${item.op}${item.fused && item.fused.length ? ` + ${item.fused.join(" + ")}` : ""}`, total = chips[state.chip].us || 1;
  const names = item.around ? [words] : namesOf(item);
  return el("div", { class: `row link${item.opens ? " opens" : ""}`, "aria-label": `${names.slice(0, 6).join(", ")}: ${words}, ${item.around ? "" : item.host ? "on the CPU, " : `on ${item.engine}, `}from ${micro(item.start)} on, takes ${micro(item.us)}` },
    el("div", { class: `cell pin name-cell${item.around ? " quiet" : ""}`, title: names.join(", ") }, names.length > 1 ? `${names[0]} and ${names.length - 1} more` : names[0]),
    el("div", { class: "cell layer-cell" }, el("span", { class: `box ${item.engine}`, title: `${words} ${shape(item.shape)}` }, item.around ? "" : words)),
    el("div", { class: "cell time-axis" }, el("span", { class: `bar-of ${item.engine}`, style: `left:${100 * item.start / total}%;width:${100 * item.us / total}%` }), el("em", { style: item.start / total > .6 ? `right:${100 - 100 * item.start / total}%` : `left:${100 * (item.start + item.us) / total}%` }, micro(item.us))),
    el("div", { class: "cell quiet", style: "width:7rem" }, item.host || item.around ? "" : item.space === "l2" ? "on chip" : item.space));
}, (item) => (item.around ? null : item.host ? openRegion(item) : openLayer(item.number)));
// Layers with the chip's times, and between them what its call takes besides.
function placedItems(chip) {
  const program = programs[chip.program], items = [], regionOf = new Map(program.regions.map((region) => [region.number, region]));
  let next = 0, start = 0, before = null;
  const add = (item) => {
    item.start = start; start += item.us; // a layer that another one hides counts as 0
    const own = `${item.region} ${item.segment || 0} ${item.host || false}`;
    item.opens = !item.around && before !== null && before !== own;
    if (!item.around) before = own;
    items.push(item);
  };
  const addSpan = (span) => span.kind === "host" ? add({ host: true, engine: "host", op: plural((regionOf.get(span.region)?.ops || []).length, "operation"), sources: regionOf.get(span.region)?.ops, us: span.us, region: span.region }) :
    add({ around: true, engine: span.kind === "crossing" ? "crossings" : span.kind, op: AROUND[span.kind], us: span.us, region: span.region });
  program.layers.forEach((layer, at) => {
    while (next < chip.spans.length && chip.spans[next].before <= at) addSpan(chip.spans[next++]);
    add({ ...layer, us: chip.layer_us[at], bound: BOUND[chip.layer_bounds[at]] });
  });
  while (next < chip.spans.length) addSpan(chip.spans[next++]);
  return items;
}
let placed = [];
function drawPlaced() {
  const chip = chips[state.chip];
  const program = programs[chip.program];
  placed = placedItems(chip);
  axis.replaceChildren(...[0, .25, .5, .75].map((part) => el("i", { style: `left:${100 * part}%` }, short(part * (chip.us || 0)))));
  const hosts = program.regions.filter((region) => region.device === "host").length;
  byId("placed-summary").textContent = `${plural(program.layers.length, "layer")} in ${plural(program.stats.segments, "segment")} and ` +
    `${plural(program.stats.task_groups, "task group")}${hosts ? `, ${plural(hosts, "region")} on the host` : ""}${program.chips.length > 1 ? `; the same program on ${program.chips.map(label).join(", ")}` : ""}`;
  filterPlaced();
}
function filterPlaced() {
  const query = byId("placed-query").value.trim().toLowerCase();
  const shown = query ? placed.filter((item) => `${item.op} ${(item.fused || []).join(" ")} ${(item.sources || []).map((at) => ops[at].name).join(" ")}`.toLowerCase().includes(query)) : placed;
  byId("placed-count").textContent = `${of(shown.length, placed.length, "row")}`;
  lanes.show(shown);
}
byId("placed-query").addEventListener("input", filterPlaced);

// Drawings, which are those of aneforge plot, and memory.
function drawCharts() {
  const chip = chips[state.chip], drawn = data.drawings[chip.name];
  byId("drawn-note").textContent = drawn ? "" : `No drawing is kept in this page. Run: aneforge plot ${modelArgument} --target ${chip.name}`;
  ["timeline-drawn", "roofline-drawn"].forEach((id, at) => {
    byId(id).closest("figure").hidden = !drawn;
    const picture = drawn && document.importNode(new DOMParser().parseFromString(plain(drawn[at]), "image/svg+xml").documentElement, true);
    byId(id).replaceChildren(...(picture ? [picture] : []));
    if (picture) { picture.setAttribute("role", "img"); picture.setAttribute("aria-label", picture.querySelector("title, desc")?.textContent || byId(id).getAttribute("aria-label")); }
  });
  byId("memory-chart").replaceChildren(memoryChart(chip));
}
function memoryChart(chip) {
  const series = programs[chip.program].on_chip;
  const limit = chip.l2_bytes || 0;
  const highest = most(series, Math.max(1, limit));
  const [left, right, top, bottom] = [52, 392, 12, 204];
  const points = bucketed(series, 340);
  const x = (at) => left + (right - left) * at / Math.max(1, points.length);
  const y = (value) => bottom - (bottom - top) * value / highest;
  const path = points.map((value, at) => `H${x(at)}V${y(value)}H${x(at + 1)}`).join("");
  const ticks = [0, .5, 1].map((part) => [svg("line", { class: "axis", x1: left, x2: right, y1: y(part * highest), y2: y(part * highest) }), svg("text", { x: 0, y: y(part * highest) + 4 }, bytes(part * highest))]);
  return svg("svg", { viewBox: "0 0 400 234", role: "img", "aria-label": `At most ${bytes(most(series))} of ${bytes(limit)} on chip over ${series.length} steps` }, ticks,
    svg("path", { class: "area", d: `M${left},${bottom}${path}V${bottom}Z` }), limit ? svg("line", { class: "limit", x1: left, x2: right, y1: y(limit), y2: y(limit) }) : [],
    svg("text", { x: 120, y: 228 }, `steps of the schedule (${series.length.toLocaleString("en")}); dashed: all of it`));
}
function bucketed(series, parts) {
  if (series.length <= parts) return series;
  const size = series.length / parts, found = [];
  for (let at = 0; at < parts; at++) {
    let high = 0;
    for (let place = Math.floor(at * size); place < Math.floor((at + 1) * size); place++) if (series[place] > high) high = series[place];
    found.push(high);
  }
  return found;
}


// The schedule as text, and what goes in and comes out.
const LISTED = 400;
function listing(chip) {
  return placedItems(chip).map((item) => item.around || item.host ? `           ${item.host ? "host      " : ""}${item.op} (${micro(item.us)})` :
    `${String(item.step).padStart(6)} ${String(item.number).padStart(6)} ${item.engine.padEnd(5)} ${[item.op, ...(item.fused || [])].join("+").padEnd(34)} ${(item.shape || []).join("x").padEnd(20)} <- ${(item.inputs || []).join(", ").padEnd(14)} ` +
    `${item.space === "l2" ? `on chip 0x${(item.address || 0).toString(16)}` : item.space} ${item.bytes || 0} B, ${micro(item.us)}`);
}
function drawListing() {
  const chip = chips[state.chip], lines = listing(chip);
  const head = `// ${data.model.name} on ${chip.label} (${chip.target}), by aneforge ${data.aneforge}; step, layer, engine, op, shape, reads, place, time`;
  const more = lines.length > LISTED ? [`... and ${(lines.length - LISTED).toLocaleString("en")} more lines in the download`] : [];
  byId("listing-text").textContent = [head, ...lines.slice(0, LISTED), ...more].join("\n");
  byId("listing-save").onclick = () => {
    const link = el("a", { download: `${data.model.name}.${chip.name}.txt`, href: URL.createObjectURL(new Blob([[head, ...lines, ""].join("\n")], { type: "text/plain" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
}
function drawChain() {
  const chip = chips[state.chip], chain = programs[chip.program].chain || "";
  byId("chain-note").textContent = `${chain ? "The same as" : "The program has too many layers for this page. Run"} aneforge compile ${modelArgument} --target ${chip.name} --show all`;
  byId("chain-text").textContent = chain;
  byId("chain-text").hidden = !chain;
}
function portRows(ports, way) {
  return ports.map((port) => el("tr", {}, el("th", { scope: "row" }, port.name), el("td", {}, way), el("td", {}, shape(port.shape)), el("td", {}, port.dtype)));
}
byId("ports-list").append(el("table", {}, el("thead", {}, el("tr", {}, ["port", "way", "shape", "type"].map((head) => el("th", { scope: "col" }, head)))),
  el("tbody", {}, portRows(data.model.inputs, "in"), portRows(data.model.outputs, "out"))));
