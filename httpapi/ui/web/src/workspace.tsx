// A workspace: its state, its tasks, its log; one commit of it; the search.

import { useEffect, useState } from "preact/hooks";

import { getJSON, inURL, postJSON, sentence, text } from "./api";
import { AtWork } from "./atwork";
import { Checkpoints, useCheckpoints } from "./checkpoints";
import { Content } from "./content";
import { Command, ErrorBox, Field, Icon, Loading, OpBadge, PathName, StatusChip, Time, useKeys, useLoad, useNow } from "./bits";
import { count, exact, short, visible, who } from "./format";
import { LogList } from "./log";
import { RevertDialog, type Scope } from "./revert";
import { go, type Route, to } from "./route";
import { follow } from "./stream";
import type { Commit, StreamData, Task, Workspace } from "./types";
import { DiffPane } from "./viewer";

interface Skip {
  path: string;
  path_encoding?: string;
  reason: string;
}

function nameOf(w: Workspace): string {
  return w.root ? w.root.split("/").pop() || w.root : w.id;
}

export function WorkspacePage(p: { id: string }) {
  const now = useNow();
  const base = `/workspaces/${encodeURIComponent(p.id)}`;
  const loaded = useLoad((signal) => getJSON<Workspace>(base, signal), [p.id]);
  const tasks = useLoad(async (signal) => (await getJSON<{ tasks: Task[] }>(`/tasks?limit=100&workspace=${encodeURIComponent(p.id)}`, signal)).tasks, [p.id]);
  const coverage = useLoad((signal) => getJSON<{ skipped: Skip[]; tracked: number; ignored: number }>(`${base}/coverage`, signal), [p.id]);
  const [news, setNews] = useState(0);
  const [version, setVersion] = useState(0);
  const [marks, setMarks] = useState(0);
  const checkpoints = useCheckpoints(p.id, marks + version);
  const [syncing, setSyncing] = useState("");
  const [working, setWorking] = useState(false);
  const [scope, setScope] = useState<Scope | null>(null);
  useKeys({ u: () => go(to([])) });

  useEffect(() => {
    setNews(0);
    return follow({
      path: () => `${base}/stream`,
      after: null,
      state: () => {},
      more: () => true,
      missed: () => {
        tasks.reload();
        coverage.reload();
        setVersion((n) => n + 1);
        setNews(0);
      },
      event: (e) => {
        if (e.name === "change" || e.name === "revert") setNews((n) => n + (JSON.parse(e.data) as StreamData).entries.length);
      },
    });
  }, [p.id]);

  const w = loaded.data;
  useEffect(() => {
    if (w) document.title = `${nameOf(w)} · umbra`;
  }, [w]);
  if (loaded.error) return <ErrorBox error={loaded.error} retry={loaded.reload} />;
  if (!w) return <Loading what="the workspace" />;
  const sync = () => {
    setWorking(true);
    setSyncing("Reading the disk …");
    const synced = postJSON<{ changed: number }>(`${base}/sync`, {}).then(
      (r) => {
        setSyncing(r.changed > 0 ? `${count(r.changed, "change")} found.` : "Nothing had changed.");
        setVersion((n) => n + 1);
        setNews(0);
      },
      (e) => setSyncing(sentence(e)),
    );
    void synced.finally(() => setWorking(false));
  };
  const clone = `git clone ${location.origin}/git/${w.id}.git`;
  return (
    <div class="workspace">
      <header class="task-head">
        <div class="title">
          <h1>{nameOf(w)}</h1>
          <p class="meta">
            <span class={`chip ${w.state}`}>{w.state}</span> <span>{w.root ?? "virtual, without a folder"}</span> · <span class="id">{w.id}</span>
            {w.fork_of && (
              <>
                {" "}
                · {w.kind} fork of <a href={to(["workspaces", w.fork_of])}>{w.fork_of}</a>
              </>
            )}
          </p>
        </div>
        <div class="acts">
          <a class="button" href={to(["workspaces", w.id, "forks"])}>
            Forks
          </a>
          {w.fork_of && (
            <>
              <a class="button" href={to(["workspaces", w.id, "compare"])}>
                Compare
              </a>
              <a class="button" href={to(["workspaces", w.id, "rebase"])}>
                Bring news …
              </a>
              <a class="button" href={to(["workspaces", w.id, "merge"])}>
                Merge …
              </a>
            </>
          )}
          {w.root && (
            <button type="button" disabled={working} onClick={sync}>
              Sync with the disk
            </button>
          )}
        </div>
      </header>
      <AtWork workspace={w.id} />
      {syncing && (
        <p class="notice" role="status">
          {syncing}
        </p>
      )}
      {w.warnings.map((warning) => (
        <p class="notice" key={warning}>
          {warning}
        </p>
      ))}
      <div class="columns">
        <section class="about" aria-label="About the workspace">
          <h2>Tasks</h2>
          {tasks.error && <ErrorBox error={tasks.error} retry={tasks.reload} />}
          <ul class="subtasks">
            {tasks.data?.map((t) => (
              <li key={t.task_id}>
                <StatusChip status={t.status} />
                <a href={to(["tasks", t.task_id])} class="name">
                  {t.goal}
                </a>
                <span class="dim">{count(t.changes, "change")}</span>
              </li>
            ))}
          </ul>
          {tasks.data?.length === 0 && <p class="dim">No task.</p>}
          <Checkpoints
            workspace={w.id}
            now={now}
            onMade={() => setMarks((n) => n + 1)}
            onRestored={() => {
              setVersion((n) => n + 1);
              setNews(0);
            }}
            onUndo={(commit) => setScope({ kind: "commit", commit, undo: true })}
          />
          {scope && <RevertDialog key={JSON.stringify(scope)} workspace={w.id} scope={scope} onClose={() => setScope(null)} onUndo={(commit) => setScope({ kind: "commit", commit, undo: true })} />}
          <h2>Recorded</h2>
          {coverage.data ? (
            <>
              <p class="dim">
                {count(coverage.data.tracked, "file")} tracked, {count(coverage.data.ignored, "path")} ignored{coverage.data.skipped.length > 0 ? `, ${coverage.data.skipped.length} left out:` : "."}
              </p>
              <ul class="skipped">
                {coverage.data.skipped.slice(0, 100).map((s) => (
                  <li key={s.path}>
                    <PathName path={s.path} encoding={s.path_encoding} /> <span class="tag warn">{s.reason}</span>
                  </li>
                ))}
              </ul>
            </>
          ) : (
            <p class="dim">{coverage.error || "Loading …"}</p>
          )}
          <h2>With git</h2>
          <Command line={clone} />
        </section>
        <section class="about wide" aria-label="Log of the workspace">
          <h2>Log</h2>
          {news > 0 && (
            <p class="notice" role="status">
              {count(news, "new change")}.{" "}
              <button
                type="button"
                class="link"
                onClick={() => {
                  setNews(0);
                  setVersion((n) => n + 1);
                }}
              >
                Show
              </button>
            </p>
          )}
          <LogList sources={[{ workspace: w.id, name: nameOf(w) }]} query={{ path: "", actor: "" }} now={now} label="Changes of the workspace" version={version} checkpoints={checkpoints.data} />
        </section>
      </div>
    </div>
  );
}

