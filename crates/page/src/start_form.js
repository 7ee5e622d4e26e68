// Starts a job from a command template of the policy.

import * as address from "./address.js";
import { call } from "./api.js";
import { attempt, element, field, form, mayAct, problemPlace, say } from "./dom.js";

export class StartForm {
  #host = element("select", { required: true });
  #template = element("select", { required: true });
  #parameters = element("div", { className: "parameters" });
  #hint = element("p", { className: "hint" });
  #problem = problemPlace();
  #hosts = [];
  #templates = new Map();

  constructor(person) {
    const made = form(
      () => this.#start(),
      {},
      element("label", { className: "field" }, element("span", {}, "Template"), this.#template),
      element("label", { className: "field" }, element("span", {}, "Host"), this.#host),
      this.#parameters,
      this.#hint,
      element("button", { type: "submit" }, "Start"),
      this.#problem,
    );
    this.element = element(
      "details",
      { className: "start", hidden: true },
      element("summary", {}, "Start from a template"),
      made,
    );
    this.#template.addEventListener("change", () => this.#showTemplate());
    if (mayAct(person)) this.#load();
  }

  // Shows the form if there are templates that the caller may use.
  async #load() {
    const reply = await call("hosts", {}).catch(({ message }) => say(message, true));
    if (!reply?.templates?.length) return;
    this.#hosts = reply.hosts;
    this.#templates = new Map(reply.templates.map((template) => [template.name, template]));
    this.#template.replaceChildren(...[...this.#templates.keys()].map((name) => new Option(name)));
    this.#showTemplate();
    this.element.hidden = false;
  }

  #showTemplate() {
    const template = this.#templates.get(this.#template.value);
    const hosts = this.#hosts.filter((host) => host.templates?.includes(template.name));
    this.#host.replaceChildren(...hosts.map((host) => new Option(host.name)));
    const parameters = Object.entries(template.params ?? {});
    this.#parameters.replaceChildren(
      ...parameters.map(([name, accepted]) => field(name, { name, placeholder: accepted, title: accepted }).label),
    );
    const asks = template.approval ? " A person has to approve it." : "";
    this.#hint.textContent = `${template.description ?? template.command}.${asks}`;
  }

  #start() {
    return attempt(this.#problem, async () => {
      const inputs = this.#parameters.querySelectorAll("input");
      // An empty field is a parameter that is omitted: it may have a default.
      const filled = [...inputs].filter((input) => input.value !== "");
      const request = { host: this.#host.value, template: this.#template.value };
      if (filled.length > 0) request.params = Object.fromEntries(filled.map(({ name, value }) => [name, value]));
      say(this.#templates.get(request.template).approval ? "Waiting for an approval…" : "Starting… A rule may ask for an approval first.");
      const reply = await call("spawn", request);
      say(`${reply.job_id} is started`);
      address.go({ job: reply.job_id });
    });
  }
}
