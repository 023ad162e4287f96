// What would help, and what gets lost.
// On a phone a row is a block of lines, each with the head of its column in front.
function tableOf(heads, rows) {
  for (const row of rows) [...row.cells].forEach((cell, at) => { cell.dataset.head = heads[at]; });
  return el("table", { class: "stacks" }, el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: rows[0].cells[at].className }, head)))), el("tbody", {}, rows));
}
function rowsTable(heads, rows, place, empty) {
  byId(place).replaceChildren(rows.length ? tableOf(heads, rows) : el("p", {}, empty));
}
const chosenKinds = new Set(changes.map((change) => change.kind));
for (const kind of chosenKinds) {
  const box = el("input", { type: "checkbox", checked: true, on: { change: () => { box.checked ? chosenKinds.add(kind) : chosenKinds.delete(kind); drawChanges(); } } });
  byId("help-kinds").append(el("label", {}, box, ` ${kind} (${changes.filter((change) => change.kind === kind).length})`));
}
function drawChanges() {
  const chip = chips[state.chip];
  const shown = changes.map((change, at) => ({ change, at })).filter(({ change }) => chosenKinds.has(change.kind));
  const [here, elsewhere] = [shown.filter(({ change }) => chip.name in change.us), shown.filter(({ change }) => !(chip.name in change.us))];
  here.sort((one, two) => two.change.saved[chip.name] - one.change.saved[chip.name]);
  const heads = ["what if", "kind", `on ${chip.label}`, "on other chips", "and then"];
  rowsTable(heads, here.map(({ change, at }) => changeRow(change, at, chip)), "help-list", `No change that was tried saves 2 % or more on ${chip.label}.`);
  if (!elsewhere.length) return;
  byId("help-list").append(el("details", { id: "help-elsewhere" }, el("summary", {}, `${elsewhere.length} that change${elsewhere.length === 1 ? "s" : ""} less than 2 % on ${chip.label}, and more on other chips`),
    tableOf(heads, elsewhere.map(({ change, at }) => changeRow(change, at, chip)))));
}
function changeRow(change, at, chip) {
  const us = change.us[chip.name], others = Object.entries(change.us).filter(([name]) => name !== chip.name && !hidesTime(chips.find((other) => other.name === name)));
  return el("tr", { id: `change-${at}` }, el("td", {}, change.what, (change.nodes || []).length ? el("div", { class: "quiet" }, change.nodes.slice(0, 3).map((node) => [opButton(node), " "]), change.nodes.length > 3 ? `and ${(change.nodes.length - 3).toLocaleString("en")} more` : null) : null), el("td", {}, change.kind),
    el("td", { class: "number" }, us === undefined ? "-" : hidesTime(chip) ? "hidden" : [micro(us), el("div", { class: "quiet" }, share(change.saved[chip.name]))]),
    el("td", {}, others.length ? el("details", {}, el("summary", {}, plural(others.length, "chip")), el("ul", { class: "plain" }, others.map(([name, other]) => el("li", {}, `${label(name)}: ${micro(other)}, ${share(change.saved[name])}`)))) : "-"),
    el("td", {}, change.numbers, el("div", { class: "quiet" }, plain(change.how))));
}
redraws.push(drawChanges);

