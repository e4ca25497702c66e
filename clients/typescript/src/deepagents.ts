import { getConfig } from "@langchain/langgraph";
import type { BackendProtocolV2, DeleteResult, EditResult, ExecuteResponse, FileDownloadResponse, FileOperationError, FileUploadResponse, GlobResult, GrepResult, LsResult, ReadRawResult, ReadResult, SandboxBackendProtocolV2, WriteResult } from "deepagents";
import { Guard, InvalidPath, SubtaskOption, advice, belowHost, defaultMaxReadBytes, legalSubtask, metadataOf, mimeOf, resolvePath, rethrowAbort } from "./adapter.js";
import { base64 } from "./bytes.js";
import { UmbraError } from "./errors.js";
import type { Task, Umbra } from "./index.js";
import { subagentOf } from "./subagent.js";

export { subagentOf } from "./subagent.js";

function configNow(): any {
  try {
    return getConfig();
  } catch {
    return undefined; // outside a graph
  }
}

export interface UmbraBackendOptions {
  task: Task;
  /** A directory of the workspace that is `/` for the agent. */
  root?: string;
  subtask?: SubtaskOption<any>;
  guard?: "etag" | "none";
  maxReadBytes?: number;
}

/** UmbraBackend serves all agents of a graph: each call belongs to the subtask of the agent that makes it. */
export class UmbraBackend implements BackendProtocolV2 {
  protected base: Task | undefined;
  protected readonly root: string;
  readonly #subtask: SubtaskOption<any>;
  protected readonly guard: Guard;
  protected readonly max: number;

  constructor(o: UmbraBackendOptions) {
    if (o?.task === undefined) throw new TypeError("UmbraBackend needs a task");
    this.base = o.task;
    this.root = o.root ?? "";
    this.#subtask = o.subtask ?? "auto";
    this.guard = new Guard(o.guard !== "none");
    this.max = o.maxReadBytes ?? defaultMaxReadBytes;
  }

