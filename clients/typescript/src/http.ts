import { UmbraError, errorOf } from "./errors.js";

export type Query = Record<string, string | number | boolean | undefined | null>;

/** Content is what a file can be written from. A function is called again for each attempt. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | (() => ReadableStream<Uint8Array>);

export interface RequestOptions {
  query?: Query;
  /** An object is sent as JSON. */
  body?: unknown;
  /** Raw bytes instead of a JSON body. */
  content?: Content;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Milliseconds of one attempt; 0: none. */
  timeoutMs?: number;
  /** The key of a write; made if not given. */
  idempotencyKey?: string;
}

export interface UmbraOptions {
  url?: string;
  token?: string | (() => Promise<string>);
  fetch?: typeof fetch;
  actor?: string;
  headers?: Record<string, string>;
  timeoutMs?: number;
  retries?: number;
  followerReads?: boolean;
}

const retried = new Set([408, 429, 502, 503, 504]);
const maxJSON = 256 << 20;
const maxError = 1 << 20;

/** Transport sends requests: keys, attempts, errors. It has no global state. */
export class Transport {
  readonly url: string;
  readonly timeoutMs: number;
  readonly retries: number;
  readonly #options: UmbraOptions;
  readonly #fetch: typeof fetch;
  /** With followerReads: the newest sequence number seen of a workspace, and the workspace of a task. */
  readonly #newest = new Map<string, bigint>();
  readonly #workspaces = new Map<string, string>();

