const data = await readRows();
const { chips, ops, findings, programs, changes, risks } = data;
// Empty lists are left out of the rows; a model without operations has a program without layers.
for (const program of programs) for (const name of ["layers", "regions", "weights", "on_chip", "steps", "facts", "assumed"]) program[name] ??= [];
for (const chip of chips) { chip.layer_us ??= []; chip.spans ??= []; }
const byId = (id) => document.getElementById(id);
// The model as a shell takes it: its name may hold a space, or be a stranger's.
const modelArgument = /^[\w./:+-]+$/.test(data.model.name) ? data.model.name : `'${data.model.name.replaceAll("'", "'\\''")}'`;
const STATUS = { n: "native", d: "decomposed", r: "rejected", o: "too large", k: "risk", u: "unknown", p: "kept off by a runtime", h: "on the host" };
const BOUND = { c: "compute", w: "weights", a: "activations", d: "dispatch" };
const ENGINES = { NE: "multiply-accumulate", PE: "planar", TE: "texture", DMA: "copies", view: "nothing to do", host: "CPU" };
const AROUND = { call: "starting the call", copies: "copying inputs and outputs", crossing: "changing devices" };
const INFERRED = new Set(["predicted", "inferred", "unknown"]);
const ROW = 30;
const state = { measuredOnly: false, chip: 0, key: data.answers[0].key };

function el(tag, attrs = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attrs = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
  for (const child of children.flat(Infinity)) node.append(child);
  return node;
}

const number = (value, digits = 3) => value === undefined || value === null ? "?" :
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(digits));
const micro = (us) => us >= 10000 ? `${number(us / 1000)} ms` : `${number(us)} µs`;
const short = (us) => us >= 10000 ? micro(us) : `${Math.round(us).toLocaleString("en")} µs`;
function bytes(count) {
  for (const unit of ["B", "KB", "MB"]) { if (count < 1024) return `${unit === "B" ? count : count.toFixed(1)} ${unit}`; count /= 1024; }
  return `${count.toFixed(2)} GB`;
}
const share = (saved) => saved < -1 ? `${number(1 - saved, 2)} times as long` : Math.abs(saved) < 0.005 ? "the same" : `${Math.round(100 * Math.abs(saved))} % ${saved > 0 ? "less" : "more"}`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
// Prose without the keys of sources and choices, which stand where something is opened.
const KEY = "[A-Z]{1,3}\\d+(?:-\\d+)?";
const KEYS = new RegExp(` ?\\((?:${KEY}[;, ]*)+\\)|[,;] ${KEY}(?=\\))| ?\\[(?:measured|decoded|predicted|inferred|published|unknown)[^\\]]*\\]`, "g");
const plain = (words) => (words || "").replace(KEYS, "");
const of = (part, whole, word) => `${part.toLocaleString("en")} of ${plural(whole, word)}`;
const percent = (value) => value === undefined ? "?" : `${number(100 * value)} %`;
const shape = (extents) => (extents && extents.length ? extents.join(" × ") : "one number");
const label = (name) => (chips.find((chip) => chip.name === name) || { label: name }).label;
const badge = (word, kind) => el("span", { class: `badge ${kind}` }, word);
const ASKS = "any finite input"; // what a finding about numbers rests on where nobody said how large the inputs are
const gradeBadge = (finding) => finding.basis === ASKS ? badge("depends on the inputs", "asks") : badge(finding.grade, finding.grade);
const term = (name) => el("button", { type: "button", class: "term", "data-term": name, "aria-label": "what this means" }, "?");

