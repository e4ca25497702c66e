// A revert: always its plan first, then, on one click, just that plan.

import { useEffect, useMemo, useState } from "preact/hooks";

import { ApiError, postJSON, sentence, text } from "./api";
import { announce, ErrorBox, Loading, OpBadge, PathName } from "./bits";
import { Dialog } from "./dialog";
import { parse, type Row } from "./diff/parse";
import { digits, Lines } from "./diff/view";
import { count, newUndo, short, split, turnName, visible } from "./format";
import { to } from "./route";
import { ThreeWay } from "./threeway";
import type { Conflict, PlannedFile, RevertAnswer, Task } from "./types";
import { VirtualList } from "./virtual";

export type Scope =
  | { kind: "task" }
  | { kind: "subtask"; id: string; turn?: boolean }
  | { kind: "call"; id: string; tool: string }
  | { kind: "file"; path: string; encoding?: string | undefined }
  | { kind: "change"; id: number }
  | { kind: "commit"; commit: string; undo: boolean; task?: string | undefined }
  | { kind: "actor"; actor: string };

type OnConflict = "fail" | "skip" | "force";

interface Step {
  url: string;
  body: Record<string, unknown>;
}

/** step is the one request that a scope takes. */
function step(workspace: string, task: Task | undefined, scope: Scope): Step {
  const base = `/tasks/${encodeURIComponent(task?.task_id ?? "")}`;
  const whole = `/workspaces/${encodeURIComponent(workspace)}`;
  // Where the task takes changes the revert is one of its own, so that its timeline shows it. Undoing
  // its reverts is its own also once it has ended.
  const undone = scope.kind === "commit" && scope.undo ? (task?.task_id ?? scope.task) : undefined;
  const owner = undone ?? (task?.status === "executing" ? task.task_id : undefined);
  const own = owner ? { task_id: owner } : {};
  switch (scope.kind) {
    case "task":
      return { url: `${base}/revert`, body: {} };
    case "subtask":
      return { url: `${base}/subtasks/${encodeURIComponent(scope.id)}/revert`, body: {} };
    case "call":
      return { url: `/calls/${encodeURIComponent(scope.id)}/revert`, body: {} };
    case "file":
      return { url: `${base}/revert`, body: { path: scope.path, ...(scope.encoding ? { path_encoding: scope.encoding } : {}) } };
    case "change":
      return { url: `${base}/changes/${scope.id}/revert`, body: {} };
    case "commit":
      return { url: `${whole}/commits/${encodeURIComponent(scope.commit)}/revert`, body: own };
    case "actor":
      return { url: `${whole}/revert`, body: { actor: scope.actor } };
  }
}

function title(scope: Scope): string {
  switch (scope.kind) {
    case "task":
      return "Revert the task";
    case "subtask":
      return scope.turn ? `Undo turn ${turnName(scope.id)}` : `Revert subtask ${turnName(scope.id)}`;
    case "call":
      return `Undo call ${scope.tool || scope.id}`;
    case "file":
      return "Revert a file";
    case "change":
      return `Revert change ${scope.id}`;
    case "commit":
      return scope.undo ? "Undo the revert" : `Revert commit ${short(scope.commit)}`;
    case "actor":
      return `Revert all changes by ${scope.actor}`;
  }
}

/** of names, for the button, what the undone changes belong to. */
function of(scope: Scope): string {
  switch (scope.kind) {
    case "task":
      return " of the task";
    case "subtask":
      return ` of ${scope.turn ? "turn" : "subtask"} ${turnName(scope.id)}`;
    case "call":
      return ` of call ${scope.tool || scope.id}`;
    case "file":
      return ` of ${split(visible(text(scope.path, scope.encoding)))[1]}`;
    case "change":
      return "";
    case "commit":
      return ` of commit ${short(scope.commit)}`;
    case "actor":
      return ` by ${scope.actor}`;
  }
}

const actionWords: Record<PlannedFile["action"], string> = {
  restored: "restored",
  deleted: "deleted",
  renamed: "renamed back",
  merged: "merged with what came later",
  unchanged: "stays as it is",
};

const actionOps: Record<PlannedFile["action"], string> = { restored: "modify", deleted: "delete", renamed: "rename", merged: "modify", unchanged: "" };

