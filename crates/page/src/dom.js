// Makes elements. Text is only ever set as text, so that no output of a host becomes HTML.

// An element with properties and children. `on` has listeners by event; names with a dash and `role`
// are attributes; everything else is a property. Children are elements or text.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (key.includes("-") || key === "role") {
      made.setAttribute(key, value);
    } else {
      made[key] = value;
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(text, onClick, properties = {}) {
  return element("button", { type: "button", on: { click: onceAtATime(onClick) }, ...properties }, text);
}

// A form that performs an action when it is submitted, and never sends itself.
export function form(onSubmit, properties, ...children) {
  const made = element("form", properties, ...children);
  const perform = onceAtATime(onSubmit);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    perform();
  });
  return made;
}

// The same action, which a second click does not start again while it is in progress.
function onceAtATime(action) {
  let isInProgress = false;
  return async () => {
    if (isInProgress) return;
    isInProgress = true;
    try {
      await action();
    } finally {
      isInProgress = false;
    }
  };
}

// A text field with its label before it.
export function field(label, properties = {}) {
  const input = element("input", { type: "text", autocomplete: "off", spellcheck: false, ...properties });
  return { input, label: element("label", { className: "field" }, element("span", {}, label), input) };
}

// A check box with its label after it.
export function checkBox(label, isChecked, onChange) {
  const input = element("input", { type: "checkbox", checked: isChecked });
  input.addEventListener("change", () => onChange(input.checked));
  return { input, label: element("label", { className: "check" }, input, label) };
}

// Sets a text only if it differs: screen readers and selections notice each change.
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// Shows the result of an action, or an error, in the status line.
export function say(text, isError = false) {
  const status = document.getElementById("status");
  setText(status, text);
  status.classList.toggle("error", isError);
}

// A place beside a button or field, for the error of its action.
export function problemPlace() {
  return element("p", { className: "problem", role: "alert", hidden: true });
}

// Performs an action of the person. If it fails, the place says why.
export async function attempt(place, action) {
  place.hidden = true;
  try {
    return await action();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    setText(place, error.message);
    place.hidden = false;
    return undefined;
  }
}

// Whether a person may start, answer and end jobs.
export function mayAct({ role }) {
  return role === "run" || role === "admin";
}

// Shows a notification of the browser, if the person wants them and looks elsewhere.
export function notify(title, body) {
  const isWanted = globalThis.Notification?.permission === "granted" && document.hidden;
  if (isWanted) new Notification(title, { body });
}
