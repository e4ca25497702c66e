import { UmbraError } from "./errors.js";
import { EventsOptions, UmbraEvent, follow, parse } from "./events.js";
import { Files, Scope, Signal } from "./files.js";
import { RequestOptions, Transport, UmbraOptions, network, segment, textOf } from "./http.js";
import type { TaskEntry, TaskObject, TaskSummary } from "./wire.js";

export { UmbraError } from "./errors.js";
export type { EventsOptions, UmbraEvent } from "./events.js";
export { Files } from "./files.js";
export type { BatchOperation, SearchOptions, Signal, WriteOptions } from "./files.js";
export type { Content, Query, RequestOptions, UmbraOptions } from "./http.js";
export type * from "./wire.js";

/** RevertOptions say what of a task to undo; none: all of it. */
export interface RevertOptions extends Signal {
  path?: string;
  subtask?: string;
  change?: number;
  call?: string;
  dryRun?: boolean;
  onConflict?: "refuse" | "force" | "skip";
  plan?: string;
  includeExternal?: boolean;
  includeShared?: boolean;
}

export interface RevertResult {
  commit: string | null;
  entries_reverted: number;
  files: { path: string; action: string }[];
  conflicts: any[];
  dry_run: boolean;
  plan?: string;
  [more: string]: any;
}

/** ExecOptions are the fields of the request's body. */
export interface ExecOptions extends Signal {
  cwd?: string;
  env?: Record<string, string>;
  stdin?: string;
  timeout_ms?: number;
  isolate?: "require" | "try";
  dry_run?: boolean;
}

/** ExecResult is the end of a command: `exit_code` is null where its time ended it. */
export interface ExecResult {
  exit_code: number | null;
  stdout: string;
  stderr: string;
  truncated: boolean;
  timed_out: boolean;
  commit: string | null;
  entries: TaskEntry[];
  conflicts: any[];
  [more: string]: any;
}

/** ExecEvent is a piece of a command's output, or its end. */
export type ExecEvent = { event: "stdout" | "stderr"; text: string } | { event: "end"; result: ExecResult };

async function* pages<T>(http: Transport, path: string, member: string, o: Signal & Record<string, any>, headers: Record<string, string> = {}): AsyncGenerator<T, void, void> {
  const { signal, ...query } = o;
  for (;;) {
    const page = await http.json(`GET`, path, { query, signal, headers });
    yield* page[member] as T[];
    if (page.next === null || page.next === undefined) return;
    query.after = page.next;
  }
}

const ended = new Set(["completed", "failed", "cancelled"]);

/** Task is one task as a subtask and an actor see it: a value, free of I/O. */
export class Task {
  readonly id: string;
  readonly umbra: Umbra;
  readonly subtaskId: string | undefined;
  readonly actor: string | undefined;
  readonly files: Files;
  readonly #s: Scope;

  constructor(umbra: Umbra, id: string, subtaskId?: string, actor?: string) {
    this.umbra = umbra;
    this.id = id;
    this.subtaskId = subtaskId;
    this.actor = actor;
    const headers: Record<string, string> = {};
    if (subtaskId !== undefined) headers["X-Subtask-Id"] = subtaskId;
    if (actor !== undefined) headers["X-Actor"] = actor;
    this.#s = { http: umbra.http, path: "/tasks/" + segment(id), headers };
    this.files = new Files(this.#s);
  }

  /** subtask returns the same task for one subtask of it. */
  subtask(id: string | null | undefined): Task {
    return new Task(this.umbra, this.id, id ?? undefined, this.actor);
  }

  /** as returns the same task for another actor. */
  as(actor: string): Task {
    return new Task(this.umbra, this.id, this.subtaskId, actor);
  }

  #json<T>(method: string, path: string, o: RequestOptions = {}): Promise<T> {
    return this.#s.http.json<T>(method, this.#s.path + path, { ...o, headers: { ...this.#s.headers, ...o.headers } });
  }

  get(o: Signal = {}): Promise<TaskObject> {
    return this.#json("GET", "", o);
  }

  update(fields: { status?: TaskObject["status"]; goal?: string; metadata?: Record<string, unknown>; pinned?: boolean }, o: Signal = {}): Promise<TaskObject> {
    return this.#json("PATCH", "", { body: fields, ...o });
  }

  complete(o: Signal = {}): Promise<TaskObject> {
    return this.update({ status: "completed" }, o);
  }

  delete(o: Signal = {}): Promise<void> {
    return this.#json("DELETE", "", o);
  }

