"use strict";
const part = (id) => document.getElementById(id);
const limit = Number(document.body.dataset.limit);
let current = null; // the upload or job that the page shows
let latest = null; // the file that was read last, and the sizes that were chosen for it

function fail(message) {
  current = null;
  part("work").hidden = true;
  part("error").textContent = message;
  part("error").hidden = false;
  part("file").value = "";
}

function say(words, done, total) {
  part("state").textContent = words;
  if (total) { part("bar").max = total; part("bar").value = done; } else part("bar").removeAttribute("value");
}

function settings(dims) {
  const asked = new URLSearchParams();
  if (part("target").value.trim()) asked.append("target", part("target").value.trim());
  if (part("max-abs").value) asked.append("max_abs", part("max-abs").value);
  for (const [name, size] of Object.entries(dims)) asked.append("dim", `${name}=${size}`);
  return asked.size ? `?${asked}` : "";
}

function start(file, dims = {}) {
  if (current) stop();
  latest = { file, dims };
  for (const id of ["error", "result", "sizes"]) part(id).hidden = true;
  document.body.classList.remove("has-report");
  part("work").hidden = false;
  part("cancel").focus();
  if (file.size > limit) return fail(`${file.name}: larger than this server takes; use aneforge report`);
  if (file.size === 0) return fail(`${file.name}: the file is empty; choose another.`);
  const upload = new XMLHttpRequest();
  const mine = { upload, job: null };
  current = mine;
  upload.open("PUT", `/models/${encodeURIComponent(file.name)}${settings(dims)}`);
  upload.upload.onprogress = (event) => { if (current === mine) say(`sending ${file.name}`, event.loaded, event.total); };
  upload.onerror = () => { if (current === mine) fail("The server cannot be reached. Is it still running?"); };
  upload.onload = () => {
    if (current !== mine) return;
    let answer = {};
    try { answer = JSON.parse(upload.responseText); } catch { /* no text of ours */ }
    if (upload.status !== 201) return fail(answer.error || `The server answered with status ${upload.status}.`);
    mine.job = answer.job;
    watch(mine);
  };
  say(`sending ${file.name}`, 0, file.size);
  upload.send(file);
}

async function watch(mine) {
  while (current === mine) {
    let job;
    try {
      const response = await fetch(`/jobs/${mine.job}`);
      job = await response.json();
      if (!response.ok) throw new Error(job.error);
    } catch (error) {
      if (current === mine) fail(error.message || "The server cannot be reached. Is it still running?");
      return;
    }
    if (current !== mine) return;
    if (job.state === "failed") return fail(job.error);
    if (job.state === "asks") return ask(job);
    if (job.state === "done") { remember(job); return show(job); }
    say(`${job.name}: ${job.progress} (${Math.round(job.seconds)} s)`, job.done, job.total);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

// Sizes that the file leaves open are chosen here, and the file is sent again with them.
function ask(job) {
  current = null;
  part("work").hidden = true;
  part("sizes-list").replaceChildren(...job.sizes.map(({ name, least, most }) => {
    const label = document.createElement("label"), field = document.createElement("input");
    Object.assign(field, { type: "number", min: least, value: Math.min(most || Infinity, Math.max(least, 1)), name, required: true });
    if (most) field.max = most;
    label.append(`${name} `, field);
    return label;
  }));
  part("sizes").hidden = false;
  part("sizes-list").querySelector("input").focus();
}
part("sizes").addEventListener("submit", (event) => {
  event.preventDefault();
  const chosen = [...part("sizes-list").querySelectorAll("input")].map((field) => [field.name, field.value]);
  start(latest.file, { ...latest.dims, ...Object.fromEntries(chosen) });
});

// Earlier reports are those of this browser: the server lists nobody's.
const KEPT = "aneforge-reports";
const earlier = () => { try { return JSON.parse(localStorage.getItem(KEPT)) || []; } catch { return []; } };
function remember(job) {
  const kept = [{ job: job.job, name: job.name, when: new Date().toLocaleTimeString() }, ...earlier()].slice(0, 16);
  try { localStorage.setItem(KEPT, JSON.stringify(kept)); } catch { /* no room, or not allowed */ }
  list(kept);
}
function list(kept) {
  part("earlier").hidden = !kept.length;
  part("earlier-list").replaceChildren(...kept.map((one) => {
    const line = document.createElement("li"), button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: one.name });
    button.addEventListener("click", () => { if (current) stop(); show(one); });
    line.append(button, ` ${one.when}`);
    return line;
  }));
}
async function refresh() {
  const kept = [];
  for (const one of earlier()) {
    const answer = await fetch(`/jobs/${encodeURIComponent(one.job)}/report`, { method: "HEAD" }).catch(() => null);
    if (answer?.ok) kept.push(one);
  }
  try { localStorage.setItem(KEPT, JSON.stringify(kept)); } catch { /* not allowed */ }
  list(kept);
}

function show(job) {
  current = null;
  const place = `/jobs/${job.job}/report`;
  for (const id of ["work", "sizes", "error"]) part(id).hidden = true;
  part("again").hidden = !latest;
  part("title").textContent = job.name;
  part("open").href = place;
  part("save").href = place;
  part("save").download = `${job.name}.html`;
  part("report").src = place;
  part("result").hidden = false;
  document.body.classList.add("has-report"); // the report has the room now
  part("file").value = "";
  part("report").focus();
}

function stop() {
  const mine = current;
  current = null;
  if (!mine) return;
  if (mine.job) fetch(`/jobs/${mine.job}`, { method: "DELETE" }).catch(() => {});
  else mine.upload.abort();
}

part("file").addEventListener("change", (event) => { if (event.target.files.length) start(event.target.files[0]); });
part("cancel").addEventListener("click", () => { stop(); part("work").hidden = true; part("file").value = ""; part("file").focus(); });
part("form").addEventListener("submit", (event) => { event.preventDefault(); if (latest) start(latest.file, latest.dims); });
part("again").addEventListener("click", () => start(latest.file, latest.dims));
part("example").addEventListener("click", async () => {
  const answer = await fetch("/example.aneforge").catch(() => null);
  if (!answer?.ok) return fail("The server cannot be reached. Is it still running?");
  start(new File([await answer.blob()], "example.aneforge"));
});
part("folder-button").addEventListener("click", () => part("folder").click());
part("folder").addEventListener("change", async (event) => {
  const files = [...event.target.files];
  if (!files.length) return;
  const name = files[0].webkitRelativePath.split("/")[0];
  start(await zipped(files.map((file) => ({ path: file.webkitRelativePath, file })), name));
  event.target.value = "";
});
async function dropped(data) {
  const entry = data.items?.[0]?.webkitGetAsEntry?.();
  if (!entry?.isDirectory) return start(data.files[0]);
  say(`packing ${entry.name}`, 0, 0);
  start(await zipped(await filesOf(entry), entry.name));
}
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    part("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) dropped(event.dataTransfer).catch((error) => fail(String(error.message || error)));
  });
}
refresh();
