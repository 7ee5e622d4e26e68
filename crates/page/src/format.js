// Words for states, ages and sizes.

const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
];

// A duration in its largest unit: "3 min".
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  for (const [unit, size] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

export function count(number) {
  return number.toLocaleString("en");
}

export function bytes(number) {
  let [value, unit] = [number, "B"];
  for (const larger of ["KiB", "MiB", "GiB"]) {
    if (value < 1024) break;
    [value, unit] = [value / 1024, larger];
  }
  return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function isRunning(job) {
  return ["queued", "starting", "running"].includes(job.state);
}

// How a job stands: "exited 3", "signaled KILL", "lost: connection".
export function stateInWords(job) {
  if (job.state === "exited") return `exited ${job.exit_status ?? "?"}`;
  if (job.state === "signaled") return `signaled ${job.exit_signal ?? "?"}`;
  return job.reason ? `${job.state}: ${job.reason}` : job.state.replace("_", " ");
}

// How a job stands, in a word or two: "waits", "queued #2", "exit 3", "SIGKILL".
export function shortState(job) {
  if (job.awaiting_input) return "waits";
  if (job.state === "exited") return `exit ${job.exit_status ?? "?"}`;
  if (job.state === "signaled") return `SIG${job.exit_signal ?? "?"}`;
  if (job.held) return "held";
  if (job.queue_position) return `queued #${job.queue_position}`;
  if (job.state === "starting" && !job.started_at) return "not started";
  return job.state.replace("_", " ");
}

// A class by which a state gets its colour.
export function stateClass(job) {
  if (isRunning(job)) return job.awaiting_input ? "awaiting" : "running";
  return job.state === "exited" && job.exit_status === 0 ? "ok" : "failed";
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});

export function timeOfDay(timestamp) {
  return clock.format(timestamp);
}

export function dateAndTime(timestamp) {
  return new Date(timestamp).toLocaleString();
}
