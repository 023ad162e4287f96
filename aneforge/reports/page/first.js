// The answer, its figures, and the verdicts.
const table = byId("chips"), select = byId("chip-select");
const answerOf = (key) => data.answers.find((answer) => answer.key === key);
const isShown = (place) => state.key === chips[place].name || !answerOf(chips[place].name) || ["all"].includes(state.key) || lineKey(place) === state.key;
const lineKey = (place) => rowOf(place).closest("tbody").dataset.line;
const rowOf = (place) => table.querySelector(`tr[data-chip="${place}"]`);
table.addEventListener("click", (event) => {
  const sorter = event.target.closest("[data-sort]"), fold = event.target.closest(".fold");
  if (sorter) return sortChips(sorter);
  if (fold) return unfold(fold, fold.getAttribute("aria-expanded") !== "true");
  const row = event.target.closest("tr[data-chip]");
  if (row && !event.target.closest("td a")) pick(chips[+row.dataset.chip].name);
});
function unfold(button, open) {
  button.setAttribute("aria-expanded", open);
  byId(button.getAttribute("aria-controls")).hidden = !open;
}
function sortChips(button) {
  const head = button.closest("th"), down = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const after = (chip) => chip.us === undefined ? Infinity : changes[answerOf(chip.name).change]?.us[chip.name] ?? chip.us;
  const key = { label: (c) => c.label, verdict: (c) => -c.engine_ops / Math.max(1, c.ops), likely: (c) => c.likely, us: (c) => c.us ?? Infinity, after }[button.dataset.sort];
  for (const body of table.querySelectorAll(".rows-of")) {
    const rows = [...body.rows].sort((one, two) => {
      const [a, b] = [key(chips[+one.dataset.chip]), key(chips[+two.dataset.chip])];
      return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
    });
    body.append(...rows);
  }
}

// A group is shown by the chip that its sentence is about.
function pick(key) {
  let answer = answerOf(key);
  if (!answer) return;
  const place = chips.findIndex((chip) => chip.name === answer.chip);
  if (hidesTime(chips[place])) {
    const other = chips.findIndex((chip, at) => chip.program !== undefined && !hidesTime(chip) && (key === "all" || lineKey(at) === key));
    if (other < 0) return;
    answer = answerOf(chips[other].name);
    return show(answer, key, other);
  }
  show(answer, key, place);
}
function show(answer, key, place) {
  const chip = chips[place];
  state.key = key;
  select.value = key;
  byId("answer-act").textContent = answer.act;
  byId("answer-says").textContent = plain(answer.says);
  byId("answer-links").replaceChildren(...[answer.finding !== null && ["the reason", `#finding-${findings[answer.finding]?.id}`], answer.change !== null && ["the change", `#change-${answer.change}`],
    answer.finding !== null && findings[answer.finding].basis === ASKS && ["say how large the inputs are", "#range"]].filter(Boolean).flatMap(([words, link], at) => [at ? " · " : "", el("a", { href: link }, words)]));
  byId("chosen").replaceChildren(`${chip.label}: `, badge(data.kinds[gradeOf(chip)] || chip.verdict, gradeOf(chip)), ` ${chip.us === undefined ? "" : short(chip.us)}`);
  for (const row of table.querySelectorAll("tr[data-chip]")) row.classList.toggle("chosen", +row.dataset.chip === place);
  for (const body of table.tBodies) if (body.classList.contains("line")) {
    const own = key === "all" || body.dataset.line === key || lineKey(place) === body.dataset.line;
    body.classList.toggle("aside", !own);
  }
  const fold = rowOf(place).closest("tbody").hidden && table.querySelector(`[aria-controls="${rowOf(place).closest("tbody").id}"]`);
  if (fold) unfold(fold, true);
  drawFigures(chip);
  if (chip.program !== undefined) choose(place);
}
const gradeOf = (chip) => rowOf(chips.indexOf(chip)).querySelector(".badge").className.split(" ")[1];
select.addEventListener("change", () => pick(select.value));

function choose(place) {
  state.chip = place;
  for (const spot of document.querySelectorAll(".of-chip")) spot.textContent = chips[place].label;
  drawMap();
  drawPlaced();
  drawCharts();
  drawListing();
  drawChain();
  drawChanges();
  drawWeights();
  drawOps();
  drawMeasured();
}

