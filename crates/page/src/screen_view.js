// The screen of a terminal job. Keys go to the job, for a caller who may write.

import { call, get, jobPath } from "./api.js";
import { attempt, element, problemPlace, say } from "./dom.js";
import { styledSpan } from "./styled_span.js";

// Longest wait of the server for a newer screen.
const WAIT_MS = 20_000;
const AFTER_ERROR_MS = 2_000;

// Names of the keys that `write` knows, by those of browsers.
const KEYS = {
  Enter: "enter",
  Escape: "esc",
  Backspace: "backspace",
  Tab: "tab",
  Delete: "delete",
  Insert: "insert",
  ArrowUp: "up",
  ArrowDown: "down",
  ArrowLeft: "left",
  ArrowRight: "right",
  Home: "home",
  End: "end",
  PageUp: "pageup",
  PageDown: "pagedown",
};

export class ScreenView {
  #closing = new AbortController();
  #rows = [];
  // Keys that are not sent yet, in order: {text} or {key}.
  #pressed = [];
  #isSending = false;
  #problem = problemPlace();

  // `on.isRunning()` says whether the screen can still change; `on.leave()` is called when a person takes
  // the keyboard back.
  constructor(jobId, mayWrite, on) {
    this.jobId = jobId;
    this.isRunning = on.isRunning;
    this.onLeave = on.leave;
    this.text = element("pre", {});
    this.pane = element(
      "div",
      {
        className: "screen",
        role: mayWrite ? "application" : "region",
        tabIndex: mayWrite ? -1 : 0,
        "aria-label": "Terminal screen",
      },
      this.text,
    );
    const help = mayWrite
      ? "Keys go to the job while the screen has the focus. Shift+Escape leaves it."
      : "You may read this screen, but not write to it.";
    this.element = element(
      "div",
      { className: "screen-frame" },
      this.pane,
      this.#problem,
      element("p", { className: "hint" }, help),
    );
    if (mayWrite) this.#takeKeys();
    this.#follow();
  }

  focus() {
    this.pane.focus({ preventScroll: true });
  }

  // A text field that is not seen has the focus, so that input methods and keyboards of phones work, too.
  #takeKeys() {
    const keys = element("textarea", {
      className: "keys",
      "aria-label": "Keys for the terminal",
      autocapitalize: "off",
      autocomplete: "off",
      spellcheck: false,
    });
    this.pane.append(keys);
    this.pane.addEventListener("focus", () => keys.focus({ preventScroll: true }));
    this.pane.addEventListener("click", () => {
      // A selection stays, so that it can be copied.
      if (String(getSelection()) === "") keys.focus({ preventScroll: true });
    });
    keys.addEventListener("keydown", (event) => this.#press(event));
    const takeText = () => {
      if (keys.value === "") return;
      this.#pressed.push({ text: keys.value });
      keys.value = "";
      this.#send();
    };
    // A text that is still being composed comes with the event at its end.
    keys.addEventListener("input", (event) => event.isComposing || takeText());
    keys.addEventListener("compositionend", takeText);
  }

  close() {
    this.#closing.abort();
  }

  // Shows each newer screen until the job ends or the view is closed.
  async #follow() {
    let version = null;
    while (!this.#closing.signal.aborted) {
      const query = version === null ? "" : `&since_version=${version}&wait_ms=${WAIT_MS}`;
      try {
        const screen = await get(jobPath(this.jobId, `screen?render=spans${query}`), this.#closing.signal);
        const isLast = !this.isRunning() && screen.version === version;
        version = screen.version;
        this.#show(screen);
        if (isLast) return;
      } catch (error) {
        if (error.name === "AbortError") return;
        const isFinal = error.status >= 400 && error.status < 500 && error.status !== 429;
        if (isFinal) {
          say(error.message, true);
          return;
        }
        await pause(AFTER_ERROR_MS);
      }
    }
  }

  #show(screen) {
    this.#rows.length = Math.min(this.#rows.length, screen.size.rows);
    for (const { row, spans } of screen.styled_rows ?? []) this.#rows[row - 1] = spans;
    const { row, col, hidden } = screen.cursor;
    const lines = Array.from({ length: screen.size.rows }, (_, index) => {
      const spans = this.#rows[index] ?? [];
      return index === row - 1 && !hidden ? withCursor(spans, col - 1) : spans.map(styledSpan);
    });
    this.text.replaceChildren(...lines.flatMap((line) => [...line, "\n"]));
    // The style sheet fits as many columns into the pane.
    this.pane.style.setProperty("--columns", screen.size.cols);
    if (screen.title) this.pane.title = screen.title;
  }

  #press(event) {
    if (event.isComposing || event.metaKey) return;
    if (event.key === "Escape" && event.shiftKey) {
      this.onLeave();
      say("Keys go to the page again");
      return;
    }
    // The browser's own: copy a selection, and paste.
    const isCopy = event.ctrlKey && event.key === "c" && String(getSelection()) !== "";
    if (isCopy || (event.ctrlKey && event.key === "v")) return;
    // Characters arrive as input.
    const pressed = keyOf(event);
    if (!pressed) return;
    event.preventDefault();
    this.#pressed.push(pressed);
    this.#send();
  }

  // One call at a time, so that keys arrive in order.
  async #send() {
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#pressed.length > 0) {
      const request = { job_id: this.jobId, data: "", keys: [] };
      while (this.#pressed[0]?.text !== undefined) request.data += this.#pressed.shift().text;
      while (this.#pressed[0]?.key !== undefined) request.keys.push(this.#pressed.shift().key);
      if (request.data === "") delete request.data;
      const reply = await attempt(this.#problem, () => call("write", request));
      // Later keys make no sense without these.
      if (reply === undefined) this.#pressed = [];
    }
    this.#isSending = false;
  }
}

// The name of a key that is not a character; null for characters.
function keyOf({ key, ctrlKey, altKey, shiftKey }) {
  if (key === "Tab" && shiftKey) return { key: "backtab" };
  if (KEYS[key]) return { key: KEYS[key] };
  if (/^F([1-9]|1[0-2])$/.test(key)) return { key: key.toLowerCase() };
  if ([...key].length !== 1) return null;
  if (ctrlKey && !altKey) return key === " " ? { key: "ctrl+space" } : { key: `ctrl+${key.toLowerCase()}` };
  // With both, it is AltGr, which makes other characters.
  return altKey && !ctrlKey ? { key: `alt+${key}` } : null;
}

// A row with its cursor marked. Columns of wide characters count twice on the host, and once here.
function withCursor(spans, column) {
  const parts = [];
  let at = 0;
  for (const span of spans) {
    const characters = [...span.text];
    const cursor = column - at;
    at += characters.length;
    if (cursor < 0 || cursor >= characters.length) {
      parts.push(styledSpan(span));
      continue;
    }
    const piece = (from, to) => styledSpan({ ...span, text: characters.slice(from, to).join("") });
    parts.push(piece(0, cursor), cursorOn(characters[cursor]), piece(cursor + 1));
  }
  if (at <= column) parts.push(" ".repeat(column - at), cursorOn(" "));
  return parts;
}

function cursorOn(character) {
  return element("span", { className: "cursor" }, character);
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
