// The lines of the audit log about a job.

import { get, jobPath } from "./api.js";
import { attempt, element, problemPlace } from "./dom.js";
import { dateAndTime } from "./format.js";

export class AuditLog {
  #lines = element("div", {});
  #problem = problemPlace();

  constructor(jobId) {
    this.jobId = jobId;
    this.element = element("details", { className: "audit" }, element("summary", {}, "Audit log"), this.#problem, this.#lines);
    this.element.addEventListener("toggle", () => this.element.open && this.#load());
  }

  #load() {
    return attempt(this.#problem, async () => {
      const { lines } = await get(jobPath(this.jobId, "audit"));
      const items = lines.map(({ time, text }) =>
        element("li", {}, element("time", { dateTime: time }, dateAndTime(time)), " ", text),
      );
      this.#lines.replaceChildren(items.length > 0 ? element("ol", {}, ...items) : "No line is about this job.");
    });
  }
}
