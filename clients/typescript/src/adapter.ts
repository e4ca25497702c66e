import { UmbraError } from "./errors.js";
import type { Signal } from "./files.js";
import { segment } from "./http.js";
import type { Content } from "./http.js";
import type { Task } from "./index.js";
import type { TaskWritten } from "./wire.js";

/** legalSubtask makes a name a legal subtask id: `-` for what is not, cut at 128. */
export function legalSubtask(name: string): string {
  let id = name.replace(/[^A-Za-z0-9._-]/g, "-").replace(/\.{2,}/g, (dots) => "-".repeat(dots.length)).slice(0, 128);
  if (!/^[A-Za-z0-9]/.test(id)) id = ("s" + id).slice(0, 128);
  return id.replace(/\.lock$/, "-lock").replace(/\.$/, "-");
}

export type SubtaskOption<C> = "auto" | string | ((context: C) => string | null);

export const defaultMaxReadBytes = 10 << 20;

/** InvalidPath is a path that leaves the workspace, or cannot be one. */
export class InvalidPath extends Error {
  constructor(path: string) {
    super(`Invalid path: ${path}`);
    this.name = "InvalidPath";
  }
}

/** belowHost returns a path of the machine below a directory as one from that directory's root. */
export function belowHost(path: string, host: string): string {
  if (!path.startsWith("/")) return path;
  if (path !== host && !path.startsWith(host + "/")) throw new InvalidPath(path);
  return path.slice(host.length) || "/";
}

/** resolvePath maps a framework's path, where `/` is the root, to one of the workspace. */
export function resolvePath(path: string, root = ""): string {
  const out: string[] = [];
  for (const name of path.split("/")) {
    if (name === "" || name === ".") continue;
    if (name === "..") {
      if (out.length === 0) throw new InvalidPath(path);
      out.pop();
    } else out.push(name);
  }
  if (path.includes("\0")) throw new InvalidPath(path);
  const base = root.split("/").filter((s) => s !== "" && s !== ".");
  return [...base, ...out].join("/");
}

/** metadataOf is what an adapter tells of a change, where its framework carries metadata. */
export function metadataOf(task: Task, w: { commit?: string | null; change_id?: number | null }): { umbra: Record<string, unknown> } {
  return { umbra: { commit: w.commit ?? null, change_id: w.change_id ?? null, task_id: task.id, subtask_id: task.subtaskId ?? null } };
}

/** StaleWrite is an overwrite of a file that was changed since it was read. */
export class StaleWrite extends Error {
  constructor(path: string, who: string) {
    super(`'${path}' was changed by ${who} since you read it; nothing was written. Read it again, then write.`);
    this.name = "StaleWrite";
  }
}

/**
 * Guard remembers which entity tag each subtask last read of a path, and sends
 * it with the subtask's next overwrite.
 */
export class Guard {
  readonly #tags = new Map<string, string>();
  readonly #on: boolean;

  constructor(on: boolean) {
    this.#on = on;
  }

