// A task's changes, newest first, grouped by turn or subtask and call, or in order of time.

import { useMemo, useRef, useState } from "preact/hooks";

import { type Changelog, type Item, keyOf } from "./changelog";
import { text } from "./api";
import { Against, agentColor, certaintyWords, Failed, Icon, OpBadge, PathName, sharedBy, Time, useKeys, Who } from "./bits";
import { Flags, flagsOf } from "./checkpoints";
import { clock, count, num, turnName, undoPrefix, visible } from "./format";
import { go, to } from "./route";
import type { Scope } from "./revert";
import type { Call, Checkpoint, Task } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

/** Head is a row above changes: a subtask, which is a turn where an agent's calls made it, or one call. */
interface Head {
  kind: "subtask" | "call";
  subtask: string;
  /** call is the call's id, empty for a subtask. */
  call: string;
  /** items are indexes into the changelog, oldest first. */
  items: number[];
}

/** A row is an item's index, or -1 - k for head k. */
interface Rows {
  rows: number[];
  heads: Head[];
  matching: number;
  /** hits are the items that the filter selects, oldest first. */
  hits: number[];
}

interface Filter {
  text: string;
  source: string;
}

const outside = new Set(["external", "revert", "shared"]);

function matches(log: Changelog, i: Item, words: string[], source: string): boolean {
  if (source && (source === "own" ? outside.has(i.source) : i.source !== source)) return false;
  if (words.length === 0) return true;
  const hay = `${text(i.path, i.encoding)} ${i.newPath ? text(i.newPath, i.encoding) : ""} ${i.actor} ${log.turnOf(i)} ${i.tool} ${i.certainty} ${i.call} ${i.message} #${i.id}`.toLowerCase();
  return words.every((w) => hay.includes(w));
}

function arrange(log: Changelog, grouped: boolean, filter: Filter, closed: Set<string>): Rows {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits: number[] = [];
  log.items.forEach((it, i) => {
    if (matches(log, it, words, filter.source)) hits.push(i);
  });
  if (!grouped) return { rows: [...hits].reverse(), heads: [], matching: hits.length, hits };
  const byName = new Map<string, Head>();
  for (const i of hits) {
    const name = log.turnOf(log.items[i]!);
    const head = byName.get(name);
    if (head) head.items.push(i);
    else byName.set(name, { kind: "subtask", subtask: name, call: "", items: [i] });
  }
  const heads: Head[] = [];
  const rows: number[] = [];
  for (const turn of [...byName.values()].sort((a, b) => b.items.at(-1)! - a.items.at(-1)!)) {
    heads.push(turn);
    rows.push(-heads.length);
    if (closed.has(turn.subtask)) continue;
    // Newest first; the changes of one call together, where its newest is.
    const calls = new Map<string, Head>();
    for (let k = turn.items.length - 1; k >= 0; k--) {
      const i = turn.items[k]!;
      const call = log.callOf(log.items[i]!);
      const known = call ? calls.get(call) : undefined;
      if (known) {
        known.items.push(i);
        continue;
      }
      if (!call) {
        calls.set(`item ${i}`, { kind: "call", subtask: turn.subtask, call: "", items: [i] });
        continue;
      }
      calls.set(call, { kind: "call", subtask: turn.subtask, call, items: [i] });
    }
    for (const head of calls.values()) {
      if (head.call) {
        heads.push(head);
        rows.push(-heads.length);
      }
      for (const i of head.items) rows.push(i);
      head.items.reverse();
    }
  }
  return { rows, heads, matching: hits.length, hits };
}

/** undoable are the items that a revert without more options would take back. */
function undoable(log: Changelog, items: Item[]): Item[] {
  return items.filter((it) => it.id > 0 && !outside.has(it.source) && !log.undone.has(it.id));
}

