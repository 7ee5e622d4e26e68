// A log of any length. A position is a line number, never a height: about 150 rows are in the
// document, and wheel, keys, touch and its own scroll bar move by lines.

import { element, setText } from "./dom.js";
import { count, timeOfDay } from "./format.js";
import { LineCache } from "./line_cache.js";
import { ScrollBar } from "./scroll_bar.js";
import { styledSpan } from "./styled_span.js";

// Rows beyond the visible ones, so that a small step shows no gap.
const EXTRA_ROWS = 8;
// Lines that one notch of a wheel moves if it counts in lines.
const WHEEL_LINES = 3;

export class LogView {
  #pane = element("div", { className: "rows" });
  // Rows in the order of their lines: {lineNo, record, element}.
  #rows = [];
  #lineHeight = 18;
  #isScheduled = false;
  #resizes = new ResizeObserver(() => this.#schedule());
  #options = { time: false, wrap: false };
  // The first visible line, with a fraction while a touch pad moves by less than a line.
  #top = 1;
  #first = 1;
  #total = 0;
  #partial = [];
  #isFollowing = true;
  // The line to scroll to as soon as there are lines; null if there is none.
  #target = null;
  #isClosed = false;
  #foundPattern = null;
  // Whether the view has scrolled sideways to the match.
  #isFoundShown = true;

