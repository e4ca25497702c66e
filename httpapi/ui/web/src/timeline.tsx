// A task's changes, newest first, grouped by subtask or in order of time.

import { useMemo, useRef, useState } from "preact/hooks";

import type { Changelog, Item } from "./changelog";
import { text } from "./api";
import { Icon, OpBadge, PathName, Time, useKeys } from "./bits";
import { clock, count, num, who } from "./format";
import { go, to } from "./route";
import type { Scope } from "./revert";
import type { Task } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

interface Group {
  subtask: string;
  /** items are indexes into the changelog, oldest first. */
  items: number[];
}

/** A row is an item's index, or -1 - k for group k. */
interface Rows {
  rows: number[];
  groups: Group[];
  matching: number;
}

interface Filter {
  text: string;
  source: string;
}

function matches(i: Item, words: string[], source: string): boolean {
  if (source && (source === "own" ? i.source === "external" || i.source === "revert" : i.source !== source)) return false;
  if (words.length === 0) return true;
  const hay = `${text(i.path, i.encoding)} ${i.newPath ? text(i.newPath, i.encoding) : ""} ${i.actor} ${i.subtask} #${i.id}`.toLowerCase();
  return words.every((w) => hay.includes(w));
}

function arrange(log: Changelog, grouped: boolean, filter: Filter, closed: Set<string>): Rows {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits: number[] = [];
  log.items.forEach((it, i) => {
    if (matches(it, words, filter.source)) hits.push(i);
  });
  if (!grouped) return { rows: hits.reverse(), groups: [], matching: hits.length };
  const byName = new Map<string, Group>();
  for (const i of hits) {
    const name = log.items[i]!.subtask;
    const group = byName.get(name);
    if (group) group.items.push(i);
    else byName.set(name, { subtask: name, items: [i] });
  }
  const groups = [...byName.values()].sort((a, b) => b.items.at(-1)! - a.items.at(-1)!);
  const rows: number[] = [];
  groups.forEach((g, k) => {
    rows.push(-1 - k);
    if (!closed.has(g.subtask)) for (let i = g.items.length - 1; i >= 0; i--) rows.push(g.items[i]!);
  });
  return { rows, groups, matching: hits.length };
}

const groupedKey = "umbra.grouped";

