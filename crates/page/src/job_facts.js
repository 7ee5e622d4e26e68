// Facts of a job beside its output: tree, attempts, GPUs and their use, and the files that it gave back.

import { jobPath } from "./api.js";
import { element } from "./dom.js";
import { bytes, count } from "./format.js";

const BARS = "▁▂▃▄▅▆▇█";
// Samples of a drawn series.
const MOST_DRAWN = 60;
// Files that are listed.
const MOST_FILES = 20;

export class JobFacts {
  element = element("dl", { className: "job-facts", hidden: true });
  #shown = "";

  constructor(jobId) {
    this.jobId = jobId;
  }

  update(job) {
    const rows = [...this.#plain(job), ...usage(job.usage ?? []), ...this.#files(job)];
    const shown = JSON.stringify(rows.map(([name, value]) => [name, value.textContent ?? value]));
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.hidden = rows.length === 0;
    const parts = rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    this.element.replaceChildren(...parts);
  }

  #plain(job) {
    const tree = job.tree && [job.tree.path, job.tree.commit && `at ${job.tree.commit.slice(0, 10)}`];
    const rows = [
      ["Tree", tree?.filter(Boolean).join(" ")],
      ["Attempts", job.attempts > 1 && String(job.attempts)],
      ["GPUs", job.gpus?.join(", ")],
    ];
    return rows.filter(([, value]) => value);
  }

  #files(job) {
    if (!job.fetched) return [];
    const links = job.fetched.slice(0, MOST_FILES).map((file) => {
      const path = file.path.split("/").map(encodeURIComponent).join("/");
      const href = jobPath(this.jobId, `fetched/${path}`);
      const link = element("a", { href, download: "" }, file.path);
      return element("li", {}, link, ` ${bytes(file.bytes)}`);
    });
    const total = job.fetched_total ?? job.fetched.length;
    const others = total - links.length;
    if (others > 0) links.push(element("li", {}, `and ${count(others)} more`));
    for (const why of job.fetch_failed ?? []) links.push(element("li", { className: "failed" }, why));
    return links.length > 0 ? [["Files", element("ul", {}, ...links)]] : [];
  }
}

// A row for each series, with its newest value.
function usage(samples) {
  if (samples.length === 0) return [];
  const drawn = samples.slice(-MOST_DRAWN);
  const newest = samples.at(-1);
  const row = (name, value, most, words) => [name, `${drawn.map((sample) => bar(value(sample), most)).join("")} ${words}`];
  const highest = (value) => Math.max(1, ...drawn.map(value));
  const memory = (sample) => sample.memory_kib;
  const cpu = (sample) => sample.cpu_percent;
  const rows = [
    row("CPU", cpu, highest(cpu), `${newest.cpu_percent} %`),
    row("Memory", memory, highest(memory), bytes(newest.memory_kib * 1024)),
  ];
  if (newest.gpus) {
    const gpu = (name) => (sample) => sample.gpus?.[name] ?? 0;
    const used = gpu("memory_mib");
    rows.unshift(
      row("GPU use", gpu("percent"), 100, `${newest.gpus.percent} %`),
      row("GPU memory", used, highest(used), bytes(newest.gpus.memory_mib * 1024 * 1024)),
      row("GPU heat", gpu("temperature"), 100, `${newest.gpus.temperature} °C`),
    );
  }
  return rows;
}

function bar(value, most) {
  const step = Math.round((Math.min(value, most) / most) * (BARS.length - 1));
  return BARS[step];
}
