import { jsonSchema, tool } from "ai";
import type { Experimental_SandboxSession as SandboxSession, ToolSet } from "ai";
import { Guard, InvalidPath, advice, belowHost, defaultMaxReadBytes, either, legalSubtask, resolvePath, rethrowAbort } from "./adapter.js";
import { UmbraError } from "./errors.js";
import type { Content } from "./http.js";
import type { ExecResult, Task, Toolset, Umbra } from "./index.js";

export interface SandboxOptions {
  task: Task;
  /** The directory that relative paths and commands begin in; `/` is the workspace's root. */
  workingDirectory?: string;
  description?: string;
  /** The subtask of all changes. The AI SDK does not name the calling agent. */
  subtask?: string;
  guard?: "etag" | "none";
  maxReadBytes?: number;
}

export type UmbraSandboxSession = SandboxSession & {
  readonly task: Task;
  /** subtask returns the same sandbox for one agent. */
  subtask(id: string): UmbraSandboxSession;
};

/** range returns lines from start to end, both 1-based and inclusive, as the AI SDK's own sandboxes do. */
function range(text: string, start?: number, end?: number): string {
  if (start == null && end == null) return text;
  const eol = text.includes("\r\n") ? "\r\n" : text.includes("\n") || !text.includes("\r") ? "\n" : "\r";
  return text.split(eol).slice(Math.max(1, start ?? 1) - 1, end).join(eol);
}

const missing = (err: unknown) => err instanceof UmbraError && (err.code === "file_not_found" || err.code === "not_found" || err.code === "not_a_directory");

/**
 * umbraSandbox returns a sandbox session for `experimental_sandbox`, whose files
 * are the workspace of a task. Errors are Errors with a text for a model.
 */
export function umbraSandbox(o: SandboxOptions): UmbraSandboxSession {
  if (o?.task === undefined) throw new TypeError("umbraSandbox needs a task");
  return session(o, o.subtask === undefined ? o.task : o.task.subtask(legalSubtask(o.subtask)), new Guard(o.guard !== "none"));
}

/** Infra is what a provider's session has more: the machine's path of the workspace, and the end of its commands. */
interface Infra {
  host: string;
  stopped: AbortSignal;
}

