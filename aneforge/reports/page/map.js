// The regions of a model as a graph: what runs on the engine, what on the CPU, and what each hands to the next.
const MOST_REGIONS = 100;
// Why an operation is on the CPU: the chip refuses it, or only its neighbours are there.
const causeOf = (op, at) => ("ropu".includes(op.statuses[at]) ? "direct" : "follow");
const moves = (op, at) => op.likely && op.likely[at] === "h" && !"hrop".includes(op.statuses[at]);
function drawMap() {
  const at = state.chip, chip = chips[at], regions = programs[chip.program].regions;
  const likely = ops.filter((op) => moves(op, at)).length;
  const onCpu = regions.filter((region) => region.device === "host").flatMap((region) => region.ops || []);
  const direct = onCpu.filter((place) => causeOf(ops[place], at) === "direct").length;
  byId("map-summary").textContent = !onCpu.length ? `One program: all of it runs on the Neural Engine${likely ? `, by the rules; Core ML would likely keep ${plural(likely, "operation")} on the CPU` : ""}.` :
    `${plural(onCpu.length, "operation")} on the CPU: ${direct} that the chip refuses${onCpu.length > direct ? `, ${onCpu.length - direct} as a consequence` : ""}.${likely ? ` Core ML would likely keep ${likely} more there.` : ""}`;
  byId("map-legend").replaceChildren(...[["engine", "Neural Engine"], ["direct", "CPU, refused"], ["follow", "CPU, as a consequence"]].map(([kind, words]) => el("span", {}, el("span", { class: `swatch ${kind}` }), words, kind === "engine" ? "" : [" ", term(kind)])));
  byId("map-view").replaceChildren(regions.length > 1 || likely ? regionGraph(regions.slice(0, MOST_REGIONS), at) : "", regions.length > MOST_REGIONS ? el("p", { class: "quiet" }, `The first ${MOST_REGIONS} of ${regions.length.toLocaleString("en")} regions.`) : "");
  byId("map-view").hidden = !(regions.length > 1 || likely);
}
function regionGraph(regions, at) {
  const STEP = 58, WIDE = 300, TALL = 40, home = new Map();
  regions.forEach((region, row) => { for (const op of region.ops || []) home.set(op, row); });
  const edges = new Map();
  for (const [op, row] of home) for (const input of ops[op].inputs || []) {
    const from = home.get(input);
    if (from !== undefined && from !== row) edges.set(`${from} ${row}`, [from, row]);
  }
  const x = (row) => (regions[row].device === "host" ? 350 : 10), y = (row) => 8 + row * STEP;
  const lines = [...edges.values()].map(([from, to]) => {
    const [x1, y1, x2, y2] = [x(from) + WIDE / 2, y(from) + TALL, x(to) + WIDE / 2, y(to)];
    const bend = to - from > 1 && x(from) === x(to) ? (x(from) > 300 ? 180 : -180) : 0; // around the boxes between them
    return svg("path", { class: "edge", d: `M${x1},${y1}C${x1 + bend},${y1 + 18} ${x2 + bend},${y2 - 18} ${x2},${y2 - 3}`, "marker-end": "url(#arrow)" });
  });
  const names = (places) => { const own = places.map((place) => ops[place].name.slice(-24)); return own.length > 2 ? `${own[0]} and ${own.length - 1} more` : own.join(", "); };
  const boxes = regions.map((region, row) => {
    const own = region.ops || [], isHost = region.device === "host";
    const direct = isHost ? own.filter((op) => causeOf(ops[op], at) === "direct").length : 0;
    const kind = !isHost ? "engine" : direct ? "direct" : "follow", away = isHost ? 0 : own.filter((op) => moves(ops[op], at)).length;
    const below = `${plural(own.length, "operation")}${region.us === undefined ? "" : `, ${micro(region.us)}`}${away ? `; Core ML likely moves ${away}` : isHost && direct < own.length ? `; ${own.length - direct} as a consequence` : ""}`;
    const box = svg("g", { class: `box-of ${kind}`, role: "button", tabindex: 0, "aria-label": `${isHost ? "CPU" : "engine"}: ${names(own)}, ${below}`, transform: `translate(${x(row)},${y(row)})` }, svg("rect", { width: WIDE, height: TALL, rx: 6 }), svg("text", { x: 10, y: 17 }, names(own)), svg("text", { class: "below", x: 10, y: 32 }, below));
    const open = () => openRegion({ region: region.number, us: region.us || 0, sources: own, host: isHost });
    box.addEventListener("click", open);
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } });
    return box;
  });
  return svg("svg", { class: "map", viewBox: `0 0 660 ${16 + regions.length * STEP}`, width: 660, role: "group", "aria-label": `${plural(regions.length, "region")}: ${regions.slice(0, 12).map((region) => `${(region.ops || []).length} on the ${region.device === "host" ? "CPU" : "engine"}`).join(", then ")}` },
    svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { class: "head", d: "M0,0L8,4L0,8z" }))), lines, boxes);
}
