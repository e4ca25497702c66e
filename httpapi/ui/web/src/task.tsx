// A task's page: its timeline or files on one side, what is chosen on the other.

import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

import { getJSON, sentence, text } from "./api";
import { AtWork } from "./atwork";
import { announce, ErrorBox, Icon, Loading, StatusChip, Time, useKeys, useLoad, useNow } from "./bits";
import { Changelog } from "./changelog";
import { ChangeDetail, FileDetail, HistoryDetail, Overview, taskURL } from "./details";
import { FileList } from "./files";
import { count, operation } from "./format";
import { Compare } from "./compare";
import { Review } from "./review";
import { RevertDialog, type Scope } from "./revert";
import { onReach } from "./reach";
import { go, type Route, to } from "./route";
import { type Connection, follow } from "./stream";
import { Timeline } from "./timeline";
import { FileTree } from "./tree";
import type { Checkpoint, FileChange, StreamData, Task } from "./types";
import { DiffPane } from "./viewer";

const ended = new Set(["completed", "failed", "cancelled"]);

/** useTask keeps a task and its changelog as the server has them. */
function useTask(id: string) {
  const [task, setTask] = useState<Task | null>(null);
  const [error, setError] = useState("");
  const [round, again] = useState(0);
  const [connection, setConnection] = useState<Connection>("connecting");
  const [version, changed] = useReducer((n: number) => n + 1, 0);
  const [settled, setSettled] = useState(0);
  const fresh = useRef<Set<number>>(new Set());
  const log = useMemo(() => new Changelog(id), [id, round]);
  const current = useRef<Task | null>(null);
  current.current = task;

  useEffect(() => {
    let gone = false;
    let stop = () => {};
    let timer: ReturnType<typeof setTimeout> | undefined;
    let news = 0;
    setTask(null);
    setError("");
    const unlisten = log.listen(() => changed(0));
    const later = () => {
      timer ??= setTimeout(async () => {
        timer = undefined;
        setSettled((n) => n + 1);
        log.loadCalls(true).catch(() => {});
        if (news > 0) {
          const last = log.items.at(-1);
          announce(`${count(news, "new change")}${last ? `, the last: ${operation(last.operation).word} ${last.newPath ?? last.path}` : ""}.`);
        }
        news = 0;
        const t = await getJSON<Task>(`/tasks/${encodeURIComponent(id)}`).catch(() => null);
        // The stream's state is newer than this answer.
        if (t && !gone) setTask((now) => (now && Date.parse(now.updated) > Date.parse(t.updated) ? now : t));
      }, 400);
    };
    const begin = async () => {
      const t = await getJSON<Task>(`/tasks/${encodeURIComponent(id)}`);
      if (gone) return;
      setTask(t);
      // The calls are more than the timeline needs to begin with.
      const calls = log.loadCalls();
      calls.catch(() => {});
      await log.open(t.changes);
      if (gone) return;
      stop = follow({
        // An ended task's own stream is over; its reverts are in the workspace's.
        path: () => (ended.has(current.current?.status ?? t.status) ? `/workspaces/${encodeURIComponent(t.workspace_id)}/stream` : `/tasks/${encodeURIComponent(id)}/stream`),
        // Nothing known and nothing to come but reverts: not all of the workspace's past.
        after: log.lastSeq > 0 || !ended.has(t.status) ? log.lastSeq : null,
        state: setConnection,
        more: () => true,
        event: (e) => {
          if (e.name === "task") {
            const data = JSON.parse(e.data) as Task;
            if (data.task_id === id) setTask(data);
            return;
          }
          if (e.name !== "change" && e.name !== "revert") return;
          const added = log.add(JSON.parse(e.data) as StreamData);
          if (added.length === 0) return;
          news += added.length;
          for (const it of added) if (it.id) fresh.current.add(it.id);
          later();
        },
      });
    };
    let unreach = () => {};
    begin().catch((e) => {
      if (gone) return;
      setError(sentence(e));
      unreach = onReach((ok) => ok && again((n) => n + 1));
    });
    return () => {
      gone = true;
      unreach();
      clearTimeout(timer);
      unlisten();
      stop();
      log.close();
    };
  }, [id, round]);
  return { task, error, log, version, settled, connection, fresh: fresh.current, retry: () => again((n) => n + 1) };
}

