// The lines of a job that match a pattern, in their order, as far as the output was searched.

import { call } from "./api.js";

// Maximum matches kept.
const MOST_MATCHES = 10_000;
// Maximum matches of one reply.
const MATCHES_OF_A_CALL = 1_000;

export class MatchingLines {
  // Matches as the verb search returns them: {line_no, text}.
  matches = [];
  // The error of the last call; null if it has succeeded.
  error = null;
  #closing = new AbortController();
  #isSearching = false;
  // The line to search up to.
  #last = 0;

  // `after` is the line before the first one to search. `onProgress` is called after each reply.
  constructor(jobId, pattern, after, onProgress) {
    this.jobId = jobId;
    this.pattern = pattern;
    // The last line that was searched.
    this.searchedTo = after;
    this.onProgress = onProgress;
  }

  close() {
    this.#closing.abort();
  }

  get isFull() {
    return this.matches.length >= MOST_MATCHES;
  }

  // Whether all lines that there are were searched.
  get isComplete() {
    return !this.isFull && this.searchedTo >= this.#last;
  }

  // The number of matches up to a line.
  countUpTo(lineNo) {
    let [low, high] = [0, this.matches.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.matches[middle].line_no <= lineNo) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Searches the lines up to `last` that were not searched before. After an error, the next call searches the rest.
  async searchTo(last) {
    this.#last = Math.max(this.#last, last);
    if (this.#isSearching) return;
    this.#isSearching = true;
    let hasProgressed = true;
    while (hasProgressed && this.searchedTo < this.#last && !this.isFull) {
      hasProgressed = await this.#searchMore();
      if (hasProgressed) this.onProgress();
    }
    this.#isSearching = false;
  }

  // Returns whether more lines were searched.
  async #searchMore() {
    const before = this.searchedTo;
    const request = {
      job_id: this.jobId,
      pattern: this.pattern,
      since_line_no: before,
      until_line_no: this.#last,
      context: 0,
      max_matches: MATCHES_OF_A_CALL,
      max_bytes: 262_144,
    };
    try {
      const reply = await call("search", request, this.#closing.signal);
      this.error = null;
      this.matches.push(...reply.matches);
      this.searchedTo = Math.max(reply.last_line_no, before);
    } catch (error) {
      this.error = error;
    }
    return this.error === null && this.searchedTo > before;
  }
}
