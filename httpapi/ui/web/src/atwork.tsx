// Who is at work now: agents with an open call, or one that ended a moment ago.

import { useEffect, useMemo, useState } from "preact/hooks";

import { getJSON } from "./api";
import { Agent, usePoll } from "./bits";
import { visible } from "./format";
import { to } from "./route";
import type { Call } from "./types";

/** idle is for how many seconds an agent between two tools is still shown. */
const idle = 120;
const refresh = 2000;

interface Worker {
  agent: string;
  /** label distinguishes two sessions of one agent; empty where there is one. */
  label: string;
  task: string;
  workspace: string;
  open: Call[];
  /** since is when the oldest open call began, or when the last one ended. */
  since: string;
}

/** useRecent keeps the calls that are open or ended shortly ago, as long as the page is visible. */
function useRecent(workspace: string): Call[] {
  const url = `/calls?within_s=${idle}&limit=1000${workspace ? `&workspace_id=${encodeURIComponent(workspace)}` : ""}`;
  const { data, error } = usePoll(async (signal) => (await getJSON<{ calls: Call[] }>(url, signal)).calls, refresh, [url]);
  return error ? none : (data ?? none); // the page says that the server is out of reach
}

const none: Call[] = [];

/** workersOf groups calls by the sessions of agents, those at work first. */
export function workersOf(calls: Call[]): Worker[] {
  const by = new Map<string, Worker>();
  for (const c of calls) {
    const key = `${c.workspace_id} ${c.task_id}`;
    let w = by.get(key);
    if (!w) by.set(key, (w = { agent: c.agent ?? "agent", label: "", task: c.task_id, workspace: c.workspace_id, open: [], since: "" }));
    if (c.status === "open") {
      if (w.open.length === 0 || c.begun < w.since) w.since = c.begun;
      w.open.push(c);
    } else if (w.open.length === 0 && c.ended && c.ended > w.since) w.since = c.ended;
  }
  const list = [...by.values()];
  for (const w of list) if (list.some((o) => o !== w && o.agent === w.agent)) w.label = w.task.slice(-4);
  return list.sort((a, b) => Number(b.open.length > 0) - Number(a.open.length > 0) || (a.agent + a.task < b.agent + b.task ? -1 : 1));
}

/** span is how long ago a time was, in one short word. */
function span(at: string, now: number): string {
  const s = Math.max(0, Math.round((now - Date.parse(at)) / 1000));
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;
}

/** doing is what an agent does, in words. */
function doing(w: Worker, now: number): string {
  if (w.open.length === 0) return `${span(w.since, now)} ago`;
  const tools = [...new Set(w.open.map((c) => visible(c.tool ?? "a tool")))];
  return `${tools.slice(0, 3).join(", ")}${tools.length > 3 ? " …" : ""}, ${span(w.since, now)}`;
}

/** AtWork is the strip of agents at work: of one workspace, or with names of all of them. It is not there while none is. */
export function AtWork(p: { workspace?: string; names?: Map<string, string>; task?: string }) {
  const calls = useRecent(p.workspace ?? "");
  const workers = useMemo(() => workersOf(calls), [calls]);
  const [now, setNow] = useState(Date.now());
  const some = workers.length > 0;
  useEffect(() => {
    if (!some) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [some]);
  if (!some) return null;
  return (
    <section class="at-work" aria-label="At work now">
      <h2>At work</h2>
      <ul>
        {workers.map((w) => (
          <li key={`${w.workspace} ${w.task}`}>
            <a href={to(["tasks", w.task])} class={w.open.length > 0 ? "busy" : ""} aria-current={w.task === p.task ? "true" : undefined}>
              <Agent name={w.agent} />
              {w.label && <span class="id">{w.label}</span>}
              <span class="dim">
                {p.names && `${p.names.get(w.workspace) ?? w.workspace}: `}
                {doing(w, now)}
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}
