import type { BufferEncoding, CpOptions, FileContent, FsStat, IFileSystem, MkdirOptions, RmOptions } from "just-bash";
import { Guard, appended, defaultMaxReadBytes, legalSubtask } from "./adapter.js";
import { UmbraError } from "./errors.js";
import type { Files } from "./files.js";
import type { Task } from "./index.js";
import type { TaskFileEntry } from "./wire.js";

type ReadFileOptions = { encoding?: BufferEncoding | null };
type WriteFileOptions = { encoding?: BufferEncoding };

const encodingOf = (o?: { encoding?: BufferEncoding | null } | BufferEncoding) => (typeof o === "string" ? o : o?.encoding) ?? "utf8";

function decode(bytes: Uint8Array, encoding: BufferEncoding): string {
  switch (encoding) {
    case "base64": case "binary": case "latin1": case "ascii": {
      let text = "";
      for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
      return encoding === "base64" ? btoa(text) : text;
    }
    case "hex": return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

function encode(content: FileContent, encoding: BufferEncoding): Uint8Array {
  if (typeof content !== "string") return content;
  switch (encoding) {
    case "base64": return Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
    case "binary": case "latin1": case "ascii": return Uint8Array.from(content, (c) => c.charCodeAt(0) & 255);
    case "hex": return Uint8Array.from(content.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  }
  return new TextEncoder().encode(content);
}

/** clean resolves a path by its words, from the root. */
function clean(path: string): string {
  const out: string[] = [];
  for (const name of path.split("/")) {
    if (name === "" || name === ".") continue;
    if (name === "..") out.pop();
    else out.push(name);
  }
  return "/" + out.join("/");
}

/** Devices that a shell expects. They are not files of the workspace: what is written to them is dropped. */
const devices = new Set(["null", "zero", "full", "stdin", "stdout", "stderr", "tty", "random", "urandom"].map((name) => "/dev/" + name));
const isDevice = (path: string) => devices.has(clean(path));
const device = (): FsStat => ({ isFile: true, isDirectory: false, isSymbolicLink: false, mode: 0o666, size: 0, mtime: new Date(0) });

type Calls = Pick<Files, "append" | "stat" | "mkdir" | "delete" | "batch" | "symlink"> & {
  copy(from: string, to: string, shown: string, o: { overwrite: boolean; recursive: boolean }): Promise<void>;
  move(from: string, to: string, shown: string): Promise<void>;
  list(path: string): Promise<TaskFileEntry[]>;
  read(path: string): Promise<Uint8Array>;
  write(path: string, content: Uint8Array, shown: string): Promise<unknown>;
};

/**
 * outside returns a task's files whose requests run in the asynchronous context
 * of this call. just-bash blocks what fetch needs (timers, WeakRef) in the
 * context of a script, so they may not run in the caller's.
 */
function outside(task: Task, guard: Guard, maxBytes: number): Calls {
  const files = task.files;
  const queue: (() => void)[] = [];
  let wake: () => void = () => {};
  void (async () => {
    for (;;) {
      for (let job = queue.shift(); job !== undefined; job = queue.shift()) job();
      await new Promise<void>((resolve) => { wake = resolve; });
    }
  })();
  const run = <T>(fn: () => Promise<T>) => new Promise<T>((resolve, reject) => {
    queue.push(() => { fn().then(resolve, reject); });
    wake();
  });
  const all = async (path: string) => {
    const out: TaskFileEntry[] = [];
    for await (const e of files.list(path, { limit: 10_000 })) out.push(e);
    return out;
  };
  return {
    list: (path) => run(() => all(path)),
    read: (path) => run(async () => {
      const { data, etag } = await files.readWith(path, { maxBytes });
      guard.saw(task, path, etag);
      return data;
    }),
    write: (path, content, shown) => run(() => guard.write(task, path, content, shown)),
    append: (path, content) => run(() => appended(guard, task, path, content)),
    stat: (...a) => run(() => files.stat(...a)),
    mkdir: (...a) => run(() => files.mkdir(...a)),
    delete: (path, ...a) => run(() => files.delete(path, ...a).finally(() => guard.forget(task, path))),
    copy: (from, to, shown, o) => run(() => guard.copy(task, from, to, shown, o)),
    move: (from, to, shown) => run(() => guard.move(task, from, to, shown, true)),
    batch: (...a) => run(() => files.batch(...a)),
    symlink: (...a) => run(() => files.symlink(...a)),
  };
}

export interface UmbraFsOptions {
  task: Task;
  /** The subtask of all changes. */
  subtask?: string;
  guard?: "etag" | "none";
  maxReadBytes?: number;
}

/**
 * UmbraFs is a file system for just-bash on a task: a shell over a workspace,
 * without a process. Errors read as those of `InMemoryFs`.
 */
export class UmbraFs implements IFileSystem {
  readonly #files: Calls;
  readonly #paths = new Set<string>(["/"]);

  private constructor(o: UmbraFsOptions) {
    const task = o.subtask === undefined ? o.task : o.task.subtask(legalSubtask(o.subtask));
    this.#files = outside(task, new Guard(o.guard !== "none"), o.maxReadBytes ?? defaultMaxReadBytes);
  }

  static async create(o: UmbraFsOptions): Promise<UmbraFs> {
    if (o?.task === undefined) throw new TypeError("UmbraFs needs a task");
    const fs = new UmbraFs(o);
    for await (const e of o.task.files.list("", { recursive: true, limit: 10_000 })) fs.#paths.add("/" + e.path);
    return fs;
  }

  #at(path: string): string {
    if (path.includes("\0")) throw new Error(`ENOENT: path contains null byte, open '${path}'`);
    return clean(path).slice(1);
  }

  #fail(err: unknown, verb: string, path: string): never {
    if (err instanceof UmbraError) {
      switch (err.code) {
        case "file_not_found": case "parent_not_found": case "link_leads_out": throw new Error(`ENOENT: no such file or directory, ${verb} '${path}'`);
        case "is_a_directory": throw new Error(`EISDIR: illegal operation on a directory, ${verb === "open" ? "read" : verb} '${path}'`);
        case "not_directory": case "not_a_directory": throw new Error(`ENOTDIR: not a directory, ${verb} '${path}'`);
        case "target_exists": throw new Error(`EEXIST: file already exists, ${verb} '${path}'`);
        case "directory_not_empty": throw new Error(`ENOTEMPTY: directory not empty, ${verb} '${path}'`);
        case "bad_path": throw new Error(`EINVAL: invalid argument, ${verb} '${path}'`);
      }
      if (err.code === "too_large") throw new Error(`EFBIG: ${err.detail}, ${verb} '${path}'`);
      if (err.status === 409 || err.status === 403) throw new Error(`EACCES: ${err.detail}, ${verb} '${path}'`);
    }
    throw err;
  }

  /** #wrote notes a path and the directories above it. */
  #wrote(path: string): void {
    for (let p = clean(path); p !== "/" && p !== ""; p = p.slice(0, p.lastIndexOf("/"))) this.#paths.add(p);
  }

  #gone(path: string): void {
    const at = clean(path);
    for (const p of [...this.#paths]) if (p === at || p.startsWith(at + "/")) this.#paths.delete(p);
  }

  async readFile(path: string, options?: ReadFileOptions | BufferEncoding): Promise<string> {
    return decode(await this.readFileBuffer(path), encodingOf(options));
  }

  async readFileBuffer(path: string): Promise<Uint8Array> {
    if (isDevice(path)) return new Uint8Array();
    if (this.#at(path) === "") throw new Error(`EISDIR: illegal operation on a directory, read '${path}'`);
    try {
      return await this.#files.read(this.#at(path));
    } catch (err) {
      return this.#fail(err, "open", path);
    }
  }

  async writeFile(path: string, content: FileContent, options?: WriteFileOptions | BufferEncoding): Promise<void> {
    if (isDevice(path)) return;
    try {
      await this.#files.write(this.#at(path), encode(content, encodingOf(options)), path);
    } catch (err) {
      this.#fail(err, "write", path);
    }
    this.#wrote(path);
  }

  async appendFile(path: string, content: FileContent, options?: WriteFileOptions | BufferEncoding): Promise<void> {
    if (isDevice(path)) return;
    const bytes = encode(content, encodingOf(options));
    try {
      // Appending nothing changes nothing on the server, and makes no file.
      if (bytes.length === 0 && !(await this.exists(path))) await this.#files.write(this.#at(path), bytes, path);
      else await this.#files.append(this.#at(path), bytes);
    } catch (err) {
      this.#fail(err, "write", path);
    }
    this.#wrote(path);
  }

  async exists(path: string): Promise<boolean> {
    if (isDevice(path)) return true;
    try {
      const e = await this.#files.stat(this.#at(path));
      return e.type !== "symlink";
    } catch (err) {
      if (err instanceof UmbraError && err.status >= 400 && err.status < 500) return false;
      throw err;
    }
  }

  #statOf(e: TaskFileEntry, follow: boolean): FsStat {
    const link = e.type === "symlink";
    return {
      isFile: e.type === "file", isDirectory: e.type === "directory", isSymbolicLink: !follow && link,
      mode: link ? 0o777 : e.type === "directory" ? 0o755 : e.mode === "100755" ? 0o755 : 0o644,
      size: link ? new TextEncoder().encode(e.target ?? "").length : e.size, mtime: new Date(e.mtime),
    };
  }

  async stat(path: string): Promise<FsStat> {
    if (isDevice(path)) return device();
    try {
      // A file has one path, since there are no hard links: cp and mv compare it.
      const e = await this.#files.stat(this.#at(path));
      if (e.type === "symlink") throw new Error(`ENOENT: no such file or directory, stat '${path}'`);
      return { ...this.#statOf(e, true), identity: await this.#resolve(path, "stat") };
    } catch (err) {
      return this.#fail(err, "stat", path);
    }
  }

  async lstat(path: string): Promise<FsStat> {
    if (isDevice(path)) return device();
    try {
      return this.#statOf(await this.#files.stat(this.#at(path), { follow: false }), false);
    } catch (err) {
      return this.#fail(err, "lstat", path);
    }
  }

  async mkdir(path: string, options?: MkdirOptions): Promise<void> {
    try {
      await this.#files.mkdir(this.#at(path), { recursive: options?.recursive ?? false });
    } catch (err) {
      this.#fail(err, "mkdir", path);
    }
    this.#wrote(path);
  }

  async #list(path: string): Promise<TaskFileEntry[]> {
    let out: TaskFileEntry[];
    try {
      out = await this.#files.list(this.#at(path));
    } catch (err) {
      return this.#fail(err, "scandir", path);
    }
    return out.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  }

  async readdir(path: string): Promise<string[]> {
    return (await this.#list(path)).map((e) => e.name);
  }

  async readdirWithFileTypes(path: string) {
    return (await this.#list(path)).map((e) => ({ name: e.name, isFile: e.type === "file", isDirectory: e.type === "directory", isSymbolicLink: e.type === "symlink" }));
  }

  async rm(path: string, options?: RmOptions): Promise<void> {
    try {
      const at = this.#at(path);
      if (!options?.recursive && (await this.#files.stat(at, { follow: false })).type === "directory" && (await this.#list(path)).length > 0) {
        throw new Error(`ENOTEMPTY: directory not empty, rm '${path}'`);
      }
      await this.#files.delete(at, { recursive: true });
    } catch (err) {
      if (options?.force && err instanceof UmbraError && err.code === "file_not_found") return;
      this.#fail(err, "rm", path);
    }
    this.#gone(path);
  }

  async cp(src: string, dest: string, options?: CpOptions): Promise<void> {
    if (isDevice(src)) return this.writeFile(dest, "");
    try {
      const from = await this.#files.stat(this.#at(src), { follow: false });
      if (isDevice(dest)) return;
      if (from.type === "directory" && !options?.recursive) throw new Error(`EISDIR: is a directory, cp '${src}'`);
      if (from.type === "directory" && (await this.exists(dest))) {
        // A directory over one that exists is merged.
        for (const e of await this.#list(src)) await this.cp(`${src}/${e.name}`, `${dest}/${e.name}`, options);
        return;
      }
      await this.#files.copy(this.#at(src), this.#at(dest), dest, { overwrite: true, recursive: options?.recursive ?? false });
    } catch (err) {
      this.#fail(err, "cp", src);
    }
    this.#wrote(dest);
  }

  async mv(src: string, dest: string): Promise<void> {
    if (isDevice(dest)) throw new Error(`EPERM: operation not permitted, mv '${dest}'`);
    try {
      await this.#files.move(this.#at(src), this.#at(dest), dest);
    } catch (err) {
      this.#fail(err, "mv", src);
    }
    const [from, to] = [clean(src), clean(dest)];
    for (const p of [...this.#paths]) {
      if (p !== from && !p.startsWith(from + "/")) continue;
      this.#paths.delete(p);
      this.#wrote(to + p.slice(from.length));
    }
    this.#wrote(dest);
  }

  resolvePath(base: string, path: string): string {
    return path.startsWith("/") ? clean(path) : clean(`${base}/${path}`);
  }

  getAllPaths(): string[] {
    return [...this.#paths].sort();
  }

  async chmod(path: string, mode: number): Promise<void> {
    if (isDevice(path)) return;
    try {
      const e = await this.#files.stat(this.#at(path));
      if (e.type !== "file") return;
      await this.#files.batch([{ op: "chmod", path: this.#at(path), mode: mode & 0o100 ? "100755" : "100644" }]);
    } catch (err) {
      this.#fail(err, "chmod", path);
    }
  }

  async symlink(target: string, linkPath: string): Promise<void> {
    const at = clean(linkPath);
    let stored = target;
    if (target.startsWith("/")) {
      // The root is the workspace's, so an absolute target is stored as a relative one.
      const up = at.split("/").length - 2;
      stored = "../".repeat(up) + clean(target).slice(1) || ".";
    }
    try {
      await this.#files.symlink(at.slice(1), stored);
    } catch (err) {
      this.#fail(err, "symlink", linkPath);
    }
    this.#wrote(linkPath);
  }

  async link(existingPath: string, newPath: string): Promise<void> {
    try {
      const e = await this.#files.stat(this.#at(existingPath));
      if (e.type !== "file") throw new Error(`EPERM: operation not permitted, link '${existingPath}'`);
      await this.#files.copy(this.#at(existingPath), this.#at(newPath), newPath, { overwrite: false, recursive: false });
    } catch (err) {
      if (err instanceof UmbraError && err.code === "target_exists") throw new Error(`EEXIST: file already exists, link '${newPath}'`);
      this.#fail(err, "link", existingPath);
    }
    this.#wrote(newPath);
  }

  async readlink(path: string): Promise<string> {
    let e: TaskFileEntry;
    try {
      e = await this.#files.stat(this.#at(path), { follow: false });
    } catch (err) {
      return this.#fail(err, "readlink", path);
    }
    if (e.type !== "symlink") throw new Error(`EINVAL: invalid argument, readlink '${path}'`);
    return e.target ?? "";
  }

  realpath(path: string): Promise<string> {
    return this.#resolve(path, "realpath");
  }

  async #resolve(path: string, verb: string): Promise<string> {
    if (isDevice(path)) return clean(path);
    let at = clean(path);
    for (let links = 0; ; links++) {
      if (links > 40) throw new Error(`ELOOP: too many levels of symbolic links, ${verb} '${path}'`);
      let moved = false;
      const names = at.split("/").slice(1);
      for (let i = 1; i <= names.length && at !== "/"; i++) {
        const part = names.slice(0, i).join("/");
        let e: TaskFileEntry;
        try {
          e = await this.#files.stat(part, { follow: false });
        } catch (err) {
          return this.#fail(err, verb, path);
        }
        if (e.type !== "symlink") continue;
        at = clean("/" + [...names.slice(0, i - 1), e.target ?? "", ...names.slice(i)].join("/"));
        moved = true;
        break;
      }
      if (!moved) return at;
    }
  }

  async utimes(): Promise<void> {
    // Times are the server's.
  }
}
