// The band above both panes: what waits for a person. Approvals come first, then jobs that wait for input.
// The title and the icon of the page say how many there are.

import * as address from "./address.js";
import { AnswerForm } from "./actions.js";
import { call } from "./api.js";
import { Approvals } from "./approvals.js";
import { button, element, mayAct, notify, setText } from "./dom.js";
import { count } from "./format.js";

const INTERVAL_MS = 2_000;
// Jobs that are shown; the list on the left has the others.
const MOST_SHOWN = 5;

export class Band {
  #jobs = element("ul", {});
  #others = element("p", { className: "hint" });
  #items = new Map();
  // The job that is open: its own pane has the field for the answer.
  #open = null;
  #notify = button("Notify me", () => this.#askToNotify(), { title: "Show notifications of this browser" });
  #waiting = 0;
  #approving = 0;
  #timer = null;
  #isClosed = false;

  constructor(person) {
    this.mayAct = mayAct(person);
    this.approvals = new Approvals(person, (number) => {
      this.#approving = number;
      this.#showCount();
    });
    this.#notify.hidden = globalThis.Notification?.permission !== "default";
    this.waiting = element(
      "section",
      { className: "waiting", "aria-label": "Waiting for input", hidden: true },
      element("h2", {}, "Waits for input"),
      this.#jobs,
      this.#others,
    );
    this.element = element(
      "div",
      { className: "band", hidden: true },
      this.approvals.element,
      this.waiting,
      this.#notify,
    );
    this.#refresh();
  }

  // Notes which job is open.
  show({ job }) {
    this.#open = job;
    this.#showOthers();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.approvals.close();
    showInTitle(0);
  }

  async #refresh() {
    try {
      const request = { only: "waiting", limit: MOST_SHOWN, cached: true, examine_input: true, counts: true };
      const { jobs, counts } = await call("jobs", request);
      if (this.#isClosed) return;
      this.#show(jobs);
      const others = counts.waiting - jobs.length;
      setText(this.#others, others > 0 ? `and ${count(others)} more` : "");
      this.#waiting = counts.waiting;
      this.#showCount();
    } catch {
      // The list of jobs, which asks as often, reports it.
    }
    if (!this.#isClosed) this.#timer = setTimeout(() => this.#refresh(), INTERVAL_MS);
  }

  #show(jobs) {
    const ids = new Set(jobs.map((job) => job.job_id));
    for (const [id, item] of this.#items) {
      if (ids.has(id) || item.isInUse()) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    for (const job of jobs) {
      let item = this.#items.get(job.job_id);
      if (!item) {
        item = new WaitingJob(job, this.mayAct);
        this.#items.set(job.job_id, item);
        this.#jobs.append(item.element);
        notify(`${job.host}: a job waits for input`, job.command);
      }
      item.update(job);
    }
    this.#showOthers();
  }

  #showOthers() {
    for (const [id, item] of this.#items) item.element.hidden = id === this.#open;
    this.waiting.hidden = [...this.#items.keys()].every((id) => id === this.#open);
    this.element.hidden = this.approvals.element.hidden && this.waiting.hidden;
  }

  #showCount() {
    this.#showOthers();
    showInTitle(this.#waiting + this.#approving);
  }

  async #askToNotify() {
    await Notification.requestPermission();
    this.#notify.hidden = Notification.permission !== "default";
  }
}

// A job that waits for input, with the field for the answer.
class WaitingJob {
  #question = element("p", { className: "question" });

  constructor(job, mayAct) {
    this.answer = new AnswerForm(job.job_id);
    this.element = element(
      "li",
      {},
      element(
        "p",
        { className: "chips" },
        element("a", { href: address.linkTo({ job: job.job_id }) }, `Open ${job.job_id}`),
        element("span", { className: "chip" }, job.host),
        job.caller ? element("span", { className: "chip" }, job.caller) : null,
      ),
      element("code", { className: "asked" }, job.command),
      this.#question,
      mayAct ? this.answer.element : null,
    );
    this.#ask(job.job_id);
  }

  // Whether a person is typing an answer.
  isInUse() {
    return this.element.contains(document.activeElement);
  }

  update(job) {
    this.answer.update(job, true);
  }

  // The line that it has printed last.
  async #ask(jobId) {
    try {
      const { lines, partial } = await call("tail", { job_id: jobId, keep: "last", max_lines: 1 });
      setText(this.#question, partial?.stdout ?? partial?.stderr ?? lines?.at(-1) ?? "");
    } catch {
      // The job may have ended, or the policy allows the list and not the output.
    }
  }
}

let titleWithoutCount = "sshjobs";
let shownCount = 0;

// Sets the title of the page. The number of what waits comes before it.
export function setTitle(title) {
  titleWithoutCount = title;
  document.title = shownCount > 0 ? `(${shownCount}) ${title}` : title;
}

function showInTitle(number) {
  shownCount = number;
  setTitle(titleWithoutCount);
  document.querySelector("link[rel=icon]").href = number > 0 ? "web/icon_waits.svg" : "web/icon.svg";
}