  changes(o: Signal & { subtask_id?: string; path?: string; after?: number; limit?: number } = {}): AsyncGenerator<TaskEntry, void, void> {
    return pages(this.#s.http, this.#s.path + "/changes", "entries", o, this.#s.headers);
  }

  summary(o: Signal = {}): Promise<TaskSummary> {
    return this.#json("GET", "/files", o);
  }

  /** diff returns a unified diff that `git apply` takes. */
  async diff(o: Signal & { path?: string; from?: string; to?: string; context?: number } = {}): Promise<string> {
    const { signal, ...query } = o;
    const res = await this.#s.http.send("GET", this.#s.path + "/diff", { query, signal, headers: this.#s.headers });
    try {
      return await textOf(res, Infinity, false, this.#s.http.timeoutMs, signal);
    } catch (err) {
      if (signal?.aborted) throw signal.reason;
      throw err instanceof UmbraError ? err : network(err);
    }
  }

  revert(o: RevertOptions = {}): Promise<RevertResult> {
    const body: Record<string, unknown> = {};
    if (o.dryRun !== undefined) body.dry_run = o.dryRun;
    if (o.onConflict !== undefined && o.onConflict !== "refuse") body.on_conflict = o.onConflict;
    if (o.plan !== undefined) body.plan = o.plan;
    if (o.includeExternal !== undefined) body.include_external = o.includeExternal;
    if (o.includeShared !== undefined) body.include_shared = o.includeShared;
    const given = (["path", "subtask", "change", "call"] as const).filter((k) => k in o);
    // A name that was not found must not undo all of the task.
    for (const k of given) if (o[k] == null || o[k] === "") throw new TypeError(`revert: ${k} is empty; leave it out to undo all of the task`);
    if (given.length > 1) throw new TypeError("revert takes one of path, subtask, change and call");
    if (o.call !== undefined) return this.#s.http.json("POST", `/calls/${segment(o.call)}/revert`, { body, signal: o.signal, headers: this.#s.headers });
    if (o.path !== undefined) body.path = o.path;
    const path = o.subtask !== undefined ? `/subtasks/${segment(o.subtask)}/revert` : o.change !== undefined ? `/changes/${o.change}/revert` : "/revert";
    return this.#json("POST", path, { body, signal: o.signal });
  }

  hunks(o: Signal & { subtask?: string; path?: string; status?: string } = {}): AsyncGenerator<any, void, void> {
    return pages(this.#s.http, this.#s.path + "/hunks", "hunks", o, this.#s.headers);
  }

  /** review accepts and rejects hunks by their ids; rejected ones are taken back as one commit. */
  review(body: { accept?: string[]; reject?: string[]; accept_rest?: boolean; reject_rest?: boolean; hold?: boolean; plan?: string; dry_run?: boolean; message?: string }, o: Signal = {}): Promise<any> {
    return this.#json("POST", "/review", { body, ...o });
  }

  /** exec runs a command; what it changes is this subtask's. */
  exec(command: string | string[], o: ExecOptions = {}): Promise<ExecResult> {
    const { signal, ...fields } = o;
    return this.#json("POST", "/exec", { body: { command, ...fields }, signal, timeoutMs: 0 });
  }

  /**
   * execStream runs a command and returns once the server has accepted it. The
   * events are its output in the order of arrival, and its end. The command ends
   * with the iteration.
   */
  async execStream(command: string | string[], o: ExecOptions = {}): Promise<AsyncGenerator<ExecEvent, void, void>> {
    const { signal, ...fields } = o;
    const connection = new AbortController();
    const stop = () => connection.abort(signal?.reason);
    signal?.addEventListener("abort", stop, { once: true });
    const over = () => signal?.removeEventListener("abort", stop);
    let res: Response;
    try {
      signal?.throwIfAborted();
      res = await this.#s.http.send("POST", this.#s.path + "/exec", { body: { command, ...fields }, headers: { ...this.#s.headers, Accept: "text/event-stream" }, signal: connection.signal, timeoutMs: 0 });
    } catch (err) {
      over();
      throw err;
    }
    return (async function* () {
      try {
        for await (const { event, data } of parse(res, connection, 0)) {
          if (event === "error") throw new UmbraError({ code: String(data?.error), status: 0, detail: String(data?.detail) });
          if (event === "stdout" || event === "stderr") yield { event, text: String(data?.text ?? "") };
          if (event !== "end") continue;
          yield { event, result: data };
          return;
        }
        throw network(new Error("the stream ended before the command"));
      } catch (err) {
        if (signal?.aborted) throw signal.reason;
        throw err instanceof UmbraError ? err : network(err);
      } finally {
        over();
        connection.abort();
      }
    })();
  }

  events(o: EventsOptions = {}): AsyncGenerator<UmbraEvent, void, void> {
    const path = this.#s.path;
    return follow(this.#s.http, {
      path: path + "/stream",
      headers: this.#s.headers,
      now: async (signal) => {
        const task = await this.get({ signal });
        return newest(this.#s.http, task.workspace_id, signal);
      },
      ended: async (signal) => ended.has((await this.get({ signal })).status),
    }, o);
  }

  /** call brackets what fn does on disk with the agent's own tools. */
  async call<T>(o: { tool?: string; paths?: string[]; workspace_id?: string; signal?: AbortSignal; [field: string]: any }, fn: (call: any) => Promise<T> | T): Promise<T> {
    const { signal, ...fields } = o;
    const workspace_id = fields.workspace_id ?? (await this.get({ signal })).workspace_id;
    // The client makes the id, so that a call whose begin was not answered can be ended.
    const call_id: string = fields.call_id ?? "call-" + crypto.randomUUID();
    let call: any = { call_id };
    const end = (status: string) => this.#s.http.json("POST", `/calls/${segment(call.call_id)}/end`, { body: { status }, headers: this.#s.headers });
    try {
      call = await this.#s.http.json("POST", "/calls", {
        body: { agent: "umbra-client", workspace_id, task_id: this.id, ...(this.subtaskId === undefined ? {} : { subtask_id: this.subtaskId }), ...fields, call_id }, signal, headers: this.#s.headers,
      });
    } catch (err) {
      // The server may have begun it all the same; the caller does not wait for that.
      if (signal?.aborted && fields.call_id === undefined) void end("cancelled").catch(() => {});
      throw err;
    }
    let value: T;
    try {
      value = await fn(call);
    } catch (err) {
      // The function's error is the one to report.
      await end(signal?.aborted ? "cancelled" : "failed").catch(() => {});
      throw err;
    }
    await end(signal?.aborted ? "cancelled" : "ok");
    return value;
  }
}

/** newest returns the sequence number of a workspace's newest recorded change. */
async function newest(http: Transport, workspace: string, signal?: AbortSignal): Promise<number> {
  const log = await http.json("GET", `/workspaces/${segment(workspace)}/log`, { query: { limit: 1 }, signal });
  const seq = log.entries?.[0]?.seq;
  return typeof seq === "number" ? seq : 1;
}

export class Workspace {
  readonly #http: Transport;
  readonly id: string;