// Numbers that can be lost: a card for each reason.
function riskCard(risk) {
  const nodes = risk.nodes || [];
  const facts = [["reaches", `${risk.reaches === undefined ? "any number" : number(risk.reaches)}${risk.worst === undefined ? "" : ` in ${ops[risk.worst].name}`}`], ["limit", number(risk.limit)], ["rests on", risk.basis]];
  if (risk.suggestion) facts.push(["do", risk.suggestion]);
  if (risk.rewrite) facts.push(["rewrite", el("code", {}, risk.rewrite)]);
  facts.push(["chips", risk.chips.map(label).join(", ")]);
  const shown = nodes.slice(0, 40).map((at) => el("li", {}, opButton(at), ` ${ops[at].op} ${shape(ops[at].shape)}`));
  if (nodes.length > 40) shown.push(el("li", { class: "quiet" }, `and ${nodes.length - 40} more`));
  return el("details", { class: "finding", id: `risk-${risk.id}` },
    el("summary", {}, badge(risk.kind, risk.basis === ASKS ? "asks" : risk.lost ? "reject" : "risk"), ` ${nodes.length ? countOf(nodes) : risk.op}: ${risk.message} `, el("span", { class: "quiet" }, `on ${risk.chips.map(label).join(", ")}`)),
    el("div", { class: "inside" }, el("p", {}, el("a", { href: `#risk-${risk.id}` }, "link to this risk")), el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])), el("ul", { class: "plain" }, shown)));
}
// What rests on inputs that nobody bounded asks how large they are; the others are losses that can happen.
const unbounded = [...risks, ...findings.filter((finding) => finding.grade === "risk")].filter((row) => row.basis === ASKS);
const sure = risks.filter((risk) => risk.basis !== ASKS);
byId("range").hidden = !unbounded.length || Boolean(data.max_abs);
if (unbounded.length) {
  const lowest = unbounded.map((row) => row.limit).filter((limit) => typeof limit === "number" && limit > 0).sort((one, two) => one - two)[0];
  byId("range-says").textContent = `${plural(new Set(unbounded.flatMap((row) => row.nodes || [])).size, "operation")} can lose large numbers${lowest ? `, the first where a value inside the model passes ${number(lowest)}` : ""}. Nobody said how large the inputs are, so this page cannot tell.`;
  const write = () => { byId("range-command").textContent = `aneforge report ${modelArgument} --max-abs ${byId("range-input").value || 1}`; };
  byId("range-input").addEventListener("input", write);
  write();
}
byId("numbers-list").append(
  el("p", { class: "quiet" }, `${data.max_abs ? `For inputs of magnitude up to ${data.max_abs}` : "For any finite input"}, on ${data.risk_chips.map(label).join(", ")}: the other chips compute as one of these. Where a number is lost, the operations that read it are not listed again.`),
  ...data.doubts.map((doubt) => el("p", { class: "quiet" }, `Doubtful: ${doubt}`)),
  ...sure.map(riskCard),
  ...(unbounded.length && risks.length > sure.length ? [el("details", { class: "finding asks" }, el("summary", {}, badge("depends on the inputs", "asks"), ` ${plural(risks.length - sure.length, "reason")} that the range of the inputs decides`), el("div", { class: "inside" }, risks.filter((risk) => risk.basis === ASKS).map(riskCard)))] : []),
  ...(risks.length ? [] : [el("p", {}, "Nothing can be lost for the ranges that were given.")]));

const differs = (row) => row.excluded ? "excluded by the range" : row.bound === undefined ? "numbers can be lost" : `at most ${number(row.bound)}`;
rowsTable(["chips", "can differ", "operations", "worst", "why"], data.divergences.map((row) => el("tr", {}, el("td", {}, `${label(row.reference)} and ${row.chips.map(label).join(", ")}`), el("td", {}, differs(row)),
  el("td", { class: "number" }, (row.nodes || []).length.toLocaleString("en")), el("td", {}, row.worst === undefined ? "" : opButton(row.worst)), el("td", {}, plain((row.causes || []).join("; ")).replace(/ \(0x[0-9a-f]+\)/g, "") || "they read what differs already"))),
  "differ-list", "None of the nodes that were compared can differ.");
byId("differ-list").prepend(el("p", { class: "quiet" }, data.divergence_note));

