// A workspace's checkpoints, and the restore to one: its plan first.

import { useEffect, useState } from "preact/hooks";

import { ApiError, getJSON, postJSON, sentence } from "./api";
import { announce, ErrorBox, Loading, OpBadge, PathName, Time, useLoad } from "./bits";
import { Dialog } from "./dialog";
import { count, num, short, visible, who } from "./format";
import { to } from "./route";
import type { Checkpoint, Entry } from "./types";
import { VirtualList } from "./virtual";

interface Restored {
  commit: string | null;
  files: { path: string; path_encoding?: string; action: "restored" | "deleted" }[];
  others?: Entry[];
  others_more?: number;
  plan: string | null;
}

/** useCheckpoints reads the checkpoints of a workspace, again when version changes. */
export function useCheckpoints(workspace: string, version: unknown) {
  return useLoad(async (signal) => (await getJSON<{ checkpoints: Checkpoint[] }>(`/workspaces/${encodeURIComponent(workspace)}/checkpoints`, signal)).checkpoints, [workspace, version]);
}

/** flagsOf finds, for each checkpoint, the newest of count changes that it has, by index. Changes are in order of their numbers, the oldest or the newest first. */
export function flagsOf(checkpoints: Checkpoint[] | undefined, count: number, seqOf: (i: number) => number, newestFirst: boolean): Map<number, Checkpoint[]> {
  const flags = new Map<number, Checkpoint[]>();
  const nth = (i: number) => (newestFirst ? count - 1 - i : i); // i counts from the oldest
  for (const c of checkpoints ?? []) {
    if (c.seq === null) continue;
    let low = 0;
    let high = count;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (seqOf(nth(mid)) <= c.seq) low = mid + 1;
      else high = mid;
    }
    if (low === 0) continue;
    const at = nth(low - 1);
    flags.set(at, [...(flags.get(at) ?? []), c]);
  }
  return flags;
}

/** Flags are the checkpoints that were made after a change, and before the next one. */
export function Flags(p: { of: Checkpoint[] | undefined }) {
  return (
    <>
      {p.of?.map((c) => (
        <span key={c.name} class="tag flag" title={`Checkpoint ${c.name}${c.message ? `: ${visible(c.message)}` : ""}`}>
          <span aria-hidden="true">{"\u2691 "}</span>
          <span class="hidden">checkpoint </span>
          {c.name}
        </span>
      ))}
    </>
  );
}

export function Checkpoints(p: { workspace: string; now: number; onMade: () => void; onRestored: () => void; onUndo: (commit: string) => void }) {
  const base = `/workspaces/${encodeURIComponent(p.workspace)}/checkpoints`;
  const loaded = useCheckpoints(p.workspace, 0);
  const [name, setName] = useState("");
  const [error, setError] = useState("");
  const [working, setWorking] = useState(false);
  const [restoring, setRestoring] = useState<Checkpoint | null>(null);
  const list = [...(loaded.data ?? [])].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  const make = () => {
    if (working) return;
    setWorking(true);
    setError("");
    const made = postJSON<Checkpoint>(base, { name: name.trim() }).then(
      () => {
        setName("");
        announce("The checkpoint is made.");
        loaded.reload();
        p.onMade();
      },
      (e) => setError(sentence(e)),
    );
    void made.finally(() => setWorking(false));
  };
  return (
    <>
      <h2>Checkpoints</h2>
      {loaded.error && <ErrorBox error={loaded.error} retry={loaded.reload} />}
      <ul class="subtasks" aria-label="Checkpoints">
        {list.map((c) => (
          <li key={c.name}>
            <span class="name">
              <a href={to(["workspaces", p.workspace, "commits", c.commit])}>{c.name}</a>
              {c.message && <span class="dim"> {visible(c.message)}</span>}
            </span>
            <span class="dim">
              <Time at={c.at} now={p.now} />
            </span>
            <button type="button" class="small" aria-label={`Restore … ${c.name}`} onClick={() => setRestoring(c)}>
              Restore …
            </button>
          </li>
        ))}
      </ul>
      {loaded.data?.length === 0 && <p class="dim">No checkpoint.</p>}
      <form
        class="checkpoint"
        onSubmit={(e) => {
          e.preventDefault();
          make();
        }}
      >
        <input type="search" aria-label="Name of a new checkpoint" placeholder="Name of a new one" spellcheck={false} value={name} onInput={(e) => setName(e.currentTarget.value)} />
        <button type="submit" disabled={name.trim() === "" || working}>
          Make
        </button>
      </form>
      {error && <p class="error">{error}</p>}
      {restoring && (
        <Restore
          workspace={p.workspace}
          checkpoint={restoring}
          onClose={() => setRestoring(null)}
          onDone={p.onRestored}
          onUndo={(commit) => {
            setRestoring(null);
            p.onUndo(commit);
          }}
        />
      )}
    </>
  );
}