/** scopeOf is one revert that takes back just the selected changes, if there is one. */
function scopeOf(log: Changelog, hits: number[]): { scope: Scope; items: Item[] } | null {
  const items = undoable(log, hits.map((i) => log.items[i]!));
  const first = items[0];
  if (!first || !log.complete) return null;
  if (items.length === 1) return { scope: { kind: "change", id: first.id }, items };
  const all = undoable(log, log.items);
  const same = (of: (it: Item) => boolean) => all.filter(of).length === items.length && items.every(of);
  if (all.length === items.length) return { scope: { kind: "task" }, items };
  if (first.call && same((it) => it.call === first.call)) return { scope: { kind: "call", id: first.call, tool: first.tool }, items };
  if (first.subtask && same((it) => it.subtask === first.subtask)) return { scope: { kind: "subtask", id: first.subtask, turn: first.call !== "" }, items };
  // A file, or the deepest directory that holds all of them.
  const now = (it: Item) => it.newPath ?? it.path;
  let path = now(first);
  if (items.some((it) => it.newPath || it.encoding)) return null;
  if (!items.every((it) => now(it) === path)) {
    do {
      const cut = path.lastIndexOf("/");
      if (cut < 0) return null;
      path = path.slice(0, cut);
    } while (!items.every((it) => now(it).startsWith(`${path}/`)));
  }
  const inside = (it: Item) => now(it) === path || it.path === path || now(it).startsWith(`${path}/`) || it.path.startsWith(`${path}/`);
  return same(inside) ? { scope: { kind: "file", path }, items } : null;
}

const groupedKey = "umbra.grouped";

