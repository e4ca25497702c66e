// A merge of a fork, whole or in parts, and a rebase: the plan first, with who made
// both sides of each conflict; then, on one click, just that plan.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { ApiError, getJSON, inURL, postJSON, sentence, text } from "./api";
import { Agent, announce, ErrorBox, Field, Icon, Loading, OpBadge, PathName, Time, useKeys, useLoad, useNow } from "./bits";
import { changesOf, family, forkName, Remove } from "./forks";
import { count, short, visible } from "./format";
import { place } from "./review";
import { RevertDialog, type Scope } from "./revert";
import { go, type Route, to } from "./route";
import type { Diff, Hunk, MergeAnswer, MergeConflict, MergeWho, Task, Workspace } from "./types";
import { VirtualList } from "./virtual";

type By = "all" | "tasks" | "subtasks" | "paths" | "hunks";

const choices: [By, string][] = [
  ["all", "Everything"],
  ["tasks", "By task"],
  ["subtasks", "By subtask"],
  ["paths", "By file"],
  ["hunks", "By hunk"],
];

/** Part is one thing that can be chosen. */
interface Part {
  id: string;
  name: string;
  encoding?: string | undefined;
  note: string;
  hunk?: Hunk;
}

/** pause is how long after a choice the plan is asked for. */
const pause = 200;
/** mostHunks is how many hunks of a task are offered. */
const mostHunks = 10_000;
/** mostLines is how much of a hunk or a conflict is shown. */
const mostLines = 200;

async function partsOf(fork: Workspace, by: By, signal: AbortSignal): Promise<Part[]> {
  if (by === "all") return [];
  if (by === "paths") return (await changesOf(fork, signal)).files.map((f) => ({ id: f.path, name: f.path, encoding: f.path_encoding, note: f.binary ? "binary" : `+${f.additions} −${f.deletions}` }));
  const tasks = (await getJSON<{ tasks: Task[] }>(`/tasks?limit=1000&workspace=${encodeURIComponent(fork.id)}`, signal)).tasks.filter((t) => t.workspace_id === fork.id && t.changes > 0);
  if (by === "tasks") return tasks.map((t) => ({ id: t.task_id, name: t.goal, note: count(t.changes, "change") }));
  if (by === "subtasks") {
    const found = new Map<string, Part>();
    for (const t of tasks) {
      for (const s of t.subtasks) {
        const known = found.get(s.id);
        // A subtask is chosen by its id, in whatever task.
        if (known) known.note += `, ${t.task_id}`;
        else found.set(s.id, { id: s.id, name: s.id, note: `${count(s.changes, "change")}, ${t.task_id}` });
      }
    }
    return [...found.values()];
  }
  const parts: Part[] = [];
  for (const t of tasks) {
    const { hunks } = await getJSON<{ hunks: Hunk[] }>(`/tasks/${encodeURIComponent(t.task_id)}/hunks?limit=${mostHunks}`, signal);
    for (const h of hunks) {
      if (h.status === "rejected") continue;
      parts.push({ id: h.id, name: h.path, encoding: h.path_encoding, note: [t.task_id, ...h.subtasks].join(", "), hunk: h });
    }
  }
  return parts;
}

export function MergePage(p: { id: string; verb: "merge" | "rebase"; route: Route }) {
  const base = `/workspaces/${encodeURIComponent(p.id)}`;
  const own = useLoad((signal) => getJSON<Workspace>(base, signal), [p.id]);
  const w = own.data;
  const others = useLoad(async (signal) => (w ? family(w, signal) : []), [w?.id, w?.fork_of]);
  useKeys({ u: () => go(w?.fork_of ? to(["workspaces", w.fork_of, "forks"]) : to(["workspaces", p.id])) });
  useEffect(() => {
    if (w) document.title = `${p.verb === "merge" ? "Merge" : "Rebase"} ${forkName(w)} · umbra`;
  }, [w]);
  if (own.error) return <ErrorBox error={own.error} retry={own.reload} />;
  if (others.error) return <ErrorBox error={others.error} retry={others.reload} />;
  if (!w || !others.data) return <Loading what="the fork" />;
  if (!w.fork_of) return <ErrorBox error="This workspace is not a fork." />;
  return <Merge key={`${p.id} ${p.verb}`} fork={w} others={others.data} verb={p.verb} />;
}

