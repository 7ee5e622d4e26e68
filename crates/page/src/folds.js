// Groups of lines that a program has marked, and that a person can fold: `::group::TITLE` to `::endgroup::` as on
// GitHub, `##[group]TITLE` as on Azure, `section_start:TIME:NAME` to `section_end:TIME:NAME` as on GitLab.

import { MatchingLines } from "./matching_lines.js";

const MARKS = "^(::(end)?group::|##\\[(end)?group\\]|section_(start|end):[0-9]+:)";
const GROUP = /^(?:::group::|##\[group\])(?<title>.*)$/;
// GitLab's runner may print several on a line, and the title of the section after them.
const SECTION = /^section_(?<kind>start|end):\d+:(?<name>[\w.-]+)(?<options>\[[^\]]*\])? ?/;
// Maximum lines searched for marks, from the end.
const MOST_SEARCHED = 1_000_000;
const PAUSE_MS = 1_000;
const PAUSE_AFTER_ERROR_MS = 5_000;

export class Folds {
  // Groups by their first line. `last` is Infinity until their end is printed.
  #groups = new Map();
  // Groups that have no end yet, the innermost last.
  #open = [];
  // Ranges of lines that are hidden, in order; they don't overlap.
  #hidden = [];
  #marks = null;
  // Number of marks that were read.
  #read = 0;
  // The kept lines.
  #range = { first: 1, last: 0 };
  #timer = null;
  // The line that the person wants to see; null if there is none.
  #revealed = null;

  // `onChange` is called when groups are added, folded or unfolded.
  constructor(jobId, onChange) {
    this.jobId = jobId;
    this.onChange = onChange;
  }

  close() {
    clearTimeout(this.#timer);
    // No later call searches again.
    this.#timer = undefined;
    this.#marks?.close();
  }

  // Finds marks in new lines, at most once a second.
  update(first, last) {
    this.#range = { first, last };
    if (last > 0 && this.#timer === null) this.#search();
  }

  async #search() {
    const { first, last } = this.#range;
    if (this.#marks === null) {
      const after = Math.max(first - 1, last - MOST_SEARCHED);
      this.#marks = new MatchingLines(this.jobId, MARKS, after, () => this.#readMarks());
    }
    this.#timer = setTimeout(() => {}, PAUSE_MS);
    await this.#marks.searchTo(last);
    const { error, searchedTo, isFull } = this.#marks;
    // Undefined after the end of the page, and for a caller who may not search.
    if (this.#timer === undefined || isFull || error?.status === 403) {
      this.#timer = undefined;
      return;
    }
    this.#timer = setTimeout(
      () => {
        this.#timer = null;
        if (this.#range.last > searchedTo) this.#search();
      },
      error ? PAUSE_AFTER_ERROR_MS : PAUSE_MS,
    );
  }

  get hasGroups() {
    return this.#groups.size > 0;
  }

  get areAllFolded() {
    return [...this.#groups.values()].every((group) => group.isFolded);
  }

  // The group whose first line this is; undefined if there is none.
  groupAt(lineNo) {
    return this.#groups.get(lineNo);
  }

  toggle(lineNo) {
    const group = this.#groups.get(lineNo);
    if (!group) return;
    group.isFolded = !group.isFolded;
    this.#revealed = null;
    this.#change();
  }

  foldAll(areFolded) {
    for (const group of this.#groups.values()) group.isFolded = areFolded;
    this.#revealed = null;
    this.#change();
  }

  // Unfolds the groups that hide a line, also those that are found later.
  reveal(lineNo) {
    this.#revealed = lineNo;
    if (!this.#rangeOf(lineNo)) return;
    this.#unfoldRevealed();
    this.#change();
  }

  // The line that is `count` visible lines after (or, if negative, before) a line. The fractional part of the position
  // is kept.
  step(from, count) {
    if (this.#hidden.length === 0) return from + count;
    const target = from + count;
    const fraction = target - Math.floor(target);
    let left = Math.floor(target) - Math.floor(from);
    let line = this.#visible(Math.floor(from));
    for (; left > 0; left--) line = this.#after(line);
    for (; left < 0; left++) line = this.#visible(line - 1);
    return line + fraction;
  }

  // Up to `count` visible lines from `first` to `last`.
  linesFrom(first, last, count) {
    const lines = [];
    for (let line = this.#visible(first); line <= last && lines.length < count; line = this.#after(line)) {
      lines.push(line);
    }
    return lines;
  }

  // The next visible line.
  #after(line) {
    const range = this.#rangeOf(line + 1);
    return range ? range.last + 1 : line + 1;
  }

  // The line, or the first line of the folded group that hides it.
  #visible(line) {
    const range = this.#rangeOf(line);
    return range ? range.first - 1 : line;
  }

  // The hidden range that contains a line.
  #rangeOf(line) {
    let [low, high] = [0, this.#hidden.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      const range = this.#hidden[middle];
      if (line < range.first) high = middle - 1;
      else if (line > range.last) low = middle + 1;
      else return range;
    }
    return undefined;
  }

  #readMarks() {
    const { matches, isFull } = this.#marks;
    if (this.#read === matches.length) return;
    for (; this.#read < matches.length; this.#read++) this.#readLine(matches[this.#read]);
    if (isFull) {
      // Their ends are not looked for any more.
      for (const group of this.#open.splice(0)) this.#groups.delete(group.first);
    }
    this.#unfoldRevealed();
    this.#change();
  }

  #readLine({ line_no: lineNo, text }) {
    const group = GROUP.exec(text);
    if (group) {
      // These don't nest: one without an end ends before the next one.
      this.#end(undefined, lineNo - 1);
      this.#begin(lineNo, group.groups.title || "group", undefined, false);
      return;
    }
    if (!SECTION.test(text)) {
      this.#end(undefined, lineNo);
      return;
    }
    const marks = [];
    let rest = text;
    for (let mark = SECTION.exec(rest); mark; mark = SECTION.exec(rest)) {
      marks.push(mark.groups);
      rest = rest.slice(mark[0].length);
    }
    for (const { kind, name, options } of marks) {
      if (kind === "end") this.#end(name, marks.length > 1 ? lineNo - 1 : lineNo);
      else this.#begin(lineNo, rest || name, name, options?.includes("collapsed=true") ?? false);
    }
  }

  #begin(first, title, name, isFolded) {
    const group = { first, last: Infinity, title, name, isFolded };
    this.#groups.set(first, group);
    this.#open.push(group);
  }

  // Ends the innermost group with this name. Unclosed groups inside it end here, too.
  #end(name, last) {
    const index = this.#open.findLastIndex((group) => group.name === name);
    if (index < 0) return;
    for (const group of this.#open.splice(index)) group.last = Math.max(last, group.first);
  }

  #unfoldRevealed() {
    if (this.#revealed === null) return;
    for (const group of this.#groups.values()) {
      if (group.first < this.#revealed && this.#revealed <= group.last) group.isFolded = false;
    }
  }

  #change() {
    this.#hidden = [];
    // In the order of their first lines: a group within a folded one is hidden already.
    for (const { first, last, isFolded } of this.#groups.values()) {
      if (!isFolded || last === first || first <= (this.#hidden.at(-1)?.last ?? 0)) continue;
      this.#hidden.push({ first: first + 1, last });
    }
    this.onChange();
  }
}
