import { UmbraError } from "./errors.js";
import { Content, Transport, bytesOf, delay, network, next, sleep } from "./http.js";
import type { TaskFileEntry, TaskMatch, TaskWritten } from "./wire.js";

export interface Signal {
  signal?: AbortSignal;
}

/** WriteOptions are the conditions and the mode of a write. */
export interface WriteOptions extends Signal {
  /** Write only if the file has this entity tag, or one of these. */
  ifMatch?: string | string[];
  /** "*": write only if the file does not exist. */
  ifNoneMatch?: "*";
  mode?: "100644" | "100755";
}

export interface BatchOperation {
  op: "write" | "delete" | "rename" | "chmod";
  path: string;
  new_path?: string;
  content?: string;
  encoding?: "text" | "base64";
  mode?: string;
  if_match?: string;
  recursive?: boolean;
}

export interface SearchOptions extends Signal {
  literal?: boolean;
  ignoreCase?: boolean;
  path?: string;
  glob?: string;
  context?: number;
  max?: number;
  maxPerFile?: number;
}

/** Scope is where requests go, and which headers they carry. */
export interface Scope {
  http: Transport;
  path: string;
  headers: Record<string, string>;
}

const conditions = (o: WriteOptions): Record<string, string> => {
  const h: Record<string, string> = {};
  if (o.ifMatch !== undefined) h["If-Match"] = Array.isArray(o.ifMatch) ? o.ifMatch.join(", ") : o.ifMatch;
  if (o.ifNoneMatch !== undefined) h["If-None-Match"] = o.ifNoneMatch;
  if (o.mode !== undefined) h["X-File-Mode"] = o.mode;
  return h;
};

/** present refuses a content that is missing: it would empty the file. */
function present(content: unknown): void {
  if (content == null) throw new TypeError("the content is missing; an empty file is an empty string");
}

/** Files reads and changes the files of a task. Paths are relative to the workspace's root. */
export class Files {
  readonly #s: Scope;

  constructor(scope: Scope) {
    this.#s = scope;
  }

