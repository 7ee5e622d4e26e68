// One job: its state, its output or screen, and the buttons that change it.

import * as address from "./address.js";
import { Actions, AnswerForm } from "./actions.js";
import { call, jobPath, Updates } from "./api.js";
import { AuditLog } from "./audit_log.js";
import { attempt, button, checkBox, element, mayAct, problemPlace, say, setText } from "./dom.js";
import { Finder } from "./finder.js";
import { FleetTable } from "./fleet_table.js";
import { Folds } from "./folds.js";
import { count, dateAndTime, duration, isRunning, stateClass, stateInWords } from "./format.js";
import { JobFacts } from "./job_facts.js";
import { LogView } from "./log_view.js";
import { Processes } from "./processes.js";
import { ScreenView } from "./screen_view.js";

// Most bytes of one page of lines.
const PAGE_BYTES = 262_144;
// How often the figures of a running job are asked for, in milliseconds.
const FIGURES_INTERVAL = 10_000;
// Most lines that are copied at once.
const MOST_COPIED = 10_000;

export class JobView {
  #job = null;
  #state = element("span", { className: "state" });
  #detail = element("p", { className: "hint" });
  #command = element("code", { className: "command" });
  #position = element("span", { className: "hint" });
  // The lines that are chosen, with their address.
  #chosen = element("span", { className: "chosen-lines", hidden: true });
  #chosenLink = element("a", {});
  #problem = problemPlace();
  #screen = null;
  // The table of hosts; null for a job that is not a fleet.
  #fleet = null;
  #first = 1;
  #total = 0;
  // The lines of the address, as text; null if it has none.
  #linked = null;
  // The timer of the next question for figures.
  #figures = undefined;
  #isClosed = false;
  #isGone = false;

