// The overview beside the list while no job is chosen: running jobs by host, failures, queues, health.

import * as address from "./address.js";
import { call, get } from "./api.js";
import { element } from "./dom.js";
import { count, duration, shortState } from "./format.js";

const INTERVAL_MS = 5_000;
const DAY_MS = 86_400_000;
const MOST_RUNNING = 1_000;
const MOST_HOSTS = 12;
const MOST_FAILURES = 12;

export class Overview {
  #hosts = element("div", {});
  #failures = element("div", {});
  #queues = element("div", {});
  #server = element("p", { className: "hint" });
  #timer = null;
  #isClosed = false;

  constructor() {
    const part = (title, content) => element("section", {}, element("h3", {}, title), content);
    this.element = element(
      "div",
      { className: "overview", role: "region", "aria-label": "Overview" },
      part("Running, by host", this.#hosts),
      part("Failures of the last day", this.#failures),
      part("Queues", this.#queues),
      this.#server,
    );
    this.#refresh();
  }

  // Does nothing: the overview takes no keys.
  focus() {}

  showLines() {}

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async #refresh() {
    try {
      const [running, failed, queues] = await Promise.all([
        call("jobs", { only: "running", limit: MOST_RUNNING, cached: true, counts: true }),
        call("jobs", { only: "failed", limit: 100, cached: true }),
        call("queue", {}),
      ]);
      if (this.#isClosed) return;
      this.#showHosts(running);
      this.#showFailures(failed.jobs);
      this.#showQueues(queues.queues);
      this.#server.textContent = `${count(running.counts.all)} jobs are kept. The server is ${await health()}.`;
    } catch (error) {
      this.#server.textContent = `The server does not answer: ${error.message}`;
    }
    if (!this.#isClosed) this.#timer = setTimeout(() => this.#refresh(), INTERVAL_MS);
  }

  #showHosts({ jobs }) {
    const byHost = new Map();
    for (const { host } of jobs) byHost.set(host, (byHost.get(host) ?? 0) + 1);
    const busiest = [...byHost].sort(([, one], [, other]) => other - one).slice(0, MOST_HOSTS);
    const most = busiest[0]?.[1] ?? 1;
    const rows = busiest.map(([host, number]) => {
      const bar = element("span", { className: "bar" });
      bar.style.setProperty("--share", number / most);
      const link = element("a", { href: address.linkTo({ text: host, only: "running" }) }, host);
      return [link, bar, element("span", { className: "number" }, count(number))];
    });
    show(this.#hosts, rows, "Nothing runs.");
  }

  #showFailures(jobs) {
    const recent = jobs.filter((job) => Date.now() - (job.ended_at ?? job.started_at) < DAY_MS);
    const rows = recent.slice(0, MOST_FAILURES).map((job) => [
      element("span", { className: "state failed" }, shortState(job)),
      element("a", { href: address.linkTo({ job: job.job_id }) }, job.command.replaceAll("\n", " ")),
      job.host,
      `${duration(Date.now() - (job.ended_at ?? job.started_at))} ago`,
    ]);
    show(this.#failures, rows, "Nothing has failed.");
  }

  #showQueues(queues) {
    const rows = queues.map((queue) => {
      const waiting = queue.jobs.filter((job) => job.place !== undefined).length;
      const standing = queue.held ? "held" : `${queue.parallel} at a time`;
      return [queue.name, standing, `${count(waiting + queue.others)} wait`];
    });
    show(this.#queues, rows, "No job is in a queue.");
  }
}

// Shows a table, or a text if it has no rows.
function show(place, rows, otherwise) {
  if (rows.length === 0) {
    place.replaceChildren(element("p", { className: "hint" }, otherwise));
    return;
  }
  const lines = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell))));
  place.replaceChildren(element("table", {}, element("tbody", {}, ...lines)));
}

async function health() {
  const reply = await get("readyz").catch((error) => ({ error }));
  return reply.error ? `not ready: ${reply.error.message}` : "ready";
}
