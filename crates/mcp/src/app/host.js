// The client that shows this page: MCP Apps (SEP-1865, revision 2026-01-26), which is JSON-RPC 2.0 by
// postMessage to the window above.

const REVISION = "2026-01-26";

// Requests that wait for their responses, by id.
const waiting = new Map();
let lastId = 0;
let listeners = {};

// An error of the client or of a tool.
export class HostError extends Error {
  name = "HostError";
}

// Opens the session with the client. `on.input(arguments)` and `on.result(result)` are called with the arguments and
// the result of the tool call for which the page is shown, `on.cancelled(reason)` if there is none,
// `on.context(context)` with the client's theme and size whenever they change, and `on.close()` before the
// client removes the page.
export async function connect(name, on) {
  listeners = on;
  window.addEventListener("message", receive);
  const introduction = { appInfo: { name, version: "1" }, appCapabilities: {}, protocolVersion: REVISION };
  const { hostContext } = await request("ui/initialize", introduction);
  on.context(hostContext ?? {});
  // Until it gets this, a client sends nothing.
  notify("ui/notifications/initialized", {});
}

// Calls a verb by its tool, and returns its structured result. The same promise as `call` of the page of
// the HTTP server, for the modules that both pages have.
export async function call(verb, toolArguments, signal = undefined) {
  const result = await request("tools/call", { name: `ssh_${verb}`, arguments: toolArguments }, signal);
  if (result.isError) throw new HostError(textOf(result));
  return result.structuredContent ?? {};
}

// The text of a tool's result.
export function textOf(result) {
  return (result.content ?? []).map((part) => part.text ?? "").join("\n");
}

// Asks the client for a height in pixels.
export function resize(height) {
  notify("ui/notifications/size-changed", { height });
}

function request(method, params, signal = undefined) {
  const id = ++lastId;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    signal?.addEventListener("abort", () => {
      if (waiting.delete(id)) reject(new DOMException("cancelled", "AbortError"));
    });
    send({ id, method, params });
  });
}

function notify(method, params) {
  send({ method, params });
}

function send(message) {
  // The client's origin is not known. Messages have no secrets of the page: it has none.
  window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
}

function receive({ source, data }) {
  if (source !== window.parent || data?.jsonrpc !== "2.0") return;
  if (data.method === undefined) settle(data);
  else if (data.id === undefined) takeNotification(data);
  else answer(data);
}

function settle({ id, result, error }) {
  const waiter = waiting.get(id);
  if (!waiting.delete(id)) return;
  if (error) waiter.reject(new HostError(error.message ?? "the client refuses"));
  else waiter.resolve(result ?? {});
}

function takeNotification({ method, params = {} }) {
  if (method === "ui/notifications/tool-input") listeners.input(params.arguments ?? {});
  if (method === "ui/notifications/tool-result") listeners.result(params);
  if (method === "ui/notifications/tool-cancelled") listeners.cancelled(params.reason);
  if (method === "ui/notifications/host-context-changed") listeners.context(params);
}

function answer({ id, method }) {
  if (method === "ui/resource-teardown") listeners.close();
  const isKnown = method === "ui/resource-teardown" || method === "ping";
  const error = { code: -32601, message: `this page has no ${method}` };
  send(isKnown ? { id, result: {} } : { id, error });
}
