// Calls that wait for an approval, with the exact call.

import { call, get } from "./api.js";
import { attempt, button, element, field, say } from "./dom.js";
import { duration } from "./format.js";

const INTERVAL_MS = 2_000;

export class Approvals {
  #list = element("ul", {});
  // Items by approval. They are kept, so that a reason that a person is typing stays.
  #items = new Map();
  #timer = null;

  constructor(person) {
    this.person = person;
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
    } catch {
      // The list of jobs is refreshed as often, and shows the error.
    }
    if (this.#timer !== undefined) this.#timer = setTimeout(() => this.#refresh(), INTERVAL_MS);
  }

  #show(approvals) {
    const ids = new Set(approvals.map((approval) => approval.id));
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.remove();
      this.#items.delete(id);
    }
    for (const approval of approvals) {
      if (this.#items.has(approval.id)) continue;
      const item = this.#itemOf(approval);
      this.#items.set(approval.id, item);
      this.#list.append(item);
    }
    this.element.hidden = approvals.length === 0;
  }

  #itemOf(approval) {
    const reason = field("Reason");
    const vote = (decision) => () => this.#vote(approval.id, decision, reason.input.value);
    const isOwn = approval.asker === this.person.caller;
    const answer = isOwn
      ? element("p", { className: "hint" }, "You have asked for this. Another person has to agree.")
      : element(
          "div",
          { className: "actions" },
          reason.label,
          button("Approve", vote("approve")),
          button("Deny", vote("deny")),
        );
    return element(
      "li",
      {},
      element("p", {}, `${approval.asker} asks to act on ${approval.host}`),
      approval.reason ? element("p", {}, `Reason: ${visible(approval.reason)}`) : null,
      element(
        "pre",
        { tabIndex: 0, role: "region", "aria-label": `Call of ${approval.id}` },
        visible(JSON.stringify(approval.call, null, 2)),
      ),
      element(
        "p",
        { className: "hint" },
        `Rule ${approval.rule}; ${approval.needed} must agree; expires in ` +
          duration(approval.expires_at - Date.now()),
      ),
      answer,
    );
  }

  #vote(id, decision, reason) {
    return attempt(async () => {
      const body = reason === "" ? { decision } : { decision, reason };
      const approval = await call(`approvals/${encodeURIComponent(id)}`, body);
      say(`${id}: ${approval.state}`);
      this.#items.get(id)?.remove();
      this.#items.delete(id);
      this.element.hidden = this.#items.size === 0;
    });
  }
}

// Characters that could hide or reorder a part of the call, as their codes. (A call is shown as JSON,
// which escapes control characters.)
function visible(text) {
  return text.replace(
    /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]|[\u{e0000}-\u{e0fff}]/gu,
    (character) => `\\u{${character.codePointAt(0).toString(16)}}`,
  );
}