function Restore(p: { workspace: string; checkpoint: Checkpoint; onClose: () => void; onDone: () => void; onUndo: (commit: string) => void }) {
  const url = `/workspaces/${encodeURIComponent(p.workspace)}/restore`;
  const [plan, setPlan] = useState<Restored | null>(null);
  const [error, setError] = useState("");
  const [stale, setStale] = useState(false);
  const [working, setWorking] = useState(false);
  const [done, setDone] = useState<Restored | null>(null);
  const [round, again] = useState(0);
  useEffect(() => {
    let current = true;
    setPlan(null);
    postJSON<Restored>(url, { to: p.checkpoint.name, dry_run: true }).then(
      (made) => current && setPlan(made),
      (e) => current && setError(sentence(e)),
    );
    return () => {
      current = false;
    };
  }, [round]);
  const apply = async () => {
    if (!plan) return;
    setWorking(true);
    try {
      const res = await postJSON<Restored>(url, { to: p.checkpoint.name, plan: plan.plan });
      setDone({ ...res, files: plan.files });
      announce(`Restored ${count(plan.files.length, "file")}.`);
      p.onDone();
    } catch (e) {
      if (e instanceof ApiError && e.code === "plan_stale") {
        setStale(true);
        again((n) => n + 1);
      } else {
        setError(sentence(e));
      }
    } finally {
      setWorking(false);
    }
  };
  const others = plan?.others ?? [];
  return (
    <Dialog
      title={done ? "Restored" : `Restore checkpoint ${p.checkpoint.name}`}
      onClose={p.onClose}
      footer={
        done ? (
          <>
            {done.commit && (
              <button type="button" onClick={() => p.onUndo(done.commit!)}>
                Undo this …
              </button>
            )}
            <button type="button" class="primary" onClick={p.onClose}>
              Close
            </button>
          </>
        ) : (
          <>
            <button type="button" onClick={p.onClose}>
              Cancel
            </button>
            <button type="button" class="primary" disabled={!plan || plan.files.length === 0 || working} onClick={() => void apply()}>
              {working ? "Restoring …" : plan && plan.files.length > 0 ? `Restore ${count(plan.files.length, "file")} to ${p.checkpoint.name}` : "Restore"}
            </button>
          </>
        )
      }
    >
      {stale && (
        <p class="notice" role="alert">
          Something changed meanwhile. This is the new plan.
        </p>
      )}
      {error && <p class="error">{error}</p>}
      {!plan && !error && <Loading what="the plan" />}
      {done && (
        <p role="status">
          {count(done.files.length, "file")} restored
          {done.commit && (
            <>
              , commit <a href={to(["workspaces", p.workspace, "commits", done.commit])}>{short(done.commit)}</a>
            </>
          )}
          .
        </p>
      )}
      {plan && !done && (plan.files.length === 0 ? <p class="notice">All is as it was at the checkpoint.</p> : <p class="dim">One new commit. It can be undone.</p>)}
      {others.length > 0 && !done && (
        <>
          <p class="notice">
            Work since then would be replaced, also that of others: {num(others.length + (plan?.others_more ?? 0))} {others.length === 1 ? "file" : "files"}.
          </p>
          <ul class="entries" aria-label="Work since the checkpoint" tabIndex={0}>
            {others.slice(0, 200).map((e) => (
              <li key={`${e.seq} ${e.path}`}>
                <PathName path={e.path} encoding={e.path_encoding} to={e.new_path} />{" "}
                <span class="dim">
                  by {who(e)}
                  {e.task_id && ` in ${e.task_id}`}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      {plan && plan.files.length > 0 && (
        <VirtualList
          class={`planned ${plan.files.length > 6 ? "many" : ""}`}
          label="Files of the plan"
          data={plan.files}
          count={plan.files.length}
          estimate={() => 34}
          row={(i) => {
            const f = plan.files[i]!;
            return (
              <div class="planned-file" role="listitem" key={i} aria-setsize={plan.files.length} aria-posinset={i + 1}>
                <OpBadge operation={f.action === "deleted" ? "delete" : "modify"} />
                <PathName path={f.path} encoding={f.path_encoding} />
                <span class="dim">{f.action}</span>
              </div>
            );
          }}
        />
      )}
    </Dialog>
  );
}
