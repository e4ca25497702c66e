// Numbers, times and names for people.

const plural = new Intl.PluralRules("en");
const numbers = new Intl.NumberFormat("en");

export function count(n: number, one: string, many = `${one}s`): string {
  return `${numbers.format(n)} ${plural.select(n) === "one" ? one : many}`;
}

export function num(n: number): string {
  return numbers.format(n);
}

/** ago is a time as a person says it, exact where it is not today. */
export function ago(stamp: string, now: number): string {
  const at = Date.parse(stamp);
  const s = Math.max(0, Math.round((now - at) / 1000));
  if (s < 10) return "just now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 7 * 86_400) return `${Math.floor(s / 86_400)} d ago`;
  return new Date(at).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

export function clock(stamp: string): string {
  const d = new Date(stamp);
  const time = d.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  if (d.toDateString() === new Date().toDateString()) return time;
  return `${d.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}

export function exact(stamp: string): string {
  return new Date(stamp).toLocaleString();
}

export function short(id: string | null | undefined): string {
  return id ? id.slice(0, 10) : "";
}

/** visible shows a name's control and direction characters instead of obeying them. */
export function visible(name: string): string {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) => {
    const code = c.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\u27e8${code.toString(16)}\u27e9`;
  });
}

/** undoPrefix begins the subtasks of undos: umbra redo finds them by it. */
export const undoPrefix = "umbra-undo-";

/** newUndo is the subtask of an undo that is made now. */
export function newUndo(): string {
  return undoPrefix + (BigInt(Date.now()) * 1_000_000n).toString(36);
}

/** turnName is a subtask's or turn's name: of a long id, such as agents make them, its end, where two of them differ. */
export function turnName(id: string): string {
  if (id.startsWith(undoPrefix)) return "undo";
  const name = visible(id);
  return name.length > 24 ? `…${name.slice(-8)}` : name;
}

/** split cuts a path into its folder, with the slash, and its name. */
export function split(path: string): [string, string] {
  const trimmed = path.endsWith("/") ? path.slice(0, -1) : path;
  const at = trimmed.lastIndexOf("/");
  return [path.slice(0, at + 1), path.slice(at + 1)];
}

export function bytes(n: number): string {
  if (n < 1024) return count(n, "byte");
  if (n < 1 << 20) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / (1 << 20)).toFixed(1)} MiB`;
}

export const operations: Record<string, { letter: string; word: string; kind: string }> = {
  create: { letter: "A", word: "created", kind: "add" },
  modify: { letter: "M", word: "modified", kind: "mod" },
  delete: { letter: "D", word: "deleted", kind: "del" },
  rename: { letter: "R", word: "renamed", kind: "ren" },
  chmod: { letter: "P", word: "mode changed", kind: "mod" },
  mkdir: { letter: "A", word: "folder made", kind: "add" },
  rmdir: { letter: "D", word: "folder removed", kind: "del" },
  symlink: { letter: "L", word: "linked", kind: "ren" },
};

export function operation(name: string): { letter: string; word: string; kind: string } {
  return operations[name] ?? { letter: "?", word: name, kind: "mod" };
}

export const statusKinds: Record<string, { letter: string; kind: string }> = {
  created: { letter: "A", kind: "add" },
  modified: { letter: "M", kind: "mod" },
  deleted: { letter: "D", kind: "del" },
  renamed: { letter: "R", kind: "ren" },
};

/** who is an entry's actor; changes found on disk have none. */
export function who(e: { actor: string; source: string }): string {
  return e.actor || (e.source === "external" ? "a user on disk" : e.source === "shared" ? "several agents" : "the server");
}
