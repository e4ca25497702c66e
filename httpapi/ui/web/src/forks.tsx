// The forks of a workspace side by side: how each was judged, what it changed, and
// what can be done with it. Also two of them compared.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, getJSON, inURL, postJSON, request, sentence, text } from "./api";
import { announce, Counts, ErrorBox, Field, Icon, Loading, PathName, Time, useKeys, useLoad, useNow, usePoll } from "./bits";
import { Dialog } from "./dialog";
import { count, exact, num, visible } from "./format";
import { go, type Route, to } from "./route";
import type { Workspace } from "./types";
import { DiffPane } from "./viewer";
import { type ListHandle, VirtualList } from "./virtual";

const refresh = 5000;
/** atOnce is how many summaries are requested at a time. */
const atOnce = 4;

export interface Summary {
  files: { path: string; path_encoding?: string; operation: string; additions: number; deletions: number; binary: boolean }[];
  summary: { files: number; additions: number; deletions: number };
}

/** forkName is a fork's name, or what its id begins with. */
export function forkName(w: Workspace): string {
  return w.name || (w.root ? w.root.split("/").pop() || w.root : w.id);
}

/** changesOf reads what a fork changed since it began. */
export function changesOf(w: Workspace, signal?: AbortSignal): Promise<Summary> {
  return getJSON<Summary>(`/workspaces/${encodeURIComponent(w.id)}/compare?with=${encodeURIComponent(w.fork_at ?? "")}&summary=true`, signal);
}

/** useForks keeps the list as the server has it, as long as the page is visible. */
function useForks(id: string) {
  const { data, error, reload } = usePoll(async (signal) => (await getJSON<{ forks: Workspace[] }>(`/workspaces/${encodeURIComponent(id)}/forks`, signal)).forks, refresh, [id]);
  return { forks: data ?? null, error, reload };
}

/** Summaries requests what forks changed, a few at a time, once for each head. */
class Summaries {
  readonly known = new Map<string, Summary | string>();
  private readonly waiting: Workspace[] = [];
  private running = 0;
  private readonly abort = new AbortController();

  constructor(private readonly changed: () => void) {}

  want(w: Workspace): void {
    // What has the commit that it began with has no changes, and need not be opened.
    if (w.head === w.fork_at || this.known.has(keyOf(w)) || this.waiting.some((x) => keyOf(x) === keyOf(w))) return;
    this.waiting.push(w);
    this.next();
  }

  private next(): void {
    while (this.running < atOnce && this.waiting.length > 0) {
      const w = this.waiting.shift()!;
      this.running++;
      changesOf(w, this.abort.signal)
        .then(
          (s) => this.known.set(keyOf(w), s),
          (e) => this.known.set(keyOf(w), sentence(e)),
        )
        .finally(() => {
          this.running--;
          if (this.abort.signal.aborted) return;
          this.changed();
          this.next();
        });
    }
  }

  close(): void {
    this.waiting.length = 0;
    this.abort.abort();
  }
}

function keyOf(w: Workspace): string {
  return `${w.id} ${w.head}`;
}

const none: Summary = { files: [], summary: { files: 0, additions: 0, deletions: 0 } };

function linesOf(s: Summary | string | undefined): number {
  return s && typeof s !== "string" ? s.summary.additions + s.summary.deletions : Infinity;
}

/** ranked orders forks as a race does: what passed, by score, then by the smaller difference; then as they were made. */
function ranked(forks: Workspace[], of: (w: Workspace) => Summary | string | undefined): Workspace[] {
  const rank = (w: Workspace) => (w.judged ? (w.judged.passed ? 0 : 2) : 1);
  const order = new Map(forks.map((w, i) => [w, i]));
  return [...forks].sort((a, b) => {
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    if (a.judged && b.judged) {
      const by = (b.judged.score ?? -Infinity) - (a.judged.score ?? -Infinity);
      if (by && !Number.isNaN(by)) return by;
      const lines = linesOf(of(a)) - linesOf(of(b));
      if (lines && !Number.isNaN(lines)) return lines;
    }
    return order.get(a)! - order.get(b)!;
  });
}

