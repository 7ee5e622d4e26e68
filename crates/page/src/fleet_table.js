// The hosts of a fleet: state, time, last line, and why a host was not started.

import * as address from "./address.js";
import { call } from "./api.js";
import { button, element, say, setText } from "./dom.js";
import { duration, isRunning, shortState, stateClass } from "./format.js";

const INTERVAL_MS = 2_000;

const COLUMNS = [
  ["Host", (member) => member.host],
  ["State", (member) => RANKS.indexOf(stateClass(member)) * 1000 + (member.exit_status ?? 0)],
  ["Time", (member) => timeOf(member)],
  ["Last line", (member) => lastOf(member)],
];
// What needs a person first.
const RANKS = ["awaiting", "failed", "running", "ok"];

export class FleetTable {
  #body = element("tbody", {});
  #rows = new Map();
  #heads = [];
  #sorted = 1;
  #isDescending = false;
  #timer = null;
  #isClosed = false;

  constructor(fleetId) {
    this.fleetId = fleetId;
    this.#heads = COLUMNS.map(([name], index) =>
      element("th", { scope: "col", "aria-sort": "none" }, button(name, () => this.#sortBy(index))),
    );
    this.element = element(
      "div",
      { className: "fleet", role: "region", "aria-label": "Hosts", tabIndex: 0 },
      element("table", {}, element("thead", {}, element("tr", {}, ...this.#heads)), this.#body),
    );
    this.#refresh();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async #refresh() {
    let runs = true;
    try {
      const { jobs } = await call("jobs", { fleet: this.fleetId, limit: 10_000, cached: true });
      if (this.#isClosed) return;
      for (const member of jobs) this.#show(member);
      this.#sort();
      runs = jobs.some(isRunning);
    } catch (error) {
      say(error.message, true);
    }
    // A fleet that was stopped has members that never start.
    if (!this.#isClosed && runs) this.#timer = setTimeout(() => this.#refresh(), INTERVAL_MS);
  }

  #show(member) {
    let row = this.#rows.get(member.job_id);
    if (!row) {
      const link = element("a", { href: address.linkTo({ job: member.job_id }) }, member.host);
      const cells = [link, element("span", {}), element("span", {}), element("code", {})];
      row = { cells, element: element("tr", {}, ...cells.map((cell) => element("td", {}, cell))) };
      this.#rows.set(member.job_id, row);
      this.#body.append(row.element);
    }
    row.member = member;
    const [, state, time, last] = row.cells;
    setText(state, shortState(member));
    state.className = `state ${stateClass(member)}`;
    setText(time, member.started_at ? duration(timeOf(member)) : "");
    setText(last, lastOf(member));
    last.title = last.textContent;
  }

  #sortBy(index) {
    this.#isDescending = this.#sorted === index && !this.#isDescending;
    this.#sorted = index;
    this.#sort();
  }

  #sort() {
    const [, keyOf] = COLUMNS[this.#sorted];
    const sign = this.#isDescending ? -1 : 1;
    const rows = [...this.#rows.values()].sort((one, other) => {
      const [left, right] = [keyOf(one.member), keyOf(other.member)];
      const order = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right;
      return sign * order;
    });
    rows.forEach((row, index) => {
      if (this.#body.children[index] !== row.element) {
        this.#body.insertBefore(row.element, this.#body.children[index] ?? null);
      }
    });
    this.#heads.forEach((head, index) => {
      const order = this.#isDescending ? "descending" : "ascending";
      head.setAttribute("aria-sort", index === this.#sorted ? order : "none");
    });
  }
}

function timeOf(member) {
  if (!member.started_at) return 0;
  return (member.ended_at ?? Date.now()) - member.started_at;
}

// The last line, or why there is none.
function lastOf(member) {
  return member.reason ?? member.last_lines?.at(-1) ?? "";
}
