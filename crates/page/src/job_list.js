// The list of jobs and fleets, with filters that are part of the address.

import * as address from "./address.js";
import { call } from "./api.js";
import { button, element, field, say, setText } from "./dom.js";
import { dateAndTime, duration, isRunning, stateClass, stateInWords } from "./format.js";

const INTERVAL_MS = 2_000;
const FIRST_LIMIT = 100;
// Pause in typing after which a filter is applied.
const TYPING_MS = 300;
// Jobs whose last lines one call can ask for.
const MOST_TAILED = 50;
const STATES = ["", "running", "queued", "starting", "exited", "signaled", "lost", "closed", "refused", "timed_out"];

export class JobList {
  #items = new Map();
  #list = element("ul", { className: "jobs" });
  #summary = element("p", { className: "hint" });
  #more = button("Show more", () => this.#showMore(), { hidden: true });
  #host = field("Host", { name: "host" });
  #label = field("Label", { name: "label" });
  #state = element("select", { name: "state" });
  #filters = { host: "", label: "", state: "" };
  #limit = FIRST_LIMIT;
  #timer = null;
  #typing = null;
  #isClosed = false;
  #isFailing = false;
  // Number of the newest refresh, whose reply counts.
  #round = 0;

  constructor() {
    this.#state.append(...STATES.map((state) => new Option(state === "" ? "any" : state.replace("_", " "), state)));
    const filters = element(
      "form",
      { className: "filters" },
      this.#host.label,
      this.#label.label,
      element("label", { className: "field" }, element("span", {}, "State"), this.#state),
    );
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#filter(), TYPING_MS);
    });
    this.element = element(
      "section",
      { className: "job-list", "aria-label": "Jobs" },
      element("h2", {}, "Jobs"),
      filters,
      this.#summary,
      this.#list,
      this.#more,
    );
  }

  // Shows the jobs that the address selects, and marks one of them.
  show({ host, label, state, job }) {
    // An address can have any state.
    this.#filters = { host, label, state: STATES.includes(state) ? state : "" };
    for (const [input, value] of [[this.#host.input, host], [this.#label.input, label]]) {
      // A space that a person has just typed stays.
      if (input.value.trim() !== value) input.value = value;
    }
    this.#state.value = this.#filters.state;
    this.current = job;
    for (const item of this.#items.values()) item.mark(job);
    this.#refresh();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#typing);
  }

  #filter() {
    this.#limit = FIRST_LIMIT;
    address.go(
      {
        host: this.#host.input.value.trim(),
        label: this.#label.input.value.trim(),
        state: this.#state.value,
      },
      true,
    );
  }

  #showMore() {
    this.#limit *= 4;
    this.#refresh();
  }

  async #refresh() {
    clearTimeout(this.#timer);
    const round = ++this.#round;
    const filters = Object.entries(this.#filters).filter(([, value]) => value !== "");
    try {
      const reply = await call("jobs", {
        ...Object.fromEntries(filters),
        limit: this.#limit,
        cached: true,
        examine_input: true,
      });
      // Another refresh may have begun, with other filters.
      if (this.#isClosed || round !== this.#round) return;
      this.#update(reply);
      if (this.#isFailing) say("Connected again");
      this.#isFailing = false;
      await this.#showLastLines(reply.jobs);
    } catch (error) {
      if (this.#isClosed || round !== this.#round) return;
      this.#isFailing = true;
      say(error.message, true);
    }
    if (!this.#isClosed && round === this.#round) this.#timer = setTimeout(() => this.#refresh(), INTERVAL_MS);
  }

  #update({ jobs, total }) {
    const ids = new Set(jobs.map((job) => job.job_id));
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    jobs.forEach((job, index) => {
      let item = this.#items.get(job.job_id);
      if (!item) {
        item = new JobItem(job);
        item.mark(this.current);
        this.#items.set(job.job_id, item);
      }
      item.update(job);
      // Moved only if it is somewhere else, so that the focus stays.
      if (this.#list.children[index] !== item.element) {
        this.#list.insertBefore(item.element, this.#list.children[index] ?? null);
      }
    });
    const shown = jobs.length < total ? `${jobs.length} of ${total}` : `${total}`;
    setText(this.#summary, total === 0 ? "No jobs" : `${shown} ${total === 1 ? "job" : "jobs"}, newest first`);
    this.#more.hidden = jobs.length >= total;
  }

  // The newest lines, with one call. An ended job is asked for its line once, and with more running jobs
  // than one call can have, they take turns.
  async #showLastLines(jobs) {
    const items = jobs
      .filter((job) => job.total_bytes > 0)
      .map((job) => this.#items.get(job.job_id))
      .filter((item) => !item.hasLastLine)
      .sort((one, other) => one.askedAt - other.askedAt)
      .slice(0, MOST_TAILED);
    if (items.length === 0) return;
    for (const item of items) item.askedAt = Date.now();
    const asked = items.map((item) => item.jobId);
    const reply = await call("tail", { job_ids: asked, keep: "last", max_lines: 1 }).catch((error) => {
      // One of them was forgotten since it was listed, or the policy allows the list and not the output.
      if ([403, 404, 410].includes(error.status)) return { jobs: [] };
      throw error;
    });
    for (const { job_id, lines, partial } of reply.jobs) {
      const text = partial?.stdout ?? partial?.stderr ?? lines?.at(-1);
      this.#items.get(job_id)?.showLastLine(text ?? "");
    }
  }
}

// One job of the list.
class JobItem {
  #state = element("span", { className: "state" });
  #detail = element("span", { className: "detail" });
  #age = element("time", {});
  #lastLine = element("p", { className: "last-line" });
  #members = null;
  #isOver = false;

  constructor(job) {
    this.jobId = job.job_id;
    this.hasLastLine = false;
    this.askedAt = 0;
    this.link = element("a", { href: address.linkTo({ job: job.job_id }) }, job.job_id);
    this.#age.title = dateAndTime(job.started_at);
    this.element = element(
      "li",
      {},
      element("div", { className: "line" }, this.link, this.#state, this.#age),
      this.#detail,
      element("code", {}, job.command),
      this.#lastLine,
    );
    if (job.members) {
      this.#members = new Members(job.job_id);
      this.element.append(this.#members.element);
    }
  }

  mark(current) {
    const isCurrent = current === this.jobId;
    this.element.classList.toggle("current", isCurrent);
    if (isCurrent) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    // Filters are part of the address.
    this.link.href = address.linkTo({ job: this.jobId });
  }

  update(job) {
    this.#isOver = !isRunning(job);
    setText(this.#state, job.awaiting_input ? "waits for input" : stateInWords(job));
    this.#state.className = `state ${stateClass(job)}`;
    const parts = [job.host, job.caller, job.label, job.becomes && `as ${job.becomes}`];
    if (job.members) parts.push(membersInWords(job.members));
    setText(this.#detail, parts.filter(Boolean).join(" · "));
    const age = job.ended_at ? `${duration(Date.now() - job.ended_at)} ago` : `for ${duration(Date.now() - job.started_at)}`;
    setText(this.#age, age);
    this.#members?.update();
  }

  showLastLine(text) {
    setText(this.#lastLine, text);
    this.hasLastLine = this.#isOver;
  }
}

// The members of a fleet, unfolded on request: one cell a host.
class Members {
  #list = element("ul", { className: "cells" });
  #cells = new Map();
  #isLoading = false;

  constructor(fleetId) {
    this.fleetId = fleetId;
    this.element = element("details", {}, element("summary", {}, "Hosts"), this.#list);
    this.element.addEventListener("toggle", () => this.update());
  }

  async update() {
    if (!this.element.open || this.#isLoading) return;
    this.#isLoading = true;
    try {
      const reply = await call("jobs", { fleet: this.fleetId, limit: 10_000, cached: true });
      for (const member of reply.jobs) this.#show(member);
    } catch (error) {
      say(error.message, true);
    } finally {
      this.#isLoading = false;
    }
  }

  // Cells are kept, so that the focus stays.
  #show(member) {
    let cell = this.#cells.get(member.job_id);
    if (!cell) {
      const state = element("span", { className: "unseen" });
      const link = element("a", { href: address.linkTo({ job: member.job_id }) }, member.host, state);
      cell = { link, state };
      this.#cells.set(member.job_id, cell);
      this.#list.append(element("li", {}, link));
    }
    const words = stateInWords(member);
    cell.link.className = `state ${stateClass(member)}`;
    cell.link.title = `${member.host}: ${words}`;
    setText(cell.state, `: ${words}`);
  }
}

function membersInWords(members) {
  const names = [
    ["ok", "ok"],
    ["failed", "failed"],
    ["unreachable", "unreachable"],
    ["running", "running"],
    ["not_started", "not started"],
  ];
  return names
    .filter(([key]) => members[key])
    .map(([key, name]) => `${members[key]} ${name}`)
    .join(", ");
}