interface Props {
  /** workspace is what the scope is in; task, where it is of one. */
  workspace: string;
  task?: Task;
  scope: Scope;
  /** actors is how many made the changes, 0 where that is not known. */
  actors?: number;
  onClose: () => void;
  onUndo: (commit: string) => void;
}

export function RevertDialog(p: Props) {
  const [onConflict, setOnConflict] = useState<OnConflict>("fail");
  const [external, setExternal] = useState(false);
  const [shared, setShared] = useState(false);
  const [plan, setPlan] = useState<RevertAnswer | null>(null);
  const [conflicts, setConflicts] = useState<Conflict[]>([]);
  const [round, again] = useState(0);
  const [error, setError] = useState("");
  const [stale, setStale] = useState(false);
  const [working, setWorking] = useState(false);
  const [done, setDone] = useState<{ commit: string | null; plan: RevertAnswer } | null>(null);
  const { url, body } = step(p.workspace, p.task, p.scope);

  useEffect(() => {
    let current = true;
    setPlan(null);
    setError("");
    const options = { on_conflict: onConflict, include_external: external, include_shared: shared, diff: true, dry_run: true };
    const ask = async () => {
      const made = await postJSON<RevertAnswer>(url, { ...body, ...options });
      if (!current) return;
      setPlan(made);
      if (onConflict === "fail") setConflicts(made.conflicts);
      announce(`The plan: ${count(made.files.length, "file")}, ${count(made.conflicts.length, "conflict")}.`);
    };
    ask().catch((e) => current && setError(sentence(e)));
    return () => {
      current = false;
    };
  }, [onConflict, external, shared, round]);

  const apply = async () => {
    if (!plan) return;
    setWorking(true);
    setStale(false);
    try {
      // An undo of a turn or a call is one that umbra redo finds.
      const named: Record<string, string> = p.scope.kind === "call" || (p.scope.kind === "subtask" && p.scope.turn) ? { "X-Subtask-Id": newUndo() } : {};
      const res = await postJSON<RevertAnswer>(url, { ...body, plan: plan.plan }, named);
      setDone({ commit: res.commit, plan });
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

  const by = p.actors && p.actors > 1 && p.scope.kind !== "actor" ? ` by ${p.actors} agents` : "";
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
            {working ? "Undoing …" : plan && plan.entries_reverted > 0 ? `Undo ${count(plan.entries_reverted, "change")}${of(p.scope)}${by}` : "Undo"}
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
          <legend>{count(conflicts.length, "file")} changed since by another actor, in the same lines</legend>
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
            <ConflictItem key={`${c.path} ${c.entry}`} conflict={c} workspace={p.workspace} task={p.task} scope={p.scope} />
          ))}
        </ul>
      )}
      {(external || (plan?.external?.length ?? 0) > 0) && (
        <label class="check">
          <input type="checkbox" checked={external} onChange={(e) => setExternal(e.currentTarget.checked)} /> Also undo{" "}
          {plan && !external ? count(plan.external.length, "change") : "changes"} made outside the server: they may be yours
        </label>
      )}
      {(shared || (plan?.shared?.length ?? 0) > 0) && (
        <label class="check">
          <input type="checkbox" checked={shared} onChange={(e) => setShared(e.currentTarget.checked)} /> Also undo {plan && !shared ? count(plan.shared.length, "shared change") : "shared changes"}: another agent may have
          made them
        </label>
      )}
      {!plan && !error && <Loading what="the plan" />}
      {nothing && <p class="notice">Nothing is left to undo.</p>}
      {plan && plan.files.length > 0 && (
        <>
          <p class="dim">
            {blocked ? "Without the conflicts this would happen:" : "This will happen:"} {count(plan.entries_reverted, "change")} undone in {count(plan.files.length, "file")}, as one new commit. It can be undone.
          </p>
          <Files files={plan.files} />
        </>
      )}
    </Dialog>
  );
}

/** mostLines is how much of one file's diff a plan shows. */
const mostLines = 400;