function drawWeights() {
  const program = programs[chips[state.chip].program];
  const kinds = new Map();
  for (const weight of program.weights) {
    const key = `${weight.encoding} ${weight.flow === undefined ? "beside" : weight.encoding === "fp16" ? "" : weight.flow}`;
    const sum = kinds.get(key) || { encoding: weight.encoding, flow: weight.flow, count: 0, bytes: 0, stored: 0, largest: weight };
    sum.count += 1; sum.bytes += weight.bytes; sum.stored += weight.stored_bytes;
    if (weight.stored_bytes > sum.largest.stored_bytes) sum.largest = weight;
    kinds.set(key, sum);
  }
  const flow = (sum) => sum.flow === undefined ? "coefficients" : sum.encoding === "fp16" ? "as it is" : sum.flow === "stream" ? "streams" : "folds: expanded to fp16";
  rowsTable(["stored as", "on the way in", "constants", "bytes", "packed", "largest"], [...kinds.values()].sort((a, b) => b.stored - a.stored).map((sum) => el("tr", {},
    el("td", {}, sum.encoding), el("td", {}, flow(sum)), el("td", { class: "number" }, sum.count.toLocaleString("en")), el("td", { class: "number" }, bytes(sum.bytes)), el("td", { class: "number" }, bytes(sum.stored)),
    el("td", {}, (sum.largest.sources || []).map((at) => opButton(at)), ` ${shape(sum.largest.shape)}`))), "weights-list", "The program has no stored constants.");
  byId("weights-list").prepend(el("p", { class: "quiet" }, `On ${chips[state.chip].label}: ${bytes(program.weights.reduce((sum, weight) => sum + weight.stored_bytes, 0))}.`));
  drawStored();
}
// The weights in every usual form, whether it helps or not.
function drawStored() {
  const chip = chips[state.chip];
  const timed = (us, other) => [micro(us), el("div", { class: "quiet" }, share(1 - us / other.us))];
  const rows = data.stored.map((form) => {
    const known = chip.name in (form.streaming || {}), us = form.us?.[chip.name];
    const others = chips.filter((other) => other !== chip && form.us?.[other.name] !== undefined && !hidesTime(other));
    const flow = !known ? "?" : form.name === "fp16" ? "as it is" : form.streaming[chip.name] ? `streams in ${plural(form.streaming[chip.name], "layer")}` : "folds: expanded to fp16";
    return el("tr", {}, el("td", {}, form.name, el("div", { class: "quiet" }, form.what)), el("td", { class: "number" }, form.layers.toLocaleString("en")), el("td", { class: "number" }, bytes(form.bytes)), el("td", { class: "number" }, form.name === "fp16" ? "-" : percent(form.rounding)),
      el("td", { class: "number" }, known ? bytes(form.program_bytes[chip.name]) : "?"), el("td", { class: "number" }, us === undefined ? "?" : hidesTime(chip) ? "hidden" : timed(us, chip)),
      el("td", {}, flow, el("div", { class: "quiet" }, plain(form.why?.[chip.name]) || plain(form.evidence?.[chip.name]) || (known ? "" : "nothing is published of it there"))),
      el("td", {}, others.length ? el("details", {}, el("summary", {}, plural(others.length, "chip")), el("ul", { class: "plain" }, others.map((other) => el("li", {}, `${other.label}: ${micro(form.us[other.name])}, ${share(1 - form.us[other.name] / other.us)}`)))) : "-"));
  });
  rowsTable(["stored as", "layers", "in the file", "rounding", "in the program", `a call on ${chip.label}`, "there", "on other chips"], rows, "stored-list", "No layer has a weight that is worth storing in another form.");
  if (data.stored_note) byId("stored-list").append(el("p", { class: "quiet" }, data.stored_note));
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
  byId("ops-count").textContent = `${of(shown.length, ops.length, "operation")} on ${chips[state.chip].label}`;
  opsList.show(shown);
}
byId("ops-query").addEventListener("input", filterOps);


// What a Mac said, beside what is predicted.
const DEVICES = { neuralEngine: "Neural Engine", cpu: "CPU", gpu: "GPU" };
const measuredList = data.measured && new LongList(byId("measured-grid"), el("div", { class: "head-row" }, [["operation", 16], ["kind", 8], ["predicted", 8], ["there", 8], ["can run on", 14], ["cost, predicted", 8], ["cost, there", 8], ["time there", 7]].map(([name, width], at) => el("div", { class: `cell${at ? "" : " pin"}`, style: `width:${width}rem` }, name))), (row) => {
  const cells = [[opName(row.op), 16], [ops[row.op].op, 8], [DEVICES[row.predicted], 8], [badge(DEVICES[row.measured], row.measured === row.predicted ? "yes" : "part"), 8],
    [(row.supported || []).map((name) => DEVICES[name]).join(", "), 14], [percent(row.predicted_share), 8], [percent(row.share), 8], [row.us === undefined ? "?" : micro(row.us), 7]];
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
