// Operations by chips.
const markOf = (letter) => (letter === "n" ? "·" : letter);
const chosenStatuses = new Set(Object.keys(STATUS));
// Chips that treat every operation alike share a column.
const odd = ops.filter((op) => /[^n]/.test(op.statuses)), columns = new Map();
chips.forEach((chip, at) => {
  const key = odd.map((op) => { const place = findingAt(op.number, chip.name); return op.statuses[at] + (place ?? ""); }).join();
  if (!columns.has(key)) columns.set(key, []);
  columns.get(key).push(at);
});
const alike = [...columns.values()];
const columnName = (places) => places.length < 3 ? places.map((at) => chips[at].label).join(", ") : `${chips[places[0]].label} and ${places.length - 1} more`;
const isBroad = alike.length <= 6, listed = (places) => places.length > 5 ? `${places.slice(0, 4).map((at) => chips[at].label).join(", ")} and ${places.length - 4} more` : places.map((at) => chips[at].label).join(", ");
const markOfOp = (op, at) => {
  const place = findingAt(op.number, chips[at].name), finding = findings[place];
  if (finding && hides(finding.confidence)) return ["hidden-mark", "?", "hidden: nobody measured it"];
  const asks = finding && finding.grade === "risk" && finding.basis === ASKS;
  const letter = op.statuses[at];
  return [asks ? "a" : letter, asks ? "?" : markOf(letter), `${asks ? "depends on how large the inputs are" : STATUS[letter]}${finding ? `: ${finding.message}` : ""}`];
};
const matrixHead = el("div", { class: "head-row" }, el("div", { class: "cell pin name-cell" }, "operation"),
  el("div", { class: "cell kind-cell" }, "kind"), alike.map((places) => isBroad ? el("div", { class: "broad" }, listed(places)) : el("div", { class: "slanted" }, el("span", { title: places.map((at) => chips[at].label).join(", ") }, columnName(places)))));