/** actorsOf counts who made the changes of a scope, 0 while not all of them are loaded. */
function actorsOf(log: Changelog, scope: Scope): number {
  if (!log.complete) return 0;
  const actors = new Set<string>();
  for (const it of log.items) {
    if (log.undone.has(it.id) || it.reverts || it.source === "external" || it.source === "shared") continue;
    if (scope.kind === "task" || (scope.kind === "subtask" && it.subtask === scope.id) || (scope.kind === "call" && it.call === scope.id) || (scope.kind === "file" && ((it.newPath ?? it.path) === scope.path || (it.newPath ?? it.path).startsWith(`${scope.path}/`)))) actors.add(it.actor);
  }
  return actors.size;
}

const connectionWords: Record<Connection, string> = { live: "live", connecting: "connecting", paused: "paused", ended: "not live" };

export function TaskPage(p: { id: string; route: Route }) {
  const t = useTask(p.id);
  const now = useNow();
  const [scope, setScope] = useState<Scope | null>(null);
  const [, section = "", arg = ""] = p.route.parts.slice(1);
  const q = p.route.query;
  const path = q.get("path") ?? "";
  const encoding = q.get("enc") ?? undefined;
  // The summary of a large task takes a while: where it is not shown, the timeline is loaded first.
  const wanted = section === "files" || section === "diff" || t.log.ready;
  const files = useLoad<FileChange[]>(async (signal) => {
    if (!wanted) return new Promise<FileChange[]>(() => {});
    return (await getJSON<{ files: FileChange[] }>(`/tasks/${encodeURIComponent(p.id)}/files`, signal)).files;
  }, [p.id, wanted]);
  const checkpoints = useLoad(
    async (signal) => (t.task ? (await getJSON<{ checkpoints: Checkpoint[] }>(`/workspaces/${encodeURIComponent(t.task.workspace_id)}/checkpoints`, signal)).checkpoints : []),
    [t.task?.workspace_id, t.settled],
  );
  const kept = useRef<FileChange[] | undefined>(undefined);
  if (files.data) kept.current = files.data;
  useEffect(() => {
    if (t.settled > 0) files.reload();
  }, [t.settled]);

  const base = ["tasks", p.id];
  useKeys({ t: () => go(to(base)), f: () => go(to([...base, "files"])), w: () => go(to([...base, "diff"])), e: () => go(to([...base, "review"])), o: () => go(to([...base, "overview"])), r: () => setScope((s) => s ?? { kind: "task" }), u: () => go(to([])) });
  const revert = useCallback((s: Scope) => setScope(s), []);

  useEffect(() => {
    document.title = t.task ? `${t.task.goal} · umbra` : "umbra";
  }, [t.task?.goal]);

  if (t.error) return <ErrorBox error={t.error} retry={t.retry} home />;
  if (!t.task) return <Loading what="the task" />;
  const task = t.task;
  const left = section === "files" || section === "history" ? "files" : "timeline";
  const reviewing = section === "review";
  const chosen = reviewing || section === "diff" || section === "compare" || section === "changes" || section === "overview" || (path !== "" && (section === "files" || section === "history"));
  const list = kept.current;
  const fileOf = list?.find((f) => f.path === path);

  const tabs = (
    <nav class="tabs" aria-label="Parts of the task">
      <a href={to(base)} aria-current={left === "timeline" && section !== "overview" && section !== "diff" && !reviewing ? "page" : undefined}>
        Timeline
      </a>
      <a href={to([...base, "files"])} aria-current={left === "files" ? "page" : undefined}>
        Files{list ? ` ${list.length}` : ""}
      </a>
      <a href={to([...base, "diff"])} aria-current={section === "diff" ? "page" : undefined}>
        Diff
      </a>
      <a href={to([...base, "review"])} aria-current={reviewing ? "page" : undefined}>
        Review
      </a>
      <a class="only-narrow" href={to([...base, "overview"])} aria-current={section === "overview" ? "page" : undefined}>
        Overview
      </a>
    </nav>
  );
  return (
    <div class={`task ${chosen ? "chosen" : ""}`}>
      <header class="task-head">
        <div class="title">
          <h1>{task.goal}</h1>
          <p class="meta">
            <StatusChip status={task.status} /> <span class="id">{task.task_id}</span> ·{" "}
            <a href={to(["workspaces", task.workspace_id])} title={task.workspace ?? ""}>
              {task.workspace ? task.workspace.split("/").pop() : task.workspace_id}
            </a>{" "}
            · <Time at={task.updated} now={now} /> <span class={`live ${t.connection}`}>{connectionWords[t.connection]}</span>
          </p>
        </div>
        <button type="button" class="danger" onClick={() => setScope({ kind: "task" })}>
          Revert task …
        </button>
      </header>
      {!chosen && <AtWork workspace={task.workspace_id} task={task.task_id} />}
      {task.warnings.map((w) => (
        <p class="notice" key={w}>
          {w}
        </p>
      ))}
      <div class="panes">
        {reviewing ? (
          <Review task={task} log={t.log} version={t.version} settled={t.settled} tabs={tabs} onUndo={(commit) => setScope({ kind: "commit", commit, undo: true })} />
        ) : (
          <>
            <div class="left">
          {tabs}
          {section === "diff" ? (
            <FileTree task={task} files={list} error={list ? "" : files.error} selected={path} retry={files.reload} />
          ) : left === "timeline" ? (
            <Timeline task={task} log={t.log} version={t.version} selected={section === "changes" ? Number(arg) : 0} now={now} onRevert={revert} fresh={t.fresh} checkpoints={checkpoints.data} />
          ) : (
            <FileList task={task} files={list} error={list ? "" : files.error} selected={path} retry={files.reload} />
          )}
        </div>
        <div class="right">
          {section === "diff" ? (
            <section class="detail" aria-label="Whole diff">
              <a class="back" href={to(base)}>
                <Icon name="back" /> Timeline
              </a>
              <DiffPane
                url={taskURL(task, "/diff")}
                path=""
                files
                file={text(path, encoding)}
                label="Diff of the task"
                version={t.settled}
                empty="No net change: no file differs."
              />
            </section>
          ) : section === "compare" ? (
            <Compare task={task} log={t.log} version={t.version} route={p.route} />
          ) : section === "changes" ? (
            <ChangeDetail key={arg} task={task} id={Number(arg)} log={t.log} version={t.version} now={now} onRevert={revert} />
          ) : section === "files" && path ? (
            <FileDetail key={path} task={task} path={path} encoding={encoding} file={fileOf} version={t.settled} onRevert={revert} />
          ) : section === "history" && path ? (
            <HistoryDetail key={path} task={task} path={path} encoding={encoding} at={q.get("at") ?? ""} view={q.get("view") ?? ""} now={now} version={t.settled} onRevert={revert} />
          ) : (
            <>
              <a class="back" href={to(base)}>
                <Icon name="back" /> Timeline
              </a>
              <Overview task={task} files={list} now={now} onRevert={revert} />
            </>
          )}
        </div>
          </>
        )}
      </div>
      {scope && (
        <RevertDialog
          key={JSON.stringify(scope)}
          workspace={task.workspace_id}
          task={task}
          scope={scope}
          actors={actorsOf(t.log, scope)}
          onClose={() => setScope(null)}
          onUndo={(commit) => setScope({ kind: "commit", commit, undo: true })}
        />
      )}
    </div>
  );
}

