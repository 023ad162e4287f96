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
  const where = item.host ? "on the host" : `step ${item.step} on ${item.engine}`;
  return el("div", { class: `row link${item.opens ? " opens" : ""}`, "aria-label": `${words}, ${where}${item.host ? "" : `, segment ${item.segment || 0}`}, ${micro(item.us)}, from ${(item.sources || []).slice(0, 6).map((at) => ops[at].name).join(", ")}` },
    el("div", { class: "cell number quiet", style: "width:4rem" }, item.host ? "" : item.step),
    LANES.map((name) => el("div", { class: "lane" }, name === lane ? el("span", { class: `box ${item.engine}`, title: `${words} ${shape(item.shape)}` }, words) : "")),
    el("div", { class: "cell number quiet", style: "width:5.5rem" }, micro(item.start)),
    el("div", { class: "time-bar" }, el("span", { style: `width:${Math.max(0.5, 62 * item.us / item.longest)}%` }), el("em", {}, micro(item.us))),
    el("div", { class: "cell quiet", style: "width:7rem" }, item.host ? "" : item.space === "l2" ? `on chip${item.chained ? ", chained" : ""}` : item.space),
    el("div", { class: "cell quiet", style: "width:22rem" }, (item.sources || []).slice(0, 20).map((at) => ops[at].name).join(", ")));
}, (item) => (item.host ? openRegion(item) : openLayer(item.number)));
function placedItems(chip) {
  const program = programs[chip.program];
  const items = [];
  const longest = most(chip.layer_us, 1e-9);
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
  let place = null;
  for (const item of items) {
    item.start = start; start += item.us;  // a layer that another one hides counts as 0
    const own = item.host ? `host ${item.region}` : `${item.region} ${item.segment || 0}`;
    item.opens = place !== null && place !== own;
    place = own;
  }
  return items;
}
let placed = [];
function drawPlaced() {
  const chip = chips[state.chip];
  const program = programs[chip.program];
  placed = placedItems(chip);
  const hosts = program.regions.filter((region) => region.device === "host").length;
  byId("placed-summary").textContent = `${plural(program.layers.length, "layer")} in ${plural(program.stats.segments, "segment")} and ` +
    `${plural(program.stats.task_groups, "task group")}${hosts ? `, ${plural(hosts, "region")} on the host` : ""}${program.chips.length > 1 ? `; the same program on ${program.chips.map(label).join(", ")}` : ""}`;
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
  const [left, right, top, bottom] = [52, 380, 12, 214], longest = most(points.map((point) => point.us));
  const ridge = chip.peak / chip.bandwidth, roofAt = (value) => Math.min(chip.peak, value * chip.bandwidth);
  // Whole powers of ten, with every layer and the ridge well inside.
  const powers = (values) => [Math.floor(decade(Math.min(...values)) - 0.2), Math.ceil(decade(Math.max(...values)) + 0.2)];
  const [xs, ys] = [powers([ridge / 10, ridge * 10, ...extremes(points.map((point) => point.x))]), powers([chip.peak / 100, chip.peak, ...extremes(points.map((point) => point.y))])];
  const x = (value) => left + (right - left) * (decade(value) - xs[0]) / (xs[1] - xs[0]);
  const y = (value) => bottom - (bottom - top) * (decade(value) - ys[0]) / (ys[1] - ys[0]);
  const marks = [], thin = Math.ceil((ys[1] - ys[0]) / 8);
  for (let power = xs[0]; power <= xs[1]; power++) marks.push(svg("line", { class: "axis", x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: bottom }), svg("text", { x: x(10 ** power), y: bottom + 14, "text-anchor": "middle" }, String(+(10 ** power).toPrecision(1))));
  for (let power = ys[0]; power <= ys[1]; power += thin) marks.push(svg("line", { class: "axis", x1: left, x2: right, y1: y(10 ** power), y2: y(10 ** power) }), svg("text", { x: 0, y: y(10 ** power) + 4 }, rate(10 ** power)));
  const lowest = Math.max(10 ** xs[0], 10 ** ys[0] / chip.bandwidth);
  const roof = svg("path", { class: "roof", d: `M${x(lowest)},${y(roofAt(lowest))}L${x(ridge)},${y(chip.peak)}L${right},${y(chip.peak)}` });
  const above = points.filter((point) => point.y > 1.001 * roofAt(point.x));
  byId("above-slope").hidden = !above.some((point) => point.x < ridge);
  byId("above-peak").hidden = !above.some((point) => point.x >= ridge);
  const spread = points.length > 3000 ? points.filter((point, at) => at % Math.ceil(points.length / 3000) === 0) : points;
  const dots = spread.map((point) => svg("circle", { cx: x(point.x), cy: y(point.y), r: Math.max(2, 9 * Math.sqrt(point.us / longest)), fill: `var(--${point.layer.engine.toLowerCase()})`, "fill-opacity": .6 },
    svg("title", {}, `${point.layer.number} ${point.layer.op}: ${micro(point.us)}, ${number(point.x)} operations a byte, ${rate(point.y)}`)));
  return svg("svg", { viewBox: "0 0 400 246", role: "img", "aria-label": `${points.length} layers, ${above.length} of them above the roof; it is ${rate(chip.peak)}, reached from ${number(ridge)} operations a byte on` }, marks, dots, roof,
    svg("text", { x: 150, y: 243 }, "operations for each byte moved"));
}
const extremes = (values) => values.length ? [values.reduce((low, value) => Math.min(low, value)), most(values)] : [];
const rate = (perUs) => perUs >= 1e6 ? `${+(perUs / 1e6).toPrecision(2)} T/s` : perUs >= 1e3 ? `${+(perUs / 1e3).toPrecision(2)} G/s` : `${+perUs.toPrecision(2)} M/s`;
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
  return placedItems(chip).map((item) => item.host ? `           host      ${item.op} (${micro(item.us)})` :
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
  byId("chain-note").textContent = `${chain ? "The same as" : "The program has too many layers for this page. Run"} aneforge compile ${data.model.name} --target ${chip.name} --show all`;
  byId("chain-text").textContent = chain;
  byId("chain-text").hidden = !chain;
}
function portRows(ports, way) {
  return ports.map((port) => el("tr", {}, el("th", { scope: "row" }, port.name), el("td", {}, way), el("td", {}, shape(port.shape)), el("td", {}, port.dtype)));
}
byId("ports-list").append(el("table", {}, el("thead", {}, el("tr", {}, ["port", "", "shape", "type"].map((head) => el("th", { scope: "col" }, head)))),
  el("tbody", {}, portRows(data.model.inputs, "in"), portRows(data.model.outputs, "out"))));
