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
  if (event.key === "Escape") hideTip();
  if (event.key === "Escape" && !panel.hidden) closePanel();
  if (event.key === "/" && !/input|select|textarea/i.test(document.activeElement.tagName)) { event.preventDefault(); byId("matrix-query").focus(); }
});
const pairs = (facts) => el("dl", {}, facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
function openOp(at, lookAt) {
  const op = ops[at], chip = chips[state.chip], program = programs[chip.program] || { steps: [] };
  const groups = new Map();
  chips.forEach((each, place) => {
    const found = findingAt(at, each.name), key = `${op.statuses[place]} ${found}`;
    if (!groups.has(key)) groups.set(key, { letter: op.statuses[place], found, chips: [] });
    groups.get(key).chips.push(each.label);
  });
  const kind = { n: "native", d: "decompose", r: "reject", o: "oversize", k: "risk", u: "unknown", p: "placement", h: "host" };
  const steps = program.steps.filter((step) => step.op === at);
  openPanel(op.name, `#op-${at}`, pairs([["op", op.op], ["result", shape(op.shape)], ["in the model", op.where], ["reads", (op.inputs || []).length ? (op.inputs).map((input) => [opButton(input), " "]) : undefined]]),
    el("h3", {}, "On each chip"), el("ul", { class: "plain" }, [...groups.values()].map((group) => el("li", { class: group.found !== undefined && group.found === lookAt ? "looked-at" : "" }, group.found !== undefined && hides(findings[group.found].confidence) ? "hidden: it rests on inference" : badge(STATUS[group.letter], kind[group.letter]), ` ${group.chips.join(", ")}`,
      group.found === undefined || hides(findings[group.found].confidence) ? "" : [": ", el("a", { href: `#finding-${findings[group.found].id}` }, findings[group.found].message)]))),
    el("h3", {}, `Pass by pass, for ${chip.label}`), steps.length ? el("ol", { class: "passes" }, steps.map((step) => el("li", {}, el("code", {}, step.pass_), `: ${(step.becomes || []).slice(0, 8).join(", ") || "nothing is left of it"}`,
      el("div", { class: "quiet" }, data.passes[step.pass_]?.purpose || ""), deciding(program, step), factList(program, data.passes[step.pass_]?.reads || [])))) : el("p", { class: "quiet" }, "No pass of this program touches it."),
    el("h3", {}, "Layers"), layerList((layersOf.get(at) || []).map(({ layer }) => layer.number)), whatIfs(at));
}
function whatIfs(at) {
  const about = changes.map((change, place) => ({ change, place })).filter(({ change }) => (change.nodes || []).includes(at));
  return about.length ? [el("h3", {}, "What if"), el("ul", { class: "plain" }, about.map(({ change, place }) => el("li", {}, el("a", { href: `#change-${place}` }, change.what), `: ${estimates(change, [chips[state.chip].name])}`)))] : null;
}
// Where a pass makes something else of the operation on other chips, a fact that changes with the outcome decided it.
function deciding(program, step) {
  const made = (other) => ((other.steps || []).find((each) => each.op === step.op && each.pass_ === step.pass_)?.becomes || []).join();
  const others = programs.filter((other) => made(other) !== (step.becomes || []).join()), alike = programs.filter((other) => !others.includes(other));
  const valueOf = (other, name) => (other.facts || []).find((fact) => fact.name === name)?.value;
  const facts = (data.passes[step.pass_]?.reads || []).map((name) => program.facts.find((fact) => fact.name === name)).filter((fact) => fact && !hides(fact.confidence) && others.length &&
    alike.every((other) => valueOf(other, fact.name) === fact.value) && others.every((other) => ![undefined, fact.value].includes(valueOf(other, fact.name))));
  return facts.map((fact, at) => el("div", {}, at ? "or by " : facts.length > 1 ? "decided by one of these: " : "decided by ", el("strong", {}, fact.name), `: ${fact.value} here, ${valueOf(others[0], fact.name)} on ${label(others[0].chips[0])} `, el("span", { class: "quiet" }, fact.evidence)));
}
function factList(program, names) {
  const facts = names.map((name) => program.facts.find((fact) => fact.name === name)).filter((fact) => fact && !hides(fact.confidence));
  if (!facts.length) return null;
  return el("details", {}, el("summary", {}, `${plural(facts.length, "fact")} of the chip that it reads`),
    el("dl", {}, facts.map((fact) => [el("dt", {}, fact.name), el("dd", {}, el("strong", {}, String(fact.value)), " ", el("span", { class: "quiet" }, fact.evidence))])));
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
  openPanel(`Region ${item.region} on the ${item.host ? "CPU" : "engine"}`, null, pairs([["time", micro(item.us)], ["operations", (item.sources || []).length]]),
    el("ul", { class: "plain" }, (item.sources || []).slice(0, 200).map((at) => el("li", {}, opButton(at), ` ${ops[at].op} `, !item.host ? null : causeOf(ops[at], state.chip) === "direct" ? badge("refused", "reject") : badge("consequence", "part")))));
}

// Links into the page.
function follow() {
  const [, kind, rest] = /^#(op|layer|finding|chip|change|risk)-(.+)$/.exec(location.hash) || [];
  if (kind === "op" && ops[+rest]) openOp(+rest);
  if (kind === "layer") {
    const [program, layer] = rest.split("-").map(Number);
    const place = chips.findIndex((chip) => chip.program === program);
    if (place >= 0 && programs[program].layers[layer]) { if (chips[state.chip].program !== program) pick(chips[place].name); openLayer(layer); }
  }
  if (kind === "chip") { const row = byId(`chip-${rest}`); if (row) pick(chips[+row.dataset.chip].name); }
  if (kind === "finding" || kind === "change" || kind === "risk") {
    const card = byId(`${kind}-${rest}`);
    if (card) { for (let place = card; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true; card.scrollIntoView({ block: "center" }); card.classList.add("target-flash"); setTimeout(() => card.classList.remove("target-flash"), 1600); if (window.innerWidth < 900) closePanel(); }
  }
}
window.addEventListener("hashchange", follow);

// Provenance.
const choices = [...new Set(programs.flatMap((program) => program.assumed))];
const sources = [...new Set(findings.flatMap((finding) => finding.sources || []))].sort();
const bases = new Map(chips.filter((chip) => chip.us !== undefined).map((chip) => [chip.basis, []]));
for (const chip of chips) if (chip.us !== undefined) bases.get(chip.basis).push(chip.label);
byId("provenance-list").append(pairs([["choices of ours", choices.length ? el("details", {}, el("summary", {}, `${choices.length}, where nothing is published or sources disagree`), choices.join(", ")) : "none: published facts only"],
  ["sources of the reasons", sources.length ? el("details", {}, el("summary", {}, plural(sources.length, "source")), sources.join(", ")) : "none"], ["distinct programs", `${programs.length} for ${plural(chips.filter((chip) => chip.program !== undefined).length, "chip")}`]]),
  el("details", {}, el("summary", {}, "Which engine each product has"), el("ul", { class: "plain" }, chips.flatMap((chip) => chip.engines || []).map((words) => el("li", {}, words)))),
  el("details", {}, el("summary", {}, "What the times rest on"), el("ul", { class: "plain" }, [...bases].map(([basis, labels]) => el("li", {}, `${labels.join(", ")}: ${basis}`)))));

// Settings.
byId("measured-only").addEventListener("change", (event) => {
  state.measuredOnly = event.target.checked;
  document.body.classList.toggle("measured-only", state.measuredOnly);
  for (const redraw of redraws) redraw();
  if (!panel.hidden) closePanel();
});
byId("measured").hidden = !data.measured;
filterMatrix();
if (!programs.length) for (const id of ["placed", "limits", "weights", "ops", "help"]) byId(id).hidden = true;
pick(state.key);
follow();