export function ForksPage(p: { id: string }) {
  const now = useNow();
  const base = `/workspaces/${encodeURIComponent(p.id)}`;
  const parent = useLoad((signal) => getJSON<Workspace>(base, signal), [p.id]);
  const list = useForks(p.id);
  const [, redraw] = useState(0);
  const [round, setRound] = useState(0);
  const [ticked, setTicked] = useState<string[]>([]);
  const [removing, setRemoving] = useState<Workspace | null>(null);
  const [making, setMaking] = useState(false);
  const handle = useRef<ListHandle | null>(null);
  const at = useRef(-1);
  const summaries = useMemo(() => new Summaries(() => setRound((n) => n + 1)), [p.id]);
  useEffect(() => () => summaries.close(), [summaries]);
  const of = (w: Workspace) => (w.head === w.fork_at ? none : summaries.known.get(keyOf(w)));
  const shown = useMemo(() => ranked(list.forks ?? [], of), [list.forks, round]);
  const best = shown[0]?.judged?.passed ? shown[0].id : "";
  useEffect(() => {
    for (const w of list.forks ?? []) if (w.judged) summaries.want(w);
  }, [list.forks]);
  useEffect(() => {
    document.title = `Forks · umbra`;
    setTicked((t) => t.filter((id) => list.forks?.some((w) => w.id === id)));
  }, [list.forks]);
  const tick = (id: string) => setTicked((t) => (t.includes(id) ? t.filter((x) => x !== id) : [...t.slice(-1), id]));
  const compare = () => {
    const [a, b] = ticked;
    if (a) go(to(["workspaces", a, "compare"], { with: b ?? p.id }));
  };
  const step = (by: number) => {
    at.current = Math.max(0, Math.min(shown.length - 1, at.current + by));
    const w = shown[at.current];
    if (!w) return;
    handle.current?.scrollTo(at.current);
    requestAnimationFrame(() => document.querySelector<HTMLElement>(`[data-fork="${CSS.escape(w.id)}"]`)?.focus());
  };
  const here = () => shown.find((w) => w.id === (document.activeElement as HTMLElement | null)?.closest<HTMLElement>(".fork-row")?.dataset.row);
  const onHere = (fn: (w: Workspace) => void) => () => {
    const w = here();
    if (w) fn(w);
  };
  useKeys({
    j: () => step(1),
    ArrowDown: () => step(1),
    k: () => step(-1),
    ArrowUp: () => step(-1),
    x: onHere((w) => tick(w.id)),
    m: onHere((w) => go(to(["workspaces", w.id, "merge"]))),
    c: () => (ticked.length > 0 ? compare() : onHere((w) => go(to(["workspaces", w.id, "compare"])))()),
    n: () => setMaking(true),
    u: () => go(to(["workspaces", p.id])),
  });
  if (parent.error) return <ErrorBox error={parent.error} retry={parent.reload} />;
  if (!parent.data) return <Loading what="the workspace" />;
  return (
    <div class="forks">
      <header class="task-head">
        <div class="title">
          <a class="back" href={to(["workspaces", p.id])}>
            <Icon name="back" /> {forkName(parent.data)}
          </a>
          <h1>Forks</h1>
        </div>
        <div class="acts">
          <button type="button" disabled={ticked.length === 0} onClick={compare} title="Compare the selected fork with the parent, or two of them (c)">
            {ticked.length > 1 ? "Compare the two" : "Compare"}
          </button>
          <button type="button" class="primary" onClick={() => setMaking(true)} title="Make a fork (n)">
            Fork …
          </button>
        </div>
      </header>
      {list.error && <ErrorBox error={list.error} retry={list.reload} />}
      {!list.forks && !list.error && <Loading what="the forks" />}
      {list.forks && (
        <>
          <p class="state dim" role="status">
            {count(shown.length, "fork")}
            {ticked.length > 0 && `, ${num(ticked.length)} selected`}
          </p>
          <VirtualList
            handle={handle}
            label="Forks"
            data={[shown, round, ticked]}
            count={shown.length}
            keyOf={(i) => shown[i]!.id}
            estimate={() => 76}
            seen={(from, end) => shown.slice(from, end).forEach((w) => summaries.want(w))}
            empty="No fork yet. A fork begins as this workspace is, costs nothing until it differs, and can be merged back whole or in parts."
            row={(i) => {
              const w = shown[i]!;
              return (
                <Row
                  key={w.id}
                  fork={w}
                  summary={of(w)}
                  best={w.id === best}
                  ticked={ticked.includes(w.id)}
                  now={now}
                  at={i}
                  total={shown.length}
                  onTick={() => {
                    tick(w.id);
                    redraw((n) => n + 1);
                  }}
                  onRemove={() => setRemoving(w)}
                />
              );
            }}
          />
        </>
      )}
      {making && (
        <Make
          parent={parent.data}
          onClose={() => setMaking(false)}
          onDone={(made) => {
            setMaking(false);
            announce(`${count(made, "fork")} made.`);
            list.reload();
          }}
        />
      )}
      {removing && (
        <Remove
          fork={removing}
          onClose={() => setRemoving(null)}
          onDone={() => {
            setRemoving(null);
            announce("The fork is deleted.");
            list.reload();
          }}
        />
      )}
    </div>
  );
}

