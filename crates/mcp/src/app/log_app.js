// The output of one job, live, in a client that shows MCP Apps. The result of the tool call says which job.

import { checkBox, element, say, setText } from "./dom.js";
import { Finder } from "./finder.js";
import { Folds } from "./folds.js";
import { count, isRunning, stateClass, stateInWords } from "./format.js";
import { call, connect, resize, textOf } from "./api.js";
import { LogView } from "./log_view.js";

const HEIGHT = 420;
// Most lines and bytes of one call.
const NEWEST_LINES = 200;
const PAGE_BYTES = 262_144;
// How long a call waits for output.
const WAIT_MS = 20_000;
// Pause between two calls, so that a flood costs little, and after a failed one.
const PAUSE_MS = 250;
const RETRY_MS = 3_000;
// Failed calls in a row after which a person has to ask for another. A client may ask the person for each.
const MOST_FAILURES = 3;

const RECORDS = { format: "records", render: "spans", max_bytes: PAGE_BYTES };

class JobLog {
  #state = element("span", { className: "state" });
  #position = element("span", { className: "hint" });
  #again = element("button", { type: "button", hidden: true }, "Try again");
  #first = 1;
  #total = 0;
  #isClosed = false;

  constructor(jobId, command) {
    this.jobId = jobId;
    // Groups are not looked for: each call may be one that the client asks the person about.
    this.folds = new Folds(jobId, () => this.log.refold());
    this.log = new LogView((first, last, signal) => this.#load(first, last, signal), this.folds, {
      follow: (isFollowing) => (this.follow.input.checked = isFollowing),
      choose: (lineNo) => this.log.show({ first: lineNo, last: lineNo }),
      error: (error) => say(error.message, true),
    });
    const range = () => ({ first: this.#first, last: this.#total });
    this.finder = new Finder(jobId, this.log, { range, leave: () => this.log.log.focus() }, false);
    this.follow = checkBox("Follow", true, (isChecked) => this.log.follow(isChecked));
    this.element = element(
      "article",
      { className: "job", "aria-label": `Job ${jobId}` },
      element("header", {}, element("h1", {}, jobId), this.#state, this.#position, commandLine(command)),
      this.#toolbar(),
      element("div", { className: "output" }, this.log.element),
    );
    this.#follow();
  }

  close() {
    this.#isClosed = true;
    this.finder.close();
    this.log.close();
  }

  #toolbar() {
    const option = (label, name) => checkBox(label, false, (isSet) => this.log.setOption(name, isSet)).label;
    const options = [this.follow.label, option("Time", "time"), option("Wrap", "wrap")];
    return element("div", { className: "toolbar" }, this.finder.element, ...options, this.#again);
  }

  // Reads the newest lines until the job has ended.
  async #follow(from = 0) {
    let [cursor, failures] = [from, 0];
    this.#again.hidden = true;
    while (!this.#isClosed) {
      try {
        const newest = { since_line_no: cursor, max_lines: NEWEST_LINES, keep: "last", wait_ms: WAIT_MS };
        const reply = await call("tail", { job_id: this.jobId, ...newest, ...RECORDS });
        if (this.#isClosed) return;
        [cursor, failures] = [reply.last_line_no, 0];
        this.#update(reply);
        if (!isRunning(reply) && !reply.has_more) return;
        await pause(PAUSE_MS);
      } catch (error) {
        say(error.message, true);
        failures += 1;
        if (failures === MOST_FAILURES) {
          this.#again.hidden = false;
          this.#again.onclick = () => this.#follow(cursor);
          return;
        }
        await pause(RETRY_MS);
      }
    }
  }

  #update(reply) {
    [this.#first, this.#total] = [reply.first_available_line_no ?? 1, reply.total_lines];
    const partial = Object.entries(reply.partial ?? {}).map(([stream, text]) => ({ stream, text }));
    this.log.update({ first: this.#first, total: this.#total, records: reply.records ?? [], partial });
    setText(this.#position, `${count(this.#total)} ${this.#total === 1 ? "line" : "lines"}`);
    setText(this.#state, reply.awaiting_input ? "waits for input" : stateInWords(reply));
    this.#state.className = `state ${stateClass(reply)}`;
    if (!isRunning(reply)) say(`${this.jobId}: ${stateInWords(reply)}`);
  }

  async #load(first, last, signal) {
    const lines = { since_line_no: first - 1, max_lines: last - first + 1 };
    const reply = await call("tail", { job_id: this.jobId, ...lines, ...RECORDS }, signal);
    return reply.records;
  }
}

function commandLine(command) {
  return command ? element("code", { className: "command" }, command) : null;
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

const main = document.getElementById("main");
let shown = null;
let command = "";

function showNote(text) {
  shown?.close();
  shown = null;
  main.replaceChildren(element("p", { className: "note" }, text));
}

function showJob(result) {
  const jobId = result.structuredContent?.job_id;
  if (!jobId) {
    showNote(textOf(result) || "The call has started no job.");
    return;
  }
  shown?.close();
  shown = new JobLog(jobId, command);
  main.replaceChildren(shown.element);
}

showNote("The job is being started…");
await connect("sshjobs", {
  input: (toolArguments) => (command = toolArguments.command ?? ""),
  result: showJob,
  cancelled: (reason) => showNote(`The call was cancelled${reason ? `: ${reason}` : "."}`),
  context: (context) => {
    if (context.theme) document.documentElement.style.colorScheme = context.theme;
  },
  close: () => shown?.close(),
});
resize(HEIGHT);
