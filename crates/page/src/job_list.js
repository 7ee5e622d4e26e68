// The list of jobs and fleets: a line for each, those that need a person first. Filters are part of the
// address.

import * as address from "./address.js";
import { call } from "./api.js";
import { button, element, say, setText } from "./dom.js";
import { count, dateAndTime, duration, isRunning, shortState, stateClass } from "./format.js";

const INTERVAL_MS = 2_000;
// Interval for a long list, whose every reply has megabytes.
const SLOW_INTERVAL_MS = 10_000;
const LONG_LIST = 1_000;
const FIRST_LIMIT = 200;
// Pause in typing after which a filter is applied.
const TYPING_MS = 300;

// Kinds of jobs, as the server counts and selects them.
const KINDS = ["waiting", "running", "queued", "failed"];

export class JobList {
  #items = new Map();
  #list = element("ul", { className: "jobs" });
  #empty = element("div", { className: "empty", hidden: true });
  #chips = new Map();
  #text = element("input", {
    type: "search",
    className: "filter",
    "aria-label": "Filter by host, label, command or caller",
    placeholder: "Host, label, command, caller",
    spellcheck: false,
    autocomplete: "off",
  });
  #more = button("Show more", () => this.#showMore(), { hidden: true });
  #only = "";
  #filter = "";
  #limit = FIRST_LIMIT;
  #timer = null;
  #typing = null;
  #isClosed = false;
  #isFailing = false;
  // Number of the newest refresh, whose reply counts.
  #round = 0;

  constructor(person) {
    this.person = person;
    for (const kind of [...KINDS, ""]) {
      const chip = button("", () => this.#select(kind), { className: `chip ${kind || "all"}`, "aria-pressed": "false" });
      this.#chips.set(kind, chip);
    }
    this.#text.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#applyText(), TYPING_MS);
    });
    this.element = element(
      "section",
      { className: "job-list", "aria-label": "Jobs" },
      element("h2", { className: "unseen" }, "Jobs"),
      element("div", { className: "chips", role: "group", "aria-label": "Kinds of jobs" }, ...this.#chips.values()),
      this.#text,
      this.#empty,
      this.#list,
      this.#more,
    );
    this.#showCounts({ all: 0 });
  }

  // Shows the jobs that the address selects, and marks one of them.
  show({ text, only, job }) {
    // An address can have anything.
    this.#only = KINDS.includes(only) ? only : "";
    this.#filter = text;
    // A space that a person has just typed stays.
    if (this.#text.value.trim() !== text) this.#text.value = text;
    for (const [kind, chip] of this.#chips) chip.setAttribute("aria-pressed", String(kind === this.#only));
    this.current = job;
    for (const item of this.#items.values()) item.mark(job);
    this.#refresh();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#typing);
  }

  #select(only) {
    this.#limit = FIRST_LIMIT;
    address.go({ only }, true);
  }

  #applyText() {
    this.#limit = FIRST_LIMIT;
    address.go({ text: this.#text.value.trim() }, true);
  }

  #clear() {
    this.#limit = FIRST_LIMIT;
    address.go({ text: "", only: "" }, true);
    this.#text.focus();
  }

  #showMore() {
    this.#limit = Math.min(this.#limit * 4, 10_000);
    return this.#refresh();
  }

  async #refresh() {
    clearTimeout(this.#timer);
    const round = ++this.#round;
    const request = { limit: this.#limit, cached: true, examine_input: true, running_first: true, counts: true };
    if (this.#filter !== "") request.text = this.#filter;
    if (this.#only !== "") request.only = this.#only;
    try {
      const reply = await call("jobs", request);
      // Another refresh may have begun, with other filters.
      if (this.#isClosed || round !== this.#round) return;
      this.#update(reply);
      if (this.#isFailing) say("Connected again");
      this.#isFailing = false;
    } catch (error) {
      if (this.#isClosed || round !== this.#round) return;
      this.#isFailing = true;
      say(error.message, true);
    }
    if (this.#isClosed || round !== this.#round) return;
    const interval = this.#items.size > LONG_LIST ? SLOW_INTERVAL_MS : INTERVAL_MS;
    this.#timer = setTimeout(() => this.#refresh(), interval);
  }

  #update({ jobs, total, counts }) {
    const ids = new Set(jobs.map((job) => job.job_id));
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    const callers = new Set(jobs.map((job) => job.caller));
    this.#list.classList.toggle("has-callers", callers.size > 1);
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
    this.#showCounts(counts ?? { all: total });
    this.#showEmpty(total === 0);
    this.#more.hidden = jobs.length >= total;
  }

  #showCounts(counts) {
    for (const [kind, chip] of this.#chips) {
      const number = counts[kind || "all"] ?? 0;
      setText(chip, `${kind || "all"} ${count(number)}`);
      chip.classList.toggle("none", number === 0);
    }
  }

  // Says why nothing is listed, and what to do about it.
  #showEmpty(isEmpty) {
    this.#empty.hidden = !isEmpty;
    if (!isEmpty) return;
    const isFiltered = this.#filter !== "" || this.#only !== "";
    const seesOwn = this.person.role === "read";
    let why = "No jobs yet. Agents start them, and so does “sshjobs spawn HOST -- COMMAND”.";
    if (isFiltered) why = "No job passes the filter.";
    else if (seesOwn) why = "No jobs. A token with the role read sees only jobs that its own caller has started.";
    this.#empty.replaceChildren(
      element("p", {}, why),
      ...(isFiltered ? [button("Clear the filter", () => this.#clear())] : []),
    );
  }
}

// One job of the list, in one line.
class JobItem {
  #state = element("span", { className: "state" });
  #caller = element("span", { className: "caller" });
  #age = element("time", {});
  #members = null;

  constructor(job) {
    this.jobId = job.job_id;
    const command = [job.label && `[${job.label}]`, job.becomes && `as ${job.becomes}:`, job.command];
    const name = element("span", { className: "unseen" }, job.job_id);
    this.link = element("a", { href: address.linkTo({ job: job.job_id }), title: `${job.job_id}: ${job.command}` }, name);
    this.#age.title = dateAndTime(job.started_at);
    const line = element(
      "div",
      { className: "line" },
      this.#state,
      element("code", {}, command.filter(Boolean).join(" ").replaceAll("\n", " ")),
      element("span", { className: "host" }, job.host),
      this.#caller,
      this.#age,
      // Covers the line.
      this.link,
    );
    this.element = element("li", {}, line);
    if (job.members) {
      this.#members = new Members(job.job_id);
      line.prepend(this.#members.toggle);
      this.element.append(this.#members.list);
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
    setText(this.#state, job.members ? membersInWords(job.members) : shortState(job));
    this.#state.className = `state ${stateClass(job)}`;
    setText(this.#caller, job.caller ?? "you");
    setText(this.#age, duration(Date.now() - (isRunning(job) ? job.started_at : (job.ended_at ?? job.started_at))));
    this.#members?.update();
  }
}

// The members of a fleet, unfolded on request: a line each.
class Members {
  list = element("ul", { className: "members", hidden: true });
  #lines = new Map();
  #isLoading = false;

  constructor(fleetId) {
    this.fleetId = fleetId;
    this.toggle = button("▸", () => this.#fold(), {
      className: "fold",
      "aria-expanded": "false",
      "aria-label": `Hosts of ${fleetId}`,
    });
  }

  #fold() {
    this.list.hidden = !this.list.hidden;
    this.toggle.setAttribute("aria-expanded", String(!this.list.hidden));
    setText(this.toggle, this.list.hidden ? "▸" : "▾");
    return this.update();
  }

  async update() {
    if (this.list.hidden || this.#isLoading) return;
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

  // Lines are kept, so that the focus stays.
  #show(member) {
    let line = this.#lines.get(member.job_id);
    if (!line) {
      const state = element("span", { className: "state" });
      const link = element("a", { href: address.linkTo({ job: member.job_id }) }, member.host, state);
      line = { link, state };
      this.#lines.set(member.job_id, line);
      this.list.append(element("li", {}, link));
    }
    setText(line.state, shortState(member));
    line.state.className = `state ${stateClass(member)}`;
    line.link.title = member.reason ?? "";
  }
}

function membersInWords(members) {
  const names = [
    ["failed", "failed"],
    ["unreachable", "unreachable"],
    ["running", "running"],
    ["not_started", "not started"],
    ["ok", "ok"],
  ];
  return names
    .filter(([key]) => members[key])
    .map(([key, name]) => `${members[key]} ${name}`)
    .join(", ");
}