// Three numbers, where the time goes, and the figures beside them.
const PIECES = ["call", "copies", "crossings", "host", "compute", "weights", "activations", "dispatch"];
const PIECE_NAMES = { call: "starting the call", copies: "copies", crossings: "changing devices", host: "CPU", compute: "computing", weights: "reading weights", activations: "moving tensors", dispatch: "starting layers" };
function piecesOf(chip) {
  const sums = { ...chip.shares, call: 0, copies: 0 };
  for (const span of chip.spans) if (span.kind === "call" || span.kind === "copies") sums[span.kind] += span.us;
  return PIECES.map((name) => [name, sums[name] || 0]).filter(([, us]) => us > 0);
}
const card = (title, name, big, ...more) => el("div", { class: "card" }, el("p", { class: "title" }, title, " ", term(name)), el("p", { class: "big" }, big), more);
function drawFigures(chip) {
  const known = chip.us !== undefined;
  const [low, high] = chip.interval || [];
  byId("cards").replaceChildren(
    card(`One call on ${chip.label}`, "time", known ? short(chip.us) : "?", known ? intervalLine(chip.us, low, high) : el("p", { class: "quiet" }, plain(chip.refused) || "not known")),
    card("Memory", "memory", known ? bytes((chip.weight_bytes || 0) + (chip.memory_bytes || 0)) : "?", known ? el("p", { class: "quiet" }, `${bytes(chip.weight_bytes || 0)} of weights, ${bytes(chip.memory_bytes || 0)} of tensors; at most ${bytes(chip.peak_l2 || 0)} of ${bytes(chip.l2_bytes || 0)} on chip`) : null),
    card("On the Neural Engine", "engine", chip.ops ? `${Math.floor(100 * chip.engine_ops / chip.ops)} %` : "?", el("p", { class: "quiet" }, `${chip.engine_ops.toLocaleString("en")} of ${plural(chip.ops, "operation")} by the rules; ${data.model.runtime || "Core ML"} likely gives it ${chip.likely}`)));
  byId("shares").replaceChildren(...(known ? [sharesBar(chip)] : []));
  const loads = Object.fromEntries((chip.loads || []).map((load) => [load.stage, load]));
  const load = (stage) => loads[stage] && loads[stage].band !== "?" ? el("span", { title: plain(loads[stage].basis) }, loads[stage].band) : undefined;
  const facts = !known ? [] : [["calls in a second", `${number(1e6 / chip.us)}`, "rate"], ["multiply-adds", scaled(chip.macs), "macs"], ["bytes moved", chip.engine_us ? `${bytes(chip.traffic || 0)}, ${number((chip.traffic || 0) / chip.engine_us / 1000)} GB/s` : undefined, "bandwidth"],
    ["energy", chip.energy_mj === undefined ? undefined : `${number(chip.energy_mj)} mJ`, "energy"], ["first load, with its compile", load("first load, with its compile"), "load"], ["later load", load("later load"), "load"], ["call after a pause", load("call after a pause"), "load"]];
  byId("figures").replaceChildren(...facts.filter(([, value]) => value !== undefined).map(([name, value, what]) => el("div", {}, el("dt", {}, name, " ", term(what)), el("dd", {}, value))));
}
const scaled = (count) => { for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"]]) if (count >= size) return `${number(count / size)} ${unit}`; return number(count || 0); };
// The interval from 0 on, with its ends as numbers.
function intervalLine(us, low, high) {
  const at = (value) => `${100 * value / (1.05 * high)}%`;
  return el("div", { class: "range-line" }, el("span", { class: "span-bar", style: `--low:${at(low)};--high:${at(high)};--at:${at(us)}` }),
    el("p", { class: "quiet" }, `${short(low)} to ${short(high)} in eight of ten cases`));
}
function sharesBar(chip) {
  const pieces = piecesOf(chip), total = pieces.reduce((sum, [, us]) => sum + us, 0) || 1;
  const says = (name, us) => `${PIECE_NAMES[name]} ${micro(us)}, ${Math.round(100 * us / total)} %`;
  return el("figure", { class: "plain" }, el("figcaption", { class: "quiet" }, `Where the ${short(chip.us)} go`),
    el("div", { class: "stack", role: "img", "aria-label": pieces.map(([name, us]) => says(name, us)).join("; ") }, pieces.map(([name, us]) => el("span", { class: `piece ${name}`, style: `width:${100 * us / total}%`, title: says(name, us) }))),
    el("div", { class: "legend" }, pieces.filter(([, us]) => us / total >= 0.005).map(([name, us]) => el("span", {}, el("span", { class: `swatch ${name}` }), says(name, us), " ", term(name)))));
}

// Without inference only chips that were measured have rows.
redraws.push(() => {
  for (const option of select.options) { const chip = chips.find((one) => one.name === option.value); option.disabled = chip !== undefined && hidesTime(chip); }
  const hidden = state.measuredOnly ? chips.filter((chip) => !chip.basis_measured).length : 0;
  byId("hidden-note").textContent = hidden ? `${plural(hidden, "chip")} hidden: nobody measured ${hidden === 1 ? "it" : "them"}.` : "";
  const anyLeft = chips.some((chip) => chip.program !== undefined && !hidesTime(chip));
  for (const id of ["answer", "placed", "limits"]) byId(id).hidden = !anyLeft;
  if (anyLeft) pick(state.key);
});

// Words are explained where the pointer or the focus is on their mark.
const tip = byId("tip");
let tipped = null;
function showTip(mark) {
  hideTip();
  if (!mark) return;
  tip.textContent = data.terms[mark.dataset.term];
  tip.hidden = false;
  mark.setAttribute("aria-describedby", "tip");
  const at = mark.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${at.bottom + tip.offsetHeight + 8 > window.innerHeight ? at.top - tip.offsetHeight - 6 : at.bottom + 6}px`;
  tipped = mark;
}
function hideTip() {
  tip.hidden = true;
  if (tipped) tipped.removeAttribute("aria-describedby");
  tipped = null;
}
for (const kind of ["mouseover", "focusin", "click"]) document.addEventListener(kind, (event) => {
  const mark = event.target.closest?.(".term");
  if (mark) showTip(mark); else if (kind !== "mouseover" || !event.target.closest?.("#tip")) { if (kind !== "mouseover" || tipped !== document.activeElement) hideTip(); }
});
document.addEventListener("scroll", hideTip, { passive: true });
