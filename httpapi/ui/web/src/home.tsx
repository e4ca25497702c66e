// The first page: workspaces, and the tasks on them.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { getJSON } from "./api";
import { AtWork } from "./atwork";
import { Agent, Command, ErrorBox, Loading, StatusChip, Time, useKeys, useLoad, useNow, usePoll } from "./bits";
import { count, num } from "./format";
import { to } from "./route";
import type { Entry, Status, Task, Workspace } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

const statuses: Status[] = ["executing", "paused", "completed", "failed", "cancelled"];
const refresh = 5000;
const page = 200;

/** useTasks keeps the list as the server has it, as long as the page is visible. */
function useTasks(status: string, workspace: string) {
  const url = `/tasks?limit=${page}${status ? `&status=${status}` : ""}${workspace ? `&workspace=${encodeURIComponent(workspace)}` : ""}`;
  const wanted = useRef({ url, tasks: page });
  if (wanted.current.url !== url) wanted.current = { url, tasks: page };
  const list = usePoll(
    async (signal) => {
      let tasks: Task[] = [];
      let next: string | null = null;
      do {
        const answer: { tasks: Task[]; next: string | null } = await getJSON(`${url}${next ? `&after=${encodeURIComponent(next)}` : ""}`, signal);
        tasks = tasks.concat(answer.tasks);
        next = answer.next;
      } while (next && tasks.length < wanted.current.tasks);
      return { tasks, next };
    },
    refresh,
    [url],
  );
  const more = () => {
    wanted.current.tasks += page;
    list.reload();
  };
  return { tasks: list.data?.tasks ?? null, next: list.data?.next ?? null, error: list.error, retry: list.reload, more };
}

/** Actor is who made a task's last change, requested when its row is visible. */
const actors = new Map<string, Promise<string>>();

function Actor(p: { task: Task }) {
  const [name, set] = useState("");
  const key = `${p.task.task_id} ${p.task.changes}`;
  useEffect(() => {
    if (p.task.changes === 0) return;
    let gone = false;
    let asked = actors.get(key);
    if (!asked) {
      asked = getJSON<{ entries: Entry[] }>(`/tasks/${encodeURIComponent(p.task.task_id)}/changes?after=${p.task.changes - 1}&limit=1`).then((a) => a.entries[0]?.actor ?? "");
      if (actors.size > 2000) actors.clear();
      actors.set(key, asked);
    }
    asked.then((n) => gone || set(n)).catch(() => actors.delete(key));
    return () => {
      gone = true;
    };
  }, [key]);
  return name ? <span>by <Agent name={name} /></span> : null;
}