  constructor(umbra: Umbra, id: string) {
    this.#http = umbra.http;
    this.id = id;
  }

  get #path() {
    return "/workspaces/" + segment(this.id);
  }

  get(o: Signal = {}): Promise<any> {
    return this.#http.json("GET", this.#path, o);
  }

  sync(o: Signal & { adopt?: boolean } = {}): Promise<any> {
    const { signal, ...body } = o;
    return this.#http.json("POST", this.#path + "/sync", { body, signal });
  }

  log(o: Signal & { path?: string; task_id?: string; after?: string; limit?: number } = {}): AsyncGenerator<TaskEntry, void, void> {
    return pages(this.#http, this.#path + "/log", "entries", o);
  }

  coverage(o: Signal = {}): Promise<any> {
    return this.#http.json("GET", this.#path + "/coverage", o);
  }

  events(o: EventsOptions = {}): AsyncGenerator<UmbraEvent, void, void> {
    return follow(this.#http, { path: this.#path + "/stream", headers: {}, now: (signal) => newest(this.#http, this.id, signal), ended: async () => false }, o);
  }

  revert(body: Record<string, unknown>, o: Signal = {}): Promise<RevertResult> {
    return this.#http.json("POST", this.#path + "/revert", { body, ...o });
  }

  fork(body: Record<string, unknown> = {}, o: Signal = {}): Promise<any> {
    return this.#http.json("POST", this.#path + "/forks", { body, ...o });
  }

  /** blame returns who wrote the lines of a file. */
  blame(path: string, o: Signal & { at?: string; lines?: string; ignore_whitespace?: boolean } = {}): Promise<any> {
    const { signal, ...query } = o;
    return this.#http.json("GET", this.#path + "/blame", { query: { path, ...query }, signal });
  }

  checkpoints(o: Signal = {}): AsyncGenerator<any, void, void> {
    return pages(this.#http, this.#path + "/checkpoints", "checkpoints", o);
  }

  /** checkpoint names the newest commit. */
  checkpoint(name: string, o: Signal & { message?: string } = {}): Promise<any> {
    const { signal, ...more } = o;
    return this.#http.json("POST", this.#path + "/checkpoints", { body: { name, ...more }, signal });
  }

  deleteCheckpoint(name: string, o: Signal = {}): Promise<void> {
    return this.#http.json("DELETE", `${this.#path}/checkpoints/${segment(name)}`, o);
  }

  /** restore brings the tree of a checkpoint, a commit or a time back as one new commit. */
  restore(body: { to: string; paths?: string[]; dry_run?: boolean; plan?: string }, o: Signal = {}): Promise<any> {
    return this.#http.json("POST", this.#path + "/restore", { body, ...o });
  }

  compare(other?: string, o: Signal = {}): Promise<any> {
    return this.#http.json("GET", this.#path + "/compare", { query: { with: other }, ...o });
  }

  update(fields: Record<string, unknown>, o: Signal = {}): Promise<any> {
    return this.#http.json("PATCH", this.#path, { body: fields, ...o });
  }

  delete(o: Signal & { force?: boolean } = {}): Promise<void> {
    return this.#http.json("DELETE", this.#path, { query: { force: o.force }, signal: o.signal });
  }
}

export class Toolset {
  readonly #http: Transport;
  readonly id: string;
  readonly data: any;

  constructor(umbra: Umbra, id: string, data?: any) {
    this.#http = umbra.http;
    this.id = id;
    this.data = data;
  }

  get #path() {
    return "/toolsets/" + segment(this.id);
  }

  get(o: Signal = {}): Promise<any> {
    return this.#http.json("GET", this.#path, o);
  }

  setMounts(mounts: any[], o: Signal = {}): Promise<any> {
    return this.#http.json("PUT", this.#path + "/mounts", { body: { mounts }, ...o });
  }

  turn(o: Signal & { format?: "mcp" | "openai" | "anthropic" | "langchain" } = {}): Promise<{ map: string; tools: any[]; mounts: any[] }> {
    return this.#http.json("GET", this.#path + "/turn", { query: { format: o.format }, signal: o.signal });
  }

  call(name: string, args: unknown, o: Signal & { subtaskId?: string } = {}): Promise<{ status: "success" | "error"; content: string }> {
    return this.#http.json("POST", this.#path + "/call", { body: { name, arguments: args, ...(o.subtaskId === undefined ? {} : { subtaskId: o.subtaskId }) }, signal: o.signal });
  }

  delete(o: Signal = {}): Promise<void> {
    return this.#http.json("DELETE", this.#path, o);
  }
}

export class Session {
  readonly #http: Transport;
  readonly id: string;
  readonly data: any;

  constructor(umbra: Umbra, id: string, data?: any) {
    this.#http = umbra.http;
    this.id = id;
    this.data = data;
  }

  get #path() {
    return "/api/sessions/" + segment(this.id);
  }

  get(o: Signal = {}): Promise<any> {
    return this.#http.json("GET", this.#path, o);
  }

  /** fs calls a route below `/fs`: `fs("GET", "stat", {query: {path}})`. */
  fs<T = any>(method: string, verb: string, o: RequestOptions = {}): Promise<T> {
    return this.#http.json<T>(method, `${this.#path}/fs${verb === "" ? "" : "/" + verb}`, o);
  }

  delete(o: Signal = {}): Promise<void> {
    return this.#http.json("DELETE", this.#path, o);
  }
}

/** TaskCreate is the body of `POST /tasks`. */
export interface CreateTask {
  goal: string;
  workspace?: string;
  task_id?: string;
  kind?: "virtual" | "physical";
  namespace?: string[];
  metadata?: Record<string, unknown>;
  force?: boolean;
}

/** Umbra is a client of one server. It keeps nothing but the connection's settings. */
export class Umbra {
  readonly http: Transport;