/** Judged is what a race's judge said of a fork. */
function Judged(p: { fork: Workspace; best: boolean }) {
  const j = p.fork.judged;
  if (!j) return <span class="dim">not judged</span>;
  return (
    <span class="judged" title={`${j.command ? `${visible(j.command)}, ` : ""}exit status ${j.exit_code ?? "unknown"}, ${exact(j.at)}`}>
      <span class={`chip ${j.passed ? "completed" : "failed"}`}>{j.passed ? "passed" : "failed"}</span>
      {j.score !== null && <b>{num(j.score)}</b>}
      {p.best && <span class="tag best">best</span>}
      {j.seconds > 0 && <span class="dim">{`${num(Math.round(j.seconds * 10) / 10)} s`}</span>}
    </span>
  );
}

function Row(p: { fork: Workspace; summary: Summary | string | undefined; best: boolean; ticked: boolean; now: number; at: number; total: number; onTick: () => void; onRemove: () => void }) {
  const { fork: w, summary: s } = p;
  const name = visible(forkName(w));
  return (
    <div class={`fork-row ${p.best ? "winner" : ""}`} role="listitem" data-row={w.id} aria-setsize={p.total} aria-posinset={p.at + 1}>
      <label class="pick">
        <input type="checkbox" checked={p.ticked} onChange={p.onTick} aria-label={`Select ${name}`} />
      </label>
      <div class="what">
        <a href={to(["workspaces", w.id])} data-fork={w.id} class="name">
          {name}
        </a>
        <span class="meta">
          <span class="tag kind">{w.kind}</span> <Time at={w.created} now={p.now} /> · {count(w.tasks, "task")}
          {w.expires_at && (
            <span class="tag warn" title={`This fork is deleted at ${exact(w.expires_at)}, merged or not.`}>
              until {exact(w.expires_at)}
            </span>
          )}
          {w.state === "missing" && <span class="tag warn">missing</span>}
        </span>
      </div>
      <div class="judge">
        <Judged fork={w} best={p.best} />
      </div>
      <div class="size" title="Changed since the fork began">
        {typeof s === "string" ? (
          <span class="dim">{s}</span>
        ) : s ? (
          s.summary.files === 0 ? (
            <span class="dim">no change</span>
          ) : (
            <>
              <span>{count(s.summary.files, "file")}</span> <Counts additions={s.summary.additions} deletions={s.summary.deletions} />
            </>
          )
        ) : (
          <span class="dim">…</span>
        )}
      </div>
      <div class="acts">
        <a class="button small" href={to(["workspaces", w.id, "compare"])} aria-label={`Compare ${name} with the parent`}>
          Compare
        </a>
        <a class="button small" href={to(["workspaces", w.id, "merge"])} aria-label={`Merge … ${name}`}>
          Merge …
        </a>
        <button type="button" class="small danger" onClick={p.onRemove} aria-label={`Delete … ${name}`}>
          Delete …
        </button>
      </div>
    </div>
  );
}

