// A revert: always its plan first, then, on one click, just that plan.

import { useEffect, useState } from "preact/hooks";

import { ApiError, getJSON, postJSON, sentence } from "./api";
import { announce, ErrorBox, Loading, OpBadge, PathName, useLoad } from "./bits";
import { Dialog } from "./dialog";
import { count, short } from "./format";
import { to } from "./route";
import { ThreeWay } from "./threeway";
import type { Commit, Conflict, PlannedFile, RevertAnswer, Task } from "./types";
import { VirtualList } from "./virtual";

export type Scope =
  | { kind: "task" }
  | { kind: "subtask"; id: string }
  | { kind: "file"; path: string; encoding?: string | undefined }
  | { kind: "changes"; ids: number[]; undo: boolean };

type OnConflict = "fail" | "skip" | "force";

interface Step {
  url: string;
  body: Record<string, unknown>;
}

/** steps are the requests that a scope takes; only the undoing of a revert takes more than one. */
function steps(task: string, scope: Scope): Step[] {
  const base = `/tasks/${encodeURIComponent(task)}`;
  switch (scope.kind) {
    case "task":
      return [{ url: `${base}/revert`, body: {} }];
    case "subtask":
      return [{ url: `${base}/subtasks/${encodeURIComponent(scope.id)}/revert`, body: {} }];
    case "file":
      return [{ url: `${base}/revert`, body: { path: scope.path, ...(scope.encoding ? { path_encoding: scope.encoding } : {}) } }];
    case "changes":
      return [...scope.ids].sort((a, b) => b - a).map((n) => ({ url: `${base}/changes/${n}/revert`, body: {} }));
  }
}

function title(scope: Scope): string {
  switch (scope.kind) {
    case "task":
      return "Revert the task";
    case "subtask":
      return `Revert subtask ${scope.id}`;
    case "file":
      return "Revert a file";
    case "changes":
      if (scope.undo) return "Undo the revert";
      return scope.ids.length === 1 ? `Revert change ${scope.ids[0]}` : `Revert ${count(scope.ids.length, "change")}`;
  }
}

interface Plan {
  files: PlannedFile[];
  conflicts: Conflict[];
  entries: number;
  tokens: (string | null)[];
}

function sum(answers: RevertAnswer[]): Plan {
  return {
    files: answers.flatMap((a) => a.files),
    conflicts: answers.flatMap((a) => a.conflicts),
    entries: answers.reduce((n, a) => n + a.entries_reverted, 0),
    tokens: answers.map((a) => a.plan),
  };
}

const actionWords: Record<PlannedFile["action"], string> = {
  restored: "restored",
  deleted: "deleted",
  renamed: "renamed back",
  merged: "merged with what came later",
  unchanged: "stays as it is",
};

const actionOps: Record<PlannedFile["action"], string> = { restored: "modify", deleted: "delete", renamed: "rename", merged: "modify", unchanged: "" };

