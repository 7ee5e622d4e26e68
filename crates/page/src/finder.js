// Finds lines by pattern with the server's search, forwards and backwards.

import { call } from "./api.js";
import { attempt, button, checkBox, element, form, problemPlace, say, setText } from "./dom.js";
import { count } from "./format.js";
import { MatchingLines } from "./matching_lines.js";

// Lines that a step back searches first. Each further step doubles it.
const FIRST_STEP = 2_000;
const LARGEST_STEP = 500_000;
const MOST_MATCHES = 1_000;
// Lines that look like an error: the words that the server looks for in the output of a failed job.
const ERROR = "\\b(error|fatal|failed|panic|panicked|traceback|undefined)\\b";

export class Finder {
  #isRegex = checkBox("Regex", false, () => {});
  // Which of the matches is shown: "2 of 41".
  #position = element("span", { className: "hint", "aria-live": "polite" });
  #problem = problemPlace();
  // All matches of the pattern, for the position; null before the first search.
  #matches = null;
  #request = null;
  // The line of the newest match; null if there is none.
  #at = null;
  #pattern = "";

  // `log` is a LogView. `on.range()` says which lines there are; `on.leave()` is called when a person has found
  // something from the field: the next keys are for the lines. `counts` says whether all matches are counted, which
  // takes further calls.
  constructor(jobId, log, on, counts) {
    this.jobId = jobId;
    this.log = log;
    this.range = on.range;
    this.leave = on.leave;
    this.counts = counts;
    this.field = element("input", {
      type: "search",
      "aria-label": "Search output",
      placeholder: "Search output",
      spellcheck: false,
      autocomplete: "off",
    });
    this.element = form(
      () => this.#leaveAfter(this.next()),
      { className: "finder", role: "search" },
      this.field,
      this.#isRegex.label,
      button("↑", () => this.previous(), { "aria-label": "Previous match", title: "Previous match (N)" }),
      button("↓", () => this.next(), { "aria-label": "Next match", title: "Next match (n)" }),
      this.#position,
      button("First error", () => this.#leaveAfter(this.firstError()), { title: "First line that looks like an error (e)" }),
      this.#problem,
    );
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        this.#leaveAfter(this.previous());
      }
    });
  }

  async #leaveAfter(search) {
    const found = await search;
    if (found !== null) this.leave();
  }

  close() {
    this.#request?.abort();
    this.#matches?.close();
  }

  // Searches for lines that look like an error, from the first line on. Next match shows the next one.
  firstError() {
    this.field.value = ERROR;
    this.#isRegex.input.checked = true;
    return this.#find((pattern, signal) => {
      const { first, last } = this.range();
      return this.#firstMatch(pattern, first - 1, last, signal);
    });
  }

  next() {
    return this.#find(async (pattern, signal) => {
      const { first, last } = this.range();
      const from = this.#at ?? this.log.visible().first - 1;
      return (
        (await this.#firstMatch(pattern, from, last, signal)) ??
        // From the start, as editors do.
        (await this.#firstMatch(pattern, first - 1, from, signal))
      );
    });
  }

  previous() {
    return this.#find(async (pattern, signal) => {
      const { first, last } = this.range();
      const before = this.#at ?? this.log.visible().last + 1;
      return (
        (await this.#lastMatch(pattern, first, before, signal)) ??
        (await this.#lastMatch(pattern, before, last + 1, signal))
      );
    });
  }

  // Returns the line that was found; null if there is none.
  async #find(search) {
    const pattern = this.#regex();
    this.#request?.abort();
    if (pattern === "") {
      this.#pattern = "";
      this.#countMatches("");
      this.#show(null, null);
      this.#problem.hidden = true;
      say("");
      return null;
    }
    // A new pattern starts at the visible lines.
    if (pattern !== this.#pattern) {
      this.#at = null;
      this.#countMatches(pattern);
    }
    this.#pattern = pattern;
    this.#request = new AbortController();
    const { signal } = this.#request;
    let found = null;
    const isDone = await attempt(this.#problem, async () => {
      say("Searching…");
      found = await search(pattern, signal);
      this.#show(found, asJavaScript(pattern));
      say(found === null ? "No match" : `Match in line ${count(found)}`);
      return true;
    });
    // If another search has begun, its message stays.
    if (!isDone && !signal.aborted) say("");
    return found;
  }

  #show(lineNo, pattern) {
    this.#at = lineNo;
    this.log.showMatch(lineNo, pattern);
    // The output may have grown since the last search.
    this.#matches?.searchTo(this.range().last);
    this.#showPosition();
  }

  // Starts counting the matches of a new pattern.
  #countMatches(pattern) {
    this.#matches?.close();
    this.#matches = null;
    if (pattern === "" || !this.counts) return;
    const after = this.range().first - 1;
    this.#matches = new MatchingLines(this.jobId, pattern, after, () => this.#showPosition());
  }

  #showPosition() {
    setText(this.#position, this.#matches === null ? "" : this.#positionInWords());
  }

  // "2 of 41"; "2 of 41…" while it counts; "41 so far" if the search has not reached this match.
  #positionInWords() {
    const { matches, searchedTo, isComplete, isFull } = this.#matches;
    const number = count(matches.length);
    if (this.#at === null) return isComplete && matches.length === 0 ? "no match" : "";
    if (this.#at > searchedTo) return isFull ? `more than ${number} matches` : `${number} so far`;
    const suffix = isFull ? "+" : "…";
    return `${count(this.#matches.countUpTo(this.#at))} of ${number}${isComplete ? "" : suffix}`;
  }

  // The first match after a line, up to `last`.
  async #firstMatch(pattern, after, last, signal) {
    let cursor = after;
    while (cursor < last) {
      const reply = await this.#search(pattern, { after: cursor, last, matches: 1 }, signal);
      const found = reply.matches[0]?.line_no;
      if (found !== undefined) return found;
      if (!reply.has_more || reply.last_line_no <= cursor) return null;
      cursor = reply.last_line_no;
    }
    return null;
  }

  // The last match before a line, from `first`: searches spans that end there and grow.
  async #lastMatch(pattern, first, before, signal) {
    let [end, step] = [before, FIRST_STEP];
    while (end > first) {
      const start = Math.max(first, end - step);
      const found = await this.#lastMatchIn(pattern, start, end, signal);
      if (found !== null) return found;
      end = start;
      step = Math.min(step * 2, LARGEST_STEP);
    }
    return null;
  }

  // The last match in the lines from `start` to before `end`.
  async #lastMatchIn(pattern, start, end, signal) {
    let [cursor, last] = [start - 1, null];
    while (cursor < end - 1) {
      const range = { after: cursor, last: end - 1, matches: MOST_MATCHES };
      const reply = await this.#search(pattern, range, signal);
      last = reply.matches.at(-1)?.line_no ?? last;
      if (!reply.has_more || reply.last_line_no <= cursor) break;
      cursor = reply.last_line_no;
    }
    return last;
  }

  #search(pattern, { after, last, matches }, signal) {
    const request = {
      job_id: this.jobId,
      pattern,
      since_line_no: after,
      until_line_no: last,
      context: 0,
      max_matches: matches,
      max_bytes: 262_144,
    };
    return call("search", request, signal);
  }

  // Small letters match capitals, too, as in ripgrep's smart case.
  #regex() {
    const text = this.field.value;
    if (text === "") return "";
    const pattern = this.#isRegex.input.checked ? text : text.replace(/[\\^$.*+?()[\]{}|#&~-]/g, "\\$&");
    return text === text.toLowerCase() ? `(?i)${pattern}` : pattern;
  }
}

// A pattern of the server for the browser, which marks its text. Their syntaxes differ: null if the browser
// does not understand it.
function asJavaScript(pattern) {
  const ignoresCase = pattern.startsWith("(?i)");
  try {
    return new RegExp(ignoresCase ? pattern.slice(4) : pattern, ignoresCase ? "i" : "");
  } catch {
    return null;
  }
}