  constructor(options: UmbraOptions = {}) {
    this.http = new Transport(options);
  }

  /** request sends any request and returns its parsed answer. */
  request<T = any>(method: string, path: string, o: RequestOptions = {}): Promise<T> {
    return this.http.json<T>(method, path, o);
  }

  /** task returns a task by its id, without asking the server. */
  task(id: string): Task {
    return new Task(this, id);
  }

  readonly tasks = {
    create: async (body: CreateTask, o: Signal = {}): Promise<Task> => {
      const made = await this.http.json<TaskObject>("POST", "/tasks", { body: body.kind === "virtual" ? { workspace: "", ...body } : body, ...o, timeoutMs: 0 });
      return new Task(this, made.task_id);
    },
    get: async (id: string, o: Signal = {}): Promise<Task> => {
      await this.http.json("GET", "/tasks/" + segment(id), o);
      return new Task(this, id);
    },
    list: (o: Signal & { status?: string; workspace?: string; limit?: number } = {}): AsyncGenerator<TaskObject, void, void> => pages(this.http, "/tasks", "tasks", o),
  };

  readonly sessions = {
    create: async (body: { workspaceRoot: string; taskId?: string; authType?: string; model?: string; org?: string }, o: Signal = {}): Promise<Session> => {
      const made = await this.http.json("POST", "/api/sessions", { body, ...o, timeoutMs: 0 });
      return new Session(this, made.sessionId, made);
    },
    get: async (id: string, o: Signal = {}): Promise<Session> => new Session(this, id, await this.http.json("GET", "/api/sessions/" + segment(id), o)),
    list: (o: Signal = {}): AsyncGenerator<any, void, void> => pages(this.http, "/api/sessions", "sessions", o),
  };

