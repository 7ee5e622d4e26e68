// The processes of a running job, and why it may be silent.

import { call } from "./api.js";
import { attempt, button, element } from "./dom.js";
import { bytes, count, duration } from "./format.js";

const COLUMNS = ["Process", "State", "Waits for", "CPU", "Memory", "Age", "Files", "Read", "Written", "Command"];

export class Processes {
  #result = element("div", { "aria-live": "polite" });

  constructor(jobId) {
    this.jobId = jobId;
    const look = button("Inspect again", () => this.#look());
    this.element = element(
      "details",
      { className: "processes" },
      element("summary", {}, "Why is it silent?"),
      look,
      this.#result,
    );
    this.element.addEventListener("toggle", () => this.element.open && this.#look());
  }

  #look() {
    return attempt(async () => {
      this.#result.replaceChildren("Observing for half a second…");
      const reply = await call("jobs", { job_id: this.jobId, detail: "processes" });
      const list = reply.jobs[0]?.processes;
      this.#result.replaceChildren(...(list ? shown(list) : ["It has ended."]));
    }).then((_) => {
      if (this.#result.textContent.startsWith("Observing")) this.#result.replaceChildren();
    });
  }
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
