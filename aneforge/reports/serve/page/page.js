"use strict";
const part = (id) => document.getElementById(id);
const limit = Number(document.body.dataset.limit);
let current = null; // the upload or job that the page shows

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

function start(file) {
  if (current) stop();
  for (const id of ["error", "result"]) part(id).hidden = true;
  document.body.classList.remove("has-report");
  part("work").hidden = false;
  part("cancel").focus();
  if (file.size > limit) return fail(`${file.name}: larger than this server takes; use aneforge report`);
  if (file.size === 0) return fail(`${file.name}: the file is empty, or a folder. Pack a folder as .zip first.`);
  const upload = new XMLHttpRequest();
  const mine = { upload, job: null };
  current = mine;
  upload.open("PUT", `/models/${encodeURIComponent(file.name)}`);
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
    if (job.state === "done") return show(job);
    say(`${job.name}: ${job.progress} (${Math.round(job.seconds)} s)`, job.done, job.total);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

function show(job) {
  current = null;
  const place = `/jobs/${job.job}/report`;
  part("work").hidden = true;
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
part("form").addEventListener("submit", (event) => event.preventDefault());
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    part("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) start(event.dataTransfer.files[0]);
  });
}