function Make(p: { parent: Workspace; onClose: () => void; onDone: (made: number) => void }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState("");
  const [many, setMany] = useState("1");
  const [error, setError] = useState("");
  const [working, setWorking] = useState(false);
  const make = () => {
    setWorking(true);
    setError("");
    const n = Number(many);
    postJSON<{ forks: Workspace[] }>(`/workspaces/${encodeURIComponent(p.parent.id)}/forks`, { ...(name.trim() ? { name: name.trim() } : {}), ...(kind ? { kind } : {}), ...(n === 1 ? {} : { count: n }) }).then(
      (made) => p.onDone(made.forks.length),
      (e) => {
        setError(sentence(e));
        setWorking(false);
      },
    );
  };
  return (
    <Dialog title={`Fork ${forkName(p.parent)}`} onClose={p.onClose} class="narrow">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          make();
        }}
      >
        <Field label="Name">
          <input type="search" spellcheck={false} placeholder="made from the workspace's" value={name} onInput={(e) => setName(e.currentTarget.value)} />
        </Field>
        <Field label="Kind">
          <select value={kind} onChange={(e) => setKind(e.currentTarget.value)}>
            <option value="">what the system has</option>
            <option value="virtual">virtual: only in git</option>
            {p.parent.kind !== "virtual" && <option value="layer">layer: changes over the parent's folder</option>}
            {p.parent.root && <option value="copy">copy: a folder next to the parent's</option>}
          </select>
        </Field>
        <Field label="How many">
          <input type="search" inputMode="numeric" value={many} onInput={(e) => setMany(e.currentTarget.value)} />
        </Field>
        {error && <p class="error">{error}</p>}
        <div class="actions">
          <button type="submit" class="primary" disabled={working || !/^[1-9]\d{0,3}$/.test(many.trim())}>
            {working ? "Forking …" : "Fork"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Remove deletes a fork; where that would lose something it asks once more. */
export function Remove(p: { fork: Workspace; onClose: () => void; onDone: () => void }) {
  const [refused, setRefused] = useState("");
  const [error, setError] = useState("");
  const [working, setWorking] = useState(false);
  const remove = (force: boolean) => {
    setWorking(true);
    setError("");
    request(`/workspaces/${encodeURIComponent(p.fork.id)}${force ? "?force=true" : ""}`, { method: "DELETE", headers: { "X-Actor": "web UI" } }).then(p.onDone, (e) => {
      setWorking(false);
      if (!force && e instanceof ApiError && (e.code === "unmerged" || e.code === "has_forks")) setRefused(e.message);
      else setError(sentence(e));
    });
  };
  return (
    <Dialog
      title={`Delete ${forkName(p.fork)}`}
      onClose={p.onClose}
      class="narrow"
      footer={
        <>
          <button type="button" onClick={p.onClose}>
            Cancel
          </button>
          <button type="button" class="danger" disabled={working} onClick={() => remove(refused !== "")}>
            {refused ? "Delete it with all that" : "Delete"}
          </button>
        </>
      }
    >
      {refused ? (
        <p class="notice" role="alert">
          {refused}
        </p>
      ) : (
        <p>
          The fork goes with its history{p.fork.kind === "copy" && p.fork.root ? " and its folder" : ""}. The parent stays as it is.
          {p.fork.kind === "copy" && p.fork.root && <span class="dim"> {visible(p.fork.root)}</span>}
        </p>
      )}
      {error && <p class="error">{error}</p>}
    </Dialog>
  );
}

/** family lists what a fork can be compared with or merged into: its parent, and the other forks of that. */
export async function family(w: Workspace, signal: AbortSignal): Promise<Workspace[]> {
  if (!w.fork_of) return (await getJSON<{ forks: Workspace[] }>(`/workspaces/${encodeURIComponent(w.id)}/forks`, signal)).forks;
  const base = `/workspaces/${encodeURIComponent(w.fork_of)}`;
  const parent = await getJSON<Workspace>(base, signal).catch((e) => {
    if (e instanceof ApiError && e.status === 404) return null; // it was deleted
    throw e;
  });
  if (!parent) return [];
  const { forks } = await getJSON<{ forks: Workspace[] }>(`${base}/forks`, signal);
  return [parent, ...forks.filter((f) => f.id !== w.id)];
}

/** ForkComparePage shows how a workspace differs from another one: files on one side, the diff on the other. */
export function ForkComparePage(p: { id: string; route: Route }) {
  const base = `/workspaces/${encodeURIComponent(p.id)}`;
  const own = useLoad((signal) => getJSON<Workspace>(base, signal), [p.id]);
  const w = own.data;
  const others = useLoad(async (signal) => (w ? family(w, signal) : []), [w?.id, w?.fork_of]);
  const other = p.route.query.get("with") || w?.fork_of || "";
  const path = p.route.query.get("path") ?? "";
  const encoding = p.route.query.get("enc") ?? undefined;
  const url = `${base}/compare?with=${encodeURIComponent(other)}`;
  const files = useLoad(async (signal) => (other ? getJSON<Summary>(`${url}&summary=true`, signal) : null), [p.id, other]);
  const list = useRef<HTMLUListElement>(null);
  const address = (file: { path: string; path_encoding?: string } | null) => to(["workspaces", p.id, "compare"], { with: other, path: file?.path, enc: file?.path_encoding });
  const step = (by: number) => {
    const all = files.data?.files ?? [];
    const next = all[Math.max(0, Math.min(all.length - 1, all.findIndex((f) => f.path === path) + by))];
    if (next) go(address(next), path !== "");
  };
  useEffect(() => {
    list.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }, [path]);
  useEffect(() => {
    if (w) document.title = `Compare ${forkName(w)} · umbra`;
  }, [w]);
  useKeys({
    j: () => step(1),
    ArrowDown: () => step(1),
    k: () => step(-1),
    ArrowUp: () => step(-1),
    m: () => go(to(["workspaces", p.id, "merge"])),
    u: () => go(w?.fork_of ? to(["workspaces", w.fork_of, "forks"]) : to(["workspaces", p.id])),
  });
  if (own.error) return <ErrorBox error={own.error} retry={own.reload} />;
  if (!w) return <Loading what="the workspace" />;
  const known = others.data ?? [];
  const named = known.find((x) => x.id === other);
  const most = 500;
  return (
    <div class="commit">
      <header class="task-head">
        <div class="title">
          <a class="back" href={w.fork_of ? to(["workspaces", w.fork_of, "forks"]) : to(["workspaces", p.id])}>
            <Icon name="back" /> {w.fork_of ? "Forks" : "Workspace"}
          </a>
          <h1>
            {named ? forkName(named) : other || "?"} <span class="dim">→</span> {forkName(w)}
          </h1>
          <p class="meta">What is in {forkName(w)} and not in the other is green.</p>
        </div>
        <div class="acts">
          <Field label="Compare with">
            <select value={other} onChange={(e) => go(to(["workspaces", p.id, "compare"], { with: e.currentTarget.value }))}>
              {!named && <option value={other}>{other}</option>}
              {known.map((x) => (
                <option key={x.id} value={x.id}>
                  {forkName(x)}
                  {x.id === w.fork_of ? " (parent)" : ""}
                </option>
              ))}
            </select>
          </Field>
          {w.fork_of && (
            <a class="button" href={to(["workspaces", p.id, "merge"])}>
              Merge …
            </a>
          )}
        </div>
      </header>
      {files.error && <ErrorBox error={files.error} retry={files.reload} />}
      {files.data && (
        <ul class="entries" aria-label="Files that differ" ref={list} tabIndex={0}>
          <li>
            <a href={address(null)} aria-current={path === "" ? "true" : undefined}>
              All {count(files.data.summary.files, "file")}
            </a>
          </li>
          {files.data.files.slice(0, most).map((f) => (
            <li key={f.path}>
              <a href={address(f)} aria-current={f.path === path ? "true" : undefined}>
                <PathName path={f.path} encoding={f.path_encoding} /> <span class="dim">{f.operation === "create" ? "only here" : f.operation === "delete" ? "only there" : ""}</span>{" "}
                <Counts additions={f.additions} deletions={f.deletions} binary={f.binary} />
              </a>
            </li>
          ))}
          {files.data.files.length > most && <li class="dim">and {count(files.data.files.length - most, "file")} more</li>}
        </ul>
      )}
      {other && (
        <DiffPane
          key={`${other} ${path}`}
          url={`${url}${path ? `&path=${inURL(path, encoding)}` : ""}`}
          path={text(path, encoding)}
          files={!path}
          label={`Changes from ${named ? forkName(named) : other} to ${forkName(w)}`}
          empty="Nothing differs."
        />
      )}
    </div>
  );
}