function Merge(p: { fork: Workspace; others: Workspace[]; verb: "merge" | "rebase" }) {
  const now = useNow();
  const { fork, verb } = p;
  const url = `/workspaces/${encodeURIComponent(fork.id)}/${verb}`;
  const [into, setInto] = useState(fork.fork_of!);
  const [by, setBy] = useState<By>("all");
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [as, setAs] = useState<"replay" | "squash">("replay");
  const [onConflict, setOnConflict] = useState<"refuse" | "skip">("refuse");
  const [round, again] = useState(0);
  const [plan, setPlan] = useState<MergeAnswer | null>(null);
  const [error, setError] = useState("");
  const [stale, setStale] = useState(false);
  const [back, setBack] = useState(false);
  const [working, setWorking] = useState(false);
  const [done, setDone] = useState<MergeAnswer | null>(null);
  const [scope, setScope] = useState<{ task: Task; scope: Scope } | null>(null);
  const [removing, setRemoving] = useState(false);
  const parts = useLoad((signal) => partsOf(fork, by, signal), [fork.id, by, done !== null]);
  const target = p.others.find((x) => x.id === into);
  const nameOf = (w: Workspace | undefined) => (w ? visible(forkName(w)) : into);
  const [from, to_] = verb === "merge" ? [visible(forkName(fork)), nameOf(target)] : [nameOf(target), visible(forkName(fork))];

  const body = (): Record<string, unknown> => {
    const list = [...chosen];
    // One encoding is for all paths of a request, and in the percent form "%" is "%25".
    const encoded = by === "paths" && parts.data?.some((x) => x.encoding && chosen.has(x.id));
    const paths = encoded ? parts.data!.filter((x) => chosen.has(x.id)).map((x) => (x.encoding ? x.id : x.id.replaceAll("%", "%25"))) : list;
    return {
      as,
      on_conflict: onConflict,
      ...(verb === "merge" ? { into } : {}),
      ...(by === "all" ? {} : { [by]: by === "paths" ? paths : list }),
      ...(back ? { again: true } : {}),
      ...(encoded ? { path_encoding: "percent" } : {}),
    };
  };
  const nothingChosen = by !== "all" && chosen.size === 0;
  useEffect(() => {
    let current = true;
    setPlan(null);
    setError("");
    if (nothingChosen || done) return;
    const timer = setTimeout(() => {
      postJSON<MergeAnswer>(url, { ...body(), dry_run: true }).then(
        (made) => {
          if (!current) return;
          setPlan(made);
          announce(`The plan: ${count(made.files.length, "file")}, ${count(made.conflicts.length, "conflict")}.`);
        },
        (e) => current && setError(sentence(e)),
      );
    }, pause);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [into, by, chosen, as, onConflict, back, round, done !== null]);

  const choose = (next: By) => {
    setBy(next);
    setChosen(new Set());
  };
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const blocked = onConflict === "refuse" && (plan?.conflicts.length ?? 0) > 0;
  const nothing = plan !== null && plan.files.length === 0 && plan.merged === 0;
  const ready = plan !== null && !blocked && !nothing && !working;
  const apply = async () => {
    if (!ready) return;
    setWorking(true);
    setStale(false);
    try {
      const res = await postJSON<MergeAnswer>(url, { ...body(), plan: plan.plan });
      setDone(res);
      announce(`Merged: ${count(res.files.length, "file")}.`);
    } catch (e) {
      if (e instanceof ApiError && (e.code === "plan_stale" || e.code === "merge_conflict" || e.code === "hunk_changed")) {
        setStale(true);
        if (e.code === "hunk_changed") setChosen(new Set());
        parts.reload();
        again((n) => n + 1);
      } else {
        setError(sentence(e));
      }
    } finally {
      setWorking(false);
    }
  };
  const undo = () => {
    if (!done?.task_id) return;
    getJSON<Task>(`/tasks/${encodeURIComponent(done.task_id)}`).then(
      (task) => setScope({ task, scope: { kind: "task" } }),
      (e) => setError(sentence(e)),
    );
  };

  return (
    <div class="merge">
      <header class="task-head">
        <div class="title">
          <a class="back" href={to(["workspaces", fork.fork_of!, "forks"])}>
            <Icon name="back" /> Forks
          </a>
          <h1>
            {verb === "merge" ? "Merge" : "Bring news:"} {from} <span class="dim">→</span> {to_}
          </h1>
        </div>
        {!done && (
          <div class="acts">
            {verb === "merge" && (
              <Field label="Into">
                <select value={into} onChange={(e) => setInto(e.currentTarget.value)}>
                  {p.others.map((x) => (
                    <option key={x.id} value={x.id}>
                      {forkName(x)}
                      {x.id === fork.fork_of ? " (parent)" : ""}
                    </option>
                  ))}
                </select>
              </Field>
            )}
            <button type="button" class="primary" disabled={!ready} onClick={() => void apply()}>
              {working ? "Merging …" : plan && plan.files.length > 0 ? `Merge ${count(plan.files.length, "file")}` : "Merge"}
            </button>
          </div>
        )}
      </header>
      {scope && (
        <RevertDialog
          key={JSON.stringify(scope.scope)}
          workspace={verb === "merge" ? into : fork.id}
          task={scope.task}
          scope={scope.scope}
          onClose={() => setScope(null)}
          onUndo={(commit) => setScope({ ...scope, scope: { kind: "commit", commit, undo: true } })}
        />
      )}
      {removing && <Remove fork={fork} onClose={() => setRemoving(false)} onDone={() => go(to(["workspaces", fork.fork_of!, "forks"]))} />}
      {done ? (
        <section class="merged" aria-label="Merged">
          {error && <ErrorBox error={error} />}
          <p role="status">
            {count(done.files.length, "file")} merged in {count(done.commits.length, "commit")}
            {done.task_id && (
              <>
                , as task <a href={to(["tasks", done.task_id])}>{done.task_id}</a>
              </>
            )}
            .{done.skipped.length > 0 && ` ${count(done.skipped.length, "file")} left out.`}
          </p>
          <div class="acts">
            {done.task_id && done.commits.length > 0 && (
              <button type="button" onClick={undo}>
                Undo this …
              </button>
            )}
            <button
              type="button"
              onClick={() => {
                setDone(null);
                setChosen(new Set());
                again((n) => n + 1);
              }}
            >
              Merge more
            </button>
            {verb === "merge" && (
              <button type="button" class="danger" onClick={() => setRemoving(true)}>
                Delete the fork …
              </button>
            )}
          </div>
          <Files files={done.files} />
        </section>
      ) : (
        <div class="columns merging">
          <section class="parts" aria-label="What to merge">
            {verb === "merge" && (
              <div class="tools">
                <div class="switch" role="group" aria-label="Choose what to merge">
                  {choices.map(([id, name]) => (
                    <button key={id} type="button" aria-pressed={by === id} onClick={() => choose(id)}>
                      {name}
                    </button>
                  ))}
                </div>
              </div>
            )}
            {by === "all" ? (
              <p class="state dim">{verb === "merge" ? "All that the fork has and the other lacks. A later merge brings only what is missing." : "All that the parent has and the fork lacks."}</p>
            ) : (
              <Parts parts={parts.data} error={parts.error} retry={parts.reload} chosen={chosen} onToggle={toggle} onAll={(all) => setChosen(new Set(all ? parts.data?.map((x) => x.id) : []))} />
            )}
          </section>
          <section class="plan" aria-label="Plan of the merge">
            {stale && (
              <p class="notice" role="alert">
                Something changed meanwhile. This is the new plan.
              </p>
            )}
            {error && <ErrorBox error={error} retry={() => again((n) => n + 1)} />}
            <fieldset class="options">
              <legend class="hidden">How to merge</legend>
              <label>
                <input type="radio" name="as" checked={as === "replay"} onChange={() => setAs("replay")} /> Each commit again, with its author
              </label>
              <label>
                <input type="radio" name="as" checked={as === "squash"} onChange={() => setAs("squash")} /> One commit
              </label>
            </fieldset>
            {by !== "hunks" && (back || (plan?.reverted ?? 0) > 0) && (
              <fieldset class="options">
                <legend class="hidden">What was taken back</legend>
                <label>
                  <input type="checkbox" checked={back} onChange={() => setBack(!back)} /> Also what was merged before and a revert took back
                </label>
              </fieldset>
            )}
            {(onConflict === "skip" || (plan?.conflicts.length ?? 0) > 0) && (
              <fieldset class="choice">
                <legend>{plan ? count(plan.conflicts.length, "file") : "Some files"} changed on both sides</legend>
                <label>
                  <input type="radio" name="on_conflict" checked={onConflict === "refuse"} onChange={() => setOnConflict("refuse")} /> Decide later: nothing is merged
                </label>
                <label>
                  <input type="radio" name="on_conflict" checked={onConflict === "skip"} onChange={() => setOnConflict("skip")} /> Leave such files out, merge the rest
                </label>
              </fieldset>
            )}
            {plan?.history_dropped && !nothing && (
              <p class="notice">Old commits of {to_} were dropped since the fork, so what was merged before may be listed again. Check the plan before you merge.</p>
            )}
            {plan && plan.conflicts.length > 0 && (
              <ul class="conflicts" aria-label="Conflicts">
                {plan.conflicts.slice(0, 200).map((c) => (
                  <ConflictItem key={c.path} conflict={c} ours={{ id: verb === "merge" ? into : fork.id, name: to_ }} theirs={{ id: verb === "merge" ? fork.id : into, name: from }} now={now} />
                ))}
                {plan.conflicts.length > 200 && <li class="dim">and {count(plan.conflicts.length - 200, "conflict")} more</li>}
              </ul>
            )}
            {nothingChosen ? (
              <p class="dim">Choose what to merge.</p>
            ) : !plan && !error ? (
              <Loading what="the plan" />
            ) : nothing && !blocked ? (
              <p class="notice">Nothing is left to merge.</p>
            ) : blocked && plan?.files.length === 0 ? (
              <p class="dim">Nothing else would be merged.</p>
            ) : (
              plan && (
                <>
                  <p class="dim">
                    {blocked ? "Without the conflicts this would be merged:" : "This will be merged:"} {count(plan.files.length, "file")} from {count(plan.merged, "commit")}. It can be undone.
                  </p>
                  <Files files={plan.files} />
                </>
              )
            )}
          </section>
        </div>
      )}
    </div>
  );
}

function Parts(p: { parts: Part[] | undefined; error: string; retry: () => void; chosen: Set<string>; onToggle: (id: string) => void; onAll: (all: boolean) => void }) {
  const at = useRef(-1);
  const parts = p.parts ?? [];
  const data = useMemo(() => [p.parts, p.chosen], [p.parts, p.chosen]);
  const step = (by: number) => {
    const boxes = [...document.querySelectorAll<HTMLInputElement>(".parts .part input")];
    const focused = boxes.indexOf(document.activeElement as HTMLInputElement);
    at.current = Math.max(0, Math.min(boxes.length - 1, (focused < 0 ? at.current : focused) + by));
    boxes[at.current]?.focus();
  };
  // A box is a field, in which the page's keys do not work: these do.
  const keys = (e: KeyboardEvent) => {
    const by = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[e.key];
    if (!by || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    step(by);
  };
  useKeys({ j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), a: () => p.onAll(p.chosen.size < parts.length) });
  if (p.error) return <ErrorBox error={p.error} retry={p.retry} />;
  if (!p.parts) return <Loading what="the parts" />;
  return (
    <>
      <p class="state dim" role="status">
        {p.chosen.size} of {parts.length} chosen{" "}
        <button type="button" class="link" onClick={() => p.onAll(p.chosen.size < parts.length)} title="All or none (a)">
          {p.chosen.size < parts.length ? "all" : "none"}
        </button>
      </p>
      <div class="part-list" onKeyDown={keys}>
        <VirtualList
          label="Parts"
          data={data}
          count={parts.length}
          keyOf={(i) => `${i} ${parts[i]!.id}`}
          estimate={(i) => (parts[i]!.hunk ? 60 + 20 * Math.min(mostLines, parts[i]!.hunk!.text.split("\n").length) : 52)}
          empty="There is nothing of this kind in the fork."
          row={(i) => {
            const x = parts[i]!;
            return (
              <div class="part" role="listitem" key={`${i} ${x.id}`} aria-setsize={parts.length} aria-posinset={i + 1}>
                <label>
                  <input type="checkbox" checked={p.chosen.has(x.id)} onChange={() => p.onToggle(x.id)} />
                  <span class="what">
                    {x.hunk || x.encoding || x.note.startsWith("+") || x.note === "binary" ? <PathName path={x.name} encoding={x.encoding} /> : <span class="name">{visible(x.name)}</span>}
                    <span class="meta">{x.note}</span>
                  </span>
                </label>
                {x.hunk && (!x.hunk.text.startsWith("@@") ? <p class="dim">{place(x.hunk)}</p> : <Lines diff={text(x.hunk.text, x.hunk.text_encoding)} label={`Lines of ${visible(text(x.name, x.encoding))}`} />)}
              </div>
            );
          }}
        />
      </div>
    </>
  );
}

/** Lines is a short diff as it is. */
function Lines(p: { diff: string; label: string }) {
  const lines = p.diff.replace(/\n$/, "").split("\n");
  const first = Math.max(0, lines.findIndex((l) => l.startsWith("@@")));
  return (
    <div class="diff result short" role="group" aria-label={p.label}>
      {lines.slice(first, first + mostLines).map((l, i) => (
        <div key={i} class={`line ${l[0] === "+" ? "add" : l[0] === "-" ? "del" : l.startsWith("@@") ? "hunk" : ""}`}>
          {!l.startsWith("@@") && <span class="sign">{l[0]}</span>}
          <span class="code">{l.startsWith("@@") ? l : l.slice(1)}</span>
        </div>
      ))}
      {lines.length > first + mostLines && <p class="dim">and {count(lines.length - first - mostLines, "line")} more</p>}
    </div>
  );
}

const reasons: Record<string, string> = {
  content: "both changed the same lines",
  deleted_here: "deleted here, changed there",
  changed_here: "changed here, deleted there",
  occupied: "something else has its name here",
  renamed: "both gave it another name; here it is ",
};

/** Side names a workspace that takes part, and who made its side. */
function Side(p: { label: string; workspace: string; who: MergeWho | null; now: number }) {
  const w = p.who;
  return (
    <p class="side">
      <span class="dim">{p.label}: </span>
      {w ? (
        <>
          {w.actor ? <Agent name={w.actor} /> : <b>{w.source === "external" ? "a user on disk" : "the server"}</b>}
          {w.task_id && (
            <>
              , task <a href={to(["tasks", w.task_id])}>{w.task_id}</a>
            </>
          )}
          {w.subtask_id && <>, subtask {visible(w.subtask_id)}</>}
          {w.commit && (
            <>
              , <a href={to(["workspaces", p.workspace, "commits", w.commit])}>{short(w.commit)}</a>
            </>
          )}
          {w.at && (
            <>
              , <Time at={w.at} now={p.now} />
            </>
          )}
        </>
      ) : (
        "as it was before"
      )}
    </p>
  );
}

interface Named {
  id: string;
  name: string;
}

function ConflictItem(p: { conflict: MergeConflict; ours: Named; theirs: Named; now: number }) {
  const [open, setOpen] = useState(false);
  const { conflict: c } = p;
  const lines = useLoad(
    async (signal) => (open ? getJSON<Diff>(`/workspaces/${encodeURIComponent(p.theirs.id)}/compare?with=${encodeURIComponent(p.ours.id)}&path=${inURL(c.path, c.path_encoding)}`, signal) : null),
    [open, c.path],
  );
  return (
    <li>
      <div class="conflict-head">
        <PathName path={c.path} encoding={c.path_encoding} />
        <span>
          {reasons[c.reason] ?? c.reason}
          {c.here && <PathName path={c.here} encoding={c.here_encoding} />}
        </span>
        {!c.here && (
          <button type="button" class="small" aria-expanded={open} onClick={() => setOpen(!open)} aria-label={`${open ? "Hide" : "Show lines"} … ${visible(text(c.path, c.path_encoding))}`}>
            {open ? "Hide" : "Show lines"}
          </button>
        )}
      </div>
      <div class="sides">
        <Side label={`− here, ${p.ours.name}`} workspace={p.ours.id} who={c.ours} now={p.now} />
        <Side label={`+ there, ${p.theirs.name}`} workspace={p.theirs.id} who={c.theirs} now={p.now} />
      </div>
      {open && lines.error && <ErrorBox error={lines.error} retry={lines.reload} />}
      {open && lines.data && (lines.data.diff ? <Lines diff={text(lines.data.diff, lines.data.diff_encoding)} label="Here and there" /> : <p class="dim">No line differs at this path.</p>)}
    </li>
  );
}

const actionOps: Record<string, string> = { created: "create", modified: "modify", deleted: "delete" };

function Files(p: { files: MergeAnswer["files"] }) {
  if (p.files.length === 0) return null;
  return (
    <VirtualList
      class={`planned ${p.files.length > 6 ? "many" : ""}`}
      label="Files of the plan"
      data={p.files}
      count={p.files.length}
      estimate={() => 34}
      row={(i) => {
        const f = p.files[i]!;
        return (
          <div class="planned-file" role="listitem" key={f.path} aria-setsize={p.files.length} aria-posinset={i + 1}>
            <OpBadge operation={actionOps[f.action] ?? ""} />
            <PathName path={f.path} encoding={f.path_encoding} />
            <span class="dim">{f.action}</span>
          </div>
        );
      }}
    />
  );
}