export function Timeline(p: { task: Task; log: Changelog; version: number; selected: number; now: number; onRevert: (scope: Scope) => void; fresh: Set<number>; checkpoints: Checkpoint[] | undefined }) {
  const [grouped, setGrouped] = useState(localStorage.getItem(groupedKey) !== "no");
  const [filter, setFilter] = useState<Filter>({ text: "", source: "" });
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const handle = useRef<ListHandle | null>(null);
  const { log } = p;
  const arranged = useMemo(() => arrange(log, grouped, filter, closed), [log, p.version, grouped, filter, closed]);
  const flags = useMemo(() => flagsOf(p.checkpoints, log.items.length, (i) => log.items[i]!.seq, false), [log, p.version, p.checkpoints]);
  const list = useMemo(() => [arranged, flags], [arranged, flags]);
  const filtered = filter.text.trim() !== "" || filter.source !== "";
  const selection = useMemo(() => (filtered ? scopeOf(log, arranged.hits) : null), [arranged]);
  const { rows, heads } = arranged;
  const addressOf = (it: Item) => (it.id ? to(["tasks", p.task.task_id, "changes", it.id]) : to(["workspaces", p.task.workspace_id, "commits", it.commit], { path: it.newPath ?? it.path, enc: it.encoding }));

  const group = (on: boolean) => {
    localStorage.setItem(groupedKey, on ? "yes" : "no");
    setGrouped(on);
  };
  const step = (by: number) => {
    const at = rows.findIndex((r) => r >= 0 && log.items[r]!.id > 0 && log.items[r]!.id === p.selected);
    for (let i = at < 0 ? 0 : at + by; i >= 0 && i < rows.length; i += by) {
      if (rows[i]! < 0 || log.items[rows[i]!]!.id === 0) continue;
      go(addressOf(log.items[rows[i]!]!), at >= 0);
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
          aria-label="Filter the timeline by path, actor, tool, subtask or number"
          placeholder="Filter by path, actor, #number"
          value={filter.text}
          onInput={(e) => setFilter({ ...filter, text: e.currentTarget.value })}
        />
        <select aria-label="Which changes" value={filter.source} onChange={(e) => setFilter({ ...filter, source: e.currentTarget.value })}>
          <option value="">all</option>
          <option value="own">the task's own</option>
          <option value="call">by tools (calls)</option>
          <option value="shared">shared</option>
          <option value="external">made outside</option>
          <option value="revert">reverts</option>
        </select>
        <button type="button" aria-pressed={grouped} onClick={() => group(!grouped)} title="Group by turn or subtask (g)">
          Group
        </button>
      </div>
      <p class="state dim">
        {filtered ? `${num(arranged.matching)} of ${num(log.items.length)}` : count(Math.max(log.items.length, p.task.changes), "change")}
        {log.loading && log.oldest > 0 && `, loading ${num(log.items.length)} …`}
        <Failed error={log.error} retry={log.retry} />
        {!log.loading && !log.complete && !log.error && (
          <button type="button" class="link" onClick={() => log.more()}>
            load older ones
          </button>
        )}
        {selection && (
          <button type="button" class="link" onClick={() => p.onRevert(selection.scope)}>
            Undo the {count(selection.items.length, "change")} shown …
          </button>
        )}
      </p>
      <VirtualList
        handle={handle}
        label="Changes"
        data={list}
        count={rows.length}
        estimate={(i) => (rows[i]! < 0 ? (heads[-1 - rows[i]!]!.kind === "call" ? 36 : 44) : 52)}
        keyOf={(i) => (rows[i]! < 0 ? nameOf(heads[-1 - rows[i]!]!) : keyOf(log.items[rows[i]!]!))}
        empty={log.loading ? "Loading …" : filtered ? "No change fits." : "No changes yet. New ones appear here."}
        row={(i) => {
          const r = rows[i]!;
          if (r < 0) {
            const h = heads[-1 - r]!;
            if (h.kind === "call") return <CallRow key={nameOf(h)} head={h} log={log} onRevert={p.onRevert} total={rows.length} at={i} />;
            return (
              <GroupRow key={nameOf(h)} group={h} log={log} closed={closed.has(h.subtask)} onToggle={() => toggle(h.subtask)} onRevert={p.onRevert} total={rows.length} at={i} loaded={log.complete && !filtered} />
            );
          }
          const it = log.items[r]!;
          return <Row key={keyOf(it)} item={it} undone={it.id > 0 && log.undone.has(it.id)} selected={it.id > 0 && it.id === p.selected} href={addressOf(it)} now={p.now} total={rows.length} at={i} indent={grouped} fresh={it.id > 0 && p.fresh.has(it.id)} flags={flags.get(r)} />;
        }}
      />
    </section>
  );
}

function nameOf(h: Head): string {
  return h.kind === "call" ? `call ${h.subtask} ${h.call}` : `group ${h.subtask}`;
}

/** redoOf is what takes back the newest undo of a head's changes, where none is left to undo. */
function redoOf(log: Changelog, own: Item[]): Scope | null {
  if (own.length === 0 || !log.complete) return null;
  let newest: Item | undefined;
  for (const it of own) {
    const by = log.undoneBy.get(it.id);
    if (!by) return null;
    const revert = log.items.findLast((r) => r.commit === by);
    if (revert && (!newest || revert.seq > newest.seq)) newest = revert;
  }
  if (!newest) return null;
  return { kind: "commit", commit: newest.commit, undo: true };
}

/** Undo is the button of a head: undo, or redo where all of it is undone. */
function Undo(p: { what: string; own: Item[]; log: Changelog; scope: Scope; verb: string; onRevert: (scope: Scope) => void }) {
  const redo = redoOf(p.log, p.own);
  if (redo)
    return (
      <button type="button" class="small" onClick={() => p.onRevert(redo)} aria-label={`Redo ${p.what}`}>
        Redo …
      </button>
    );
  return (
    <button type="button" class="small" onClick={() => p.onRevert(p.scope)} aria-label={`${p.verb} ${p.what}`}>
      {p.verb} …
    </button>
  );
}

/** ownOf are the changes below a head that its undo is about, whether undone or not. */
function ownOf(log: Changelog, head: Head): Item[] {
  // A filter hides some, but the undo of a turn or a call is of all.
  return log.items.filter((it) => it.id > 0 && !outside.has(it.source) && (head.kind === "call" ? it.call === head.call : it.subtask === head.subtask));
}

/** subtaskOf is the subtask that the server makes of a prompt's id. */
function subtaskOf(prompt: string): string {
  return prompt.replace(/[^A-Za-z0-9._-]/g, "-").slice(0, 128);
}

function GroupRow(p: { group: Head; log: Changelog; closed: boolean; onToggle: () => void; onRevert: (scope: Scope) => void; total: number; at: number; loaded: boolean }) {
  const { items, subtask } = p.group;
  const { log } = p;
  const first = log.items[items[0]!]!;
  const last = log.items[items.at(-1)!]!;
  const own = useMemo(() => ownOf(log, p.group), [p.group, log.version]);
  const turn = items.some((i) => log.callOf(log.items[i]!) !== "");
  const call = turn ? log.calls.get(log.callOf(log.items[items.find((i) => log.callOf(log.items[i]!) !== "")!]!)) : undefined;
  const kind = !turn ? "" : call?.prompt_id && subtaskOf(call.prompt_id) !== subtask ? "sub-agent " : "turn ";
  const undo = subtask.startsWith(undoPrefix);
  return (
    <div class="group" role="listitem" aria-setsize={p.total} aria-posinset={p.at + 1}>
      <button type="button" class="plain toggle" aria-expanded={!p.closed} onClick={p.onToggle}>
        <Icon name="right" />
        <span class="name" title={subtask}>
          {kind && <span class="dim">{kind}</span>}
          <span class={call?.agent ? `agent ${agentColor(call.agent)}` : ""}>{turnName(subtask) || (turn ? "without a prompt" : "no subtask")}</span>
        </span>
        <span class="dim">
          {count(items.length, "change")}
          {p.loaded && <span class="when"> · {clock(first.time)}{first.time.slice(0, 19) === last.time.slice(0, 19) ? "" : ` – ${clock(last.time)}`}</span>}
        </span>
      </button>
      {subtask && !undo && <Undo what={`${kind || "subtask "}${subtask}`} verb={turn ? "Undo" : "Revert"} own={own} log={log} scope={{ kind: "subtask", id: subtask, turn }} onRevert={p.onRevert} />}
    </div>
  );
}

const statusWords: Record<Call["status"], string> = { open: "at work", ok: "", failed: "failed", cancelled: "canceled", lost: "lost" };

function CallRow(p: { head: Head; log: Changelog; onRevert: (scope: Scope) => void; total: number; at: number }) {
  const { log, head } = p;
  const call = log.calls.get(head.call);
  const first = log.items[head.items[0]!]!;
  const tool = call?.tool ?? first.tool;
  const own = useMemo(() => ownOf(log, head), [head, log.version]);
  const status = call ? statusWords[call.status] : "";
  return (
    <div class="group call" role="listitem" aria-setsize={p.total} aria-posinset={p.at + 1}>
      <span class="toggle">
        <span class="name">{tool || "call"}</span>{" "}
        <span class="dim">
          {count(head.items.length, "change")}
          {status && <span class="tag">{status}</span>}
        </span>
      </span>
      {own.length > 0 && <Undo what={`call ${tool || head.call}`} verb="Undo" own={own} log={log} scope={{ kind: "call", id: head.call, tool }} onRevert={p.onRevert} />}
    </div>
  );
}

function Row(p: { item: Item; undone: boolean; selected: boolean; href: string; now: number; total: number; at: number; indent: boolean; fresh: boolean; flags: Checkpoint[] | undefined }) {
  const { item: it } = p;
  return (
    <div class={`entry ${p.undone ? "undone" : ""} ${p.indent ? "indent" : ""} ${p.fresh ? "fresh" : ""}`} role="listitem" aria-setsize={p.total} aria-posinset={p.at + 1}>
      <a href={p.href} aria-current={p.selected ? "true" : undefined}>
        <OpBadge operation={it.operation} source={it.source} />
        <span class="what">
          <PathName path={it.path} encoding={it.encoding} to={it.newPath} />
          <span class="meta">
            {it.id > 0 && <>#{it.id} · </>}
            <Who of={it} /> · <Time at={it.time} now={p.now} />
            {!p.indent && it.subtask && <> · {turnName(it.subtask)}</>}
            {!p.indent && it.tool && <> · {it.tool}</>}
            {it.certainty && it.source !== "shared" && (
              <span class="tag call" title={certaintyWords[it.certainty]}>
                {it.certainty}
              </span>
            )}
            {it.source !== "api" && it.source !== "call" && (
              <span class={`tag ${it.source}`} title={it.claimants ? `${certaintyWords.shared} ${it.claimants.join(", ")}` : undefined}>
                {it.source === "external" ? "outside" : sharedBy(it)}
              </span>
            )}
            <Against rules={it.policy} />
            {p.undone && <span class="tag">undone</span>}
            <Flags of={p.flags} />
          </span>
          {it.message && <span class="message">{visible(it.message)}</span>}
        </span>
      </a>
    </div>
  );
}
