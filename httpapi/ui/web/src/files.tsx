// What a task's work comes to: its changed files.

import { useMemo, useRef, useState } from "preact/hooks";

import { text } from "./api";
import { Counts, ErrorBox, Loading, PathName, useKeys } from "./bits";
import { count, num, statusKinds } from "./format";
import { go, to } from "./route";
import type { FileChange, Task } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

export function FileList(p: { task: Task; files: FileChange[] | undefined; error: string; selected: string; retry: () => void }) {
  const [filter, setFilter] = useState("");
  const handle = useRef<ListHandle | null>(null);
  const shown = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    return (p.files ?? []).filter((f) => {
      const hay = `${text(f.path, f.path_encoding)} ${f.from ?? ""} ${f.subtasks.join(" ")}`.toLowerCase();
      return words.every((w) => hay.includes(w));
    });
  }, [p.files, filter]);
  const address = (f: FileChange) => to(["tasks", p.task.task_id, "files"], { path: f.path, enc: f.path_encoding });
  const step = (by: number) => {
    const at = shown.findIndex((f) => f.path === p.selected);
    const next = Math.min(shown.length - 1, Math.max(0, at < 0 ? 0 : at + by));
    const f = shown[next];
    if (!f) return;
    go(address(f), at >= 0);
    handle.current?.scrollTo(next);
  };
  useKeys({ j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1) });
  if (p.error) return <ErrorBox error={p.error} retry={p.retry} />;
  if (!p.files) return <Loading what="the files" />;
  const plus = p.files.reduce((n, f) => n + f.additions, 0);
  const minus = p.files.reduce((n, f) => n + f.deletions, 0);
  return (
    <section class="files" aria-label="Changed files">
      <div class="tools">
        <input type="search" class="filter" data-search aria-label="Filter the files" placeholder="Filter by path, subtask" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
      </div>
      <p class="state dim">
        {filter ? `${num(shown.length)} of ${num(p.files.length)}` : count(p.files.length, "file")} · <Counts additions={plus} deletions={minus} />
      </p>
      <VirtualList
        handle={handle}
        label="Changed files, list"
        data={shown}
        count={shown.length}
        estimate={() => 38}
        empty={filter ? "No file fits." : "No net change: no file differs."}
        row={(i) => {
          const f = shown[i]!;
          const kind = statusKinds[f.status];
          return (
            <div class="file" role="listitem" key={f.path} aria-setsize={shown.length} aria-posinset={i + 1}>
              <a href={address(f)} aria-current={f.path === p.selected ? "true" : undefined}>
                <span class={`op ${kind?.kind ?? ""}`} title={f.status}>
                  <span aria-hidden="true">{kind?.letter}</span>
                  <span class="hidden">{f.status}</span>
                </span>
                <PathName path={f.path} encoding={f.path_encoding} />
                <Counts additions={f.additions} deletions={f.deletions} binary={f.binary} />
              </a>
            </div>
          );
        }}
      />
    </section>
  );
}