export function Home() {
  const now = useNow();
  const [status, setStatus] = useState("");
  const [workspace, setWorkspace] = useState("");
  const [filter, setFilter] = useState("");
  const workspaces = useLoad(async (signal) => (await getJSON<{ workspaces: Workspace[] }>("/workspaces", signal)).workspaces, []);
  const list = useTasks(status, workspace);
  const names = useMemo(() => new Map(workspaces.data?.map((w) => [w.id, w.root ? w.root.split("/").pop() || w.root : w.id])), [workspaces.data]);
  const handle = useRef<ListHandle | null>(null);
  const at = useRef(-1);
  const shown = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    return (list.tasks ?? []).filter((t) => {
      const hay = `${t.goal} ${t.task_id} ${t.workspace ?? t.workspace_id} ${t.subtasks.map((s) => s.id).join(" ")}`.toLowerCase();
      return words.every((w) => hay.includes(w));
    });
  }, [list.tasks, filter]);
  const step = (by: number) => {
    at.current = Math.max(0, Math.min(shown.length - 1, at.current + by));
    const t = shown[at.current];
    if (!t) return;
    handle.current?.scrollTo(at.current);
    requestAnimationFrame(() => document.querySelector<HTMLElement>(`[data-task="${CSS.escape(t.task_id)}"]`)?.focus());
  };
  useKeys({ j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1) });
  useEffect(() => {
    document.title = "umbra";
  }, []);
  return (
    <div class="home">
      <aside aria-label="Workspaces">
        <h2>Workspaces</h2>
        {workspaces.error && <ErrorBox error={workspaces.error} retry={workspaces.reload} />}
        {!workspaces.data && !workspaces.error && <Loading what="the workspaces" />}
        <ul class="workspaces">
          {workspaces.data?.map((w) => (
            <li key={w.id}>
              <a href={to(["workspaces", w.id])}>
                <b>{w.root ? w.root.split("/").pop() || w.root : w.id}</b>
                <span class="dim root">{w.root ?? "virtual"}</span>
                <span class="dim">
                  {count(w.tasks, "task")}
                  {w.state !== "clean" && <span class="tag warn">{w.state}</span>}
                  {w.warnings.length > 0 && <span class="tag warn">{count(w.warnings.length, "warning")}</span>}
                </span>
              </a>
            </li>
          ))}
        </ul>
        {workspaces.data?.length === 0 && <p class="dim">None yet. The first task on a folder makes it one.</p>}
      </aside>
      <section class="tasks" aria-label="Tasks">
        <AtWork names={names} />
        <h1>Tasks</h1>
        {(filter || status || workspace || list.tasks?.length !== 0) && (
          <div class="tools">
            <input type="search" class="filter" data-search aria-label="Filter the tasks" placeholder="Filter by goal, id, folder, subtask" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
            <select aria-label="State" value={status} onChange={(e) => setStatus(e.currentTarget.value)}>
              <option value="">any state</option>
              {statuses.map((s) => (
                <option key={s} value={s}>
                  {s}
                </option>
              ))}
            </select>
            <select aria-label="Workspace" value={workspace} onChange={(e) => setWorkspace(e.currentTarget.value)}>
              <option value="">any workspace</option>
              {workspaces.data?.map((w) => (
                <option key={w.id} value={w.id}>
                  {w.root ? w.root.split("/").pop() : w.id}
                </option>
              ))}
            </select>
          </div>
        )}
        {list.error && <ErrorBox error={list.error} retry={list.retry} />}
        {!list.tasks && !list.error && <Loading what="the tasks" />}
        {list.tasks && (
          <VirtualList
            handle={handle}
            label="Tasks, list"
            data={shown}
            count={shown.length}
            keyOf={(i) => shown[i]!.task_id}
            estimate={() => 72}
            empty={
              filter || status || workspace ? (
                list.next ? `No task fits of the ${num(list.tasks.length)} that are loaded.` : "No task fits."
              ) : (
                <div class="welcome">
                  <p>No task yet. Wire the agents on this machine, then work with them as before:</p>
                  <Command line="umbra init" />
                  <p>Or see two scripted agents at work:</p>
                  <Command line="umbra demo" />
                  <p>Or give an agent this server's tools over MCP:</p>
                  <Command line={`claude mcp add --transport http umbra ${location.origin}/mcp`} />
                  <p>
                    Every route: <a href="/docs">the API</a>.
                  </p>
                </div>
              )
            }
            row={(i) => {
              const t = shown[i]!;
              return (
                <div class="task-row" role="listitem" key={t.task_id} aria-setsize={shown.length} aria-posinset={i + 1}>
                  <a href={to(["tasks", t.task_id])} data-task={t.task_id}>
                    <span class="line1">
                      <StatusChip status={t.status} />
                      <span class="goal">{t.goal}</span>
                    </span>
                    <span class="meta">
                      <span class="id">{t.task_id}</span>
                      <span>{t.workspace ? t.workspace.split("/").pop() : "virtual"}</span>
                      <span>{count(t.changes, "change")}</span>
                      {t.subtasks.length > 0 && <span>{count(t.subtasks.length, "subtask")}</span>}
                      <Actor task={t} />
                      <Time at={t.updated} now={now} />
                    </span>
                  </a>
                </div>
              );
            }}
          />
        )}
        {list.next && (
          <p class="state">
            <button type="button" class="link" onClick={list.more}>
              Load more than {num(list.tasks?.length ?? 0)}
            </button>
          </p>
        )}
      </section>
    </div>
  );
}

