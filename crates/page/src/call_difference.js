// What differs between a call that waits for an approval and the asker's last approved call.

import { element } from "./dom.js";
import { dateAndTime } from "./format.js";
import { visible } from "./visible.js";

const HASHED = {
  policy: "The policy has changed.",
  settings: "Only values differ that are not shown, such as those of variables.",
};

export function differenceTo({ asker, compared }) {
  if (!compared) {
    return element("p", { className: "hint" }, `No call of this verb by ${visible(asker)} on this host was approved in the last day.`);
  }
  const since = `the one that was approved on ${dateAndTime(compared.asked_at)}`;
  if (compared.changes.length === 0) return element("p", { className: "hint" }, `The same call as ${since}.`);
  const lines = compared.changes.flatMap(({ field, before, now }) => {
    // Their values are hashes.
    if (HASHED[field]) return [element("p", { className: "hint" }, HASHED[field])];
    return [...lineOf("−", "before", field, before, now), ...lineOf("+", "now", field, now, before)];
  });
  return element(
    "div",
    { className: "difference", role: "group", "aria-label": "Difference to the last approved call" },
    element("p", { className: "hint" }, `Differs from ${since}:`),
    ...lines,
  );
}

// A value, with the part marked that the other one does not have.
function lineOf(sign, className, field, value, other) {
  if (value === undefined) return [];
  const [start, middle, end] = parts(asText(value), asText(other));
  const text = element("code", {}, start, element("mark", {}, middle), end);
  return [element("p", { className }, `${sign} ${field}: `, text)];
}

// Splits a text into the prefix and suffix that it shares with another one, and the part between.
function parts(text, other) {
  const [one, two] = [[...text], [...other]];
  const shorter = Math.min(one.length, two.length);
  let start = 0;
  while (start < shorter && one[start] === two[start]) start++;
  let end = 0;
  while (end < shorter - start && one.at(-1 - end) === two.at(-1 - end)) end++;
  const pieces = [one.slice(0, start), one.slice(start, one.length - end), one.slice(one.length - end)];
  return pieces.map((characters) => visible(characters.join("")));
}

function asText(value) {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