// Lists of any length: rows are made when they come into view. A list is one stop of the tab key; arrows move in it.
class LongList {
  constructor(place, head, build, open) {
    Object.assign(this, { place, build, open, items: [], active: -1 });
    this.rows = el("div", { class: "rows", role: "listbox", tabindex: "0", "aria-label": place.getAttribute("aria-label"), "aria-multiselectable": false });
    place.replaceChildren(...(head ? [head] : []), this.rows);
    this.made = new Map();
    place.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(place);
    this.rows.addEventListener("keydown", (event) => this.key(event));
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row) return;
      this.move(+row.dataset.at);
      this.open(this.items[+row.dataset.at], event.target);
    });
  }
  show(items) {
    Object.assign(this, { items, active: -1 });
    this.made.clear();
    this.rows.replaceChildren();
    this.rows.removeAttribute("aria-activedescendant");
    this.rows.style.height = `${items.length * ROW}px`;
    this.place.style.height = `${Math.min(items.length * ROW + this.rows.offsetTop + 18, window.innerHeight * 0.75)}px`;
    this.draw();
  }
  draw() {
    const top = this.place.scrollTop - this.rows.offsetTop;
    const first = Math.max(0, Math.floor(top / ROW) - 6);
    const last = Math.min(this.items.length, Math.ceil((top + this.place.clientHeight) / ROW) + 6);
    for (const [at, row] of this.made) if (at < first || at >= last) { row.remove(); this.made.delete(at); }
    for (let at = first; at < last; at++) {
      if (this.made.has(at)) continue;
      const row = this.build(this.items[at], at);
      row.style.top = `${at * ROW}px`;
      row.style.height = `${ROW}px`;
      row.id = `${this.place.id}-${at}`;
      row.dataset.at = at;
      row.setAttribute("role", "option");
      row.setAttribute("aria-posinset", at + 1);
      row.setAttribute("aria-setsize", this.items.length);
      this.mark(row, at === this.active);
      this.made.set(at, row);
      this.rows.append(row);
    }
  }
  mark(row, chosen) { row.classList.toggle("active", chosen); row.setAttribute("aria-selected", chosen); }
  move(at) {
    const row = this.made.get(this.active);
    if (row) this.mark(row, false);
    this.active = at;
    const top = this.rows.offsetTop + at * ROW, head = this.rows.offsetTop;
    if (top < this.place.scrollTop + head) this.place.scrollTop = top - head;
    if (top + ROW > this.place.scrollTop + this.place.clientHeight) this.place.scrollTop = top + ROW - this.place.clientHeight + 18;
    this.draw();
    if (this.made.has(at)) this.mark(this.made.get(at), true);
    this.rows.setAttribute("aria-activedescendant", `${this.place.id}-${at}`);
  }
  key(event) {
    const page = Math.max(1, Math.floor(this.place.clientHeight / ROW) - 3), last = this.items.length - 1;
    const steps = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page, Home: 0, End: last };
    if (event.key in steps && last >= 0) this.move(Math.min(last, Math.max(0, steps[event.key])));
    else if (event.key === "Enter" && this.active >= 0) this.open(this.items[this.active], this.rows);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") this.place.scrollLeft += event.key === "ArrowRight" ? 60 : -60;
    else return;
    event.preventDefault();
  }
  reach(at) { this.place.scrollTop = Math.max(0, at * ROW - this.place.clientHeight / 3); this.draw(); }
}
const most = (values, least = 0) => values.reduce((high, value) => (value > high ? value : high), least);

// What rests on inference can be hidden everywhere: each part of the page draws itself again.
const redraws = [];
const hides = (confidence) => state.measuredOnly && INFERRED.has(confidence);
const hidesTime = (chip) => state.measuredOnly && !chip.basis_measured;

// Where findings are, by operation and chip: the gravest comes first in the list.
const findingsOf = new Map();
const chipsOf = findings.map((finding) => new Set(finding.chips));
findings.forEach((finding, place) => {
  for (const node of finding.nodes || []) {
    if (!findingsOf.has(node)) findingsOf.set(node, []);
    findingsOf.get(node).push(place);
  }
});
const findingAt = (node, chip) => (findingsOf.get(node) || []).find((place) => chipsOf[place].has(chip));
