import {
  DirectoryNotEmptyError, DirectoryNotFoundError, FileExistsError, FileNotFoundError, FilesystemError, IsDirectoryError, MastraFilesystem, NotDirectoryError, PermissionError,
  StaleFileError, UnsupportedGrepPatternError, WorkspaceReadOnlyError,
} from "@mastra/core/workspace";
import type {
  CopyOptions, FileContent, FileEntry, FileStat, FilesystemGrepOptions, FilesystemGrepResult, FilesystemInfo, ListOptions, ProviderStatus, ReadOptions, RemoveOptions, WalkEntry, WalkOptions,
  WorkspaceFilesystemResolver, WriteOptions,
} from "@mastra/core/workspace";
import type { RequestContext } from "@mastra/core/request-context";
import { Guard, InvalidPath, StaleWrite, advice, appended, defaultMaxReadBytes, legalSubtask, metadataOf, resolvePath } from "./adapter.js";
import { UmbraError } from "./errors.js";
import type { Task } from "./index.js";
import type { TaskEntry, TaskFileEntry } from "./wire.js";

// Mastra declares the audit's types and does not export them.

/** One change: `metadata` has its commit, subtask and actor. */
export interface FilesystemAuditEntry {
  id: string;
  timestamp: Date;
  operation: "read" | "write" | "delete" | "mkdir" | "rmdir" | "copy" | "move";
  path: string;
  targetPath?: string;
  size?: number;
  metadata?: Record<string, unknown>;
}

export interface FilesystemAuditOptions {
  operations?: FilesystemAuditEntry["operation"][];
  /** A path, or a directory with what is below it. */
  pathPrefix?: string;
  /** Inclusive. */
  since?: Date;
  /** Inclusive. */
  until?: Date;
  limit?: number;
  offset?: number;
}

/** Mastra's interface of that name. */
export interface WorkspaceFilesystemAudit {
  getHistory(options?: FilesystemAuditOptions): Promise<FilesystemAuditEntry[]>;
  count(options?: Omit<FilesystemAuditOptions, "limit" | "offset">): Promise<number>;
}

export interface UmbraFilesystemOptions {
  task: Task;
  /** The filesystem's id; the task's by default. */
  id?: string;
  /** Refuse every change, before a request is sent. */
  readOnly?: boolean;
  /** The subtask of all changes. Mastra's filesystems are not told which agent calls; see `resolver`. */
  subtask?: string;
  guard?: "etag" | "none";
  maxReadBytes?: number;
  /** Extensions that are searched as text besides Mastra's own. */
  textExtensions?: string[];
}

/** What Mastra must know of files that are not text: media, and what is not to be read as text. */
const media: Record<string, string> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", bmp: "image/bmp", ico: "image/x-icon", tif: "image/tiff", tiff: "image/tiff",
  avif: "image/avif", heic: "image/heic", heif: "image/heif", pdf: "application/pdf",
  mp3: "audio/mpeg", wav: "audio/wav", ogg: "audio/ogg", flac: "audio/flac", m4a: "audio/mp4", aac: "audio/aac",
  mp4: "video/mp4", webm: "video/webm", mov: "video/quicktime", avi: "video/x-msvideo", mkv: "video/x-matroska",
  zip: "application/zip", tar: "application/x-tar", gz: "application/gzip", tgz: "application/gzip", bz2: "application/x-bzip2", "7z": "application/x-7z-compressed", rar: "application/vnd.rar",
  exe: "application/vnd.microsoft.portable-executable", dll: "application/vnd.microsoft.portable-executable", so: "application/x-sharedlib", dylib: "application/x-sharedlib",
  bin: "application/x-binary", dat: "application/x-binary", wasm: "application/wasm", class: "application/java-vm", pyc: "application/x-python-code",
  ttf: "font/ttf", otf: "font/otf", woff: "font/woff", woff2: "font/woff2",
  doc: "application/msword", docx: "application/vnd.openxmlformats-officedocument.wordprocessingml.document", xls: "application/vnd.ms-excel",
  xlsx: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ppt: "application/vnd.ms-powerpoint", pptx: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
  deb: "application/vnd.debian.binary-package", rpm: "application/x-rpm", dmg: "application/x-apple-diskimage", iso: "application/x-iso9660-image",
};