function Files(p: { files: PlannedFile[] }) {
  const [open, setOpen] = useState<Set<number>>(new Set());
  const toggle = (i: number) => {
    const next = new Set(open);
    if (!next.delete(i)) next.add(i);
    setOpen(next);
  };
  return (
    <VirtualList
      class={`planned ${p.files.length > 6 || open.size > 0 ? "many" : ""}`}
      label="Files of the plan"
      data={p.files}
      count={p.files.length}
      estimate={() => 34}
      row={(i) => {
        const f = p.files[i]!;
        return (
          <div class="planned-item" role="listitem" key={i} aria-setsize={p.files.length} aria-posinset={i + 1}>
            <div class="planned-file">
              <OpBadge operation={actionOps[f.action]} />
              <PathName path={f.path} encoding={f.path_encoding} />
              <span class="dim">
                {actionWords[f.action] ?? f.action}
                {f.source === "external" && <span class="tag external">outside</span>}
                {f.source === "shared" && <span class="tag shared">shared</span>}
              </span>
              {f.diff && (
                <button type="button" class="small" aria-expanded={open.has(i)} onClick={() => toggle(i)} aria-label={`${open.has(i) ? "Hide" : "Show"} the result in ${visible(text(f.path, f.path_encoding))}`}>
                  {open.has(i) ? "Hide" : "Show"}
                </button>
              )}
            </div>
            {f.diff && open.has(i) && <Result diff={text(f.diff, f.diff_encoding)} path={text(f.path, f.path_encoding)} />}
          </div>
        );
      }}
    />
  );
}

/** Result is what a planned revert makes of a file, as a diff from what it is now. */
function Result(p: { diff: string; path: string }) {
  const [rows, setRows] = useState<Row[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    parse(p.diff, false, abort.signal).then(
      (parsed) => abort.signal.aborted || setRows(parsed.rows),
      () => undefined, // ended
    );
    return () => abort.abort();
  }, [p.diff]);
  const shown = useMemo(() => rows.slice(0, mostLines), [rows]);
  return (
    <div class={`diff ${digits(shown)} result`} role="table" aria-label={`Result in ${visible(p.path)}`}>
      <div role="rowgroup">
        <Lines rows={shown} path={p.path} />
      </div>
      {rows.length > mostLines && <p class="dim">The diff goes on.</p>}
    </div>
  );
}

const reasons: Record<string, string> = {
  modified: "was changed since",
  deleted: "was deleted since",
  occupied: "something else has its name now",
  binary: "is binary and was changed since",
  overlapping: "was changed since in the same lines",
};

function ConflictItem(p: { conflict: Conflict; workspace: string; task: Task | undefined; scope: Scope }) {
  const [open, setOpen] = useState(false);
  const { conflict: c } = p;
  const by = c.changed_by;
  const who = [by.actor ?? "an unknown actor", by.task_id && by.task_id !== p.task?.task_id ? `in task ${by.task_id}` : "", by.subtask_id ? `subtask ${by.subtask_id}` : ""].filter(Boolean).join(", ");
  return (
    <li>
      <div class="conflict-head">
        <PathName path={c.path} encoding={c.path_encoding} />
        <span>
          {reasons[c.reason] ?? c.reason} by <b>{who}</b>{" "}
          {by.commit && <a href={to(["workspaces", p.workspace, "commits", by.commit])}>{short(by.commit)}</a>}
        </span>
        {p.task && c.entry !== null && p.scope.kind !== "commit" && (
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Hide" : "Compare three ways"}
          </button>
        )}
      </div>
      {open && p.task && <ThreeWay task={p.task} conflict={c} scope={p.scope} />}
    </li>
  );
}

function Done(p: Props & { done: { commit: string | null; plan: RevertAnswer } }) {
  const { commit, plan } = p.done;
  return (
    <Dialog
      title={commit ? "Reverted" : "Nothing was left to undo"}
      onClose={p.onClose}
      footer={
        <>
          {commit && (
            <button type="button" onClick={() => p.onUndo(commit)}>
              Undo this …
            </button>
          )}
          <button type="button" class="primary" onClick={p.onClose}>
            Close
          </button>
        </>
      }
    >
      {commit && (
        <p role="status">
          {count(plan.entries_reverted, "change")} undone in {count(plan.files.length, "file")}, commit <a href={to(["workspaces", p.workspace, "commits", commit])}>{short(commit)}</a>.
        </p>
      )}
      {plan.files.length > 0 && <Files files={plan.files} />}
      {plan.conflicts.length > 0 && <p class="notice">{count(plan.conflicts.length, "file")} had changed since.</p>}
    </Dialog>
  );
}