export function Timeline(p: { task: Task; log: Changelog; version: number; selected: number; now: number; onRevert: (scope: Scope) => void; fresh: Set<number> }) {
  const [grouped, setGrouped] = useState(localStorage.getItem(groupedKey) !== "no");
  const [filter, setFilter] = useState<Filter>({ text: "", source: "" });
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const handle = useRef<ListHandle | null>(null);
  const { log } = p;
  const arranged = useMemo(() => arrange(log, grouped, filter, closed), [log, p.version, grouped, filter, closed]);
  const { rows, groups } = arranged;
  const address = (id: number) => to(["tasks", p.task.task_id, "changes", id]);

  const group = (on: boolean) => {
    localStorage.setItem(groupedKey, on ? "yes" : "no");
    setGrouped(on);
  };
  const step = (by: number) => {
    const at = rows.findIndex((r) => r >= 0 && log.items[r]!.id === p.selected);
    for (let i = at < 0 ? 0 : at + by; i >= 0 && i < rows.length; i += by) {
      if (rows[i]! < 0) continue;
      go(address(log.items[rows[i]!]!.id), at >= 0);
      handle.current?.scrollTo(i);
      return;
    }
  };
  useKeys({ j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), g: () => group(!grouped) });

  const toggle = (name: string) => {
    const next = new Set(closed);
    if (!next.delete(name)) next.add(name);
    setClosed(next);
  };

  return (
    <section class="timeline" aria-label="Timeline">
      <div class="tools">
        <input
          type="search"
          class="filter"
          data-search
          aria-label="Filter the timeline by path, actor, subtask or number"
          placeholder="Filter by path, actor, #number"
          value={filter.text}
          onInput={(e) => setFilter({ ...filter, text: e.currentTarget.value })}
        />
        <select aria-label="Which changes" value={filter.source} onChange={(e) => setFilter({ ...filter, source: e.currentTarget.value })}>
          <option value="">all</option>
          <option value="own">the task's own</option>
          <option value="external">made outside</option>
          <option value="revert">reverts</option>
        </select>
        <button type="button" aria-pressed={grouped} onClick={() => group(!grouped)} title="Group by subtask (g)">
          Group
        </button>
      </div>
      <p class="state dim">
        {filter.text || filter.source ? `${num(arranged.matching)} of ${num(log.items.length)}` : count(Math.max(log.items.length, p.task.changes), "change")}
        {log.loading && log.oldest > 0 && `, loading ${num(log.items.length)} …`}
        {log.error && `, ${log.error}`}
        {!log.loading && !log.complete && !log.error && (
          <button type="button" class="link" onClick={() => log.more()}>
            load older ones
          </button>
        )}
      </p>
      <VirtualList
        handle={handle}
        label="Changes"
        data={arranged}
        count={rows.length}
        estimate={(i) => (rows[i]! < 0 ? 44 : 52)}
        keyOf={(i) => (rows[i]! < 0 ? `group ${groups[-1 - rows[i]!]!.subtask}` : log.items[rows[i]!]!.id)}
        empty={log.loading ? "Loading …" : filter.text || filter.source ? "No change fits." : "No change yet. What comes stands here at once."}
        row={(i) => {
          const r = rows[i]!;
          if (r < 0) {
            const g = groups[-1 - r]!;
            return (
              <GroupRow key={`g ${g.subtask}`} group={g} log={log} closed={closed.has(g.subtask)} onToggle={() => toggle(g.subtask)} onRevert={p.onRevert} total={rows.length} at={i} loaded={log.complete && !filter.text && !filter.source} />
            );
          }
          const it = log.items[r]!;
          return <Row key={it.id} item={it} undone={log.undone.has(it.id)} selected={it.id === p.selected} href={address(it.id)} now={p.now} total={rows.length} at={i} indent={grouped} fresh={p.fresh.has(it.id)} />;
        }}
      />
    </section>
  );
}

function GroupRow(p: { group: Group; log: Changelog; closed: boolean; onToggle: () => void; onRevert: (scope: Scope) => void; total: number; at: number; loaded: boolean }) {
  const { items, subtask } = p.group;
  const first = p.log.items[items[0]!]!;
  const last = p.log.items[items.at(-1)!]!;
  return (
    <div class="group" role="listitem" aria-setsize={p.total} aria-posinset={p.at + 1}>
      <button type="button" class="plain toggle" aria-expanded={!p.closed} onClick={p.onToggle}>
        <Icon name="right" />
        <span class="name">{subtask || "no subtask"}</span>
        <span class="dim">
          {num(items.length)}
          {p.loaded && <span class="when">, {clock(first.time)}{first.time.slice(0, 19) === last.time.slice(0, 19) ? "" : ` – ${clock(last.time)}`}</span>}
        </span>
      </button>
      {subtask && (
        <button type="button" class="small" onClick={() => p.onRevert({ kind: "subtask", id: subtask })} aria-label={`Revert subtask ${subtask}`}>
          Revert …
        </button>
      )}
    </div>
  );
}

function Row(p: { item: Item; undone: boolean; selected: boolean; href: string; now: number; total: number; at: number; indent: boolean; fresh: boolean }) {
  const { item: it } = p;
  return (
    <div class={`entry ${p.undone ? "undone" : ""} ${p.indent ? "indent" : ""} ${p.fresh ? "fresh" : ""}`} role="listitem" aria-setsize={p.total} aria-posinset={p.at + 1}>
      <a href={p.href} aria-current={p.selected ? "true" : undefined}>
        <OpBadge operation={it.operation} source={it.source} />
        <span class="what">
          <PathName path={it.path} encoding={it.encoding} to={it.newPath} />
          <span class="meta">
            #{it.id} · {who(it)} · <Time at={it.time} now={p.now} />
            {!p.indent && it.subtask && <> · {it.subtask}</>}
            {it.source !== "api" && <span class={`tag ${it.source}`}>{it.source === "external" ? "outside" : it.source}</span>}
            {p.undone && <span class="tag">undone</span>}
          </span>
        </span>
      </a>
    </div>
  );
}
