// The processes of a running job, and why it may be silent; or why a job ended.

import { call } from "./api.js";
import { attempt, button, element, problemPlace } from "./dom.js";
import { bytes, count, duration, isRunning } from "./format.js";

const COLUMNS = ["Process", "State", "Waits for", "CPU", "Memory", "Age", "Files", "Read", "Written", "Command"];

export class Processes {
  #question = element("summary", {}, "Why is it silent?");
  #result = element("div", { "aria-live": "polite" });
  #problem = problemPlace();
  #hasEnded = false;
  // Number of the newest request: an older reply is dropped.
  #newest = 0;

  constructor(jobId) {
    this.jobId = jobId;
    const look = button("Inspect again", () => this.#look());
    this.element = element(
      "details",
      { className: "processes" },
      this.#question,
      look,
      this.#problem,
      this.#result,
    );
    this.element.addEventListener("toggle", () => this.element.open && this.#look());
  }

  update(job) {
    this.element.hidden = Boolean(job.members);
    const hasEnded = !isRunning(job);
    if (hasEnded === this.#hasEnded) return;
    this.#hasEnded = hasEnded;
    this.#question.textContent = hasEnded ? "Why did it end?" : "Why is it silent?";
    if (this.element.open) this.#look();
  }

  #look() {
    return attempt(this.#problem, async () => {
      const number = ++this.#newest;
      this.#result.replaceChildren("Looking…");
      const reply = await call("jobs", { job_id: this.jobId, detail: "processes" });
      if (number !== this.#newest) return;
      const job = reply.jobs[0] ?? {};
      const parts = job.processes ? shown(job.processes) : endOf(job);
      this.#result.replaceChildren(...parts);
    }).then((_) => {
      if (this.#result.textContent.startsWith("Looking")) this.#result.replaceChildren();
    });
  }
}

// Why a job ended, and the resources that it used.
function endOf(job) {
  const why = job.why;
  if (!why) return [job.reason ?? "Nothing is known about it."];
  const cpu = why.cpu_ms === undefined ? "unknown" : `${(why.cpu_ms / 1000).toFixed(2)} s`;
  const memory = why.peak_memory_bytes === undefined ? "unknown" : bytes(why.peak_memory_bytes);
  const parts = [element("p", {}, why.summary)];
  const hasFigures = why.cpu_ms !== undefined || why.peak_memory_bytes !== undefined;
  const figures = `Processor time ${cpu}, peak memory of its largest process ${memory}`;
  if (hasFigures) parts.push(element("p", { className: "hint" }, figures));
  return parts;
}

function shown(list) {
  const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
  const depths = depthsOf(list.processes);
  const rows = list.processes.map((process) => {
    const cells = cellsOf(process).map((text) => element("td", {}, text));
    cells[0].style.paddingInlineStart = `${depths.get(process.pid)}em`;
    return element("tr", {}, ...cells);
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  const frame = element(
    "div",
    { className: "wide", tabIndex: 0, role: "region", "aria-label": "Processes" },
    table,
  );
  const parts = [element("p", {}, list.summary), frame];
  if (list.total > list.processes.length) {
    parts.push(element("p", { className: "hint" }, `${list.total} processes in all`));
  }
  return parts;
}

// How deep each process is in the tree. Parents come before their children.
function depthsOf(processes) {
  const depths = new Map();
  for (const { pid, parent } of processes) depths.set(pid, (depths.get(parent) ?? -1) + 1);
  return depths;
}

function cellsOf(process) {
  const terminal = process.reads_terminal ? "its terminal" : "";
  const perSecond = (rate) => (rate ? ` (${bytes(rate)}/s)` : "");
  return [
    String(process.pid),
    process.state,
    process.waits_for ?? (process.wchan || terminal),
    `${duration(process.cpu_ms)}, ${Math.round(process.cpu_percent)} %`,
    process.memory_bytes === undefined ? "" : bytes(process.memory_bytes),
    duration(process.elapsed_ms),
    process.open_files === undefined ? "" : `${count(process.open_files)}, ${process.sockets ?? 0} sockets`,
    process.read_bytes === undefined ? "" : bytes(process.read_bytes) + perSecond(process.read_bytes_per_s),
    process.written_bytes === undefined
      ? ""
      : bytes(process.written_bytes) + perSecond(process.written_bytes_per_s),
    process.command,
  ];
}