  readonly workspaces = {
    get: async (id: string, o: Signal = {}): Promise<Workspace> => {
      await this.http.json("GET", "/workspaces/" + segment(id), o);
      return new Workspace(this, id);
    },
    list: (o: Signal = {}): AsyncGenerator<any, void, void> => pages(this.http, "/workspaces", "workspaces", o),
  };

  readonly toolsets = {
    create: async (body: { mounts: any[]; taskId?: string; idleSeconds?: number }, o: Signal = {}): Promise<Toolset> => {
      const made = await this.http.json("POST", "/toolsets", { body, ...o, timeoutMs: 0 });
      return new Toolset(this, made.id, made);
    },
    get: async (id: string, o: Signal = {}): Promise<Toolset> => new Toolset(this, id, await this.http.json("GET", "/toolsets/" + segment(id), o)),
    list: (o: Signal = {}): AsyncGenerator<any, void, void> => pages(this.http, "/toolsets", "toolsets", o),
  };

  readonly calls = {
    create: (body: Record<string, unknown>, o: Signal = {}): Promise<any> => this.http.json("POST", "/calls", { body, ...o }),
    get: (id: string, o: Signal = {}): Promise<any> => this.http.json("GET", "/calls/" + segment(id), o),
    list: (o: Signal & { workspace_id?: string; task_id?: string; open?: boolean } = {}): AsyncGenerator<any, void, void> => pages(this.http, "/calls", "calls", o),
    end: (id: string, body: { status?: string; exit_code?: number; paths?: string[] } = {}, o: Signal = {}): Promise<any> => this.http.json("POST", `/calls/${segment(id)}/end`, { body, ...o }),
    touch: (id: string, o: Signal = {}): Promise<any> => this.http.json("POST", `/calls/${segment(id)}/touch`, o),
    revert: (id: string, body: Record<string, unknown> = {}, o: Signal = {}): Promise<RevertResult> => this.http.json("POST", `/calls/${segment(id)}/revert`, { body, ...o }),
  };

  readonly forks = {
    create: (workspace: string, body: Record<string, unknown> = {}, o: Signal = {}): Promise<any> => this.http.json("POST", `/workspaces/${segment(workspace)}/forks`, { body, ...o }),
    get: (fork: string, o: Signal = {}): Promise<any> => this.http.json("GET", "/workspaces/" + segment(fork), o),
    list: (workspace: string, o: Signal = {}): AsyncGenerator<any, void, void> => pages(this.http, `/workspaces/${segment(workspace)}/forks`, "forks", o),
    merge: (fork: string, body: Record<string, unknown> = {}, o: Signal = {}): Promise<any> => this.http.json("POST", `/workspaces/${segment(fork)}/merge`, { body, ...o }),
    rebase: (fork: string, body: Record<string, unknown> = {}, o: Signal = {}): Promise<any> => this.http.json("POST", `/workspaces/${segment(fork)}/rebase`, { body, ...o }),
    compare: (fork: string, other?: string, o: Signal = {}): Promise<any> => this.http.json("GET", `/workspaces/${segment(fork)}/compare`, { query: { with: other }, ...o }),
    delete: (fork: string, o: Signal & { force?: boolean } = {}): Promise<void> => this.http.json("DELETE", "/workspaces/" + segment(fork), { query: { force: o.force }, signal: o.signal }),
  };
}
