const data = await readRows();
const part = (id) => document.getElementById(id);
const STEP = 200; // rows that are drawn at a time
const WORDS = { yes: "yes", wrong: "numbers can be wrong", programs: "in several programs", unknown: "unknown", part: "in part", no: "no", none: "no answer" };
const MARKS = { yes: "", wrong: "! ", programs: "", unknown: "? ", part: "◐ ", no: "✕ ", none: "" }; // colour alone says nothing to some readers
let shown = STEP;
let sorting = null; // the column that a head was pressed of, and the direction

function make(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function micros(cell) { return cell && cell[2] ? cell[2][0] : null; }

function slowest(model) { return model.cells.reduce((most, cell) => Math.max(most, micros(cell) ?? -1), -1); }

function valueOf(model, column) {
  if (column === "name") return model.name;
  if (column === "ops") return model.ops;
  return micros(model.cells[column]);
}

// Models without a value are last in both directions.
function compare(a, b) {
  const one = valueOf(a, sorting.column), two = valueOf(b, sorting.column);
  if (one === null || two === null) return (one === null) - (two === null);
  const order = typeof one === "string" ? one.localeCompare(two) : one - two;
  return sorting.up ? order : -order;
}

function chosen() {
  const words = part("find").value.toLowerCase();
  const show = part("show").value;
  const rows = data.models.filter((model) => {
    if (!model.name.toLowerCase().includes(words)) return false;
    if (show === "failed") return model.error !== "";
    return show === "all" || model.cells.some((cell) => !cell || cell[0] !== "yes");
  });
  if (sorting) return rows.sort(compare);
  if (part("order").value === "us") rows.sort((a, b) => slowest(b) - slowest(a));
  return rows;
}

function detailOf(model, column) {
  const cell = model.cells[column];
  if (model.error) return `${model.short}: ${model.error}`;
  if (!cell) return `${model.short} on ${data.chips[column]}: not asked for`;
  const [grade, ops, us, rules] = cell;
  const parts = [`${model.short} on ${data.chips[column]}: ${WORDS[grade]}`];
  if (ops !== null) parts.push(`${ops} of ${model.ops} operations on the engine`);
  if (us) parts.push(`${us[0].toLocaleString("en")} µs, from ${us[1].toLocaleString("en")} to ${us[2].toLocaleString("en")}`);
  if (data.rules[rules]) parts.push(data.rules[rules]);
  return parts.join("; ");
}

function cellOf(model, column) {
  const [grade, , us] = model.cells[column] || ["none", null, null];
  const text = us ? MARKS[grade] + Math.round(us[0]).toLocaleString("en") : MARKS[grade] + WORDS[grade];
  return make("td", text, { class: grade, tabindex: "-1", "data-column": column, "aria-label": `${WORDS[grade]}, ${text}` });
}

function headOf(label, column) {
  const head = make("th", "", { scope: "col" });
  const button = make("button", label, { type: "button", "data-sort": column });
  if (sorting && sorting.column === column) {
    head.setAttribute("aria-sort", sorting.up ? "ascending" : "descending");
    button.append(sorting.up ? " ▲" : " ▼");
  }
  button.addEventListener("click", () => {
    sorting = { column, up: !(sorting && sorting.column === column && sorting.up) };
    part("order").value = column === "name" || column === "ops" ? column : "column";
    redraw();
    document.querySelector(`[data-sort="${column}"]`).focus();
  });
  head.append(button);
  return head;
}

function rowOf(model, number) {
  const line = make("tr", "", { "data-row": number });
  line.append(make("th", model.short, { scope: "row", title: model.name }), make("td", model.ops === null ? "?" : model.ops.toLocaleString("en")));
  if (model.error) line.append(make("td", model.error, { colspan: data.chips.length, class: "error", tabindex: "-1", "data-column": 0 }));
  else data.chips.forEach((label, column) => line.append(cellOf(model, column)));
  return line;
}

function redraw() {
  const rows = chosen();
  const head = document.createElement("tr");
  head.append(headOf("model", "name"), headOf("ops", "ops"), ...data.chips.map(headOf));
  const top = document.createElement("thead"), body = document.createElement("tbody");
  top.append(head);
  body.append(...rows.slice(0, shown).map(rowOf));
  part("matrix").replaceChildren(top, body);
  part("matrix").models = rows;
  body.querySelector("td[data-column]")?.setAttribute("tabindex", "0");
  part("detail").textContent = "";
  part("count").textContent = `${Math.min(shown, rows.length)} of ${data.models.length} models`;
  part("more").hidden = rows.length <= shown;
}

// One cell is in the order of the Tab key; arrows move from there.
function enter(cell) {
  part("matrix").querySelector("td[tabindex='0']")?.setAttribute("tabindex", "-1");
  cell.setAttribute("tabindex", "0");
  part("detail").textContent = detailOf(part("matrix").models[Number(cell.parentElement.dataset.row)], Number(cell.dataset.column));
}

function next(cell, key) {
  const line = cell.parentElement;
  const across = { ArrowLeft: cell.previousElementSibling, ArrowRight: cell.nextElementSibling, Home: line.querySelector("td[data-column]"), End: line.lastElementChild }[key];
  if (across !== undefined) return across && across.dataset.column !== undefined ? across : null;
  const other = { ArrowUp: line.previousElementSibling, ArrowDown: line.nextElementSibling }[key];
  return other ? other.querySelector(`td[data-column="${cell.dataset.column}"]`) || other.querySelector("td[data-column]") : null;
}

part("matrix").addEventListener("focusin", (event) => { if (event.target.dataset.column !== undefined) enter(event.target); });
part("matrix").addEventListener("click", (event) => { const cell = event.target.closest("td[data-column]"); if (cell) cell.focus(); });
part("matrix").addEventListener("keydown", (event) => {
  const cell = event.target.closest("td[data-column]");
  const to = cell && next(cell, event.key);
  if (!to) return;
  event.preventDefault();
  to.focus();
});
for (const id of ["find", "show"]) part(id).addEventListener("input", () => { shown = STEP; redraw(); });
part("order").addEventListener("input", () => {
  const column = part("order").value;
  sorting = column === "name" || column === "ops" ? { column, up: column === "name" } : null;
  redraw();
});
part("more").addEventListener("click", () => { shown += STEP; redraw(); });
redraw();
