"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const chips = Object.entries(data.chips);
const all = Object.entries(data.models);
const STEP = 200;
const WORDS = { yes: "yes", part: "in part", no: "no", none: "no answer" };
let shown = STEP;

function make(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function slowest(model) {
  return Math.max(0, ...Object.values(model.cells).map((cell) => (cell[2] ? cell[2][0] : 0)));
}

function chosen() {
  const part = document.getElementById("find").value.toLowerCase();
  const show = document.getElementById("show").value;
  const order = document.getElementById("order").value;
  const rows = all.filter(([name, model]) => {
    if (!name.toLowerCase().includes(part)) return false;
    if (show === "failed") return model.error !== "";
    return show === "all" || Object.values(model.cells).some((cell) => cell[0] !== "yes");
  });
  if (order === "name") rows.sort((a, b) => a[0].localeCompare(b[0]));
  if (order === "ops") rows.sort((a, b) => (b[1].ops || 0) - (a[1].ops || 0));
  if (order === "us") rows.sort((a, b) => slowest(b[1]) - slowest(a[1]));
  return rows;
}

function cellOf(target, label, model) {
  const [grade, ops, us, rules] = model.cells[target] || ["none", null, null, ""];
  const time = us ? Math.round(us[0]).toLocaleString("en") : WORDS[grade];
  const parts = [label, WORDS[grade]];
  if (ops !== null) parts.push(`${ops} of ${model.ops} operations on the engine`);
  if (us) parts.push(`${us[0]} µs, from ${us[1]} to ${us[2]}`);
  if (rules) parts.push(rules);
  return make("td", time, { class: grade, title: parts.join("; ") });
}

function draw() {
  const rows = chosen();
  const head = make("tr", "");
  head.append(make("th", "model", { scope: "col" }), make("th", "ops", { scope: "col" }));
  for (const [, label] of chips) head.append(make("th", label, { scope: "col" }));
  const body = document.createElement("tbody");
  for (const [name, model] of rows.slice(0, shown)) {
    const line = make("tr", "");
    line.append(make("th", name, { scope: "row", title: name }), make("td", model.ops === null ? "?" : model.ops));
    if (model.error) line.append(make("td", model.error, { colspan: chips.length, class: "error" }));
    else for (const [target, label] of chips) line.append(cellOf(target, label, model));
    body.append(line);
  }
  const top = document.createElement("thead");
  top.append(head);
  document.getElementById("matrix").replaceChildren(top, body);
  document.getElementById("count").textContent = `${Math.min(shown, rows.length)} of ${all.length} models`;
  document.getElementById("more").hidden = rows.length <= shown;
}

for (const id of ["find", "show", "order"]) {
  document.getElementById(id).addEventListener("input", () => { shown = STEP; draw(); });
}
document.getElementById("more").addEventListener("click", () => { shown += STEP; draw(); });
draw();