  constructor(jobId, person, lines) {
    this.jobId = jobId;
    this.mayAct = mayAct(person);
    this.folds = new Folds(jobId, () => this.#showFolds());
    this.log = new LogView((first, last, signal) => this.#load(first, last, signal), this.folds, {
      follow: (isFollowing) => (this.follow.input.checked = isFollowing),
      choose: (lineNo, extends_) => this.#choose(lineNo, extends_),
      error: (error) => this.#showFailure(error),
    });
    const range = () => ({ first: this.#first, last: this.#total });
    this.finder = new Finder(jobId, this.log, { range, leave: () => this.#focusLines() }, true);
    this.follow = checkBox("Follow", true, (isChecked) => this.log.follow(isChecked));
    this.actions = new Actions(jobId);
    this.answer = new AnswerForm(jobId);
    this.facts = new JobFacts(jobId);
    this.processes = new Processes(jobId);
    this.processes.element.hidden = true;
    this.auditLog = new AuditLog(jobId);
    this.auditLog.element.hidden = true;
    this.output = element("div", { className: "output" }, this.log.element);
    this.toFold = button("Fold groups", () => this.folds.foldAll(!this.folds.areAllFolded), { hidden: true });
    this.toScreen = button("Show screen", () => this.#showScreen(!this.#screen), { hidden: true });
    this.element = element(
      "article",
      { className: "job", "aria-label": `Job ${jobId}` },
      this.#head(),
      this.#toolbar(),
      this.output,
      this.mayAct ? this.answer.element : null,
      this.processes.element,
      this.auditLog.element,
    );
    this.element.addEventListener("keydown", (event) => this.#press(event));
    this.showLines(lines);
    this.#loadJob();
    this.updates = new Updates(jobId, {
      update: (reply) => this.#update(reply),
      end: (reply) => this.#end(reply),
      lost: () => say("The connection is lost: reconnecting", true),
      found: () => say("Connected again"),
      failed: (error) => this.#showFailure(error),
    });
  }

  #showFailure(error) {
    say(error.message, true);
    // Another person or process has forgotten it, or there was none. The stream of updates has only the code.
    const isGone = [404, 410].includes(error.status) || ["unknown_job", "expired_job"].includes(error.code);
    if (!isGone) return;
    this.#isGone = true;
    setText(this.#state, this.#job ? "forgotten" : "unknown");
    this.#state.className = "state failed";
    this.actions.element.hidden = true;
    this.answer.element.hidden = true;
    this.processes.element.hidden = true;
  }

  // Moves the focus to the output or the screen.
  focus() {
    if (this.#screen) this.#screen.focus();
    else this.log.log.focus({ preventScroll: true });
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#figures);
    this.updates.close();
    this.finder.close();
    this.folds.close();
    this.log.close();
    this.#screen?.close();
    this.#fleet?.close();
  }

  // Shows the lines of the address, if they have changed.
  showLines(lines) {
    const linked = lines ? `${lines.first}-${lines.last}` : null;
    if (linked === this.#linked) return;
    this.#linked = linked;
    this.log.show(lines);
    this.#showChosen(lines);
    if (lines) {
      this.follow.input.checked = false;
      this.#showScreen(false);
    }
  }

  #head() {
    return element(
      "header",
      {},
      element("a", { className: "back", href: address.linkTo({ job: null }) }, "All jobs"),
      element("h2", {}, this.jobId),
      this.#state,
      this.mayAct ? this.actions.element : null,
      this.#command,
      this.#detail,
      this.facts.element,
    );
  }

  #toolbar() {
    const option = (label, name) => checkBox(label, false, (isSet) => this.log.setOption(name, isSet)).label;
    return element(
      "div",
      { className: "toolbar" },
      this.finder.element,
      this.follow.label,
      option("Time", "time"),
      option("Wrap", "wrap"),
      this.toFold,
      this.toScreen,
      button("Copy", () => this.#copy(), { title: "Copy the chosen lines, or those that are visible" }),
      element(
        "a",
        { href: jobPath(this.jobId, "export?format=text"), download: `${this.jobId.replace("/", "-")}.txt` },
        "Download",
      ),
      this.#position,
      this.#chosenLines(),
      this.#problem,
    );
  }

  // The address of the chosen lines, with buttons that copy it and clear the choice.
  #chosenLines() {
    this.#chosen.append(
      this.#chosenLink,
      button("Copy link", () => this.#copyLink()),
      button("Clear", () => this.#clearChosen(), { title: "Choose no lines" }),
    );
    return this.#chosen;
  }

  #clearChosen() {
    address.go({ lines: null }, true);
    this.#focusLines();
  }

  #showChosen(lines) {
    this.#chosen.hidden = lines === null;
    if (lines === null) return;
    this.#chosenLink.href = address.linkTo({ lines });
    setText(this.#chosenLink, lines.first === lines.last ? `Line ${lines.first}` : `Lines ${lines.first} to ${lines.last}`);
  }

  #copyLink() {
    return attempt(this.#problem, async () => {
      await copy(this.#chosenLink.href);
      say("The link is copied");
    });
  }

  // Not in a fleet, where lines of different hosts alternate; so the job has to be known.
  #findGroups() {
    if (this.#job.host && !this.#job.members) this.folds.update(this.#first, this.#total);
  }

  #showFolds() {
    this.toFold.hidden = !this.folds.hasGroups;
    setText(this.toFold, this.folds.areAllFolded ? "Unfold groups" : "Fold groups");
    this.log.refold();
  }

  async #loadJob() {
    try {
      const reply = await call("jobs", { job_id: this.jobId, cached: true });
      if (this.#isClosed) return;
      this.#job = { ...this.#job, ...reply.jobs[0] };
      this.#findGroups();
      this.#showJob(this.#job.awaiting_input === true);
      this.#askForFiguresLater();
      // A link to lines shows them.
      if (this.#job.pty && isRunning(this.#job) && this.#linked === null) this.#showScreen(true);
    } catch (error) {
      if (error.name !== "AbortError") this.#showFailure(error);
    }
  }

  // Asks again for what no update tells: the use of GPUs while it runs, and then the files that it gives back.
  #askForFiguresLater() {
    const awaitsFiles = this.#job.fetch && !this.#job.fetched;
    const isAsked = isRunning(this.#job) ? this.#job.gpus : awaitsFiles;
    if (!isAsked) return;
    clearTimeout(this.#figures);
    this.#figures = setTimeout(() => this.#loadJob(), FIGURES_INTERVAL);
  }

  // Moves the focus to the lines, also if the screen is shown.
  #focusLines() {
    this.#showScreen(false);
    this.log.log.focus({ preventScroll: true });
  }

  #update(reply) {
    const { state, exit_status, exit_signal, reason, ended_at } = reply;
    const standing = { state, exit_status, exit_signal, reason, awaiting_input: reply.awaiting_input };
    this.#job = { ...this.#job, ...standing, ended_at: ended_at ?? this.#job?.ended_at };
    [this.#first, this.#total] = [reply.first_available_line_no ?? 1, reply.total_lines];
    const partial = Object.entries(reply.partial ?? {}).map(([stream, text]) => ({ stream, text }));
    this.log.update({
      first: this.#first,
      total: this.#total,
      records: reply.records ?? [],
      partial,
    });
    this.#findGroups();
    setText(this.#position, `${count(this.#total)} ${this.#total === 1 ? "line" : "lines"}`);
    this.#showJob(reply.awaiting_input === true);
  }

  #end(reply) {
    this.#update(reply);
    say(`${this.jobId}: ${stateInWords(reply)}`);
    this.#loadJob();
  }

  #showJob(isAwaiting) {
    const job = this.#job;
    if (!job?.state || this.#isGone) return;
    setText(this.#state, isAwaiting ? "waits for input" : stateInWords(job));
    this.#state.className = `state ${stateClass(job)}`;
    setText(this.#command, job.command ?? "");
    if (job.started_at) {
      const end = job.ended_at ?? Date.now();
      const age = `${isRunning(job) ? "for" : "took"} ${duration(end - job.started_at)}`;
      const parts = [job.host, job.caller, job.label, dateAndTime(job.started_at), age];
      setText(this.#detail, parts.filter(Boolean).join(" · "));
    }
    this.facts.update(job);
    this.actions.update(job);
    this.answer.update(job, isAwaiting);
    this.processes.update(job);
    this.auditLog.element.hidden = false;
    this.toScreen.hidden = !job.pty;
    if (job.members && !this.#fleet) {
      this.#fleet = new FleetTable(this.jobId);
      this.output.before(this.#fleet.element);
    }
  }

  // Records of some lines. The server answers with as many as fit into a page.
  async #load(first, last, signal) {
    const reply = await call(
      "tail",
      {
        job_id: this.jobId,
        since_line_no: first - 1,
        max_lines: last - first + 1,
        max_bytes: PAGE_BYTES,
        format: "records",
        render: "spans",
      },
      signal,
    );
    return reply.records;
  }

  // Shows the screen, or the lines.
  #showScreen(isWanted) {
    if (isWanted === Boolean(this.#screen)) return;
    this.#screen?.close();
    const hadFocus = this.output.contains(document.activeElement);
    const runs = () => isRunning(this.#job);
    const on = { isRunning: runs, leave: () => this.toScreen.focus() };
    this.#screen = isWanted ? new ScreenView(this.jobId, this.mayAct && runs(), on) : null;
    this.output.replaceChildren((this.#screen ?? this.log).element);
    if (hadFocus) this.focus();
    setText(this.toScreen, this.#screen ? "Show lines" : "Show screen");
  }

  // A click on a line's number chooses it; with Shift, the lines up to it.
  #choose(lineNo, extendsChoice) {
    const anchor = extendsChoice && this.log.chosen ? this.log.chosen.first : lineNo;
    const lines = { first: Math.min(anchor, lineNo), last: Math.max(anchor, lineNo) };
    this.log.chosen = lines;
    this.#linked = `${lines.first}-${lines.last}`;
    history.replaceState(null, "", address.linkTo({ lines }));
    this.#showChosen(lines);
    this.log.follow(false);
    this.follow.input.checked = false;
  }

  #copy() {
    return attempt(this.#problem, async () => {
      if (this.log.chosen === null) {
        const shown = this.log.shownRecords();
        await copy(shown.map((record) => `${record.text}\n`).join(""));
        say(`${count(shown.length)} lines are copied`);
        return;
      }
      const { first, last } = this.log.chosen;
      const end = Math.min(last, first + MOST_COPIED - 1);
      const texts = [];
      for (let next = first; next <= end; ) {
        const loaded = await this.#load(next, end, undefined);
        // Evicted lines are skipped, perhaps beyond the end.
        const records = loaded.filter((record) => record.line_no <= end);
        if (records.length === 0) break;
        texts.push(...records.map((record) => record.text));
        next = records.at(-1).line_no + 1;
      }
      await copy(texts.map((text) => `${text}\n`).join(""));
      const rest = end < last ? `, up to line ${count(end)}: Download has all` : "";
      say(`${count(texts.length)} lines are copied${rest}`);
    });
  }

  #press(event) {
    const isTyping = event.target.closest("input, select, textarea, .screen");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      this.finder.field.focus();
    } else if (event.key === "n") {
      this.finder.next();
    } else if (event.key === "N") {
      this.finder.previous();
    } else if (event.key === "f") {
      this.log.follow(true);
      this.follow.input.checked = true;
    } else if (event.key === "e") {
      this.finder.firstError();
    }
  }
}

async function copy(text) {
  if (!navigator.clipboard) {
    throw new Error("browsers copy only over TLS and on this machine: use Download, or select the text");
  }
  await navigator.clipboard.writeText(text);
}
