// Buttons and forms that change a job: answer, signal, forget.

import * as address from "./address.js";
import { call } from "./api.js";
import { attempt, button, element, field, form, problemPlace, say } from "./dom.js";
import { isRunning, stateInWords } from "./format.js";

const SIGNALS = [
  ["Interrupt", "INT", "Send INT, as Ctrl-C does"],
  ["Terminate", "TERM", "Send TERM: the job may clean up"],
  ["Kill", "KILL", "Send KILL: the job can't prevent it"],
];

// Buttons for a job that the caller may change.
export class Actions {
  #signals;
  #forget;
  #problem = problemPlace();

  constructor(jobId) {
    this.jobId = jobId;
    this.#signals = SIGNALS.map(([name, signal, title]) =>
      button(name, () => this.#send(name, signal), { title, className: signal === "KILL" ? "danger" : "" }),
    );
    this.#forget = button("Forget", () => this.#forgetJob(), { className: "forget danger", title: "Delete the job and its output" });
    // Hidden until the job is known: nothing can be done to one that does not exist.
    this.element = element("div", { className: "actions", hidden: true }, ...this.#signals, this.#forget, this.#problem);
  }

  update(job) {
    this.element.hidden = false;
    const runs = isRunning(job);
    for (const signal of this.#signals) signal.hidden = !runs;
    this.#forget.hidden = runs;
  }

  #send(name, signal) {
    if (signal === "KILL" && !confirm(`Kill ${this.jobId}? It can't clean up.`)) return undefined;
    return attempt(this.#problem, async () => {
      const reply = await call("signal", { job_id: this.jobId, signal });
      // If the person has left or forgotten the job, a newer message stays.
      if (!this.element.isConnected) return;
      const isDelivered = reply.delivered_via !== "none";
      say(isDelivered ? `${name}: ${signal} sent, ${stateInWords(reply)}` : `${name}: no process is left`);
    });
  }

  #forgetJob() {
    if (!confirm(`Forget ${this.jobId}? Its output is deleted.`)) return undefined;
    return attempt(this.#problem, async () => {
      await call("forget", { job_id: this.jobId });
      // If the person has left the job, another one is shown.
      if (!this.element.isConnected) return;
      say(`${this.jobId} is forgotten`);
      address.go({ job: null });
    });
  }
}

// The field in which a person answers a job that waits for input.
export class AnswerForm {
  #answer = field("Answer", { name: "answer" });
  #hint = element("span", { className: "hint" });
  #problem = problemPlace();
  #isAwaiting = false;
  #isSecret = false;
  #isOver = false;
  // Number of the newest question to the host, whose reply counts.
  #question = 0;

  constructor(jobId) {
    this.jobId = jobId;
    this.element = form(
      () => this.#send(),
      { className: "answer", hidden: true },
      this.#answer.label,
      element("button", { type: "submit" }, "Send"),
      this.#hint,
      this.#problem,
    );
  }

  update(job, awaitsInput) {
    // Before the job is known, it can't be said whether the answer is a secret.
    const isAwaiting = awaitsInput && job.host !== undefined;
    const beginsToWait = isAwaiting && !this.#isAwaiting;
    this.#isAwaiting = isAwaiting;
    // Text that a person is typing stays.
    const isInUse = this.#answer.input.value !== "" && isRunning(job);
    this.element.hidden = !isAwaiting && !isInUse;
    if (beginsToWait) this.#lookForSecret(job);
    this.#isOver = job.host !== undefined && !isRunning(job);
    if (this.#isOver) this.#answer.input.value = "";
  }

  // A program that turns the terminal's echo off asks for a secret. On a terminal, each answer is treated as a secret
  // until the host reports that echo is on.
  async #lookForSecret(job) {
    const question = ++this.#question;
    this.#treatAsSecret(job.pty === true);
    if (!job.pty) return;
    try {
      const reply = await call("jobs", { job_id: this.jobId, detail: "processes" });
      // The reply may be about a prompt that has been answered, and the next one may ask for a secret.
      const isCurrent = question === this.#question;
      const terminal = reply.jobs[0]?.processes?.terminal;
      if (!isCurrent || !terminal) return;
      if (terminal.echo) this.#treatAsSecret(false);
      // A menu reads single keys. So do some programs that ask for a password, so that the answer stays masked.
      else if (!terminal.lines) this.#hint.textContent = "The job reads single keys, as a menu does: its screen takes them.";
    } catch {
      // Without a reply, for whatever reason, the answer stays masked.
    }
  }

  #treatAsSecret(isSecret) {
    this.#isSecret = isSecret;
    this.#answer.input.classList.toggle("masked", isSecret);
    this.#hint.textContent = isSecret
      ? "The job waits for a secret: it is not shown, and not logged."
      : "The job waits for input.";
  }

  #send() {
    return attempt(this.#problem, async () => {
      const data = this.#answer.input.value;
      await call("write", { job_id: this.jobId, data, newline: true, secret: this.#isSecret });
      this.#answer.input.value = "";
      this.element.hidden = true;
      // The next prompt is a new one, also if the job never seemed to stop waiting.
      this.#isAwaiting = false;
      this.#question++;
      // The job may have ended because of it, and that message stays.
      if (!this.#isOver) say("The answer is sent");
    });
  }
}
