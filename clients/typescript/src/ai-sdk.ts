import { jsonSchema, tool } from "ai";
import type { Experimental_SandboxSession as SandboxSession, ToolSet } from "ai";
import { Guard, InvalidPath, advice, defaultMaxReadBytes, legalSubtask, resolvePath, rethrowAbort } from "./adapter.js";
import { UmbraError } from "./errors.js";
import { parse } from "./events.js";
import type { Content } from "./http.js";
import type { Task, Toolset } from "./index.js";

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

function session(o: SandboxOptions, task: Task, guard: Guard): UmbraSandboxSession {
  const base = o.workingDirectory ?? "/";
  const maxBytes = o.maxReadBytes ?? defaultMaxReadBytes;
  const at = (path: string) => resolvePath(path.startsWith("/") ? path : `${base}/${path}`);

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

  /** cwd is where a command starts, relative to the workspace's root. */
  const cwd = (path: string | undefined) => at(path ?? "") || ".";

  const self = {
    task,
    description: o.description ?? `A workspace whose files are kept by umbra: each change is recorded and can be undone. The working directory is ${base}; / is the workspace's root.`,
    subtask: (id: string) => session(o, task.subtask(legalSubtask(id)), guard),
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
    run: ({ command, workingDirectory, env, abortSignal }: any) =>
      doing(workingDirectory ?? base, abortSignal, async () => {
        const done = await task.exec(command, { cwd: cwd(workingDirectory), ...(env === undefined ? {} : { env }), signal: abortSignal });
        // -1: ended by the server's time limit.
        return { exitCode: done.exit_code ?? -1, stdout: done.stdout as string, stderr: done.stderr as string };
      }),
    spawn: ({ command, workingDirectory, env, abortSignal, stdin }: any) =>
      doing(workingDirectory ?? base, abortSignal, async () => {
        if (stdin === true) throw new Error("A writable stdin is not supported; pass the input in a file.");
        return spawn(task, { command, cwd: cwd(workingDirectory), ...(env === undefined ? {} : { env }) }, abortSignal);
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
async function spawn(task: Task, body: Record<string, unknown>, signal?: AbortSignal) {
  const connection = new AbortController();
  const stop = () => connection.abort(signal?.reason);
  signal?.addEventListener("abort", stop, { once: true });
  let killed = false;
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (task.subtaskId !== undefined) headers["X-Subtask-Id"] = task.subtaskId;
  if (task.actor !== undefined) headers["X-Actor"] = task.actor;
  let res: Response;
  try {
    res = await task.umbra.http.send("POST", `/tasks/${encodeURIComponent(task.id)}/exec`, { body, headers, signal: connection.signal, timeoutMs: 0 });
  } catch (err) {
    signal?.removeEventListener("abort", stop);
    throw err;
  }
  const pipes: Record<string, ReadableStreamDefaultController<Uint8Array>> = {};
  const pipe = (name: string) => new ReadableStream<Uint8Array>({ start: (c) => { pipes[name] = c; }, cancel: () => { delete pipes[name]; } });
  const stdout = pipe("stdout");
  const stderr = pipe("stderr");
  const encoder = new TextEncoder();
  const ended = (async () => {
    try {
      for await (const e of parse(res, connection, 0)) {
        if (e.event === "end") {
          for (const p of Object.values(pipes)) p.close();
          return { exitCode: (e.data.exit_code ?? -1) as number };
        }
        if (e.event === "stdout" || e.event === "stderr") pipes[e.event]?.enqueue(encoder.encode(String(e.data?.text ?? "")));
      }
      throw new Error("The connection to the server ended before the command.");
    } catch (err) {
      const why = signal?.aborted ? signal.reason : err;
      if (killed && !signal?.aborted) {
        for (const p of Object.values(pipes)) p.close();
        return { exitCode: 143 }; // 128 and SIGTERM
      }
      for (const p of Object.values(pipes)) p.error(why);
      throw why;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  })();
  ended.catch(() => {}); // reported by wait and the streams
  return {
    stdout,
    stderr,
    wait: () => ended,
    async kill() {
      killed = true;
      connection.abort();
      await ended.catch(() => {});
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
