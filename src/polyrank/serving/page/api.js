// Calls of the server: the key, the times of an answer, and what its errors say.

const KEY = "polyrank-key";
let memory = "";

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

export function setKey(value) {
  memory = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    /* storage is switched off: the key lives as long as the page */
  }
}

/** Where the server is, with a slash at the end; behind a proxy it may be a folder. */
export const base = () => new URL(".", location.href.split("#")[0]).href;

/** What a call answers, and its times in milliseconds. Throws ServerError. */
export async function call(path, body, signal) {
  const headers = {};
  if (key()) headers.authorization = `Bearer ${key()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const started = performance.now();
  let response, text;
  try {
    const method = body === undefined ? "GET" : "POST";
    const sent = body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(base() + path, {
      method,
      headers,
      body: sent,
      signal,
      cache: "no-store",
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const why =
      navigator.onLine === false ? "This device is offline." : "The server cannot be reached.";
    throw new ServerError(`${why} Check that it is running, and try again.`, 0);
  }
  let answer = null;
  try {
    answer = JSON.parse(text);
  } catch {
    /* told below */
  }
  if (!response.ok || answer === null) {
    throw new ServerError(
      messageOf(answer) ??
        `The server answered ${response.status}, which is not what this page expects.`,
      response.status,
    );
  }
  return { answer, times: timesOf(response.headers, performance.now() - started) };
}

function messageOf(answer) {
  const found = answer?.error?.message ?? answer?.message ?? answer?.error ?? answer?.detail;
  return typeof found === "string" ? found : null;
}

function timesOf(headers, measured) {
  const number = (name) => {
    const value = Number.parseFloat(headers.get(name));
    return Number.isFinite(value) ? value : null;
  };
  const parts = {
    tokenise: number("x-tokenization-time") ?? 0,
    queue: number("x-queue-time") ?? 0,
    model: number("x-inference-time") ?? 0,
    search: number("x-search-time") ?? 0,
  };
  const sum = Object.values(parts).reduce((total, each) => total + each, 0);
  const total = Math.max(number("x-total-time") ?? measured, sum);
  return { total, parts: { ...parts, rest: Math.max(total - sum, 0) } };
}