export function RevertDialog(p: { task: Task; scope: Scope; onClose: () => void; onUndo: (ids: number[]) => void }) {
  const [onConflict, setOnConflict] = useState<OnConflict>("fail");
  const [external, setExternal] = useState(true);
  const [plan, setPlan] = useState<Plan | null>(null);
  const [conflicts, setConflicts] = useState<Conflict[]>([]);
  const [round, again] = useState(0);
  const [error, setError] = useState("");
  const [stale, setStale] = useState(false);
  const [working, setWorking] = useState(false);
  const [done, setDone] = useState<{ commits: string[]; plan: Plan } | null>(null);
  const all = steps(p.task.task_id, p.scope);

  useEffect(() => {
    let current = true;
    setPlan(null);
    setError("");
    const options = { on_conflict: onConflict, include_external: external, dry_run: true };
    const ask = async () => {
      const answers: RevertAnswer[] = [];
      for (const s of all) {
        answers.push(await postJSON<RevertAnswer>(s.url, { ...s.body, ...options }));
        if (!current) return;
      }
      const made = sum(answers);
      setPlan(made);
      if (onConflict === "fail") setConflicts(made.conflicts);
      announce(`The plan: ${count(made.files.length, "file")}, ${count(made.conflicts.length, "conflict")}.`);
    };
    ask().catch((e) => current && setError(sentence(e)));
    return () => {
      current = false;
    };
  }, [onConflict, external, round]);

  const apply = async () => {
    if (!plan) return;
    setWorking(true);
    setStale(false);
    const commits: string[] = [];
    try {
      for (const [i, s] of all.entries()) {
        const res = await postJSON<RevertAnswer>(s.url, { ...s.body, plan: plan.tokens[i] });
        if (res.commit) commits.push(res.commit);
      }
      setDone({ commits, plan });
      announce(`Done: ${count(plan.files.length, "file")}.`);
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

  if (done) return <Done {...p} done={done} />;

  const blocked = onConflict === "fail" && (plan?.conflicts.length ?? 0) > 0;
  const nothing = plan !== null && plan.files.length === 0 && !blocked;
  return (
    <Dialog
      title={title(p.scope)}
      onClose={p.onClose}
      footer={
        <>
          <button type="button" onClick={p.onClose}>
            Cancel
          </button>
          <button type="button" class="primary" disabled={!plan || blocked || nothing || working} onClick={() => void apply()}>
            {working ? "Reverting …" : plan && plan.files.length > 0 ? `Revert ${count(plan.files.length, "file")}` : "Revert"}
          </button>
        </>
      }
    >
      {p.scope.kind === "file" && (
        <p>
          <PathName path={p.scope.path} encoding={p.scope.encoding} />
        </p>
      )}
      {stale && <p class="notice" role="alert">Something changed meanwhile. This is the new plan.</p>}
      {error && <ErrorBox error={error} retry={() => again((n) => n + 1)} />}
      {conflicts.length > 0 && (
        <fieldset class="choice">
          <legend>{count(conflicts.length, "file")} changed since by somebody else, in the same place</legend>
          <label>
            <input type="radio" name="on_conflict" checked={onConflict === "fail"} onChange={() => setOnConflict("fail")} /> Decide later: nothing is changed
          </label>
          <label>
            <input type="radio" name="on_conflict" checked={onConflict === "skip"} onChange={() => setOnConflict("skip")} /> Leave {conflicts.length === 1 ? "it" : "them"}, undo the rest
          </label>
          <label>
            <input type="radio" name="on_conflict" checked={onConflict === "force"} onChange={() => setOnConflict("force")} /> Take the state from before, over what came later
          </label>
        </fieldset>
      )}
      {conflicts.length > 0 && (
        <ul class="conflicts" aria-label="Conflicts">
          {conflicts.slice(0, 200).map((c) => (
            <ConflictItem key={`${c.path} ${c.entry}`} conflict={c} task={p.task} scope={p.scope} />
          ))}
        </ul>
      )}
      {(!external || plan?.files.some((f) => f.source === "external")) && (
        <label class="check">
          <input type="checkbox" checked={external} onChange={(e) => setExternal(e.currentTarget.checked)} /> Also undo changes made outside the server that belong to the task
        </label>
      )}
      {!plan && !error && <Loading what="the plan" />}
      {nothing && <p class="notice">Nothing is left to undo.</p>}
      {plan && plan.files.length > 0 && (
        <>
          <p class="dim">
            {blocked ? "Without the conflicts this would happen:" : "This will happen:"} {count(plan.entries, "change")} undone in {count(plan.files.length, "file")}, as one new commit
            {all.length > 1 ? " for each" : ""}. It can be undone.
          </p>
          <Files files={plan.files} />
        </>
      )}
    </Dialog>
  );
}

function Files(p: { files: PlannedFile[] }) {
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
          <div class="planned-file" role="listitem" key={i} aria-setsize={p.files.length} aria-posinset={i + 1}>
            <OpBadge operation={actionOps[f.action]} />
            <PathName path={f.path} encoding={f.path_encoding} />
            <span class="dim">
              {actionWords[f.action] ?? f.action}
              {f.source === "external" && <span class="tag external">outside</span>}
            </span>
          </div>
        );
      }}
    />
  );
}

const reasons: Record<string, string> = {
  modified: "was changed since",
  deleted: "was deleted since",
  occupied: "something else has its name now",
  binary: "is binary and was changed since",
  overlapping: "was changed since in the same lines",
};

function ConflictItem(p: { conflict: Conflict; task: Task; scope: Scope }) {
  const [open, setOpen] = useState(false);
  const { conflict: c } = p;
  const by = c.changed_by;
  const who = [by.actor ?? "somebody", by.task_id && by.task_id !== p.task.task_id ? `in task ${by.task_id}` : "", by.subtask_id ? `subtask ${by.subtask_id}` : ""].filter(Boolean).join(", ");
  return (
    <li>
      <div class="conflict-head">
        <PathName path={c.path} encoding={c.path_encoding} />
        <span>
          {reasons[c.reason] ?? c.reason} by <b>{who}</b>{" "}
          {by.commit && <a href={to(["workspaces", p.task.workspace_id, "commits", by.commit])}>{short(by.commit)}</a>}
        </span>
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Hide" : "Compare three ways"}
        </button>
      </div>
      {open && <ThreeWay task={p.task} conflict={c} scope={p.scope} />}
    </li>
  );
}

function Done(p: { done: { commits: string[]; plan: Plan }; task: Task; onClose: () => void; onUndo: (ids: number[]) => void }) {
  const { commits, plan } = p.done;
  // The revert's own entries: to undo it is to revert each of them.
  const own = useLoad(async (signal) => {
    const ids: number[] = [];
    for (const id of commits) {
      const c = await getJSON<Commit>(`/workspaces/${encodeURIComponent(p.task.workspace_id)}/commits/${id}`, signal);
      for (const e of c.entries) if (e.id !== null && e.task_id === p.task.task_id) ids.push(e.id);
    }
    return ids;
  }, commits);
  const ids = own.data ?? [];
  return (
    <Dialog
      title={commits.length > 0 ? "Reverted" : "Nothing was left to undo"}
      onClose={p.onClose}
      footer={
        <>
          {commits.length > 0 && (
            <button type="button" disabled={ids.length === 0} onClick={() => p.onUndo(ids)}>
              Undo this …
            </button>
          )}
          <button type="button" class="primary" onClick={p.onClose}>
            Close
          </button>
        </>
      }
    >
      {commits.length > 0 && (
        <p role="status">
          {count(plan.entries, "change")} undone in {count(plan.files.length, "file")}
          {commits.length === 1 && (
            <>
              , commit <a href={to(["workspaces", p.task.workspace_id, "commits", commits[0]!])}>{short(commits[0])}</a>
            </>
          )}
          .
        </p>
      )}
      {plan.files.length > 0 && <Files files={plan.files} />}
      {plan.conflicts.length > 0 && <p class="notice">{count(plan.conflicts.length, "file")} had changed since.</p>}
    </Dialog>
  );
}