function session(o: SandboxOptions, task: Task, guard: Guard, infra?: Infra): UmbraSandboxSession {
  const host = infra?.host ?? "";
  const base = o.workingDirectory ?? (host || "/");
  const maxBytes = o.maxReadBytes ?? defaultMaxReadBytes;
  const at = (path: string) => {
    const full = path.startsWith("/") ? path : `${base}/${path}`;
    return resolvePath(host === "" ? full : belowHost(full, host));
  };

  /** doing runs fn on a path; a failure is an Error with a text for a model. */
  async function doing<T>(path: string, signal: AbortSignal | undefined, fn: (p: string) => Promise<T>): Promise<T> {
    signal?.throwIfAborted();
    try {
      return await fn(at(path));
    } catch (err) {
      rethrowAbort(err, signal);
      throw new Error(advice(err, path), { cause: err });
    }
  }

  /** orNull is doing that returns null where the path does not exist. */
  const orNull = <T>(path: string, signal: AbortSignal | undefined, fn: (p: string) => Promise<T>) =>
    doing<T | null>(path, signal, (p) => fn(p).catch((err) => {
      if (missing(err)) return null;
      throw err;
    }));

  const readBytes = (path: string, signal?: AbortSignal) =>
    orNull(path, signal, async (p) => {
      const { data, etag } = await task.files.readWith(p, { signal, maxBytes });
      guard.saw(task, p, etag);
      return data;
    });

  const write = (path: string, content: Content, signal?: AbortSignal) =>
    doing(path, signal, async (p) => {
      if (p === "") throw new InvalidPath(path);
      await guard.write(task, p, content, path, { signal });
    });

  /** A command, the fields of its request, and what ends it. It starts relative to the workspace's root. */
  const command = ({ command, workingDirectory, env, abortSignal }: any) => ({
    command: command as string,
    o: { cwd: at(workingDirectory ?? "") || ".", ...(env === undefined ? {} : { env }) },
    signals: [abortSignal as AbortSignal | undefined, infra?.stopped],
  });

  const self = {
    task,
    description: o.description ?? `A workspace whose files are kept by umbra: each change is recorded and can be undone. The working directory is ${base}; / is the workspace's root.`,
    subtask: (id: string) => session(o, task.subtask(legalSubtask(id)), guard, infra),
    readFile: ({ path, abortSignal }: any) => orNull(path, abortSignal, (p) => task.files.stream(p, { signal: abortSignal })),
    readBinaryFile: ({ path, abortSignal }: any) => readBytes(path, abortSignal),
    readTextFile: async ({ path, encoding, startLine, endLine, abortSignal }: any) => {
      const data = await readBytes(path, abortSignal);
      return data === null ? null : range(new TextDecoder(encoding ?? "utf-8", { ignoreBOM: true }).decode(data), startLine, endLine);
    },
    writeFile: ({ path, content, abortSignal }: any) => write(path, content, abortSignal),
    writeBinaryFile: ({ path, content, abortSignal }: any) => write(path, content, abortSignal),
    writeTextFile: async ({ path, content, encoding, abortSignal }: any) => write(path, encode(content, encoding), abortSignal),
    stat: ({ path, abortSignal }: any) =>
      orNull(path, abortSignal, async (p) => {
        const e = await task.files.stat(p, { signal: abortSignal });
        // A link that leads nowhere has nothing to follow.
        if (e.type === "symlink") return null;
        return { type: e.type as "file" | "directory", size: e.size };
      }),
    listDirectory: ({ path, abortSignal }: any) =>
      orNull(path, abortSignal, async (p) => {
        const out: { name: string; type: "file" | "directory" | "symlink" }[] = [];
        for await (const e of task.files.list(p, { signal: abortSignal })) out.push({ name: e.name, type: e.type as any });
        return out;
      }),
    deleteFile: async ({ path, abortSignal }: any) =>
      (await orNull(path, abortSignal, async (p) => {
        if ((await task.files.stat(p, { follow: false, signal: abortSignal })).type === "directory") throw new UmbraError({ code: "is_a_directory", status: 409, detail: "" });
        await task.files.delete(p, { signal: abortSignal });
        guard.forget(task, p);
        return true;
      })) ?? false,
    run: (options: any) =>
      doing(options.workingDirectory ?? base, options.abortSignal, async () => {
        const c = command(options);
        const { signal, done: over } = either(...c.signals);
        const done = await task.exec(c.command, { ...c.o, signal }).finally(over);
        await guard.ran(task, done);
        // -1: ended by the server's time limit.
        return { exitCode: done.exit_code ?? -1, stdout: done.stdout, stderr: done.stderr };
      }),
    spawn: (options: any) =>
      doing(options.workingDirectory ?? base, options.abortSignal, async () => {
        if (options.stdin === true) throw new Error("A writable stdin is not supported; pass the input in a file.");
        const c = command(options);
        return spawn(task, c.command, c.o, (done) => guard.ran(task, done), c.signals);
      }),
  };
  return self as unknown as UmbraSandboxSession;
}

function encode(text: string, encoding = "utf-8"): Uint8Array {
  switch (encoding.toLowerCase().replace(/[-_]/g, "")) {
    case "utf8":
      return new TextEncoder().encode(text);
    case "utf16le": {
      const out = new DataView(new ArrayBuffer(text.length * 2));
      for (let i = 0; i < text.length; i++) out.setUint16(i * 2, text.charCodeAt(i), true);
      return new Uint8Array(out.buffer);
    }
    case "latin1": case "iso88591": case "binary":
      for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 255) throw new TypeError(`The text has characters that ${encoding} does not have.`);
      return Uint8Array.from(text, (c) => c.charCodeAt(0));
    case "ascii": case "usascii":
      for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 127) throw new TypeError(`The text has characters that ${encoding} does not have.`);
      return Uint8Array.from(text, (c) => c.charCodeAt(0));
  }
  throw new TypeError(`The encoding ${encoding} is not supported.`);
}