const matrix = new LongList(byId("matrix-grid"), matrixHead, (op) => {
  const counts = new Map();
  const marks = alike.map((places) => {
    const [kind, text, words] = markOfOp(op, places[0]), word = words.split(":")[0];
    counts.set(word, (counts.get(word) || 0) + places.length);
    return el("div", { class: `mark ${kind}${isBroad ? " broad-mark" : ""}`, title: `${places.map((at) => chips[at].label).join(", ")}: ${words}`, "data-chip": places[0] }, text);
  });
  const words = `${op.name}, ${op.op}: ${[...counts].map(([word, count]) => `${word} on ${count}`).join(", ")}`;
  return el("div", { class: "row link", "aria-label": words }, el("div", { class: "cell pin name-cell" }, opName(op.number)), el("div", { class: "cell quiet kind-cell" }, op.op), marks);
}, (op, from) => {
  const mark = from.closest(".mark"), place = mark ? findingAt(op.number, chips[+mark.dataset.chip].name) : undefined;
  if (mark && chips[+mark.dataset.chip].program !== undefined && !hidesTime(chips[+mark.dataset.chip])) pick(chips[+mark.dataset.chip].name);
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
  const folded = byId("matrix-differs").checked && !query;
  let shown = (folded ? odd : ops).filter((op) => [...op.statuses].some((letter) => chosenStatuses.has(letter)) && (!query || `${op.name} ${op.op}`.toLowerCase().includes(query)));
  if (byId("matrix-order").value === "worst") {
    const weight = (op) => [...op.statuses].reduce((sum, letter) => sum + (5 - WORST.indexOf(letter)) ** 3, 0);
    shown = shown.map((op) => [weight(op), op]).sort((a, b) => b[0] - a[0] || a[1].number - b[1].number).map((pair) => pair[1]);
  }
  byId("matrix-count").textContent = `${of(shown.length, ops.length, "operation")}${folded ? "; the others are native on every chip" : ""}`;
  matrix.show(shown);
}
byId("matrix-query").addEventListener("input", filterMatrix);
byId("matrix-order").addEventListener("change", filterMatrix);
byId("matrix-differs").addEventListener("change", filterMatrix);
redraws.push(() => matrix.show(matrix.items));

// Why not.
const onChips = (names) => names.length === chips.length ? (chips.length === 1 ? "" : "on every chip") :
  `on ${names.length} of ${chips.length} chips: ${names.slice(0, 4).map(label).join(", ")}${names.length > 4 ? ", …" : ""}`;
const countOf = (nodes) => (nodes.length === 1 ? ops[nodes[0]].name : `${nodes.length.toLocaleString("en")} operations`);
// The compiler's own words are shorter than ours.
const headline = (finding) => finding.says ? finding.says.replace(/\.?$/, ".") : plain(finding.message);
// What one rule refuses on the same chips is one reason, however many shapes it meets.
function reasonCard(places, at) {
  const own = places.map((place) => findings[place]);
  if (own.length === 1) return findingCard(own[0], `${at + 1}. `);
  const nodes = [...new Set(own.flatMap((finding) => finding.nodes || []))];
  return el("details", { class: "finding", "data-inferred": own.every((finding) => INFERRED.has(finding.confidence)) },
    el("summary", {}, el("span", { class: "rank" }, `${at + 1}. `), gradeBadge(own[0]), ` ${countOf(nodes)}: ${headline(own[0])} `,
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
  if (finding.rewrite) facts.push(["rewritten by", el("code", {}, finding.rewrite)]);
  if (finding.bound) facts.push(["error of it", finding.bound]);
  if (finding.hint) facts.push(["do", finding.hint]);
  facts.push(["chips", finding.chips.map(label).join(", ")], ["evidence", `${finding.evidence}${finding.conflict ? `; aneforge explain ${finding.conflict}` : ""}`]);
  const shown = nodes.slice(0, 40).map((at) => el("li", {}, opButton(at), ` ${ops[at].op} ${shape(ops[at].shape)}`));
  if (nodes.length > 40) shown.push(el("li", { class: "quiet" }, `and ${nodes.length - 40} more`));
  const after = (finding.changes || []).map((at) => el("li", {}, el("a", { href: `#change-${at}` }, changes[at].what), `: ${estimates(changes[at], finding.chips)}`));
  if (finding.says) facts.unshift(["rule says", finding.message]);
  return el("details", { class: "finding", id: `finding-${finding.id}`, "data-inferred": INFERRED.has(finding.confidence) },
    el("summary", {}, rank ? el("span", { class: "rank" }, rank) : null, gradeBadge(finding), ` ${countOf(nodes)}: ${headline(finding)} `, el("span", { class: "quiet" }, onChips(finding.chips))),
    el("div", { class: "inside" }, el("p", {}, el("a", { href: `#finding-${finding.id}` }, "link to this reason")), el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("ul", { class: "plain" }, shown), el("strong", {}, "Estimated after a change"), after.length ? el("ul", { class: "plain" }, after) : el("p", { class: "quiet" }, "None of the changes that were tried concerns it.")));
}
function estimates(change, concerned = []) {
  const known = Object.entries(change.us).sort((one, two) => concerned.includes(two[0]) - concerned.includes(one[0]));
  return known.slice(0, 6).map(([name, us]) => `${label(name)} ${micro(us)} (${share(change.saved[name])})`).join(", ");
}
// What is rewritten runs: it is no reason against a chip, and is folded.
const isRewrite = (places) => findings[places[0]].grade === "decompose";
const against = data.reasons.filter((places) => !isRewrite(places)), rewrites = data.reasons.filter(isRewrite);
byId("why-list").append(...(against.length ? against.map(reasonCard) : [el("p", {}, "Nothing stands against it on any chip.")]));
if (rewrites.length) byId("why-list").append(el("details", { id: "rewrites", class: "finding" }, el("summary", {}, `${plural(rewrites.length, "rewrite")}: operations that a chip lacks and that are made of others`), el("div", { class: "inside" }, rewrites.map(reasonCard))));
