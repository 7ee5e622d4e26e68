// The address of the page contains its filters, the job and the lines that it shows. A colleague who
// opens the same address sees the same.

const listeners = new Set();

// The parts of the address. `lines` is a range such as {first: 120, last: 140}, or null.
export function current() {
  const query = new URLSearchParams(location.search);
  const range = /^#L(\d{1,15})(?:-(\d{1,15}))?$/.exec(location.hash);
  const first = range ? Math.max(1, Number(range[1])) : 0;
  return {
    job: query.get("job"),
    // Addresses of earlier versions filter by host, label or state.
    text: query.get("text") ?? query.get("host") ?? query.get("label") ?? "",
    only: query.get("only") ?? query.get("state") ?? "",
    lines: range ? { first, last: Math.max(first, Number(range[2] ?? first)) } : null,
  };
}

// The address with some parts changed. Lines belong to a job, so another job has none.
export function linkTo(changes) {
  const next = { ...current(), ...changes };
  if (changes.job !== undefined && changes.lines === undefined) next.lines = null;
  const query = new URLSearchParams();
  for (const name of ["text", "only", "job"]) {
    if (next[name]) query.set(name, next[name]);
  }
  const path = query.size > 0 ? `?${query}` : "./";
  return path + fragment(next.lines);
}

function fragment(lines) {
  if (!lines) return "";
  return lines.first === lines.last ? `#L${lines.first}` : `#L${lines.first}-${lines.last}`;
}

// Changes the address and calls the listeners. With `replaces`, the browser's history has no new step.
export function go(changes, replaces = false) {
  const link = linkTo(changes);
  if (replaces) history.replaceState(null, "", link);
  else history.pushState(null, "", link);
  tell();
}

export function onChange(listener) {
  listeners.add(listener);
}

function tell() {
  for (const listener of listeners) listener(current());
}

addEventListener("popstate", tell);

// Links within the page change the address without a reload.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || event.defaultPrevented || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || url.pathname !== location.pathname) return;
  event.preventDefault();
  history.pushState(null, "", url.search + url.hash || "./");
  tell();
});
