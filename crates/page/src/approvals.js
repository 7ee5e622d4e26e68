// Calls that wait for an approval, with the exact call.

import { call, get } from "./api.js";
import { differenceTo } from "./call_difference.js";
import { attempt, button, element, field, notify, problemPlace, say, setText } from "./dom.js";
import { duration } from "./format.js";
import { visible } from "./visible.js";

const INTERVAL_MS = 2_000;

export class Approvals {
  #list = element("ul", {});
  // Items by approval. They are kept, so that a reason that a person is typing stays.
  #items = new Map();
  #timer = null;
  #hasFailed = false;

  // `onCount` gets the number of approvals that wait.
  constructor(person, onCount) {
    this.person = person;
    this.onCount = onCount;
    this.element = element(
      "section",
      { className: "approvals", "aria-label": "Approvals", hidden: true },
      element("h2", {}, "Approvals"),
      this.#list,
    );
    this.#refresh();
  }

  close() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #refresh() {
    try {
      const reply = await get("v1/approvals");
      this.#show(reply.approvals);
      this.#hasFailed = false;
    } catch (error) {
      // Reported once: another try follows.
      if (!this.#hasFailed && this.#timer !== undefined) say(error.message, true);
      this.#hasFailed = true;
    }
    if (this.#timer !== undefined) this.#timer = setTimeout(() => this.#refresh(), INTERVAL_MS);
  }

  #show(approvals) {
    const ids = new Set(approvals.map((approval) => approval.id));
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    for (const approval of approvals) {
      let item = this.#items.get(approval.id);
      if (!item) {
        item = this.#itemOf(approval);
        this.#items.set(approval.id, item);
        this.#list.append(item.element);
        notify(`${approval.asker} asks for an approval`, approval.call.command ?? "");
      }
      setText(item.hint, hintFor(approval));
      item.left.style.setProperty("--share", shareLeft(approval));
    }
    this.element.hidden = approvals.length === 0;
    this.onCount(approvals.length);
  }

  #itemOf(approval) {
    const reason = field("Reason");
    const problem = problemPlace();
    const vote = (decision) => () =>
      attempt(problem, () => this.#vote(approval.id, decision, reason.input.value));
    const isOwn = approval.asker === this.person.caller;
    const answer = isOwn
      ? element("p", { className: "hint" }, "You asked for this. Another person has to agree.")
      : element(
          "div",
          { className: "actions" },
          reason.label,
          button("Approve", vote("approve"), { className: "approve" }),
          button("Deny", vote("deny"), { className: "danger" }),
        );
    const hint = element("p", { className: "hint" });
    const call = JSON.stringify(approval.call, null, 2);
    const left = element("span", { className: "time-left" });
    const chip = (text) => element("span", { className: "chip" }, text);
    const item = element(
      "li",
      {},
      element(
        "p",
        { className: "chips" },
        `${visible(approval.asker)} asks to act on`,
        chip(visible(approval.host)),
        approval.call.become ? chip(`as ${visible(String(approval.call.become))}`) : null,
        chip(`rule ${visible(approval.rule)}`),
      ),
      approval.call.command ? element("pre", { className: "asked" }, visible(approval.call.command)) : null,
      approval.reason ? element("p", {}, `Reason: ${visible(approval.reason)}`) : null,
      differenceTo(approval),
      left,
      hint,
      answer,
      problem,
      element(
        "details",
        {},
        element("summary", {}, "The exact call"),
        element(
          "pre",
          { role: "region", "aria-label": `Call of ${approval.id}`, tabIndex: 0 },
          // Line feeds of the layout stay; those of the call are escaped in JSON.
          call.split("\n").map(visible).join("\n"),
        ),
      ),
    );
    // A call without a command is shown at once.
    item.querySelector("details").open = !approval.call.command;
    return { element: item, hint, left };
  }

  async #vote(id, decision, reason) {
    const body = reason === "" ? { decision } : { decision, reason };
    const approval = await call(`approvals/${encodeURIComponent(id)}`, body);
    say(`${id}: ${approval.state}`);
    this.#items.get(id)?.element.remove();
    this.#items.delete(id);
    this.element.hidden = this.#items.size === 0;
    this.onCount(this.#items.size);
  }
}

function hintFor(approval) {
  const agreed = approval.votes.filter((vote) => vote.decision === "approve").length;
  const left = duration(approval.expires_at - Date.now());
  return `${agreed} of ${approval.needed} agreed; expires in ${left}`;
}

// The share of its time that an approval has left.
function shareLeft({ asked_at, expires_at }) {
  const whole = expires_at - asked_at;
  return whole > 0 ? Math.min(1, Math.max(0, (expires_at - Date.now()) / whole)) : 1;
}