/** spawn starts a command and returns once the server has accepted it. Its end is the connection's. */
async function spawn(task: Task, command: string, o: Record<string, any>, ran: (done: ExecResult) => Promise<void>, signals: (AbortSignal | undefined)[]) {
  const killed = new AbortController();
  const { signal, done } = either(...signals, killed.signal);
  const events = await task.execStream(command, { ...o, signal }).catch((err) => {
    done();
    throw err;
  });
  const pipes: { [name: string]: ReadableStreamDefaultController<Uint8Array> } = {};
  const pipe = (name: string) => new ReadableStream<Uint8Array>({ start: (c) => { pipes[name] = c; }, cancel: () => { delete pipes[name]; } });
  const [stdout, stderr] = [pipe("stdout"), pipe("stderr")];
  const encoder = new TextEncoder();
  const close = (exitCode: number) => {
    for (const p of Object.values(pipes)) p.close();
    return { exitCode };
  };
  const ended = (async () => {
    try {
      for await (const e of events) {
        if (e.event === "end") {
          await ran(e.result);
          return close(e.result.exit_code ?? -1);
        }
        pipes[e.event]?.enqueue(encoder.encode(e.text));
      }
      throw new Error("The connection to the server ended before the command.");
    } catch (err) {
      if (killed.signal.aborted && !signals.some((s) => s?.aborted)) return close(143); // 128 and SIGTERM
      for (const p of Object.values(pipes)) p.error(err);
      throw err;
    } finally {
      done();
    }
  })();
  ended.catch(() => {}); // reported by wait and the streams
  return {
    stdout,
    stderr,
    wait: () => ended,
    async kill() {
      killed.abort();
      await ended.catch(() => {});
    },
  };
}

export interface SandboxProviderOptions extends Omit<SandboxOptions, "task"> {
  umbra: Umbra;
  /** An absolute path of a directory on the server's machine; its absolute paths are the session's. */
  workspace?: string;
  /** A workspace without a directory; a list is its namespace. */
  virtual?: boolean | string[];
  goal?: string;
  /** Ports at which commands listen; they are reached at the server's host. */
  ports?: number[];
}

/** A session of `umbraSandboxProvider`: a HarnessV1NetworkSandboxSession of `@ai-sdk/harness`. */
export type UmbraNetworkSandboxSession = UmbraSandboxSession & {
  /** The task's id. */
  readonly id: string;
  readonly defaultWorkingDirectory: string;
  readonly ports: readonly number[];
  getPortEndpoint(o: { port: number; protocol?: "http" | "https" | "ws" }): Promise<{ url: string }>;
  getPortUrl(o: { port: number; protocol?: "http" | "https" | "ws" }): Promise<string>;
  /** stop ends the session's commands and pauses its task; resumeSession goes on with it. */
  stop(): Promise<void>;
  /** destroy also completes the task. Its changes stay and can be undone. */
  destroy(): Promise<void>;
  restricted(): UmbraSandboxSession;
};

/** A HarnessV1SandboxProvider of `@ai-sdk/harness`. */
export interface UmbraSandboxProvider {
  readonly specificationVersion: "harness-sandbox-v1";
  readonly providerId: string;
  createSession(o?: {
    sessionId?: string; abortSignal?: AbortSignal; identity?: string;
    onFirstCreate?: (session: SandboxSession, o: { abortSignal?: AbortSignal }) => Promise<void>;
  }): Promise<UmbraNetworkSandboxSession>;
  resumeSession(o: { sessionId: string; abortSignal?: AbortSignal }): Promise<UmbraNetworkSandboxSession>;
}