export function CommitPage(p: { workspace: string; commit: string; route: Route }) {
  const now = useNow();
  const base = `/workspaces/${encodeURIComponent(p.workspace)}/commits/${encodeURIComponent(p.commit)}`;
  const loaded = useLoad((signal) => getJSON<Commit>(base, signal), [p.workspace, p.commit]);
  const path = p.route.query.get("path") ?? "";
  const encoding = p.route.query.get("enc") ?? undefined;
  const [scope, setScope] = useState<Scope | null>(null);
  useKeys({ u: () => go(to(["workspaces", p.workspace])) });
  const c = loaded.data;
  if (loaded.error) return <ErrorBox error={loaded.error} retry={loaded.reload} />;
  if (!c) return <Loading what="the commit" />;
  const most = 200;
  return (
    <div class="commit">
      <header class="task-head">
        <div class="title">
          <a class="back" href={to(["workspaces", p.workspace])}>
            <Icon name="back" /> Workspace
          </a>
          <h1>{visible(c.subject)}</h1>
          <p class="meta">
            <code>{short(c.commit)}</code> by <b>{who(c)}</b>, <span title={exact(c.timestamp)}><Time at={c.timestamp} now={now} /></span>
            {c.task_id ? (
              <>
                {" "}
                in task <a href={to(["tasks", c.task_id])}>{c.task_id}</a>
              </>
            ) : (
              ", of no task"
            )}
            {c.subtask_id && <>, subtask <b>{c.subtask_id}</b></>}
            <span class={`tag ${c.source}`}>{c.source === "external" ? "made outside the server" : c.source}</span>
          </p>
        </div>
        {c.source !== "baseline" && c.source !== "rollback" && (
          <div class="acts">
            {c.actor !== "" && c.source !== "external" && (
              <button type="button" onClick={() => setScope({ kind: "actor", actor: c.actor })}>
                Revert all by {visible(c.actor)} …
              </button>
            )}
            <button type="button" class="danger" onClick={() => setScope({ kind: "commit", commit: c.commit, undo: c.source === "revert", task: c.task_id ?? undefined })}>
              Revert commit …
            </button>
          </div>
        )}
      </header>
      {scope && (
        <RevertDialog
          key={JSON.stringify(scope)}
          workspace={p.workspace}
          scope={scope}
          onClose={() => setScope(null)}
          onUndo={(commit) => setScope({ kind: "commit", commit, undo: true })}
        />
      )}
      {c.entries.length > 1 && (
        <ul class="entries" aria-label="Files of the commit" tabIndex={0}>
          {c.entries.slice(0, most).map((e) => (
            <li key={`${e.operation} ${e.path}`}>
              <a href={to(["workspaces", p.workspace, "commits", p.commit], { path: e.new_path ?? e.path, enc: e.path_encoding })} aria-current={(e.new_path ?? e.path) === path ? "true" : undefined}>
                <OpBadge operation={e.operation} source={e.source} /> <PathName path={e.path} encoding={e.path_encoding} to={e.new_path} />
              </a>
            </li>
          ))}
          {c.entries.length > most && <li class="dim">and {count(c.entries.length - most, "file")} more</li>}
        </ul>
      )}
      <DiffPane key={path} url={`${base}/diff${path ? `?path=${inURL(path, encoding)}` : ""}`} path={text(path || c.entries[0]?.path || "", encoding)} files={!path} label="Diff of the commit" />
    </div>
  );
}