/** The file that makes an empty directory of a virtual workspace. */
const keep = ".umbrakeep";

const operations: Partial<Record<TaskEntry["operation"], FilesystemAuditEntry["operation"]>> = { delete: "delete", rename: "move", mkdir: "mkdir", rmdir: "rmdir" };

const parentOf = (path: string) => path.replace(/\/+$/, "").replace(/\/?[^/]*$/, "") || (path.startsWith("/") ? "/" : ".");

/** re2 is a JavaScript pattern as the server's RE2, where both mean the same. */
function re2(pattern: string): string {
  // Escapes and classes that RE2 has too, with another meaning.
  if (/\\[^dDwWsSbB\-.*+?()[\]{}|^$\\/tnrfv]|\[\[?:|\[[^\]]*\\[sS]|[^\u0000-\uffff]|[\ud800-\udfff]/.test(pattern)) throw new UnsupportedGrepPatternError(pattern, "RE2 reads it in another way");
  const space = "\\s\\x0b\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}";
  return pattern.replace(/\\[^]/g, (e) => (e === "\\s" ? `[${space}]` : e === "\\S" ? `[^${space}]` : e));
}

/**
 * UmbraFilesystem is a Mastra filesystem on a task: `/` is the workspace's root,
 * and each change is recorded and can be undone. Errors are Mastra's classes.
 */
export class UmbraFilesystem extends MastraFilesystem implements WorkspaceFilesystemAudit {
  readonly id: string;
  readonly name = "UmbraFilesystem";
  readonly provider = "umbra";
  readonly readOnly?: boolean;
  status: ProviderStatus = "pending";
  readonly task: Task;
  readonly #guard: Guard;
  readonly #max: number;
  #folder: string | undefined;

  constructor(o: UmbraFilesystemOptions) {
    if (o?.task === undefined) throw new TypeError("UmbraFilesystem needs a task");
    super({ name: "UmbraFilesystem", textExtensions: o.textExtensions });
    this.task = o.subtask === undefined ? o.task : o.task.subtask(legalSubtask(o.subtask));
    this.id = o.id ?? `umbra-${this.task.id}${this.task.subtaskId === undefined ? "" : `-${this.task.subtaskId}`}`;
    this.readOnly = o.readOnly;
    this.#guard = new Guard(o.guard !== "none");
    this.#max = o.maxReadBytes ?? defaultMaxReadBytes;
  }

  /**
   * resolver returns a resolver for `new Workspace({filesystem})` that serves each
   * request with the task, or the subtask of one, that fn returns for its context.
   */
  static resolver(fn: (requestContext: RequestContext) => Task | Promise<Task>, o: Omit<UmbraFilesystemOptions, "task" | "id"> = {}): WorkspaceFilesystemResolver {
    // Kept, so that a subtask's next request is guarded by what it has read.
    const kept = new Map<string, UmbraFilesystem>();
    return async ({ requestContext }) => {
      const task = await fn(requestContext);
      const key = JSON.stringify([task.umbra.http.url, task.id, task.subtaskId, task.actor]);
      let fs = kept.get(key);
      if (fs === undefined || fs.task.umbra !== task.umbra) fs = new UmbraFilesystem({ ...o, task });
      kept.delete(key);
      kept.set(key, fs);
      if (kept.size > 1000) kept.delete(kept.keys().next().value!);
      return fs;
    };
  }

  override async init(): Promise<void> {
    try {
      this.#folder = (await this.task.get()).workspace ?? undefined;
    } catch (err) {
      this.#fail(err, "/", "access");
    }
  }

  getInfo(): FilesystemInfo {
    return {
      id: this.id, name: this.name, provider: this.provider, readOnly: this.readOnly, status: this.status, error: this.error,
      metadata: { task: this.task.id, subtask: this.task.subtaskId ?? null, ...(this.#folder === undefined ? {} : { folder: this.#folder }) },
    };
  }

  getInstructions(): string {
    return "Files of a workspace that umbra keeps: each change is recorded and can be undone. / is the workspace's root; relative paths start there.";
  }

  /** resolveAbsolutePath returns a path of the server's machine; undefined without a directory, and before the first use. */
  resolveAbsolutePath(path: string): string | undefined {
    if (this.#folder === undefined) return undefined;
    try {
      return `${this.#folder}/${resolvePath(path)}`.replace(/\/$/, "");
    } catch {
      return undefined;
    }
  }

  #fail(err: unknown, path: string, operation: string): never {
    if (err instanceof FilesystemError || err instanceof WorkspaceReadOnlyError) throw err;
    if (err instanceof InvalidPath) throw new PermissionError(path, operation);
    if (!(err instanceof UmbraError)) throw err;
    switch (err.code) {
      case "file_not_found": throw new FileNotFoundError(path);
      case "is_a_directory": throw new IsDirectoryError(path);
      case "not_directory": case "not_a_directory": throw new NotDirectoryError(path);
      case "target_exists": throw new FileExistsError(path);
      case "directory_not_empty": throw new DirectoryNotEmptyError(path);
      case "bad_path": case "is_root": case "link_leads_out": case "workspace_read_only": throw new PermissionError(path, operation);
      case "too_large": throw Object.assign(new FilesystemError(advice(err, path), "EFBIG", path), { cause: err });
    }
    throw Object.assign(new FilesystemError(advice(err, path), err.code, path), { cause: err });
  }

  async #do<T>(path: string, operation: string, fn: (at: string) => Promise<T>): Promise<T> {
    await this.ensureReady();
    try {
      return await fn(resolvePath(path));
    } catch (err) {
      return this.#fail(err, path, operation);
    }
  }

  async #change<T>(path: string, operation: string, fn: (at: string) => Promise<T>): Promise<T> {
    if (this.readOnly) throw new WorkspaceReadOnlyError(operation);
    return this.#do(path, operation, fn);
  }

  #stat(at: string): Promise<TaskFileEntry | undefined> {
    return this.task.files.stat(at).then((e) => (e.type === "symlink" ? undefined : e), (err) => {
      if (err instanceof UmbraError && err.code === "file_not_found") return undefined;
      throw err;
    });
  }

  readFile(path: string, options?: ReadOptions): Promise<string | Buffer> {
    return this.#do(path, "read", async (at) => {
      const { data, etag } = await this.task.files.readWith(at, { maxBytes: this.#max });
      this.#guard.saw(this.task, at, etag);
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      return options?.encoding ? bytes.toString(options.encoding) : bytes;
    });
  }

  writeFile(path: string, content: FileContent, options?: WriteOptions): Promise<void> {
    return this.#change(path, "writeFile", async (at) => {
      if (options?.recursive === false) {
        const parent = await this.#stat(resolvePath(parentOf(path)));
        if (parent === undefined) throw new DirectoryNotFoundError(parentOf(path));
        if (parent.type !== "directory") throw new NotDirectoryError(parentOf(path));
      }
      if (options?.overwrite === false) {
        try {
          const w = await this.task.files.write(at, content, { ifNoneMatch: "*" });
          this.#guard.saw(this.task, at, w.etag);
        } catch (err) {
          if (err instanceof UmbraError && (err.status === 412 || err.code === "is_a_directory")) throw new FileExistsError(path);
          throw err;
        }
        return;
      }
      await this.#unlessStale(path, async () => {
        if (options?.expectedMtime === undefined) await this.#guard.write(this.task, at, content, path);
        else await this.#writeIfUnchanged(at, path, content, options.expectedMtime);
      }, options?.expectedMtime);
    });
  }

  /** #unlessStale throws Mastra's error for a write over a file that was changed since it was read. */
  async #unlessStale(path: string, fn: () => Promise<void>, expected?: Date): Promise<void> {
    try {
      await fn();
    } catch (err) {
      if (!(err instanceof StaleWrite)) throw err;
      const actual = new Date((await this.#stat(resolvePath(path)))?.mtime ?? 0);
      throw Object.assign(new StaleFileError(path, expected ?? actual, actual), { message: err.message });
    }
  }

  /** #writeIfUnchanged compares the modification time, and writes only over what it compared. */
  async #writeIfUnchanged(at: string, path: string, content: FileContent, expected: Date): Promise<void> {
    for (let tries = 1; ; tries++) {
      const now = await this.#stat(at);
      if (now !== undefined && new Date(now.mtime).getTime() !== expected.getTime()) throw new StaleFileError(path, expected, new Date(now.mtime));
      const read = this.#guard.tag(this.task, at);
      if (now !== undefined && read !== undefined && read !== now.etag) return this.#guard.write(this.task, at, content, path).then(() => {});
      try {
        const w = await this.task.files.write(at, content, now?.etag === undefined ? { ifNoneMatch: "*" } : { ifMatch: now.etag });
        this.#guard.saw(this.task, at, w.etag);
        return;
      } catch (err) {
        if (!(err instanceof UmbraError) || err.status !== 412 || tries === 3) throw err;
      }
    }
  }

  appendFile(path: string, content: FileContent): Promise<void> {
    return this.#change(path, "appendFile", async (at) => {
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
      // Appending nothing makes no file on the server.
      if (bytes.length === 0 && (await this.#stat(at)) === undefined) await this.task.files.write(at, bytes, { ifNoneMatch: "*" });
      else await appended(this.#guard, this.task, at, bytes);
    });
  }

  deleteFile(path: string, options?: RemoveOptions): Promise<void> {
    return this.#change(path, "deleteFile", async (at) => {
      const now = await this.#stat(at);
      if (now === undefined) {
        if (options?.force) return;
        throw new FileNotFoundError(path);
      }
      if (now.type === "directory") throw new IsDirectoryError(path);
      await this.task.files.delete(at);
      this.#guard.forget(this.task, at);
    });
  }

  rmdir(path: string, options?: RemoveOptions): Promise<void> {
    return this.#change(path, "rmdir", async (at) => {
      const now = await this.#stat(at);
      if (now === undefined) {
        if (options?.force) return;
        throw new DirectoryNotFoundError(path);
      }
      if (now.type !== "directory") throw new NotDirectoryError(path);
      await this.task.files.delete(at, { recursive: options?.recursive ?? false });
      this.#guard.forget(this.task, at);
    });
  }

  copyFile(src: string, dest: string, options?: CopyOptions): Promise<void> {
    return this.#change(dest, "copyFile", async (to) => {
      const from = this.#at(src, "copyFile");
      const now = await this.#stat(from);
      if (now === undefined) throw new FileNotFoundError(src);
      if (now.type === "directory" && !options?.recursive) throw new IsDirectoryError(src);
      await this.#unlessStale(to, () => this.#copy(from, to, now.type === "directory", options?.overwrite !== false));
    });
  }

  /** #copy merges a directory with one that exists. */
  async #copy(from: string, to: string, directory: boolean, overwrite: boolean): Promise<void> {
    if (!directory || (await this.#stat(to)) === undefined) {
      await this.#guard.copy(this.task, from, to, to, { overwrite, recursive: directory });
      return;
    }
    for await (const e of this.task.files.list(from, { limit: 10_000 })) {
      await this.#copy(`${from}/${e.name}`, `${to}/${e.name}`, e.type === "directory", overwrite).catch((err) => {
        // As LocalFilesystem: what exists stays.
        if (overwrite || !(err instanceof UmbraError) || err.code !== "target_exists") throw err;
      });
    }
  }

  moveFile(src: string, dest: string, options?: CopyOptions): Promise<void> {
    return this.#change(dest, "moveFile", async (to) => {
      const from = this.#at(src, "moveFile");
      try {
        await this.#unlessStale(to, () => this.#guard.move(this.task, from, to, dest, options?.overwrite !== false));
      } catch (err) {
        if (err instanceof UmbraError && err.code === "file_not_found") throw new FileNotFoundError(src);
        if (err instanceof UmbraError && err.code === "same_path") return;
        throw err;
      }
    });
  }

  #at(path: string, operation: string): string {
    try {
      return resolvePath(path);
    } catch {
      throw new PermissionError(path, operation);
    }
  }

  mkdir(path: string, options?: { recursive?: boolean }): Promise<void> {
    return this.#change(path, "mkdir", async (at) => {
      try {
        await this.task.files.mkdir(at, { recursive: options?.recursive ?? true });
      } catch (err) {
        if (err instanceof UmbraError) {
          const now = await this.#stat(at).catch(() => undefined);
          if (now?.type === "directory") return;
          if (now !== undefined) throw new FileExistsError(path);
          if (err.code === "parent_not_found" || err.code === "file_not_found") throw new DirectoryNotFoundError(parentOf(path));
        }
        throw err;
      }
    });
  }

  /** #entries lists a directory. A link is what it leads to, a file where that is nothing. */
  async #entries(at: string, path: string, recursive: boolean): Promise<(FileEntry & { path: string })[]> {
    const out: (FileEntry & { path: string })[] = [];
    const links: (FileEntry & { path: string })[] = [];
    try {
      for await (const e of this.task.files.list(at, { recursive, limit: 10_000 })) {
        const entry: FileEntry & { path: string } = { name: e.name, path: at === "" ? e.path : e.path.slice(at.length + 1), type: e.type === "directory" ? "directory" : "file" };
        if (e.type === "file") entry.size = e.size;
        if (e.type === "symlink") {
          entry.isSymlink = true;
          entry.symlinkTarget = e.target;
          links.push(entry);
        }
        out.push(entry);
      }
    } catch (err) {
      if (err instanceof UmbraError && err.code === "file_not_found") throw new DirectoryNotFoundError(path);
      throw err;
    }
    await each(links, async (entry) => {
      const to = await this.#stat(at === "" ? entry.path : `${at}/${entry.path}`).catch(() => undefined);
      if (to?.type === "directory") entry.type = "directory";
    });
    return out;
  }

  readdir(path: string, options?: ListOptions): Promise<FileEntry[]> {
    return this.#do(path, "readdir", async (at) => {
      const extensions = options?.extension === undefined ? undefined : [options.extension].flat().map((e) => "." + e.replace(/^\./, ""));
      const deepest = options?.recursive ? 1 + (options.maxDepth ?? 100) : 1;
      const all = await this.#entries(at, path, deepest > 1);
      return all
        .filter((e) => e.path.split("/").length <= deepest && (extensions === undefined || e.type === "directory" || e.isSymlink || extensions.includes(/(?<=[^/])\.[^./]*$/.exec(e.name)?.[0] ?? "")))
        .map(({ path: name, ...e }) => ({ ...e, name }));
    });
  }

  walk(path: string, options?: WalkOptions): Promise<WalkEntry[]> {
    return this.#do(path, "walk", async (at) => {
      const deepest = options?.maxDepth ?? Infinity;
      const shown = (e: { path: string }) => options?.includeHidden === true || !e.path.split("/").some((name) => name.startsWith("."));
      if (deepest > 3) return (await this.#entries(at, path, true)).filter((e) => e.path.split("/").length <= deepest && shown(e));
      // What is deeper, in a shallow look at a large tree, is not asked for.
      const out: WalkEntry[] = [];
      let level = [""];
      for (let depth = 1; depth <= deepest && level.length > 0; depth++) {
        const next: string[] = [];
        const lists: WalkEntry[][] = [];
        await each(level, async (dir, i) => {
          const found = await this.#entries([at, dir].filter((s) => s !== "").join("/"), path, false).catch((err) => {
            // A directory below that was removed meanwhile.
            if (dir !== "" && (err instanceof DirectoryNotFoundError || err instanceof UmbraError && err.status < 500 && err.status !== 0)) return [];
            throw err;
          });
          lists[i] = found.map((e) => ({ ...e, path: dir === "" ? e.name : `${dir}/${e.name}` })).filter(shown);
        });
        for (const list of lists) {
          out.push(...list);
          for (const e of list) if (e.type === "directory" && !e.isSymlink) next.push(e.path);
        }
        level = next;
      }
      return out;
    });
  }

  grep(options: FilesystemGrepOptions): Promise<FilesystemGrepResult[]> {
    return this.#do(options.path, "grep", async (at) => {
      const pattern = re2(options.pattern);
      let found: Awaited<ReturnType<Task["files"]["search"]>>;
      try {
        found = await this.task.files.search(pattern, {
          path: at, ignoreCase: !options.caseSensitive, context: options.contextLines, maxPerFile: options.maxCountPerFile,
          // What is hidden is filtered here, so all is asked for.
          max: options.includeHidden ? options.maxTotalMatches : 10_000,
        });
      } catch (err) {
        if (err instanceof UmbraError && err.code === "invalid_pattern") throw new UnsupportedGrepPatternError(options.pattern, err.detail);
        throw err;
      }
      const files = new Map<string, FilesystemGrepResult>();
      let left = options.maxTotalMatches ?? Infinity;
      for (const m of found.matches) {
        const path = at === "" ? m.path : m.path === at ? m.path.slice(at.lastIndexOf("/") + 1) : m.path.slice(at.length + 1);
        if (!options.includeHidden && path.split("/").some((name) => name.startsWith("."))) continue;
        if (left-- <= 0) break;
        if (!files.has(path)) files.set(path, { path, matches: [] });
        files.get(path)!.matches.push({ line: m.line, column: m.column, text: m.text, ...(options.contextLines ? { before: m.before, after: m.after } : {}) });
      }
      return [...files.values()];
    });
  }

  exists(path: string): Promise<boolean> {
    return this.#do(path, "access", async (at) => (await this.#stat(at).catch((err) => {
      if (err instanceof UmbraError && (err.code === "not_directory" || err.code === "not_a_directory")) return undefined;
      throw err;
    })) !== undefined);
  }

  stat(path: string): Promise<FileStat> {
    return this.#do(path, "stat", async (at) => {
      const e = await this.#stat(at);
      if (e === undefined) throw new FileNotFoundError(path);
      const name = at.slice(at.lastIndexOf("/") + 1);
      return {
        name, path: (path.startsWith("/") ? "/" : "") + at, type: e.type as "file" | "directory", size: e.size,
        createdAt: new Date(e.created ?? e.mtime), modifiedAt: new Date(e.mtime), ...(e.type === "file" ? { mimeType: this.#mime(name) } : {}),
      };
    });
  }

  #mime(name: string): string {
    const dot = name.lastIndexOf(".");
    const ext = dot > 0 ? name.slice(dot + 1).toLowerCase() : "";
    return (Object.hasOwn(media, ext) ? media[ext] : undefined) ?? (this.isTextFile(name) ? "text/plain" : "application/octet-stream");
  }

  /** getHistory returns the task's changes, oldest first; reads are not recorded. */
  async getHistory(options: FilesystemAuditOptions = {}): Promise<FilesystemAuditEntry[]> {
    const out: FilesystemAuditEntry[] = [];
    let skip = options.offset ?? 0;
    if (options.limit !== undefined && options.limit <= 0) return out;
    for await (const e of this.#history(options)) {
      if (skip-- > 0) continue;
      out.push(e);
      if (out.length === options.limit) break;
    }
    return out;
  }

  async count(options: Omit<FilesystemAuditOptions, "limit" | "offset"> = {}): Promise<number> {
    let n = 0;
    for await (const _ of this.#history(options)) n++;
    return n;
  }

  async *#history(o: FilesystemAuditOptions): AsyncGenerator<FilesystemAuditEntry, void, void> {
    await this.ensureReady();
    const prefix = o.pathPrefix === undefined ? "" : this.#at(o.pathPrefix, "getHistory");
    const root = o.pathPrefix === undefined || o.pathPrefix.startsWith("/") ? "/" : "";
    const below = (path: string | null) => path !== null && (prefix === "" || path === prefix || path.startsWith(prefix + "/"));
    const shown = (path: string) => root + path.replace(/\/$/, "");
    try {
      for await (const e of this.task.changes({ limit: 10_000 })) {
        const kept = e.path.endsWith("/" + keep) && (e.operation === "create" || e.operation === "delete");
        const operation = kept ? (e.operation === "create" ? "mkdir" : "rmdir") : operations[e.operation] ?? "write";
        const path = kept ? e.path.slice(0, -keep.length - 1) : e.path.replace(/\/$/, "");
        if (o.operations !== undefined && !o.operations.includes(operation)) continue;
        if (!below(path) && !below(e.new_path)) continue;
        const timestamp = new Date(e.timestamp);
        if (o.since !== undefined && timestamp < o.since || o.until !== undefined && timestamp > o.until) continue;
        yield {
          id: String(e.id ?? `${e.commit}:${path}`), timestamp, operation, path: shown(path), ...(e.new_path === null ? {} : { targetPath: shown(e.new_path) }),
          metadata: { commit: e.commit, subtask: e.subtask_id, actor: e.actor, ...metadataOf(this.task.subtask(e.subtask_id), { commit: e.commit, change_id: e.id }) },
        };
      }
    } catch (err) {
      this.#fail(err, "/", "getHistory");
    }
  }
}

/** each calls fn for all items, 8 at a time. */
async function each<T>(items: T[], fn: (item: T, i: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(Array.from({ length: Math.min(8, items.length) }, async () => {
    while (next < items.length) {
      const i = next++;
      await fn(items[i]!, i);
    }
  }));
}