  protected now(): { task: Task; signal?: AbortSignal } {
    if (this.base === undefined) throw new Error("initialize() was not called");
    const config = configNow();
    let id: string | null | undefined;
    if (typeof this.#subtask === "function") id = this.#subtask(config);
    else if (this.#subtask === "auto") id = subagentOf(config) ?? this.base.subtaskId;
    else id = this.#subtask;
    return { task: id == null ? this.base : this.base.subtask(legalSubtask(id)), signal: config?.signal };
  }

  protected path(path: string): string {
    return resolvePath(path, this.root);
  }

  async #try<T extends { error?: string }>(path: string, fn: (task: Task, signal?: AbortSignal) => Promise<T>, other?: (err: UmbraError) => T | undefined): Promise<T> {
    let signal: AbortSignal | undefined;
    try {
      const now = this.now();
      signal = now.signal;
      return await fn(now.task, signal);
    } catch (err) {
      rethrowAbort(err, signal);
      if (err instanceof UmbraError && other !== undefined) {
        const result = other(err);
        if (result !== undefined) return result;
      }
      return { error: advice(err, path) } as T;
    }
  }

  ls(path: string): Promise<LsResult> {
    const prefix = path === "" || path === "." ? "" : path.replace(/\/+$/, "") + "/";
    return this.#try<LsResult>(path, async (task, signal) => {
      const files = [];
      for await (const e of task.files.list(this.path(path), { signal, limit: 10_000 })) {
        const dir = e.type === "directory";
        files.push({ path: prefix + e.name + (dir ? "/" : ""), is_dir: dir, size: e.size, modified_at: e.mtime });
      }
      return { files };
    }, (err) => (err.code === "file_not_found" ? { files: [] } : undefined));
  }

  read(path: string, offset = 0, limit = 500): Promise<ReadResult> {
    return this.#try<ReadResult>(path, async (task, signal) => {
      const at = this.path(path);
      const from = Math.max(0, Math.floor(offset));
      try {
        const got = await task.files.readText(at, { offset: from, limit: Math.max(0, Math.floor(limit)), signal, maxBytes: this.max });
        this.guard.saw(task, at, got.etag);
        const lines = got.text === "" ? 0 : got.text.split("\n").length - (got.text.endsWith("\n") ? 1 : 0);
        const out: ReadResult = { content: got.text, mimeType: "text/plain", totalLines: got.totalLines };
        if (lines > 0) {
          out.startLine = from + 1;
          out.endLine = from + lines;
          if (got.nextOffset !== null) out.nextOffset = got.nextOffset;
        }
        return out;
      } catch (err) {
        if (!(err instanceof UmbraError) || err.code !== "not_text") throw err;
      }
      const { data, etag } = await task.files.readWith(at, { signal, maxBytes: this.max });
      this.guard.saw(task, at, etag);
      return { content: data, mimeType: mimeOf(path) };
    });
  }

  readRaw(path: string): Promise<ReadRawResult> {
    return this.#try<ReadRawResult>(path, async (task, signal) => {
      const at = this.path(path);
      const [stat, { data, etag }] = await Promise.all([task.files.stat(at, { signal }), task.files.readWith(at, { signal, maxBytes: this.max })]);
      this.guard.saw(task, at, etag);
      let content: string | Uint8Array = data;
      let mimeType = mimeOf(path);
      try {
        content = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
        mimeType = "text/plain";
      } catch {
        // Not text: the bytes.
      }
      return { data: { content, mimeType, created_at: stat.created ?? stat.mtime, modified_at: stat.mtime } };
    });
  }

  write(path: string, content: string): Promise<WriteResult> {
    return this.#try<WriteResult>(path, async (task, signal) => {
      const w = await this.guard.write(task, this.path(path), content, path, { signal });
      return { path, filesUpdate: null, metadata: metadataOf(task, w) };
    });
  }

  edit(path: string, oldString: string, newString: string, replaceAll = false): Promise<EditResult> {
    return this.#try<EditResult>(path, async (task, signal) => {
      const w = await this.guard.edit(task, this.path(path), oldString, newString, replaceAll, { signal });
      return { path, filesUpdate: null, occurrences: w.occurrences, metadata: metadataOf(task, w) };
    }, (err) => {
      switch (err.code) {
        case "no_match": return { error: `String not found in file: '${oldString}'` };
        case "many_matches": {
          const n = (err.body as any)?.occurrences;
          return { error: `String '${oldString}' appears multiple times (${n}) in file; give more of the text around it, or set replace_all` };
        }
        case "empty_old_string": return { error: "old_string must not be empty; use write_file to write a whole file" };
        case "not_text": return { error: `File '${path}' is not text` };
      }
      return undefined;
    });
  }

  grep(pattern: string, path?: string | null, glob?: string | null, maxCount?: number | null): Promise<GrepResult> {
    const shown = path ?? "/";
    return this.#try<GrepResult>(shown, async (task, signal) => {
      if (pattern === "" || maxCount === 0) return { matches: [], truncated: false };
      const base = this.path(shown);
      const got = await task.files.search(pattern, { literal: true, path: base, glob: glob ?? undefined, max: maxCount ?? 10_000, signal });
      return { matches: got.matches.map((m) => ({ path: this.#shown(shown, base, m.path), line: m.line, text: m.text })), truncated: got.truncated };
    }, (err) => (err.code === "file_not_found" ? { matches: [], truncated: false } : undefined));
  }

  /** #shown writes a path of the workspace as the caller wrote the one above it. */
  #shown(asked: string, base: string, path: string): string {
    if (path === base) return asked;
    const below = base === "" ? path : path.slice(base.length + 1);
    const prefix = asked.replace(/\/+$/, "");
    return asked === "" || asked === "." ? below : `${prefix}/${below}`;
  }

  glob(pattern: string, path = "/"): Promise<GlobResult> {
    return this.#try<GlobResult>(path, async (task, signal) => {
      const base = this.path(path);
      const got = await task.files.glob(pattern.replace(/^\/+/, ""), { path: base, max: 10_000, signal });
      const files = got.entries.map((e) => ({
        path: base === "" ? e.path : e.path.slice(base.length + 1), is_dir: e.type === "directory", size: e.size, modified_at: e.mtime,
      }));
      return { files, truncated: got.truncated };
    }, (err) => (err.code === "file_not_found" ? { files: [] } : undefined));
  }

  delete(path: string): Promise<DeleteResult> {
    return this.#try<DeleteResult>(path, async (task, signal) => {
      const at = this.path(path);
      const w = await task.files.delete(at, { recursive: true, signal });
      this.guard.forget(task, at);
      return { path, filesUpdate: null, metadata: metadataOf(task, w) };
    });
  }

  async uploadFiles(files: Array<[string, Uint8Array]>): Promise<FileUploadResponse[]> {
    const { task, signal } = this.now();
    const out: FileUploadResponse[] = files.map(([path]) => ({ path, error: null }));
    const at: (string | undefined)[] = files.map(([path], i) => {
      try {
        const p = this.path(path);
        if (p === "") throw new InvalidPath(path);
        return p;
      } catch {
        out[i]!.error = "invalid_path";
        return undefined;
      }
    });
    for (;;) {
      const left = files.map((_, i) => i).filter((i) => out[i]!.error === null);
      if (left.length === 0) return out;
      try {
        const done = await task.files.batch(left.map((i) => ({ op: "write", path: at[i]!, content: base64(files[i]![1]), encoding: "base64" })), { signal });
        for (const i of left) await this.guard.renew(task, at[i]!, done.commit);
        return out;
      } catch (err) {
        rethrowAbort(err, signal);
        const code = operationError(err);
        const named = err instanceof UmbraError ? (err.body as any)?.path : undefined;
        const bad = left.filter((i) => named !== undefined && (at[i] === named || at[i]!.startsWith(named + "/")));
        // All fail where the server does not name the one that does.
        for (const i of bad.length > 0 ? bad : left) out[i]!.error = code;
      }
    }
  }

  async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    const { task, signal } = this.now();
    const out: FileDownloadResponse[] = new Array(paths.length);
    let next = 0;
    await Promise.all(Array.from({ length: Math.min(8, paths.length) }, async () => {
      while (next < paths.length) {
        const i = next++;
        const path = paths[i]!;
        try {
          const at = this.path(path);
          const { data, etag } = await task.files.readWith(at, { signal, maxBytes: this.max });
          this.guard.saw(task, at, etag);
          out[i] = { path, content: data, error: null };
        } catch (err) {
          rethrowAbort(err, signal);
          out[i] = { path, content: null, error: operationError(err) };
        }
      }
    }));
    return out;
  }
}

