// A conflict, three ways: what the task found (and a revert brings back), what
// it left, and what is there now.

import { diffArrays } from "diff";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, getJSON, inURL, request, text } from "./api";
import { ErrorBox, Loading, useLoad } from "./bits";
import { useTokens } from "./diff/highlight";
import { Segments } from "./diff/view";
import { segments, type Token } from "./diff/words";
import { count } from "./format";
import type { Scope } from "./revert";
import type { Conflict, Entry, Task } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

/** largest is up to which size versions are compared in the page, in characters. */
const largest = 4 << 20;

type Version = string[] | null;

/** longestLine is how much of one line is drawn, in characters. */
const longestLine = 2000;

/** useColors gives the tokens of a version's lines. */
function useColors(path: string, lines: Version | undefined): Map<string, Token[]> {
  const text = useMemo(() => (lines ?? []).map((l) => l.slice(0, longestLine)).join("\n"), [lines]);
  const tokens = useTokens(path, text);
  return useMemo(() => new Map((lines ?? []).map((l, i) => [l, tokens[i] ?? []])), [lines, tokens]);
}

interface Line {
  found: string | null;
  left: string | null;
  now: string | null;
  /** ours: the task's change; theirs: what came later; both: they meet here. */
  kind: "same" | "ours" | "theirs" | "both";
}

async function version(url: string, signal: AbortSignal): Promise<Version> {
  try {
    const text = await (await request(url, { signal })).text();
    if (text.length > largest) throw new Error("The file is too large to be compared here.");
    if (text.includes("\0")) throw new Error("The file is binary.");
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    return lines;
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) return null;
    throw e;
  }
}

/** firstOf is the oldest entry of the scope on the path: what it found is what the revert brings back. */
async function firstOf(task: Task, c: Conflict, scope: Scope, signal: AbortSignal): Promise<number> {
  if (scope.kind === "change") return scope.id;
  const sub = scope.kind === "subtask" ? `&subtask_id=${encodeURIComponent(scope.id)}` : "";
  const page = await getJSON<{ entries: Entry[] }>(`/tasks/${encodeURIComponent(task.task_id)}/changes?limit=1&path=${inURL(c.path, c.path_encoding)}${sub}`, signal);
  return page.entries[0]?.id ?? c.entry ?? 0;
}

async function versions(task: Task, c: Conflict, scope: Scope, signal: AbortSignal): Promise<{ found: Version; left: Version; now: Version }> {
  const base = `/tasks/${encodeURIComponent(task.task_id)}`;
  const path = inURL(c.path, c.path_encoding);
  const first = await firstOf(task, c, scope, signal);
  const [found, left, now] = await Promise.all([
    version(`${base}/changes/${first}/before`, signal),
    version(`${base}/content?path=${path}&at=${c.entry}`, signal),
    version(`${base}/content?path=${path}`, signal),
  ]);
  return { found, left, now };
}

/** slots aligns one version's lines with the base's: those before each line, and those in its place. */
function slots(base: string[], other: string[]): { before: string[][]; same: boolean[]; line: (string | null)[] } {
  const before: string[][] = Array.from({ length: base.length + 1 }, () => []);
  const line: (string | null)[] = base.map(() => null);
  const same: boolean[] = base.map(() => false);
  let b = 0;
  let removed = 0; // lines of the base just before b that the other version does not have
  const whole = [
    { value: base, removed: true, added: false },
    { value: other, removed: false, added: true },
  ];
  for (const part of diffArrays(base, other, { timeout: 2000 }) ?? whole) {
    if (part.removed) {
      b += part.value.length;
      removed = part.value.length;
      continue;
    }
    if (part.added) {
      // A line's replacement is next to it.
      part.value.forEach((value, k) => {
        if (k < removed) line[b - removed + k] = value;
        else before[b]!.push(value);
      });
    } else {
      for (const value of part.value) {
        line[b] = value;
        same[b] = true;
        b++;
      }
    }
    removed = 0;
  }
  return { before, same, line };
}

