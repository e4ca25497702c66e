// A unified diff as rows of a table. Texts stay slices of the diff itself.

export type RowKind = "file" | "hunk" | "context" | "add" | "del" | "note";

/** Row is one line of the diff; old and now are line numbers, 0 for none. */
export interface Row {
  kind: RowKind;
  text: string;
  old: number;
  now: number;
  /** mate is the row on the other side that a changed line is compared with, -1 for none. */
  mate: number;
}

/** Pair is one line of the view side by side: rows by their index, -1 for none. */
export interface Pair {
  left: number;
  right: number;
}

export interface Parsed {
  rows: Row[];
  pairs: Pair[];
  /** clipped reports that the diff has more rows than are shown. */
  clipped: boolean;
}

/** mostRows is how many rows a page holds: browsers end at some ten million pixels. */
const mostRows = 600_000;
const breath = 20_000;

/**
 * parse reads a unified diff, and lets the page breathe meanwhile. With files a
 * row marks where each file begins.
 */
export async function parse(diff: string, files: boolean, signal?: AbortSignal): Promise<Parsed> {
  const rows: Row[] = [];
  let at = 0;
  let old = 0;
  let now = 0;
  let oldLeft = 0;
  let nowLeft = 0;
  let clipped = false;
  const push = (kind: RowKind, text: string, o = 0, n = 0) => rows.push({ kind, text, old: o, now: n, mate: -1 });
  for (let lines = 1; at < diff.length; lines++) {
    if (lines % breath === 0) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      signal?.throwIfAborted();
    }
    if (rows.length >= mostRows) {
      clipped = true;
      break;
    }
    let end = diff.indexOf("\n", at);
    if (end < 0) end = diff.length;
    const line = diff.slice(at, end);
    at = end + 1;
    if (oldLeft > 0 || nowLeft > 0) {
      const sign = line[0];
      if (sign === "+") {
        push("add", line.slice(1), 0, now++);
        nowLeft--;
        continue;
      }
      if (sign === "-") {
        push("del", line.slice(1), old++, 0);
        oldLeft--;
        continue;
      }
      if (sign === " " || line === "") {
        push("context", line.slice(1), old++, now++);
        oldLeft--;
        nowLeft--;
        continue;
      }
    }
    if (line.startsWith("\\")) {
      push("note", line.slice(2));
      continue;
    }
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/.exec(line);
    if (hunk) {
      old = Number(hunk[1]);
      now = Number(hunk[3]);
      oldLeft = hunk[2] === undefined ? 1 : Number(hunk[2]);
      nowLeft = hunk[4] === undefined ? 1 : Number(hunk[4]);
      push("hunk", line);
      continue;
    }
    if (line.startsWith("diff --git ")) {
      if (files) push("file", names(line.slice("diff --git ".length)));
      continue;
    }
    if (/^(old mode|new mode|new file mode|deleted file mode|rename from|rename to|similarity index|copy )/.test(line)) push("note", line);
    if (line === "GIT binary patch") push("note", "The content is binary.");
  }
  return { rows, pairs: pair(rows), clipped };
}

/** names reads "a/X b/X", which has no mark where the one name ends. */
function names(both: string): string {
  const half = (both.length - 1) / 2;
  const old = both.slice(0, half);
  const now = both.slice(half + 1);
  return old.slice(2) === now.slice(2) ? now.slice(2) : both.replace(/^a\//, "").replace(" b/", " \u2192 ");
}

/** pair puts rows side by side: deletions next to the additions that follow them. */
export function pair(rows: Row[]): Pair[] {
  const pairs: Pair[] = [];
  for (let i = 0; i < rows.length; ) {
    const kind = rows[i]!.kind;
    if (kind !== "del" && kind !== "add") {
      pairs.push({ left: i, right: i });
      i++;
      continue;
    }
    const dels: number[] = [];
    const adds: number[] = [];
    const notes: number[] = [];
    for (; i < rows.length; i++) {
      const k = rows[i]!.kind;
      if (k === "del" && adds.length === 0) dels.push(i);
      else if (k === "add") adds.push(i);
      else if (k === "note" && rows[i]!.text.startsWith("No newline")) notes.push(i);
      else break;
    }
    for (let k = 0; k < Math.max(dels.length, adds.length); k++) {
      const left = dels[k] ?? -1;
      const right = adds[k] ?? -1;
      if (left >= 0 && right >= 0) {
        rows[left]!.mate = right;
        rows[right]!.mate = left;
      }
      pairs.push({ left, right });
    }
    for (const n of notes) pairs.push({ left: n, right: n });
  }
  return pairs;
}

/** plain makes rows of a whole file, for showing one version. */
export function plain(content: string): Parsed {
  const lines = content.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const clipped = lines.length > mostRows;
  const rows = (clipped ? lines.slice(0, mostRows) : lines).map((text, i): Row => ({ kind: "context", text, old: i + 1, now: i + 1, mate: -1 }));
  return { rows, pairs: [], clipped };
}
