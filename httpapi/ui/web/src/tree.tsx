// A task's changed files as a tree, next to its whole diff.

import { useMemo, useRef, useState } from "preact/hooks";

import { text } from "./api";
import { Counts, ErrorBox, Icon, Loading, useKeys } from "./bits";
import { count, statusKinds, visible } from "./format";
import { go, to } from "./route";
import type { FileChange, Task } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

/** Node is a row of the tree: a directory, or a file of the task. */
interface Node {
  name: string;
  path: string;
  depth: number;
  file?: FileChange;
}

/** treeOf lists directories and files as they are drawn, without what is in closed directories. */
function treeOf(files: FileChange[], closed: Set<string>): Node[] {
  const rows: Node[] = [];
  let open: string[] = [];
  const sorted = files.map((f) => ({ f, parts: text(f.path, f.path_encoding).split("/") })).sort((a, b) => compare(a.parts, b.parts));
  for (const { f, parts } of sorted) {
    const dirs = parts.slice(0, -1);
    let same = 0;
    while (same < dirs.length && same < open.length && dirs[same] === open[same]) same++;
    let hidden = dirs.some((_, i) => i < same && closed.has(dirs.slice(0, i + 1).join("/")));
    for (let i = same; i < dirs.length; i++) {
      const path = dirs.slice(0, i + 1).join("/");
      if (!hidden) rows.push({ name: dirs[i]!, path, depth: i });
      hidden ||= closed.has(path);
    }
    open = dirs;
    if (!hidden) rows.push({ name: parts.at(-1)!, path: f.path, depth: dirs.length, file: f });
  }
  return rows;
}

/** compare puts directories before files, by name. */
function compare(a: string[], b: string[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const lastA = i === a.length - 1;
    const lastB = i === b.length - 1;
    if (lastA !== lastB) return lastA ? 1 : -1;
    if (a[i]! !== b[i]!) return a[i]! < b[i]! ? -1 : 1;
  }
  return a.length - b.length;
}

export function FileTree(p: { task: Task; files: FileChange[] | undefined; error: string; selected: string; retry: () => void }) {
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const handle = useRef<ListHandle | null>(null);
  const rows = useMemo(() => treeOf(p.files ?? [], closed), [p.files, closed]);
  const address = (f: FileChange) => to(["tasks", p.task.task_id, "diff"], { path: f.path, enc: f.path_encoding });
  const step = (by: number) => {
    const at = rows.findIndex((r) => r.file && r.path === p.selected);
    for (let i = at < 0 ? 0 : at + by; i >= 0 && i < rows.length; i += by) {
      const f = rows[i]!.file;
      if (!f) continue;
      go(address(f), at >= 0);
      handle.current?.scrollTo(i);
      return;
    }
  };
  useKeys({ j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1) });
  const toggle = (path: string) => {
    const next = new Set(closed);
    if (!next.delete(path)) next.add(path);
    setClosed(next);
  };
  if (p.error) return <ErrorBox error={p.error} retry={p.retry} />;
  if (!p.files) return <Loading what="the files" />;
  return (
    <section class="files" aria-label="Files of the diff">
      <p class="state dim">
        {count(p.files.length, "file")} · <Counts additions={p.files.reduce((n, f) => n + f.additions, 0)} deletions={p.files.reduce((n, f) => n + f.deletions, 0)} />
      </p>
      <VirtualList
        handle={handle}
        label="File tree"
        data={rows}
        count={rows.length}
        estimate={() => 32}
        empty="No net change: no file differs."
        row={(i) => {
          const r = rows[i]!;
          const indent = `depth-${Math.min(r.depth, 12)}`;
          if (!r.file)
            return (
              <div class="branch" role="listitem" key={`d ${r.path}`} aria-setsize={rows.length} aria-posinset={i + 1}>
                <button type="button" class={`plain toggle ${indent}`} aria-expanded={!closed.has(r.path)} onClick={() => toggle(r.path)}>
                  <Icon name="right" /> {visible(r.name)}
                </button>
              </div>
            );
          const kind = statusKinds[r.file.status];
          return (
            <div class="file" role="listitem" key={r.path} aria-setsize={rows.length} aria-posinset={i + 1}>
              <a class={indent} href={address(r.file)} aria-current={r.path === p.selected ? "true" : undefined}>
                <span class={`op ${kind?.kind ?? ""}`} title={r.file.status}>
                  <span aria-hidden="true">{kind?.letter}</span>
                  <span class="hidden">{r.file.status}</span>
                </span>
                <span class="base">{visible(r.name)}</span>
                <Counts additions={r.file.additions} deletions={r.file.deletions} binary={r.file.binary} />
              </a>
            </div>
          );
        }}
      />
    </section>
  );
}