function operationError(err: unknown): FileOperationError {
  if (err instanceof InvalidPath) return "invalid_path";
  if (!(err instanceof UmbraError)) throw err;
  switch (err.code) {
    case "file_not_found": return "file_not_found";
    case "is_a_directory": return "is_directory";
    case "bad_path": case "not_a_directory": case "special_file": case "link_leads_out": return "invalid_path";
  }
  if (err.status === 404) return "file_not_found";
  return "permission_denied";
}

export interface UmbraSandboxOptions {
  umbra: Umbra;
  /** An absolute path of a directory on the server's machine. */
  workspace?: string;
  /** A workspace without a directory; a list is its namespace. */
  virtual?: boolean | string[];
  goal?: string;
  initialFiles?: Record<string, string>;
  /** "host", the default on a directory: absolute paths are the machine's. */
  paths?: "host" | "workspace";
  subtask?: SubtaskOption<any>;
  guard?: "etag" | "none";
  maxReadBytes?: number;
}

/** UmbraSandbox is a backend with a task of its own that can run commands. */
export class UmbraSandbox extends UmbraBackend implements SandboxBackendProtocolV2 {
  readonly #o: UmbraSandboxOptions;
  #host = "";

  constructor(o: UmbraSandboxOptions) {
    if (o?.umbra === undefined) throw new TypeError("UmbraSandbox needs umbra");
    if ((o.workspace === undefined) === (o.virtual === undefined)) throw new TypeError("UmbraSandbox needs one of workspace and virtual");
    super({ task: o.umbra.task("-"), subtask: o.subtask, guard: o.guard, maxReadBytes: o.maxReadBytes });
    this.base = undefined;
    this.#o = o;
  }

  static async create(o: UmbraSandboxOptions): Promise<UmbraSandbox> {
    const s = new UmbraSandbox(o);
    await s.initialize();
    return s;
  }

  /** The task's id; empty before initialize(). */
  get id(): string {
    return this.base?.id ?? "";
  }

  get task(): Task | undefined {
    return this.base;
  }

  get isRunning(): boolean {
    return this.base !== undefined;
  }

  async initialize(): Promise<void> {
    if (this.base !== undefined) return;
    const o = this.#o;
    const goal = o.goal ?? "deepagents sandbox";
    const task = await o.umbra.tasks.create(o.workspace !== undefined ? { goal, workspace: o.workspace }
      : { goal, kind: "virtual", ...(Array.isArray(o.virtual) ? { namespace: o.virtual } : {}) });
    if (o.workspace !== undefined && o.paths !== "workspace") this.#host = ((await task.get()).workspace ?? "").replace(/\/+$/, "");
    this.base = task;
    const files = Object.entries(o.initialFiles ?? {});
    if (files.length > 0) {
      const results = await this.uploadFiles(files.map(([path, text]) => [path, new TextEncoder().encode(text)]));
      const bad = results.find((r) => r.error !== null);
      if (bad !== undefined) throw new Error(`initialFiles: ${bad.path}: ${bad.error}`);
    }
  }

  protected override path(path: string): string {
    return resolvePath(this.#host === "" ? path : belowHost(path, this.#host), this.root);
  }

  override grep(pattern: string, path?: string | null, glob?: string | null, maxCount?: number | null): Promise<GrepResult> {
    return super.grep(pattern, path ?? (this.#host || "/"), glob, maxCount);
  }

  override glob(pattern: string, path?: string): Promise<GlobResult> {
    return super.glob(pattern, path ?? (this.#host || "/"));
  }

  /** execute runs a command; output is both streams in the order of arrival, at most what the server answers of them. */
  async execute(command: string): Promise<ExecuteResponse> {
    let signal: AbortSignal | undefined;
    try {
      const now = this.now();
      signal = now.signal;
      let output = "";
      let cut = false;
      for await (const e of await now.task.execStream(command, { signal })) {
        if (e.event !== "end") {
          cut ||= output.length > this.max;
          if (!cut) output += e.text;
          continue;
        }
        const { result } = e;
        await this.guard.ran(now.task, result);
        if (result.truncated) output = output.slice(0, result.stdout.length + result.stderr.length);
        return { output, exitCode: result.timed_out ? null : result.exit_code, truncated: result.truncated || cut };
      }
      throw new Error("The command's end is not known.");
    } catch (err) {
      rethrowAbort(err, signal);
      return { output: `Error: ${advice(err, "")}`, exitCode: 1, truncated: false };
    }
  }

  /** close completes the task; its changes stay and can still be undone. */
  async close(): Promise<void> {
    const task = this.base;
    this.base = undefined;
    await task?.complete();
  }
}
