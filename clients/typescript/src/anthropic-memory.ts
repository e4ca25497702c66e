import type { MemoryToolHandlers } from "@anthropic-ai/sdk/helpers/beta/memory";
import { defaultMaxReadBytes, legalSubtask } from "./adapter.js";
import { UmbraError } from "./errors.js";
import type { Task } from "./index.js";
import type { TaskFileEntry } from "./wire.js";

const maxLines = 999_999;
const width = String(maxLines).length;

/** A directory's size as a Linux file system reports it. */
const directorySize = 4096;

function size(bytes: number): string {
  if (bytes === 0) return "0B";
  const i = Math.floor(Math.log(bytes) / Math.log(1024));
  const n = bytes / 1024 ** i;
  return (n % 1 === 0 ? n.toString() : n.toFixed(1)) + ["B", "K", "M", "G"][i];
}

const numbered = (lines: string[], from: number) => lines.map((line, i) => `${String(i + from).padStart(width, " ")}\t${line}`).join("\n");

const is = (err: unknown, ...codes: string[]) => err instanceof UmbraError && codes.includes(err.code);

/**
 * umbraMemory returns the handlers of `betaMemoryTool` on a task. Texts and
 * errors are those of the SDK's own file system tool.
 */
export async function umbraMemory(o: { task: Task; root?: string; subtask?: string; maxReadBytes?: number }): Promise<MemoryToolHandlers> {
  if (o?.task === undefined) throw new TypeError("umbraMemory needs a task");
  const { files } = o.subtask === undefined ? o.task : o.task.subtask(legalSubtask(o.subtask));
  const root = (o.root ?? "memories").split("/").filter((s) => s !== "").join("/");
  if (root !== "") await files.mkdir(root, { recursive: true });

  const at = (path: string): string => {
    if (!path.startsWith("/memories")) throw new Error(`Path must start with /memories, got: ${path}`);
    const out: string[] = [];
    for (const name of path.slice("/memories".length).replace(/^\//, "").split("/")) {
      if (name === "" || name === ".") continue;
      if (name === ".." && out.pop() === undefined) throw new Error(`Path ${path} would escape /memories directory`);
      if (name !== "..") out.push(name);
    }
    return [root, ...out].filter((name) => name !== "").join("/");
  };
  const missing = (path: string) => new Error(`The path ${path} does not exist. Please provide a valid path.`);

  /** text returns a file to change, with its entity tag. */
  const text = async (path: string, fatal = false): Promise<{ text: string; etag: string }> => {
    let entry: TaskFileEntry;
    try {
      entry = await files.stat(at(path));
    } catch (err) {
      if (is(err, "file_not_found")) throw missing(path);
      throw err;
    }
    if (entry.type !== "file") throw new Error(`The path ${path} is not a file.`);
    const { data, etag } = await files.readWith(at(path), { maxBytes: o.maxReadBytes ?? defaultMaxReadBytes });
    try {
      return { text: new TextDecoder("utf-8", { ignoreBOM: true, fatal }).decode(data), etag };
    } catch {
      throw new Error(`The file ${path} is not UTF-8 text; a change of it would damage the rest of it.`);
    }
  };

  /** change rewrites a file, again if it was changed in between. */
  const change = async (path: string, fn: (old: string) => { text: string; answer: string }): Promise<string> => {
    for (let tries = 1; ; tries++) {
      const old = await text(path, true);
      const now = fn(old.text);
      try {
        await files.write(at(path), now.text, { ifMatch: old.etag });
        return now.answer;
      } catch (err) {
        if (!(err instanceof UmbraError) || err.status !== 412 || tries === 10) throw err;
      }
    }
  };

  return {
    async view(command) {
      const path = at(command.path);
      let entry: TaskFileEntry;
      try {
        entry = await files.stat(path);
      } catch (err) {
        if (is(err, "file_not_found")) throw missing(command.path);
        throw err;
      }
      if (entry.type === "directory") {
        const lines = [`${size(directorySize)}\t${command.path}`];
        const walk = async (dir: string, shown: string, depth: number): Promise<void> => {
          const names: TaskFileEntry[] = [];
          for await (const e of files.list(dir)) names.push(e);
          names.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
          for (let e of names) {
            if (e.name.startsWith(".") || e.name === "node_modules") continue;
            if (e.type === "symlink") {
              try {
                e = { ...(await files.stat(e.path)), name: e.name, path: e.path };
              } catch {
                continue;
              }
            }
            const relative = shown === "" ? e.name : `${shown}/${e.name}`;
            if (e.type === "directory") {
              lines.push(`${size(directorySize)}\t${command.path}/${relative}/`);
              if (depth < 2) await walk(e.path, relative, depth + 1);
            } else if (e.type === "file") {
              lines.push(`${size(e.size)}\t${command.path}/${relative}`);
            }
          }
        };
        await walk(path, "", 1);
        return `Here're the files and directories up to 2 levels deep in ${command.path}, excluding hidden items and node_modules:\n${lines.join("\n")}`;
      }
      if (entry.type !== "file") throw new Error(`Unsupported file type for ${command.path}`);
      let lines = (await text(command.path)).text.split("\n");
      if (lines.length > maxLines) throw new Error(`File ${command.path} has too many lines (${lines.length}). Maximum is ${maxLines.toLocaleString()} lines.`);
      let from = 1;
      if (command.view_range && command.view_range.length === 2) {
        const start = Math.max(1, command.view_range[0]!) - 1;
        lines = lines.slice(start, command.view_range[1] === -1 ? lines.length : command.view_range[1]);
        from = start + 1;
      }
      return `Here's the content of ${command.path} with line numbers:\n${numbered(lines, from)}`;
    },

    async create(command) {
      try {
        await files.write(at(command.path), command.file_text, { ifNoneMatch: "*" });
      } catch (err) {
        if (err instanceof UmbraError && (err.status === 412 || err.code === "is_a_directory")) throw new Error(`File ${command.path} already exists`);
        throw err;
      }
      return `File created successfully at: ${command.path}`;
    },

    str_replace(command) {
      return change(command.path, (old) => {
        const found = old.split("\n").flatMap((line, i) => (line.includes(command.old_str) ? [i + 1] : []));
        if (found.length === 0) throw new Error(`No replacement was performed, old_str \`${command.old_str}\` did not appear verbatim in ${command.path}.`);
        if (found.length > 1) throw new Error(`No replacement was performed. Multiple occurrences of old_str \`${command.old_str}\` in lines: ${found.join(", ")}. Please ensure it is unique`);
        const now = old.replace(command.old_str, () => command.new_str);
        const lines = now.split("\n");
        const start = Math.max(0, found[0]! - 1 - 2);
        const snippet = numbered(lines.slice(start, Math.min(lines.length, found[0]! - 1 + 3)), start + 1);
        return { text: now, answer: `The memory file has been edited. Here is the snippet showing the change (with line numbers):\n${snippet}` };
      });
    },

    insert(command) {
      return change(command.path, (old) => {
        const lines = old.split("\n");
        if (command.insert_line < 0 || command.insert_line > lines.length) {
          throw new Error(`Invalid \`insert_line\` parameter: ${command.insert_line}. It should be within the range of lines of the file: [0, ${lines.length}]`);
        }
        lines.splice(command.insert_line, 0, command.insert_text.replace(/\n$/, ""));
        return { text: lines.join("\n"), answer: `The file ${command.path} has been edited.` };
      });
    },

    async delete(command) {
      const path = at(command.path);
      if (path === root) throw new Error("Cannot delete the /memories directory itself");
      try {
        await files.delete(path, { recursive: true });
      } catch (err) {
        if (is(err, "file_not_found")) throw new Error(`The path ${command.path} does not exist`);
        throw err;
      }
      return `Successfully deleted ${command.path}`;
    },

    async rename(command) {
      const from = at(command.old_path);
      const to = at(command.new_path);
      if (from === root) throw new Error("Cannot rename the /memories directory itself");
      const exists = await files.stat(to).then(() => true, (err) => {
        if (is(err, "file_not_found")) return false;
        throw err;
      });
      if (exists) throw new Error(`The destination ${command.new_path} already exists`);
      try {
        await files.move(from, to);
      } catch (err) {
        if (is(err, "file_not_found")) throw new Error(`The path ${command.old_path} does not exist`);
        if (is(err, "target_exists")) throw new Error(`The destination ${command.new_path} already exists`);
        throw err;
      }
      return `Successfully renamed ${command.old_path} to ${command.new_path}`;
    },
  };
}