export function align(found: string[], left: string[], now: string[]): Line[] {
  const f = slots(left, found);
  const n = slots(left, now);
  const out: Line[] = [];
  for (let i = 0; i <= left.length; i++) {
    const fi = f.before[i]!;
    const ni = n.before[i]!;
    for (let k = 0; k < Math.max(fi.length, ni.length); k++) {
      const a = fi[k] ?? null;
      const b = ni[k] ?? null;
      out.push({ found: a, left: null, now: b, kind: a !== null && b !== null ? (a === b ? "same" : "both") : a !== null ? "ours" : "theirs" });
    }
    if (i === left.length) break;
    const ours = !f.same[i];
    const theirs = !n.same[i];
    out.push({ found: f.line[i] ?? null, left: left[i]!, now: n.line[i] ?? null, kind: ours && theirs ? "both" : ours ? "ours" : theirs ? "theirs" : "same" });
  }
  return out;
}

const near = 4;

/** folded leaves out what is the same everywhere, far from any difference. */
function folded(lines: Line[]): (Line | number)[] {
  const keep = new Uint8Array(lines.length);
  lines.forEach((l, i) => {
    if (l.kind !== "same") keep.fill(1, Math.max(0, i - near), i + near + 1);
  });
  const out: (Line | number)[] = [];
  let skipped = 0;
  lines.forEach((l, i) => {
    if (!keep[i]) {
      skipped++;
      return;
    }
    if (skipped > 0) out.push(skipped);
    skipped = 0;
    out.push(l);
  });
  if (skipped > 0) out.push(skipped);
  return out;
}

const columns = [
  { key: "found", name: "Before the task", hint: "what the revert brings back" },
  { key: "left", name: "As the task left it", hint: "" },
  { key: "now", name: "Now", hint: "with what came later" },
] as const;

const kindWords = { same: "", ours: "the task's change", theirs: "changed later", both: "both changed this" };

export function ThreeWay(p: { task: Task; conflict: Conflict; scope: Scope }) {
  const [shown, show] = useState(2);
  const loaded = useLoad((signal) => versions(p.task, p.conflict, p.scope, signal), [p.task.task_id, p.conflict.path, p.conflict.entry]);
  const rows = useMemo(() => {
    const v = loaded.data;
    return v ? folded(align(v.found ?? [], v.left ?? [], v.now ?? [])) : [];
  }, [loaded.data]);
  const path = text(p.conflict.path, p.conflict.path_encoding);
  const tokens = { found: useColors(path, loaded.data?.found), left: useColors(path, loaded.data?.left), now: useColors(path, loaded.data?.now) };
  const handle = useRef<ListHandle | null>(null);
  useEffect(() => {
    // Where both changed the same is what one came to see.
    const at = rows.findIndex((l) => typeof l !== "number" && l.kind === "both");
    if (at > 0) handle.current?.scrollTo(Math.min(rows.length - 1, at + near));
  }, [rows]);
  if (loaded.error) return <ErrorBox error={loaded.error} retry={loaded.reload} />;
  if (!loaded.data) return <Loading what="the versions" />;
  const { data } = loaded;
  return (
    <div class={`threeway show-v-${columns[shown]!.key}`}>
      <div class="pick" role="group" aria-label="Version to show">
        {columns.map((c, i) => (
          <button type="button" key={c.key} aria-pressed={shown === i} onClick={() => show(i)}>
            {c.name}
          </button>
        ))}
      </div>
      <div class="threeway-head" aria-hidden="true">
        {columns.map((c) => (
          <div key={c.key} class={`col v-${c.key}`}>
            {c.name}
            {c.hint && <span class="dim">, {c.hint}</span>}
            {data[c.key] === null && <b>: not there</b>}
          </div>
        ))}
      </div>
      <VirtualList
        handle={handle}
        class="threeway-lines"
        role="table"
        label="Three versions of the file: before the task, as the task left it, now"
        data={rows}
        count={rows.length}
        estimate={() => 20}
        empty="The versions are the same."
        row={(i) => {
          const l = rows[i]!;
          if (typeof l === "number")
            return (
              <div class="three fold" role="row" key={i}>
                <span role="cell">{count(l, "equal line")}</span>
              </div>
            );
          return (
            <div class={`three ${l.kind}`} role="row" key={i} title={kindWords[l.kind]}>
              {columns.map((c) => (
                <span key={c.key} role="cell" class={`col v-${c.key} ${l[c.key] === null ? "none" : ""}`}>
                  {l[c.key] === null ? "" : <Segments of={segments(l[c.key]!.slice(0, longestLine), tokens[c.key].get(l[c.key]!), undefined)} />}
                </span>
              ))}
            </div>
          );
        }}
      />
    </div>
  );
}
