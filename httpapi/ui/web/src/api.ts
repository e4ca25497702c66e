// Requests to the server: the token, errors, paths in URLs, downloads.

import { answered, failed, onReach } from "./reach";

const tokenKey = "umbra.token";
/** actor is whose the page's own changes are, where no token has a name. */
const actor = "web UI";

/** ApiError is an unsuccessful answer, with the server's own sentence. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly body: Record<string, unknown>,
  ) {
    super(detail);
  }
}

type Ask = (refused: boolean) => Promise<string | null>;

let ask: Ask | null = null;
let asking: Promise<string | null> | null = null;

/** onUnauthorized sets the function that asks the user for a token. */
export function onUnauthorized(fn: Ask): void {
  ask = fn;
}

/** token is the one that the user gave in this browser session. */
export function token(): string | null {
  return sessionStorage.getItem(tokenKey);
}

export function forgetToken(): void {
  sessionStorage.removeItem(tokenKey);
}

/** request sends one, with the token if there is one; a 401 asks the user, once for all waiting requests. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const used = token();
    const headers = new Headers(init.headers);
    if (used) headers.set("Authorization", `Bearer ${used}`);
    let res: Response;
    try {
      res = await fetch(path, { ...init, headers, credentials: "omit" });
    } catch (e) {
      if (e instanceof TypeError) failed();
      throw e;
    }
    answered();
    if (res.status === 401 && ask) {
      if (token() !== used) continue;
      asking ??= ask(used !== null).finally(() => (asking = null));
      const given = await asking;
      if (given) {
        sessionStorage.setItem(tokenKey, given);
        continue;
      }
    }
    if (!res.ok) throw await errorOf(res);
    return res;
  }
}

async function errorOf(res: Response): Promise<ApiError> {
  let body: Record<string, unknown> = {};
  try {
    body = (await res.json()) as Record<string, unknown>;
  } catch {
    // no JSON: the status must do
  }
  const code = typeof body.error === "string" ? body.error : String(res.status);
  const detail = typeof body.detail === "string" ? body.detail : `The server answered ${res.status}.`;
  return new ApiError(res.status, code, detail, body);
}

export async function getJSON<T>(path: string, signal?: AbortSignal): Promise<T> {
  const res = await request(path, { headers: { Accept: "application/json" }, ...(signal ? { signal } : {}) });
  return (await res.json()) as T;
}

/** Failing reports an error and what tries again, and then, with "", that it is tried. */
export type Failing = (error: string, again: () => void) => void;

/** insist is getJSON for one page of many: what is read already stays if it fails, and it is tried again on request and when the server is back. */
export async function insist<T>(path: string, signal: AbortSignal, failing: Failing): Promise<T> {
  for (;;) {
    try {
      return await getJSON<T>(path, signal);
    } catch (e) {
      if (aborted(e)) throw e;
      let off = () => {};
      await new Promise<void>((go) => {
        off = onReach((ok) => ok && go());
        signal.addEventListener("abort", () => go(), { once: true });
        failing(sentence(e), go);
      });
      off();
      if (!signal.aborted) failing("", () => {});
    }
  }
}

export async function postJSON<T>(path: string, body: unknown, headers: Record<string, string> = {}): Promise<T> {
  const res = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json", "X-Actor": actor, ...headers },
    body: JSON.stringify(body),
  });
  return (await res.json()) as T;
}

/** sentence is an error's text for the user. */
export function sentence(e: unknown): string {
  if (e instanceof ApiError) return e.message;
  if (e instanceof TypeError) return "The server cannot be reached.";
  return e instanceof Error ? e.message : String(e);
}

export function aborted(e: unknown): boolean {
  return e instanceof DOMException && e.name === "AbortError";
}

/**
 * inURL percent-encodes a path for a URL. A name that is not UTF-8 has its bad
 * bytes encoded already, and "%" as "%25".
 */
export function inURL(path: string, encoding?: string): string {
  const once = encodeURIComponent(path);
  return encoding === "percent" ? once.replace(/%25([0-9A-Fa-f]{2})/g, "%$1") : once;
}

/** text decodes a text that is percent-encoded because it is not UTF-8. */
export function text(value: string, encoding?: string): string {
  if (encoding !== "percent") return value;
  const bytes = new TextEncoder().encode(value);
  const out = new Uint8Array(bytes.length);
  let n = 0;
  for (let i = 0; i < bytes.length; i++) {
    const b = bytes[i]!;
    if (b === 0x25 && i + 2 < bytes.length) {
      out[n++] = parseInt(String.fromCharCode(bytes[i + 1]!, bytes[i + 2]!), 16);
      i += 2;
    } else {
      out[n++] = b;
    }
  }
  return new TextDecoder().decode(out.subarray(0, n));
}

/** download saves an answer as a file; what it holds is never shown as a page. */
export async function download(path: string, name: string): Promise<void> {
  const res = await request(path);
  const url = URL.createObjectURL(new Blob([await res.blob()], { type: "application/octet-stream" }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
