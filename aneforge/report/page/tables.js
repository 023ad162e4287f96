// What would help, and what gets lost.
function rowsTable(heads, rows, place, empty) {
  if (!rows.length) return byId(place).replaceChildren(el("p", {}, empty));
  byId(place).replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows)));
}
function drawChanges() {
  const chip = chips[state.chip];
  rowsTable(["change", "works against", `on ${chip.label}`, "elsewhere", "numbers", "how it was worked out"], changes.map((change, at) => {
    const here = change.us[chip.name], shown = Object.entries(change.us).filter(([name]) => !hidesTime(chips.find((other) => other.name === name)));
    return el("tr", { id: `change-${at}` }, el("td", {}, change.what, (change.nodes || []).length ? el("div", { class: "quiet" }, change.nodes.slice(0, 3).map((node) => [opButton(node), " "])) : null), el("td", {}, change.cause),
      el("td", { class: "number" }, here === undefined ? "no help" : hidesTime(chip) ? "hidden" : `${micro(chip.us)} → ${micro(here)} (−${Math.round(100 * change.saved[chip.name])} %)`),
      el("td", {}, el("details", {}, el("summary", {}, `${shown.length} chip${shown.length === 1 ? "" : "s"}`), el("ul", { class: "plain" }, shown.map(([name, us]) => el("li", {}, `${label(name)}: ${micro(us)}, ${Math.round(100 * change.saved[name])} % less`))))),
      el("td", {}, change.numbers), el("td", { class: "quiet" }, change.how));
  }), "help-list", "No change that was tried saves 2 % or more.");
}
redraws.push(drawChanges);
rowsTable(["operation", "kind", "what", "reaches", "limit", "do", "chips"], risks.slice(0, 200).map((risk) => el("tr", {},
  el("td", {}, risk.node === undefined ? risk.op : opButton(risk.node)), el("td", {}, badge(risk.kind, risk.lost ? "reject" : "risk")), el("td", {}, risk.message),
  el("td", { class: "number" }, number(risk.reaches)), el("td", { class: "number" }, number(risk.limit)), el("td", {}, risk.suggestion || "", risk.rewrite ? el("code", {}, ` ${risk.rewrite}`) : null),
  el("td", {}, risk.chips.map(label).join(", ")))), "numbers-list", "Nothing can be lost for the ranges that were given.");
byId("numbers-list").prepend(el("p", { class: "quiet" }, `${data.max_abs ? `For inputs of magnitude up to ${data.max_abs}` : "For any input that the model allows"}, on one chip of each family (${data.risk_chips.map(label).join(", ")})` +
  `${risks.length > 200 ? `; the first 200 of ${risks.length}` : ""}. Behind a loss nothing more is told.`), ...data.doubts.map((doubt) => el("p", { class: "quiet" }, `Doubtful: ${doubt}`)));

const differs = (row) => row.excluded ? "excluded by the range" : row.bound === undefined ? "numbers can be lost" : `at most ${number(row.bound)}`;
rowsTable(["chips", "can differ", "operations", "worst", "why"], data.divergences.map((row) => el("tr", {}, el("td", {}, `${label(row.reference)} and ${label(row.chip)}`), el("td", {}, differs(row)),
  el("td", { class: "number" }, (row.nodes || []).length.toLocaleString("en")), el("td", {}, ops.find((op) => op.name === row.worst) ? opButton(ops.find((op) => op.name === row.worst).number) : row.worst), el("td", {}, (row.causes || []).join("; ") || "they read what differs already"))),
  "differ-list", "None of the nodes that were compared can differ.");
byId("differ-list").prepend(el("p", { class: "quiet" }, data.divergence_note));

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
  const cells = [[opName(op.number), 16], [op.op, 8], [shape(op.shape), 10], [[...new Set(own.map(({ layer }) => layer.op))].join(", ") || (onHost(op) ? "host" : "nothing of its own"), 16],
    [own.slice(0, 4).map(({ layer }) => layer.number).join(", ") + (own.length > 4 ? "…" : ""), 8], [own.length ? micro(own.reduce((sum, { us }) => sum + us, 0)) : "", 6], [op.where || "", 14]];
  return el("div", { class: "row link", "aria-label": `${op.name}, ${op.op}, becomes ${cells[3][0]}` }, cells.map(([content, width], at) => el("div", { class: `cell${at ? "" : " pin"}`, style: `width:${width}rem` }, content)));
}, (op) => openOp(op.number));
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


// What a Mac said, beside what is predicted.
const DEVICES = { neuralEngine: "Neural Engine", cpu: "CPU", gpu: "GPU" };
const share = (value) => value === undefined ? "?" : `${number(100 * value)} %`;
const measuredList = data.measured && new LongList(byId("measured-grid"), el("div", { class: "head-row" }, [["operation", 16], ["kind", 8], ["predicted", 8], ["there", 8], ["can run on", 14], ["cost, predicted", 8], ["cost, there", 8], ["time there", 7]].map(([name, width], at) => el("div", { class: `cell${at ? "" : " pin"}`, style: `width:${width}rem` }, name))), (row) => {
  const cells = [[opName(row.op), 16], [ops[row.op].op, 8], [DEVICES[row.predicted], 8], [badge(DEVICES[row.measured], row.measured === row.predicted ? "yes" : "part"), 8],
    [(row.supported || []).map((name) => DEVICES[name]).join(", "), 14], [share(row.predicted_share), 8], [share(row.share), 8], [row.us === undefined ? "?" : micro(row.us), 7]];
  return el("div", { class: "row link", "aria-label": `${ops[row.op].name}: predicted ${DEVICES[row.predicted]}, there ${DEVICES[row.measured]}` }, cells.map(([content, width], at) => el("div", { class: `cell${at ? "" : " pin"}`, style: `width:${width}rem` }, content)));
}, (row) => openOp(row.op));
function drawMeasured() {
  if (!data.measured) return;
  const table = data.measured, onlyOther = byId("measured-differs").checked;
  const rows = (table.rows || []).filter((row) => !onlyOther || row.predicted !== row.measured);
  const agreeing = (table.rows || []).filter((row) => row.predicted === row.measured).length;
  byId("measured-summary").textContent = `${table.file} on ${label(table.chip)}${table.os ? `, ${table.os}` : ""}: ${agreeing} of ${(table.rows || []).length} operations are on the predicted device` +
    `${table.latency_us ? `; a call took ${micro(table.latency_us)}, ${micro(chips.find((chip) => chip.name === table.chip).us)} are predicted` : ""}` +
    `${(table.only_measured || []).length ? `; ${table.only_measured.length} operations of the file have no partner here` : ""}.${table.predicted ? " The file was written by aneforge: nothing in it was measured." : ""}`;
  byId("measured-count").textContent = `${rows.length.toLocaleString("en")} operations`;
  measuredList.show(rows);
}
if (data.measured) byId("measured-differs").addEventListener("change", drawMeasured);