/** umbraSandboxProvider returns a provider whose sessions are tasks: a session's id is its task's. */
export function umbraSandboxProvider(o: SandboxProviderOptions): UmbraSandboxProvider {
  if (o?.umbra === undefined) throw new TypeError("umbraSandboxProvider needs umbra");
  if ((o.workspace === undefined) === (o.virtual === undefined)) throw new TypeError("umbraSandboxProvider needs one of workspace and virtual");

  async function open(task: Task, host: string): Promise<UmbraNetworkSandboxSession> {
    const stopped = new AbortController();
    const base = session(o as unknown as SandboxOptions, o.subtask === undefined ? task : task.subtask(legalSubtask(o.subtask)), new Guard(o.guard !== "none"), { host, stopped: stopped.signal });
    const settle = async (status: "paused" | "completed") => {
      stopped.abort(new Error("The sandbox was stopped."));
      await task.update({ status }).catch((err) => {
        if (!(err instanceof UmbraError) || err.code !== "task_ended") throw err;
      });
    };
    const ports = o.ports ?? [];
    const getPortUrl = async ({ port, protocol = "http" }: { port: number; protocol?: string }) => {
      if (!ports.includes(port)) throw new Error(`The sandbox does not expose port ${port}; name it in ports.`);
      const url = new URL(o.umbra.http.url);
      return `${protocol}://${url.hostname}:${port}`;
    };
    return {
      ...base, id: task.id, defaultWorkingDirectory: o.workingDirectory ?? (host || "/"), ports, getPortUrl,
      getPortEndpoint: async (e) => ({ url: await getPortUrl(e) }),
      stop: () => settle("paused"),
      destroy: () => settle("completed"),
      restricted: () => base,
    };
  }
  const hostOf = (folder: string | null) => (o.workspace === undefined ? "" : (folder ?? "").replace(/\/+$/, ""));

  return {
    specificationVersion: "harness-sandbox-v1",
    providerId: "umbra",
    async createSession(options = {}) {
      const signal = options.abortSignal;
      const task = await o.umbra.tasks.create({
        goal: o.goal ?? "sandbox session", ...(options.sessionId === undefined ? {} : { task_id: options.sessionId }),
        ...(o.workspace !== undefined ? { workspace: o.workspace } : { kind: "virtual" as const, ...(Array.isArray(o.virtual) ? { namespace: o.virtual } : {}) }),
      }, { signal });
      const made = await open(task, hostOf((await task.get({ signal })).workspace));
      await options.onFirstCreate?.(made.restricted(), { abortSignal: signal });
      return made;
    },
    async resumeSession({ sessionId, abortSignal: signal }) {
      const task = await o.umbra.tasks.get(sessionId, { signal });
      const { status, workspace } = await task.get({ signal });
      if (status === "paused") await task.update({ status: "executing" }, { signal });
      return open(task, hostOf(workspace));
    },
  };
}

/**
 * umbraTools returns a toolset's tools of this moment as a ToolSet. What a tool
 * reports as an error is its result, not a throw.
 */
export async function umbraTools(o: { toolset: Toolset; format?: "mcp" | "openai" | "anthropic" | "langchain"; subtask?: string }): Promise<ToolSet> {
  if (o?.toolset === undefined) throw new TypeError("umbraTools needs a toolset");
  const { tools } = await o.toolset.turn({ format: o.format ?? "mcp" });
  const out: ToolSet = {};
  for (const t of tools) {
    const f = t.function ?? t; // OpenAI's chat format
    out[f.name] = tool({
      description: f.description,
      inputSchema: jsonSchema(f.inputSchema ?? f.input_schema ?? f.parameters ?? f.schema),
      execute: async (args: unknown, { abortSignal }: { abortSignal?: AbortSignal }) => {
        try {
          return (await o.toolset.call(f.name, args ?? {}, { subtaskId: o.subtask === undefined ? undefined : legalSubtask(o.subtask), signal: abortSignal })).content;
        } catch (err) {
          rethrowAbort(err, abortSignal);
          return `Error: ${advice(err, "")}`;
        }
      },
    }) as ToolSet[string];
  }
  return out;
}