  #json<T>(method: string, path: string, o: Parameters<Transport["json"]>[2] = {}): Promise<T> {
    return this.#s.http.json<T>(method, this.#s.path + path, { ...o, headers: { ...this.#s.headers, ...o.headers } });
  }

  /** read returns a whole file. Over maxBytes it throws `too_large` and returns nothing. */
  async read(path: string, o: Signal & { at?: string; maxBytes?: number } = {}): Promise<Uint8Array> {
    return (await this.readWith(path, o)).data;
  }

  /** readWith is read with the entity tag. */
  async readWith(path: string, o: Signal & { at?: string; maxBytes?: number } = {}): Promise<{ data: Uint8Array; etag: string }> {
    const { body, etag, size } = await this.#open(path, o);
    const max = o.maxBytes ?? Infinity;
    const tooLarge = () => new UmbraError({ code: "too_large", status: 0, detail: `The file has more than ${max} bytes.` });
    if (size !== undefined && size > max) {
      await body.cancel();
      throw tooLarge();
    }
    try {
      return { data: await bytesOf(body, max), etag };
    } catch (err) {
      if (err instanceof UmbraError && err.code === "response_too_large") throw tooLarge();
      throw err;
    }
  }

  /** stream returns a file as a stream that goes on after a broken connection. */
  async stream(path: string, o: Signal & { at?: string } = {}): Promise<ReadableStream<Uint8Array>> {
    return (await this.#open(path, o)).body;
  }

  async #open(path: string, o: Signal & { at?: string }): Promise<{ body: ReadableStream<Uint8Array>; etag: string; size?: number }> {
    const { http, headers } = this.#s;
    const get = (more: Record<string, string>) =>
      http.send("GET", this.#s.path + "/content", { query: { path, at: o.at }, headers: { ...headers, "Accept-Encoding": "identity", ...more }, signal: o.signal });
    const first = await get({});
    const etag = first.headers.get("etag") ?? "";
    const length = first.headers.get("content-length");
    const size = length === null ? undefined : Number(length);
    let reader = first.body?.getReader();
    let at = 0;
    let failures = 0;
    const body = new ReadableStream<Uint8Array>({
      async pull(control) {
        for (;;) {
          try {
            if (reader === undefined) {
              const rest = await get({ Range: `bytes=${at}-`, "If-Match": etag });
              if (rest.status !== 206) {
                await rest.body?.cancel();
                throw new UmbraError({ code: "bad_response", status: rest.status, detail: "The server did not resume the download." });
              }
              reader = rest.body?.getReader();
            }
            const piece = reader === undefined ? undefined : await next(reader, http.timeoutMs, o.signal);
            if (piece !== undefined && !piece.done) {
              at += piece.value.byteLength;
              failures = 0;
              control.enqueue(piece.value);
              return;
            }
            if (size === undefined || at >= size) {
              control.close();
              return;
            }
            throw new Error("the body ended early");
          } catch (err) {
            if (o.signal?.aborted) throw o.signal.reason;
            if (err instanceof UmbraError && err.code !== "network") throw err;
            if (failures++ >= http.retries || etag === "") throw err instanceof UmbraError ? err : network(err);
            reader = undefined;
            if (size !== undefined && at >= size) {
              control.close();
              return;
            }
            await sleep(delay(failures), o.signal);
          }
        }
      },
      async cancel(reason) {
        await reader?.cancel(reason);
      },
    });
    return { body, etag, size };
  }

  /** readText returns lines of a text with their ends; `nextOffset` is null at the end. */
  async readText(path: string, o: Signal & { offset?: number; limit?: number; at?: string; maxBytes?: number } = {}): Promise<{ text: string; totalLines: number; nextOffset: number | null; etag: string }> {
    const res = await this.#s.http.send("GET", this.#s.path + "/content", {
      query: { path, offset: o.offset ?? 0, limit: o.limit, at: o.at }, headers: this.#s.headers, signal: o.signal,
    });
    let text: string;
    try {
      text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(await bytesOf(res.body, o.maxBytes ?? Infinity, false, this.#s.http.timeoutMs, o.signal));
    } catch (err) {
      if (o.signal?.aborted) throw o.signal.reason;
      if (err instanceof UmbraError && err.code === "response_too_large") throw new UmbraError({ code: "too_large", status: 0, detail: `The text has more than ${o.maxBytes} bytes; read fewer lines.` });
      throw err instanceof UmbraError ? err : network(err);
    }
    const more = res.headers.get("umbra-next-offset");
    return { text, totalLines: Number(res.headers.get("umbra-total-lines") ?? 0), nextOffset: more === null ? null : Number(more), etag: res.headers.get("etag") ?? "" };
  }

  async write(path: string, content: Content, o: WriteOptions = {}): Promise<TaskWritten> {
    present(content);
    return this.#json("PUT", "/content", { query: { path }, content, headers: conditions(o), signal: o.signal, timeoutMs: content instanceof Object && !(content instanceof Uint8Array || content instanceof ArrayBuffer) ? 0 : undefined });
  }

  edit(path: string, oldString: string, newString: string, o: WriteOptions & { replaceAll?: boolean } = {}): Promise<TaskWritten & { occurrences: number }> {
    return this.#json("POST", "/edit", { body: { path, old_string: oldString, new_string: newString, replace_all: o.replaceAll ?? false }, headers: conditions(o), signal: o.signal });
  }

  async append(path: string, content: Content, o: WriteOptions = {}): Promise<TaskWritten> {
    present(content);
    return this.#json("POST", "/append", { query: { path }, content, headers: conditions(o), signal: o.signal });
  }

  delete(path: string, o: WriteOptions & { recursive?: boolean; force?: boolean } = {}): Promise<TaskWritten> {
    return this.#json("DELETE", "/content", { query: { path, recursive: o.recursive, force: o.force }, headers: conditions(o), signal: o.signal });
  }

  move(from: string, to: string, o: WriteOptions & { overwrite?: boolean } = {}): Promise<TaskWritten> {
    return this.#json("POST", "/move", { body: { from, to, overwrite: o.overwrite ?? false }, headers: conditions(o), signal: o.signal });
  }

  copy(from: string, to: string, o: WriteOptions & { overwrite?: boolean; recursive?: boolean } = {}): Promise<TaskWritten> {
    return this.#json("POST", "/copy", { body: { from, to, overwrite: o.overwrite ?? false, recursive: o.recursive ?? false }, headers: conditions(o), signal: o.signal });
  }

  mkdir(path: string, o: Signal & { recursive?: boolean } = {}): Promise<{ path: string; created: boolean; commit: string | null }> {
    return this.#json("POST", "/mkdir", { body: { path, recursive: o.recursive ?? false }, signal: o.signal });
  }

  symlink(path: string, target: string, o: Signal = {}): Promise<TaskWritten & { target: string }> {
    return this.#json("POST", "/symlink", { body: { path, target }, signal: o.signal });
  }

  /** list yields what is in a directory, sorted by path, page by page. */
  async *list(path = "", o: Signal & { recursive?: boolean; limit?: number; after?: string } = {}): AsyncGenerator<TaskFileEntry, void, void> {
    let after = o.after;
    for (;;) {
      const page = await this.#json<{ entries: TaskFileEntry[]; next: string | null }>("GET", "/list", { query: { path, recursive: o.recursive, limit: o.limit, after }, signal: o.signal });
      yield* page.entries;
      if (page.next === null || page.next === undefined) return;
      after = page.next;
    }
  }

  stat(path: string, o: Signal & { follow?: boolean } = {}): Promise<TaskFileEntry> {
    return this.#json("GET", "/stat", { query: { path, follow: o.follow }, signal: o.signal });
  }

  search(pattern: string, o: SearchOptions = {}): Promise<{ matches: TaskMatch[]; truncated: boolean }> {
    return this.#json("GET", "/search", {
      query: { pattern, literal: o.literal, ignore_case: o.ignoreCase, path: o.path, glob: o.glob, context: o.context, max: o.max, max_per_file: o.maxPerFile }, signal: o.signal,
    });
  }

  glob(pattern: string, o: Signal & { path?: string; max?: number } = {}): Promise<{ entries: TaskFileEntry[]; truncated: boolean }> {
    return this.#json("GET", "/glob", { query: { pattern, path: o.path, max: o.max }, signal: o.signal });
  }

  /** batch does several operations as one commit, all or none. */
  batch(operations: BatchOperation[], o: Signal & { message?: string } = {}): Promise<{ commit: string | null; entries: any[] }> {
    return this.#json("POST", "/batch", { body: { operations, ...(o.message === undefined ? {} : { message: o.message }) }, signal: o.signal });
  }
}