export function SearchPage(p: { route: Route }) {
  const now = useNow();
  const q = p.route.query;
  const [content, setContent] = useState(q.get("text") ?? "");
  const [path, setPath] = useState(q.get("path") ?? "");
  const [actor, setActor] = useState(q.get("actor") ?? "");
  const [workspace, setWorkspace] = useState(q.get("ws") ?? "");
  const workspaces = useLoad(async (signal) => (await getJSON<{ workspaces: Workspace[] }>("/workspaces", signal)).workspaces, []);
  useEffect(() => {
    document.title = "Search · umbra";
  }, []);
  const wanted = q.get("text") ?? "";
  // A link into the page fills the form, too.
  useEffect(() => {
    setContent(q.get("text") ?? "");
    setPath(q.get("path") ?? "");
    setActor(q.get("actor") ?? "");
    setWorkspace(q.get("ws") ?? "");
  }, [q.toString()]);
  const asked = { path: q.get("path") ?? "", actor: q.get("actor") ?? "" };
  const sources = (workspaces.data ?? []).filter((w) => !q.get("ws") || w.id === q.get("ws")).map((w) => ({ workspace: w.id, name: nameOf(w) }));
  return (
    <div class="search">
      <h1>Search</h1>
      <form
        role="search"
        class="tools"
        onSubmit={(e) => {
          e.preventDefault();
          go(to(["search"], { text: content, path: path.trim(), actor: actor.trim(), ws: workspace }));
        }}
      >
        <Field label="Text">
          <input type="search" data-search value={content} placeholder="in files and history" spellcheck={false} onInput={(e) => setContent(e.currentTarget.value)} />
        </Field>
        <Field label="Path">
          <input type="search" value={path} placeholder="src/app" spellcheck={false} onInput={(e) => setPath(e.currentTarget.value)} />
        </Field>
        <Field label="Actor">
          <input type="search" value={actor} placeholder="claude" spellcheck={false} onInput={(e) => setActor(e.currentTarget.value)} />
        </Field>
        <Field label="Workspace">
          <select value={workspace} onChange={(e) => setWorkspace(e.currentTarget.value)}>
            <option value="">all</option>
            {workspaces.data?.map((w) => (
              <option key={w.id} value={w.id}>
                {nameOf(w)}
              </option>
            ))}
          </select>
        </Field>
        <button type="submit" class="primary">
          Search
        </button>
      </form>
      {workspaces.error && <ErrorBox error={workspaces.error} retry={workspaces.reload} />}
      {wanted ? (
        sources.length > 0 && <Content sources={sources} text={wanted} path={asked.path} now={now} />
      ) : asked.path || asked.actor ? (
        sources.length > 0 && <LogList sources={sources} query={asked} now={now} label="Found changes" version={0} />
      ) : (
        <p class="dim">A text in files and history; or who changed what: a part of a path, a part of an actor's name, or both.</p>
      )}
    </div>
  );
}