  // `load` as in LineCache; `folds` are the groups of lines that can be folded. `on.follow(isFollowing)` is called when a person scrolls away from the end
  // or back; `on.choose(lineNo, extends)` when a line's number is clicked; `on.error(error)` when lines
  // can't be loaded.
  constructor(load, folds, on) {
    this.folds = folds;
    this.on = on;
    this.chosen = null;
    this.found = null;
    this.cache = new LineCache(load, (error) => {
      if (error) this.on.error(error);
      else this.#schedule();
    });
    this.log = element(
      "div",
      {
        id: "output",
        className: "log",
        role: "log",
        tabIndex: 0,
        "aria-label": "Output",
        // Otherwise screen readers would read a flood of lines aloud. The status line announces the end.
        "aria-live": "off",
      },
      this.#pane,
    );
    this.bar = new ScrollBar("output", (line) => this.#scrollTo(line));
    this.element = element("div", { className: "log-frame" }, this.log, this.bar.element);
    this.log.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.element.addEventListener("keydown", (event) => this.#press(event));
    this.log.addEventListener("click", (event) => this.#click(event));
    this.#followTouches();
    this.#resizes.observe(this.log);
  }

  close() {
    this.#isClosed = true;
    this.#resizes.disconnect();
    this.cache.close();
  }

  // The log has grown, or its oldest lines have gone. `partial` has unfinished lines.
  update({ first, total, records, partial }) {
    this.cache.add(records);
    [this.#first, this.#total, this.#partial] = [first, total, partial];
    this.#schedule();
  }

  get isFollowing() {
    return this.#isFollowing;
  }

  follow(isFollowing) {
    this.#isFollowing = isFollowing;
    this.#schedule();
  }

  // Shows the lines as they are folded now.
  refold() {
    this.#schedule();
  }

  // Marks a range of lines, and scrolls to its first line. Null only removes the mark.
  show(lines) {
    this.chosen = lines;
    if (lines) this.#goTo(lines.first);
    this.#schedule();
  }

  // Marks a match of a pattern, and scrolls only if it is not visible. Null removes the mark.
  showMatch(lineNo, pattern) {
    this.found = lineNo;
    this.#foundPattern = pattern;
    this.#isFoundShown = false;
    if (lineNo !== null) {
      this.folds.reveal(lineNo);
      if (lineNo < this.#top || lineNo > this.visible().last) this.#goTo(lineNo);
    }
    this.#schedule();
  }

  // Scrolls to a line, a third below the upper edge.
  #goTo(lineNo) {
    this.#setFollowing(false);
    this.folds.reveal(lineNo);
    this.#target = lineNo;
  }

  setOption(name, isSet) {
    this.#options[name] = isSet;
    this.log.classList.toggle(name, isSet);
    // The rows were made without it.
    this.#pane.replaceChildren();
    this.#rows = [];
    this.#schedule();
  }

  // The records of the visible lines, as far as they are here.
  shownRecords() {
    const lines = this.folds.linesFrom(Math.floor(this.#top), this.#total, this.#visibleLines());
    return lines.map((lineNo) => this.cache.get(lineNo)).filter(Boolean);
  }

  // The first and the last line that are visible.
  visible() {
    const first = Math.max(this.#first, Math.floor(this.#top));
    return { first, last: Math.min(this.#total, this.folds.step(first, this.#visibleLines() - 1)) };
  }

  #lastLine() {
    return this.#total + this.#partial.length;
  }

  #visibleLines() {
    return Math.max(1, Math.floor(this.log.clientHeight / this.#lineHeight));
  }

  #lastTop() {
    return Math.max(this.#first, this.folds.step(this.#lastLine(), 1 - this.#visibleLines()));
  }

  #scrollTo(line) {
    this.#target = null;
    this.#top = Math.min(Math.max(line, this.#first), this.#lastTop());
    this.#setFollowing(this.#top >= this.#lastTop());
    this.#schedule();
  }

  #setFollowing(isFollowing) {
    if (this.#isFollowing === isFollowing) return;
    this.#isFollowing = isFollowing;
    this.on.follow(isFollowing);
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#render();
    });
  }

  #render() {
    if (this.#isClosed) return;
    if (this.#target !== null && this.#total > 0) {
      this.#top = this.folds.step(this.#target, -Math.floor(this.#visibleLines() / 3));
      this.#target = null;
    }
    if (this.#isFollowing) this.#top = this.#lastTop();
    this.#top = Math.min(Math.max(this.#top, this.#first), this.#lastTop());
    const first = Math.floor(this.#top);
    const lines = this.folds.linesFrom(first, this.#lastLine(), this.#visibleLines() + EXTRA_ROWS + 1);
    this.#placeRows(lines);
    // Of a group's first line, its title is shown.
    this.cache.need(lines.filter((lineNo) => lineNo <= this.#total && !this.folds.groupAt(lineNo)));
    const fraction = this.#options.wrap ? 0 : this.#top - first;
    this.#pane.style.transform = fraction ? `translateY(${-fraction * this.#lineHeight}px)` : "";
    // With wrapped lines, the rows may be higher than the pane.
    this.log.scrollTop = this.#options.wrap && this.#isFollowing ? this.log.scrollHeight : 0;
    this.#markMatch();
    this.bar.update({
      first: this.#first,
      last: this.#lastLine(),
      top: this.#top,
      lastTop: this.#lastTop(),
      shown: this.#visibleLines(),
    });
    this.#measure();
  }

  // Rows are reused: those that have left one side show the lines that come in on the other.
  #placeRows(lines) {
    const wanted = new Set(lines);
    const kept = new Map();
    const free = [];
    for (const row of this.#rows) {
      if (wanted.has(row.lineNo)) kept.set(row.lineNo, row);
      else free.push(row);
    }
    for (const row of free) row.element.remove();
    this.#rows = lines.map((lineNo) => kept.get(lineNo) ?? rowFor(free.pop(), lineNo));
    this.#rows.forEach((row, index) => {
      const there = this.#pane.children[index];
      if (there !== row.element) this.#pane.insertBefore(row.element, there ?? null);
      this.#fill(row);
    });
  }

  #fill(row) {
    const isPartial = row.lineNo > this.#total;
    const record = isPartial ? this.#partial[row.lineNo - this.#total - 1] : this.cache.get(row.lineNo);
    const group = this.folds.groupAt(row.lineNo);
    if (group) this.#fillGroup(row, group);
    else if (record !== row.record || row.isNew || row.isGroup) fillRow(row, record, isPartial, this.#options);
    const isChosen =
      this.chosen !== null && row.lineNo >= this.chosen.first && row.lineNo <= this.chosen.last;
    row.element.classList.toggle("chosen", isChosen);
    row.element.classList.toggle("found", row.lineNo === this.found);
  }

  // The first line of a group: its title, in a button that folds it. The button stays, and with it the focus.
  #fillGroup(row, group) {
    if (row.isNew || !row.isGroup) {
      fillRow(row, { text: "" }, false, this.#options);
      row.text.replaceChildren(row.fold);
      row.isGroup = true;
    }
    const size = Math.min(group.last, this.#total) - group.first;
    const shownSize = group.isFolded ? ` (${count(size)} ${size === 1 ? "line" : "lines"})` : "";
    row.fold.dataset.line = group.first;
    row.fold.setAttribute("aria-expanded", String(!group.isFolded));
    setText(row.fold, `${group.isFolded ? "▸" : "▾"} ${group.title}${shownSize}`);
  }

  // Marks the text of the match, and scrolls sideways to it once.
  #markMatch() {
    CSS.highlights?.delete("match");
    const row = this.#rows.find((row) => row.lineNo === this.found);
    const range = row?.record && this.#foundPattern ? rangeOf(row.text, this.#foundPattern) : null;
    if (!range) return;
    CSS.highlights?.set("match", new Highlight(range));
    if (this.#isFoundShown) return;
    this.#isFoundShown = true;
    const [match, pane] = [range.getBoundingClientRect(), this.log.getBoundingClientRect()];
    if (match.left < pane.left || match.right > pane.right) {
      this.log.scrollLeft += match.left - pane.left - pane.width / 3;
    }
  }

  #measure() {
    const row = this.#rows[0]?.element;
    if (!row || this.#options.wrap) return;
    const height = row.getBoundingClientRect().height;
    if (height > 0 && Math.abs(height - this.#lineHeight) > 0.01) {
      this.#lineHeight = height;
      this.#schedule();
    }
  }

  #wheel(event) {
    if (event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    const inLines = event.deltaMode === WheelEvent.DOM_DELTA_LINE;
    const lines = inLines ? event.deltaY * WHEEL_LINES : event.deltaY / this.#lineHeight;
    this.#scrollTo(this.folds.step(this.#top, lines));
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, this.#visibleLines() - 1);
    const top = Math.floor(this.#top);
    // Space and Enter press a focused button.
    const isButton = event.target.closest("button") !== null;
    if (isButton && [" ", "Enter"].includes(event.key)) return;
    const step = {
      ArrowUp: -1,
      k: -1,
      ArrowDown: 1,
      j: 1,
      PageUp: -page,
      PageDown: page,
      " ": event.shiftKey ? -page : page,
    }[event.key];
    const end = { Home: this.#first, g: this.#first, End: this.#lastTop(), G: this.#lastTop() }[event.key];
    const target = step === undefined ? end : this.folds.step(top, step);
    if (target === undefined) return;
    event.preventDefault();
    this.#scrollTo(target);
  }

  #click(event) {
    const fold = event.target.closest(".fold");
    if (fold) {
      this.folds.toggle(Number(fold.dataset.line));
      return;
    }
    const number = event.target.closest(".number[href]");
    if (!number || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.on.choose(Number(number.dataset.line), event.shiftKey);
  }

  #followTouches() {
    let y = null;
    this.log.addEventListener("touchstart", (event) => (y = event.touches[0].clientY), { passive: true });
    this.log.addEventListener(
      "touchmove",
      (event) => {
        const moved = y - event.touches[0].clientY;
        y = event.touches[0].clientY;
        this.#scrollTo(this.folds.step(this.#top, moved / this.#lineHeight));
      },
      { passive: true },
    );
  }
}

// The range of the first match in an element's text; null if it has none.
function rangeOf(target, pattern) {
  const found = pattern.exec(target.textContent);
  if (!found || found[0] === "") return null;
  const range = document.createRange();
  let [start, end] = [found.index, found.index + found[0].length];
  const texts = document.createTreeWalker(target, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const length = text.data.length;
    if (start >= 0 && start < length) range.setStart(text, start);
    if (end <= length) {
      range.setEnd(text, end);
      return range;
    }
    start -= length;
    end -= length;
  }
  return null;
}

function rowFor(free, lineNo) {
  const row = free ?? newRow();
  row.lineNo = lineNo;
  row.isNew = true;
  return row;
}

function newRow() {
  const title = "Choose this line; Shift: all lines up to it";
  const number = element("a", { className: "number", tabIndex: -1, title });
  const time = element("time", {});
  const text = element("span", { className: "text" });
  const row = element("div", { className: "row" }, number, time, text);
  const fold = element("button", { type: "button", className: "fold" });
  return { lineNo: 0, record: undefined, isNew: true, isGroup: false, element: row, number, time, text, fold };
}

function fillRow(row, record, isPartial, options) {
  row.record = record;
  row.isNew = false;
  row.isGroup = false;
  const shownNumber = isPartial ? "…" : String(row.lineNo);
  setText(row.number, shownNumber);
  row.number.dataset.line = row.lineNo;
  if (isPartial) row.number.removeAttribute("href");
  else row.number.href = `#L${row.lineNo}`;
  setText(row.time, options.time && record?.ts ? timeOfDay(record.ts) : "");
  const isStderr = record?.stream === "stderr";
  row.element.className = "row";
  row.element.classList.toggle("stderr", isStderr);
  row.element.classList.toggle("continuation", record?.continuation === true);
  row.element.classList.toggle("gone", record?.isEvicted === true);
  row.element.classList.toggle("loading", record === undefined);
  row.text.replaceChildren(...pieces(record, isStderr));
}

function pieces(record, isStderr) {
  if (record === undefined) return ["…"];
  if (record.isEvicted) return ["this line is no longer kept"];
  const parts = [];
  // Colour must not be the only sign of stderr.
  if (isStderr) parts.push(element("span", { className: "unseen" }, "stderr: "));
  if (record.member) parts.push(element("span", { className: "member" }, `${record.member} | `));
  if (record.spans?.length > 0) parts.push(...record.spans.map(styledSpan));
  else parts.push(record.text);
  return parts;
}