  #key(task: Task, path: string): string {
    return `${task.subtaskId ?? ""}\0${path}`;
  }

  saw(task: Task, path: string, etag: string | null | undefined): void {
    if (!this.#on || !etag) return;
    const key = this.#key(task, path);
    this.#tags.delete(key);
    this.#tags.set(key, etag);
    if (this.#tags.size > 10_000) this.#tags.delete(this.#tags.keys().next().value!);
  }

  forget(task: Task, path: string): void {
    for (const key of [...this.#tags.keys()]) {
      if (key === this.#key(task, path) || key.startsWith(this.#key(task, path) + "/")) this.#tags.delete(key);
    }
  }

  /** renew guards a path that the subtask has read by what its own commit left there. */
  async renew(task: Task, path: string, commit: string | null | undefined): Promise<void> {
    if (this.tag(task, path) === undefined) return this.forget(task, path); // what is below it
    try {
      const res = await task.umbra.http.send("HEAD", `/tasks/${segment(task.id)}/content`, { query: { path, at: commit } });
      this.saw(task, path, res.headers.get("etag"));
    } catch (err) {
      // Where it is not known the old tag stays: then too much is refused.
      if (err instanceof UmbraError && err.status === 404) this.forget(task, path);
    }
  }

  /** ran renews what a command of the subtask itself changed. */
  async ran(task: Task, done: { entries?: { path: string; new_path?: string | null; commit?: string | null }[] }): Promise<void> {
    for (const e of done.entries ?? []) for (const path of [e.path, e.new_path]) if (path) await this.renew(task, path, e.commit);
  }

  tag(task: Task, path: string): string | undefined {
    return this.#tags.get(this.#key(task, path));
  }

  async write(task: Task, path: string, content: Content, shown: string, o: Signal = {}): Promise<TaskWritten> {
    const ifMatch = this.tag(task, path);
    try {
      const w = await task.files.write(path, content, { ...o, ifMatch });
      this.saw(task, path, w.etag);
      return w;
    } catch (err) {
      if (ifMatch !== undefined && err instanceof UmbraError && err.status === 412) throw new StaleWrite(shown, await who(task, path));
      throw err;
    }
  }

  /** move renames a path. A file at the target that the subtask has read is replaced only as it was read. */
  async move(task: Task, from: string, to: string, shown: string, overwrite: boolean): Promise<void> {
    const tag = this.tag(task, to);
    if (tag === undefined || !overwrite || from === to) await task.files.move(from, to, { overwrite });
    else {
      try {
        // A condition of the move itself would be on its source.
        await task.files.batch([{ op: "delete", path: to, if_match: tag }, { op: "rename", path: from, new_path: to }]);
      } catch (err) {
        const changed = err instanceof UmbraError && (err.status === 412 || (err.code === "file_not_found" && (err.body as { path?: string })?.path === to));
        throw changed ? new StaleWrite(shown, await who(task, to)) : err;
      }
    }
    if (from === to) return;
    this.forget(task, to);
    const [old, now] = [this.#key(task, from), this.#key(task, to)];
    for (const [key, etag] of [...this.#tags]) {
      if (key !== old && !key.startsWith(old + "/")) continue;
      this.#tags.delete(key);
      this.#tags.set(now + key.slice(old.length), etag);
    }
  }

  /** copy copies a path. A file at the target that the subtask has read is replaced only as it was read. */
  async copy(task: Task, from: string, to: string, shown: string, o: { overwrite: boolean; recursive: boolean }): Promise<void> {
    if (this.tag(task, to) === undefined || !o.overwrite || from === to) {
      await task.files.copy(from, to, o);
      if (from !== to) this.forget(task, to);
      return;
    }
    // A condition of the copy itself would be on its source.
    const { data } = await task.files.readWith(from);
    await this.write(task, to, data, shown);
  }

  async edit(task: Task, path: string, old: string, now: string, all: boolean, o: Signal = {}): Promise<TaskWritten & { occurrences: number }> {
    const ifMatch = this.tag(task, path);
    try {
      const w = await task.files.edit(path, old, now, { ...o, replaceAll: all, ifMatch });
      if (ifMatch !== undefined) this.saw(task, path, w.etag);
      return w;
    } catch (err) {
      if (ifMatch === undefined || !(err instanceof UmbraError) || err.status !== 412) throw err;
      // An edit matches by content. The tag stays old, so the next overwrite is refused.
      return task.files.edit(path, old, now, { ...o, replaceAll: all });
    }
  }
}

/** appended appends. What the subtask has read stays guarded: its tag is renewed only where nobody else wrote since. */
export async function appended(guard: Guard, task: Task, path: string, content: Content): Promise<TaskWritten> {
  const ifMatch = guard.tag(task, path);
  try {
    const w = await task.files.append(path, content, { ifMatch });
    if (ifMatch !== undefined) guard.saw(task, path, w.etag);
    return w;
  } catch (err) {
    if (ifMatch === undefined || !(err instanceof UmbraError) || err.status !== 412) throw err;
    return task.files.append(path, content);
  }
}

/** who names the author of a file's newest change. */
async function who(task: Task, path: string): Promise<string> {
  try {
    const { workspace_id } = await task.get();
    const log = await task.umbra.request("GET", `/workspaces/${encodeURIComponent(workspace_id)}/log`, { query: { path, limit: 1 } });
    const e = log.entries?.[0];
    if (e === undefined) return "someone else";
    if (e.source === "external") return "a person or program outside umbra";
    if (e.subtask_id) return `subtask ${e.subtask_id}`;
    return e.actor || "someone else";
  } catch {
    return "someone else";
  }
}

const types: Record<string, string> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", pdf: "application/pdf",
  mp3: "audio/mpeg", wav: "audio/wav", mp4: "video/mp4", webm: "video/webm", zip: "application/zip", gz: "application/gzip", json: "application/json",
};

export const mimeOf = (path: string) => types[path.slice(path.lastIndexOf(".") + 1).toLowerCase()] ?? "application/octet-stream";

/** advice is an error as a model can use it. */
export function advice(err: unknown, path: string): string {
  if (err instanceof StaleWrite || err instanceof InvalidPath) return err.message;
  if (!(err instanceof UmbraError)) return err instanceof Error ? err.message : String(err);
  switch (err.code) {
    case "file_not_found": return `File '${path}' not found`;
    case "is_a_directory": return `'${path}' is a directory`;
    case "not_directory": case "not_a_directory": return `'${path}' is not a directory`;
    case "bad_path": return `Invalid path: ${path}`;
    case "too_large": return `File '${path}' is too large: ${err.detail}`;
    case "exec_disabled": return "Commands are turned off on this server; its owner can turn them on with exec.enabled: true";
    case "task_ended": return "The task has ended; nothing can be changed any more";
    case "task_paused": return "The task is paused; wait until it goes on";
    case "network": return "The workspace server did not answer; try again";
  }
  return err.detail || err.code;
}

/** either returns a signal that aborts with the first of others, and a function that ends this. */
export function either(...signals: (AbortSignal | undefined)[]): { signal: AbortSignal; done: () => void } {
  const out = new AbortController();
  const stops = signals.map((s) => () => out.abort(s!.reason));
  for (const [i, s] of signals.entries()) {
    if (s?.aborted) stops[i]!();
    s?.addEventListener("abort", stops[i]!, { once: true });
  }
  return { signal: out.signal, done: () => signals.forEach((s, i) => s?.removeEventListener("abort", stops[i]!)) };
}

/** aborted rethrows what must never become an error text. */
export function rethrowAbort(err: unknown, signal?: AbortSignal): void {
  if (signal?.aborted) throw signal.reason;
  if (err instanceof Error && err.name === "AbortError") throw err;
}