  constructor(options: UmbraOptions) {
    this.#options = options;
    this.url = (options.url ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
    // fetch refuses it, and would name it in its error.
    if (/^[a-z]+:\/\/[^/]*@/i.test(this.url)) throw new TypeError("The url has a user or password in it; use token.");
    this.timeoutMs = options.timeoutMs ?? 30_000;
    this.retries = options.retries ?? 4;
    // Not bound to this object: browsers refuse a fetch called as its method.
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** send returns an answer of status 2xx or 304. Its body is not read yet. */
  async send(method: string, path: string, o: RequestOptions = {}): Promise<Response> {
    const target = this.url + path + queryOf(o.query);
    const reads = method === "GET" || method === "HEAD";
    const headers: Record<string, string> = { ...this.#options.headers, ...o.headers };
    if (this.#options.actor !== undefined && headers["X-Actor"] === undefined) headers["X-Actor"] = this.#options.actor;
    if (!reads && headers["Idempotency-Key"] === undefined) headers["Idempotency-Key"] = o.idempotencyKey ?? crypto.randomUUID();
    if (reads && this.#options.followerReads) {
      // Without it a read is answered by the workspace's owner.
      const seq = this.#newest.get(this.#workspaceOf(path) ?? "");
      if (seq !== undefined) headers["Umbra-Min-Seq"] = String(seq);
    }
    let body: BodyInit | undefined;
    const content = o.content;
    if (content === undefined && o.body !== undefined) {
      headers["Content-Type"] = "application/json";
      body = JSON.stringify(o.body);
    } else if (content !== undefined) {
      headers["Content-Type"] ??= "application/octet-stream";
    }
    const once = typeof ReadableStream !== "undefined" && content instanceof ReadableStream;
    let lost = false;
    for (let attempt = 0; ; attempt++) {
      o.signal?.throwIfAborted();
      if (content !== undefined) body = (typeof content === "function" ? content() : content) as BodyInit;
      const streams = once || typeof content === "function";
      let failure: UmbraError;
      try {
        const token = this.#options.token;
        if (token !== undefined) {
          const value = (typeof token === "function" ? await token() : token).trim();
          // fetch would name the token in its error.
          if (/[^ -~]/.test(value)) throw new UmbraError({ code: "bad_token", status: 0, detail: "The token has characters that a header cannot carry." });
          headers["Authorization"] = `Bearer ${value}`;
        }
        const res = await this.#attempt(target, { method, headers, body, redirect: "error", ...(streams ? { duplex: "half" } : {}) } as RequestInit, o);
        if (this.#options.followerReads) this.#see(path, reads, res);
        if (res.ok || res.status === 304) return res;
        if (lost && method === "DELETE" && res.status === 404 && deletesOnce(path)) {
          // The answer of an earlier attempt was lost.
          await res.body?.cancel();
          return new Response(null, { status: 204 });
        }
        failure = errorOf(path, res, await textOf(res, maxError, true, o.timeoutMs ?? this.timeoutMs, o.signal));
        if (!retried.has(res.status)) throw failure;
      } catch (err) {
        if (o.signal?.aborted) throw o.signal.reason;
        if (err instanceof UmbraError && err.status !== 0) {
          if (!retried.has(err.status)) throw err;
          failure = err;
        } else if (err instanceof UmbraError && err.code !== "network") {
          throw err;
        } else {
          failure = err instanceof UmbraError ? err : network(err);
          lost = true;
        }
      }
      if (attempt >= this.retries || once) throw failure;
      await sleep(delay(attempt, failure.retryAfter), o.signal);
    }
  }

  /** json sends a request and parses its answer; undefined for 204. */
  async json<T = any>(method: string, path: string, o: RequestOptions = {}): Promise<T> {
    return (await this.jsonWith<T>(method, path, o)).value;
  }

  async jsonWith<T = any>(method: string, path: string, o: RequestOptions = {}): Promise<{ value: T; headers: Headers }> {
    for (let attempt = 0; ; attempt++) {
      // One key for all attempts, also those that lose the body of an answer.
      const key = o.idempotencyKey ?? crypto.randomUUID();
      o = { ...o, idempotencyKey: key };
      const res = await this.send(method, path, o);
      if (res.status === 204 || res.status === 304) return { value: undefined as T, headers: res.headers };
      let text: string;
      try {
        text = await textOf(res, maxJSON, false, o.timeoutMs ?? this.timeoutMs, o.signal);
      } catch (err) {
        if (o.signal?.aborted) throw o.signal.reason;
        const failure = err instanceof UmbraError ? err : network(err);
        if (failure.code !== "network" || attempt >= this.retries || typeof ReadableStream !== "undefined" && o.content instanceof ReadableStream) throw failure;
        await sleep(delay(attempt), o.signal);
        continue;
      }
      try {
        const value = JSON.parse(text) as T;
        if (this.#options.followerReads) this.#learn(value);
        return { value, headers: res.headers };
      } catch {
        throw new UmbraError({ code: "bad_response", status: res.status, detail: "The answer is not JSON.", requestId: res.headers.get("x-request-id") ?? "" });
      }
    }
  }

  /**
   * #attempt covers one attempt up to the answer's head; who reads the body heeds
   * the signal itself. (AbortSignal.any would cover both, but Node may collect
   * such a signal while the request still needs it.)
   */
  async #attempt(target: string, init: RequestInit, o: RequestOptions): Promise<Response> {
    const clock = new AbortController();
    const ms = o.timeoutMs ?? this.timeoutMs;
    const timer = ms > 0 ? setTimeout(() => clock.abort(), ms) : undefined;
    const stop = () => clock.abort(o.signal!.reason);
    o.signal?.addEventListener("abort", stop, { once: true });
    try {
      return await this.#fetch(target, { ...init, signal: clock.signal });
    } catch (err) {
      if (clock.signal.aborted && !o.signal?.aborted) throw new UmbraError({ code: "network", status: 0, detail: `No answer within ${ms} ms.`, cause: err });
      throw err;
    } finally {
      clearTimeout(timer);
      o.signal?.removeEventListener("abort", stop);
    }
  }

  #workspaceOf(path: string): string | undefined {
    const [, kind, id] = path.split("/", 3);
    return kind === "workspaces" ? id : kind === "tasks" ? this.#workspaces.get(id ?? "") : undefined;
  }

  #see(path: string, read: boolean, res: Response): void {
    const value = res.headers.get("umbra-seq");
    if (value === null || !/^\d{1,20}$/.test(value)) return;
    const workspace = this.#workspaceOf(path);
    const seq = BigInt(value);
    if (workspace !== undefined) {
      if (seq > (this.#newest.get(workspace) ?? -1n)) this.#newest.set(workspace, seq);
    } else if (!read) this.#newest.clear(); // it may be of any of them
  }

  /** #learn notes the workspace of a task that was answered. */
  #learn(value: any): void {
    if (typeof value?.task_id !== "string" || typeof value.workspace_id !== "string") return;
    this.#workspaces.set(segment(value.task_id), segment(value.workspace_id));
    if (this.#workspaces.size > 10_000) this.#workspaces.delete(this.#workspaces.keys().next().value!);
  }
}

/** deletesOnce: routes that take no idempotency key, where a repeated DELETE finds nothing. */
const deletesOnce = (path: string) => /^\/(tasks|toolsets|workspaces)\/[^/]+$|^\/api\/sessions\/[^/]+$/.test(path);

export function network(err: unknown): UmbraError {
  return new UmbraError({ code: "network", status: 0, detail: "The server did not answer.", cause: err });
}

export function queryOf(q?: Query): string {
  const parts = Object.entries(q ?? {}).filter(([, v]) => v !== undefined && v !== null);
  return parts.length === 0 ? "" : "?" + parts.map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(String(v))}`).join("&");
}

/** segment is one path segment. */
export const segment = (s: string) => encodeURIComponent(s).replace(/^\.+$/, (dots) => "%2E".repeat(dots.length));

export const segments = (p: string) => p.split("/").filter((s) => s !== "" && s !== ".").map(segment).join("/");

/** next reads a piece. If the signal aborts, or after ms without one (0: never), it rejects and the body is canceled. */
export async function next<T>(reader: ReadableStreamDefaultReader<T>, ms: number, signal?: AbortSignal): Promise<ReadableStreamReadResult<T>> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop = () => {};
  try {
    signal?.throwIfAborted();
    return await Promise.race([reader.read(), new Promise<never>((_, reject) => {
      if (ms > 0) timer = setTimeout(() => reject(network(new Error(`no data within ${ms} ms`))), ms);
      stop = () => reject(signal!.reason);
      signal?.addEventListener("abort", stop, { once: true });
    })]);
  } catch (err) {
    reader.cancel().catch(() => {});
    throw err;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** textOf reads an answer up to a number of bytes and milliseconds; over it an error, or what fits with cut. */
export async function textOf(res: Response, max: number, cut: boolean, ms = 0, signal?: AbortSignal): Promise<string> {
  return new TextDecoder().decode(await bytesOf(res.body, max, cut, ms, signal));
}

export async function bytesOf(body: ReadableStream<Uint8Array> | null, max: number, cut = false, ms = 0, signal?: AbortSignal): Promise<Uint8Array> {
  if (body === null) return new Uint8Array();
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = body.getReader();
  const deadline = Date.now() + ms;
  for (;;) {
    const { done, value } = await next(reader, ms > 0 ? Math.max(1, deadline - Date.now()) : 0, signal);
    if (done) break;
    parts.push(value);
    size += value.byteLength;
    if (size > max) {
      reader.cancel().catch(() => {});
      if (cut) break;
      throw new UmbraError({ code: "response_too_large", status: 0, detail: `The answer has more than ${max} bytes.` });
    }
  }
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.byteLength;
  }
  return out;
}

/** delay is full jitter from 100 ms to 5 s, unless the server said when. */
export function delay(attempt: number, retryAfter?: number): number {
  if (retryAfter !== undefined) return Math.min(retryAfter, 300) * 1000;
  return 100 + Math.random() * (Math.min(5_000, 100 * 2 ** (attempt + 1)) - 100);
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const done = () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(done, ms);
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    signal?.addEventListener("abort", stop, { once: true });
  });
}
