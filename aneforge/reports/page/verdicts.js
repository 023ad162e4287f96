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
  const key = { label: (c) => c.label, verdict: (c) => -c.engine_ops / Math.max(1, c.ops), engine: (c) => c.engine_ops, likely: (c) => c.likely, us: (c) => c.us ?? Infinity,
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
  if (chips[place].program === undefined || hidesTime(chips[place])) return;
  state.chip = place;
  for (const row of table.tBodies[0].rows) row.classList.toggle("chosen", +row.dataset.chip === place);
  byId("placed-chip").value = String(place);
  for (const spot of document.querySelectorAll(".of-chip")) spot.textContent = chips[place].label;
  drawPlaced();
  drawCharts();
  drawListing();
  drawChain();
  drawChanges();
  drawWeights();
  drawOps();
  drawMeasured();
}

// Without inference only chips that were measured have times, so only they can be chosen, and the answer is theirs.
const answerTimes = byId("answer-times").textContent;
redraws.push(() => {
  for (const option of byId("placed-chip").options) option.disabled = hidesTime(chips[+option.value]);
  const known = chips.filter((chip) => chip.us !== undefined && !hidesTime(chip)).sort((one, two) => one.us - two.us);
  byId("answer-times").textContent = !state.measuredOnly ? answerTimes : known.length ?
    `; a call takes ${micro(known[0].us)} (${known[0].label}) to ${micro(known.at(-1).us)} (${known.at(-1).label}) on chips that rows of measurements were fitted to` : "; no measurement of these chips was fitted";
  for (const id of ["placed", "limits"]) byId(id).hidden = !known.length;
  const measured = chips.findIndex((chip) => chip.program !== undefined && !hidesTime(chip));
  if (hidesTime(chips[state.chip]) && measured >= 0) choose(measured);
});

// Operations by chips.
const markOf = (letter) => (letter === "n" ? "·" : letter);
const chosenStatuses = new Set(Object.keys(STATUS));
const matrixHead = el("div", { class: "head-row" }, el("div", { class: "cell pin name-cell" }, "operation"),
  el("div", { class: "cell kind-cell" }, "kind"), chips.map((chip) => el("div", { class: "slanted" }, el("span", { title: chip.target }, chip.label))));
