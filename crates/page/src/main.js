// The page: who is logged in, the list of jobs, and the job that the address names.

import * as address from "./address.js";
import { logOut, onLoggedOut, whoAmI } from "./api.js";
import { Band, setTitle } from "./band.js";
import { element, say, setText } from "./dom.js";
import { JobList } from "./job_list.js";
import { JobView } from "./job_view.js";
import { loginForm, restoreAddress } from "./login.js";
import { Overview } from "./overview.js";
import { StartForm } from "./start_form.js";

const main = document.getElementById("main");
const logOutButton = document.getElementById("log-out");

// The parts of the page after the login; null before.
let parts = null;

async function start() {
  try {
    const person = await whoAmI();
    restoreAddress();
    show(person);
  } catch (error) {
    if (error.status === 401) {
      askForToken();
    } else {
      say(error.message, true);
      setTimeout(start, 2000);
    }
  }
}

function show(person) {
  setText(document.getElementById("caller"), `${person.caller} (${person.role})`);
  logOutButton.hidden = !person.by_token;
  const list = new JobList(person);
  const band = new Band(person);
  const startForm = new StartForm(person);
  const side = element("div", { className: "side" }, startForm.element, list.element);
  const detail = element("div", { className: "detail-pane" });
  parts = { person, list, band, detail, view: null };
  main.replaceChildren(band.element, element("div", { className: "panes" }, side, detail));
  showJob(address.current());
}

// Shows the job of the address, or the overview.
function showJob(wanted) {
  if (!parts) return;
  document.body.classList.toggle("has-job", wanted.job !== null);
  parts.list.show(wanted);
  parts.band.show(wanted);
  if (parts.view && (parts.view.jobId ?? null) === wanted.job) {
    parts.view.showLines(wanted.lines);
    return;
  }
  parts.view?.close();
  parts.view = wanted.job === null ? new Overview() : new JobView(wanted.job, parts.person, wanted.lines);
  parts.detail.replaceChildren(parts.view.element);
  parts.view.focus();
  setTitle(wanted.job === null ? "sshjobs" : `${wanted.job} – sshjobs`);
}

function close() {
  parts?.view?.close();
  parts?.list.close();
  parts?.band.close();
  parts = null;
}

function askForToken() {
  close();
  setText(document.getElementById("caller"), "");
  logOutButton.hidden = true;
  const login = loginForm(start);
  main.replaceChildren(login.form);
  login.focus();
}

onLoggedOut(() => {
  if (!parts) return;
  askForToken();
  say("The login has expired: log in again", true);
});

logOutButton.addEventListener("click", () =>
  logOut().then(
    () => {
      askForToken();
      say("Logged out");
    },
    (error) => say(error.message, true),
  ),
);

address.onChange(showJob);
start();
