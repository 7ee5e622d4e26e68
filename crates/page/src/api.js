// Calls of the server's JSON API. Paths are relative to the page, so that they work behind a prefix.

// An error of the API, with its stable code.
export class ApiError extends Error {
  constructor(status, body) {
    const message = body.message ?? `the server answered with status ${status}`;
    super(body.hint ? `${message} (${body.hint})` : message);
    this.name = "ApiError";
    this.status = status;
    this.code = body.code ?? "unknown";
  }
}

const loggedOutListeners = new Set();

// Calls `listener` when the server asks for a token.
export function onLoggedOut(listener) {
  loggedOutListeners.add(listener);
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the server can't be reached", code: "unreachable" });
  }
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  const body = isJson ? await response.json() : {};
  if (response.ok) return body;
  if (response.status === 401 && path !== "login") {
    for (const listener of loggedOutListeners) listener();
  }
  throw new ApiError(response.status, body);
}

function withJson(method, body) {
  return { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

// Calls a verb with the arguments of its tool.
export function call(verb, requestBody, signal = undefined) {
  return request(`v1/${verb}`, { ...withJson("POST", requestBody), signal });
}

export function get(path, signal = undefined) {
  return request(path, { signal });
}

// Who is logged in: caller, role and by_token.
export function whoAmI() {
  return request("login", {});
}

export function logIn(token) {
  return request("login", withJson("POST", { token }));
}

export function logOut() {
  return request("login", { method: "DELETE" });
}

// The path of a job's resource. The id of a fleet's member has a slash.
export function jobPath(jobId, resource) {
  return `v1/jobs/${encodeURIComponent(jobId)}/${resource}`;
}

// A connection that is back within this time was never lost: the server ends each stream after a
// minute, so that the login is checked again.
const PATIENCE_MS = 1_500;

// Follows the end of a job's output until the job ends.
// - `on.update` gets a reply of tail, `on.end` the last one.
// - `on.lost` is called when the connection breaks, `on.found` when it is back.
// - `on.failed` gets an error after which nothing follows.
export class Updates {
  #source = null;
  #retry = null;
  // Runs while the connection is broken, until that is reported.
  #patience = null;
  #isClosed = false;
  #isLost = false;

  constructor(jobId, on) {
    this.jobId = jobId;
    this.on = on;
    this.#connect();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    clearTimeout(this.#patience);
    this.#source?.close();
  }

  #connect() {
    const source = new EventSource(jobPath(this.jobId, "updates?render=spans"));
    this.#source = source;
    source.addEventListener("open", () => {
      clearTimeout(this.#patience);
      this.#patience = null;
      if (this.#isLost) this.on.found();
      this.#isLost = false;
    });
    source.addEventListener("update", (event) => this.on.update(JSON.parse(event.data)));
    source.addEventListener("end", (event) => {
      this.close();
      this.on.end(JSON.parse(event.data));
    });
    // Both a failed connection and an event named "error" of the server, which has data.
    source.addEventListener("error", (event) => {
      if (event.data !== undefined) this.#fail(JSON.parse(event.data));
      else this.#reconnect();
    });
  }

  #fail(error) {
    this.close();
    this.on.failed(new ApiError(0, error));
  }

  async #reconnect() {
    if (this.#isClosed) return;
    this.#patience ??= setTimeout(() => {
      this.#isLost = true;
      this.on.lost();
    }, PATIENCE_MS);
    // It reconnects by itself after a broken connection, but not after an error's status.
    if (this.#source.readyState !== EventSource.CLOSED) return;
    try {
      await call("jobs", { job_id: this.jobId, cached: true });
    } catch (error) {
      if (error.status !== 0 && error.status < 500 && error.status !== 429) {
        if (!this.#isClosed && error.status !== 401) this.#fail({ message: error.message, code: error.code });
        return;
      }
    }
    if (!this.#isClosed) this.#retry = setTimeout(() => this.#connect(), 1000);
  }
}