const matrix = new LongList(byId("matrix-grid"), matrixHead, (op) => {
  const counts = new Map();
  const marks = [...op.statuses].map((letter, at) => {
    const place = findingAt(op.number, chips[at].name);
    const hidden = place !== undefined && hides(findings[place].confidence);
    const word = hidden ? "hidden: it rests on inference" : STATUS[letter];
    counts.set(word, (counts.get(word) || 0) + 1);
    const why = place === undefined || hidden ? word : `${word}: ${findings[place].message} ${findings[place].evidence}`;
    return el("div", { class: `mark ${hidden ? "hidden-mark" : letter}`, title: `${chips[at].label}: ${why}`, "data-chip": at }, hidden ? "?" : markOf(letter));
  });
  const words = `${op.name}, ${op.op}: ${[...counts].map(([word, count]) => `${word} on ${count}`).join(", ")}`;
  return el("div", { class: "row link", "aria-label": words }, el("div", { class: "cell pin name-cell" }, opName(op.number)), el("div", { class: "cell quiet kind-cell" }, op.op), marks);
}, (op, from) => {
  const mark = from.closest(".mark"), place = mark ? findingAt(op.number, chips[+mark.dataset.chip].name) : undefined;
  if (mark && chips[+mark.dataset.chip].program !== undefined) choose(+mark.dataset.chip);
  openOp(op.number, place);
});
// Names of one model begin alike, so a long one keeps its end.
const opName = (at) => el("span", { class: "name", title: ops[at].name }, ops[at].name.length > 30 ? `…${ops[at].name.slice(-29)}` : ops[at].name);
function opButton(at) {
  return el("button", { type: "button", class: "name", title: ops[at].name, on: { click: () => openOp(at) } }, ops[at].name);
}
for (const [letter, word] of Object.entries(STATUS)) {
  const count = ops.reduce((sum, op) => sum + (op.statuses.includes(letter) ? 1 : 0), 0);
  if (!count) { chosenStatuses.delete(letter); continue; }
  const box = el("input", { type: "checkbox", checked: true, on: { change: () => { box.checked ? chosenStatuses.add(letter) : chosenStatuses.delete(letter); filterMatrix(); } } });
  byId("matrix-statuses").append(el("label", {}, box, " ", el("span", { class: `mark key ${letter}`, "aria-hidden": "true" }, markOf(letter)), ` ${word} (${count.toLocaleString("en")})`));
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
redraws.push(() => matrix.show(matrix.items));

// Why not.
const onChips = (names) => names.length === chips.length ? (chips.length === 1 ? "" : "on every chip") :
  `on ${names.length} of ${chips.length} chips: ${names.slice(0, 4).map(label).join(", ")}${names.length > 4 ? ", …" : ""}`;
const countOf = (nodes) => (nodes.length === 1 ? ops[nodes[0]].name : `${nodes.length.toLocaleString("en")} operations`);
// What one rule refuses on the same chips is one reason, however many shapes it meets.
function reasonCard(places, at) {
  const own = places.map((place) => findings[place]);
  if (own.length === 1) return findingCard(own[0], `${at + 1}. `);
  const nodes = [...new Set(own.flatMap((finding) => finding.nodes || []))];
  return el("details", { class: "finding", "data-inferred": own.every((finding) => INFERRED.has(finding.confidence)) },
    el("summary", {}, el("span", { class: "rank" }, `${at + 1}. `), badge(own[0].grade, own[0].grade), ` ${countOf(nodes)}: ${own[0].message} `,
      el("span", { class: "quiet" }, `and ${own.length - 1} more like it, ${onChips(own[0].chips)}`)),
    el("div", { class: "inside" }, el("p", { class: "quiet" }, "Rule ", el("code", {}, own[0].rule || "none"), `, met in ${own.length} ways.`), own.map((finding) => findingCard(finding, ""))));
}
function limitText(limit) {
  return limit.one_of ? `one of ${limit.one_of.join(", ")}` : limit.structure || String(limit);
}
function findingCard(finding, rank) {
  const nodes = finding.nodes || [];
  const facts = [["rule", el("code", {}, finding.rule || "none")], ["answer", `${finding.verdict}, at ${finding.stage} by the ${finding.route} route`]];
  if (finding.limit !== undefined) facts.push(["limit", `${limitText(finding.limit)}${finding.extent !== undefined ? `, ${finding.basis ? "reaches" : "here"} ${finding.extent}` : ""}`]);
  else if (finding.extent !== undefined) facts.push(["here", String(finding.extent)]);
  if (finding.basis) facts.push(["rests on", finding.basis]);
  if (finding.says) facts.push(["compiler says", el("code", {}, finding.says)]);
  if (finding.rewrite) facts.push(["rewritten by", el("code", {}, finding.rewrite)]);
  if (finding.bound) facts.push(["error of it", finding.bound]);
  if (finding.hint) facts.push(["do", finding.hint]);
  facts.push(["chips", finding.chips.map(label).join(", ")], ["evidence", `${finding.evidence}${finding.conflict ? `; aneforge explain ${finding.conflict}` : ""}`]);
  const shown = nodes.slice(0, 40).map((at) => el("li", {}, opButton(at), ` ${ops[at].op} ${shape(ops[at].shape)}`));
  if (nodes.length > 40) shown.push(el("li", { class: "quiet" }, `and ${nodes.length - 40} more`));
  const after = (finding.changes || []).map((at) => el("li", {}, el("a", { href: `#change-${at}` }, changes[at].what), `: ${estimates(changes[at], finding.chips)}`));
  return el("details", { class: "finding", id: `finding-${finding.id}`, "data-inferred": INFERRED.has(finding.confidence) },
    el("summary", {}, rank ? el("span", { class: "rank" }, rank) : null, badge(finding.grade, finding.grade), ` ${countOf(nodes)}: ${finding.message} `, el("span", { class: "quiet" }, `${onChips(finding.chips)} `),
      el("a", { href: `#finding-${finding.id}`, title: "link to this reason" }, "#")),
    el("div", { class: "inside" }, el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("ul", { class: "plain" }, shown), el("strong", {}, "Estimated after a change"), after.length ? el("ul", { class: "plain" }, after) : el("p", { class: "quiet" }, "None of the changes that were tried concerns it.")));
}
function estimates(change, concerned = []) {
  const known = Object.entries(change.us).sort((one, two) => concerned.includes(two[0]) - concerned.includes(one[0]));
  return known.slice(0, 6).map(([name, us]) => `${label(name)} ${micro(us)} (${share(change.saved[name])})`).join(", ");
}
byId("why-list").append(...(findings.length ? data.reasons.map(reasonCard) : [el("p", {}, "Nothing: every operation is native on every chip.")]));
