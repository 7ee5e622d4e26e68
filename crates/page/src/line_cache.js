// The lines of a job that the page has: at most KEPT_PAGES pages, those that were used most recently.

const PAGE_LINES = 500;
const KEPT_PAGES = 20;

// A line that the server no longer keeps.
export const EVICTED = Object.freeze({ spans: [], text: "", isEvicted: true });

export class LineCache {
  // Lines of a page by its number, the least recently used page first.
  #pages = new Map();
  // Requests in progress, by page.
  #loading = new Map();
  // Lines that are wanted now, by page. Their pages stay, however many there are.
  #needed = new Map();

  // `load(first, last, signal)` resolves to records of some of these lines, from the first one that is
  // kept. `onLoaded` is called when there are new lines.
  constructor(load, onLoaded) {
    this.load = load;
    this.onLoaded = onLoaded;
  }

  // A line, or undefined if it is not here.
  get(lineNo) {
    return this.#pages.get(pageOf(lineNo))?.[offsetOf(lineNo)];
  }

  // Adds records that came without a request.
  add(records) {
    for (const record of records) this.#page(pageOf(record.line_no))[offsetOf(record.line_no)] = record;
  }

  // Loads the missing ones of these lines, and cancels requests for other pages.
  need(lines) {
    this.#needed = new Map();
    for (const lineNo of lines) {
      const linesOfPage = this.#needed.get(pageOf(lineNo));
      if (linesOfPage) linesOfPage.push(lineNo);
      else this.#needed.set(pageOf(lineNo), [lineNo]);
    }
    for (const [page, request] of this.#loading) {
      if (!this.#needed.has(page)) request.abort();
    }
    for (const [page, linesOfPage] of this.#needed) {
      if (this.#pages.has(page)) this.#page(page);
      const missing = linesOfPage.find((lineNo) => this.get(lineNo) === undefined);
      if (missing !== undefined && !this.#loading.has(page)) this.#load(page, missing);
    }
  }

  close() {
    for (const request of this.#loading.values()) request.abort();
  }

  async #load(page, missing) {
    const request = new AbortController();
    this.#loading.set(page, request);
    // What scrolls into view next is in the rest of the page, and just before it.
    const pageStart = page * PAGE_LINES + 1;
    const first = this.get(pageStart) === undefined ? pageStart : missing;
    const last = pageStart + PAGE_LINES - 1;
    try {
      const records = await this.load(first, last, request.signal);
      // An empty reply must not make the view show its lines again, which would request the same lines.
      if (records.length === 0) return;
      this.#fillGap(first, records);
      this.add(records);
    } catch (error) {
      if (error.name !== "AbortError") this.onLoaded(error);
      return;
    } finally {
      this.#loading.delete(page);
    }
    this.onLoaded(null);
  }

  // Lines before the first one that came were evicted.
  #fillGap(first, records) {
    const end = records[0]?.line_no ?? first;
    for (let lineNo = first; lineNo < end && pageOf(lineNo) === pageOf(first); lineNo++) {
      this.#page(pageOf(lineNo))[offsetOf(lineNo)] = EVICTED;
    }
  }

  // A page, which is the most recently used one now.
  #page(number) {
    const page = this.#pages.get(number) ?? [];
    // A map keeps the order of insertion.
    this.#pages.delete(number);
    this.#pages.set(number, page);
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size <= KEPT_PAGES) break;
      if (!this.#needed.has(oldest)) this.#pages.delete(oldest);
    }
    return page;
  }
}

function pageOf(lineNo) {
  return Math.floor((lineNo - 1) / PAGE_LINES);
}

function offsetOf(lineNo) {
  return (lineNo - 1) % PAGE_LINES;
}
