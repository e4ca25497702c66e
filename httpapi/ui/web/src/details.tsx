// The right side of a task's page: a change, a file, a file's history, the overview.

import { useState } from "preact/hooks";

import { Against, announce, Command, Counts, ErrorBox, Icon, Loading, OpBadge, PathName, StatusChip, Time, useKeys, useLoad } from "./bits";
import { download, getJSON, inURL, sentence, text, token } from "./api";
import type { Changelog } from "./changelog";
import { count, exact, num, operation, short, split, turnName, undoPrefix, who } from "./format";
import type { Scope } from "./revert";
import { sidesOf } from "./images";
import { go, to } from "./route";
import type { Entry, FileChange, Task } from "./types";
import { DiffPane, VersionPane } from "./viewer";

export function taskURL(task: Task, rest = ""): string {
  return `/tasks/${encodeURIComponent(task.task_id)}${rest}`;
}

/** Save is a link to an answer, or a button that fetches it where a token is needed. */
export function Save(p: { url: string; name: string; children: string; class?: string }) {
  const [error, setError] = useState("");
  if (!token())
    return (
      <a class={p.class ?? "button"} href={p.url} download={p.name}>
        {p.children}
      </a>
    );
  return (
    <button
      type="button"
      class={p.class}
      title={error}
      onClick={() =>
        download(p.url, p.name).catch((e) => {
          setError(sentence(e));
          announce(sentence(e));
        })
      }
    >
      {p.children}
    </button>
  );
}

function Back(p: { href: string; what: string }) {
  useKeys({ u: () => go(p.href) }, true);
  return (
    <a class="back" href={p.href}>
      <Icon name="back" /> {p.what}
    </a>
  );
}

export function ChangeDetail(p: { task: Task; id: number; log: Changelog; version: number; now: number; onRevert: (s: Scope) => void }) {
  const loaded = useLoad(async (signal) => {
    const page = await getJSON<{ entries: Entry[] }>(taskURL(p.task, `/changes?after=${p.id - 1}&limit=1`), signal);
    const e = page.entries[0];
    if (!e || e.id !== p.id) throw new Error(`The task has no change ${p.id}.`);
    return e;
  }, [p.task.task_id, p.id]);
  const e = loaded.data;
  const undone = p.log.undone.has(p.id);
  const isRevert = e?.source === "revert";
  const revert = () => {
    if (!e || undone) return;
    p.onRevert(isRevert ? { kind: "commit", commit: e.commit, undo: true } : { kind: "change", id: p.id });
  };
  const path = e ? (e.new_path ?? e.path) : "";
  const historyOf = e ? to(["tasks", p.task.task_id, "history"], { path, enc: e.path_encoding, at: e.commit }) : "";
  useKeys({ r: revert, ...(e ? { h: () => go(historyOf) } : {}) }, true);
  return (
    <section class="detail" aria-label={`Change ${p.id}`}>
      <Back href={to(["tasks", p.task.task_id])} what="Timeline" />
      {loaded.error && <ErrorBox error={loaded.error} retry={loaded.reload} />}
      {!e && !loaded.error && <Loading what="the change" />}
      {e && (
        <>
          <header class="detail-head">
            <h2>
              <OpBadge operation={e.operation} source={e.source} /> <PathName path={e.path} encoding={e.path_encoding} to={e.new_path} />
            </h2>
            <p class="meta">
              #{e.id} {operation(e.operation).word} by <b>{who(e)}</b>, <span title={exact(e.timestamp)}><Time at={e.timestamp} now={p.now} /></span>
              {e.subtask_id && (
                <>
                  {" "}
                  in <b title={e.subtask_id}>{turnName(e.subtask_id)}</b>
                </>
              )}
              {e.tool && (
                <>
                  {" "}
                  with <b>{e.tool}</b>
                </>
              )}
              {e.model && <> ({e.model})</>}
              {e.certainty && <span class="tag call">{e.certainty}</span>}
              {e.source !== "api" && e.source !== "call" && <span class={`tag ${e.source}`}>{e.source === "external" ? "made outside the server" : e.source}</span>}
              <Against rules={e.policy} />
              {undone && <span class="tag">undone</span>}
              {e.reverts && e.reverts.length > 0 && <span> undoes {e.reverts.length > 8 ? count(e.reverts.length, "change") : e.reverts.map((n) => `#${n}`).join(", ")}</span>} · commit{" "}
              <a href={to(["workspaces", p.task.workspace_id, "commits", e.commit])}>{short(e.commit)}</a>
            </p>
          </header>
          {e.operation === "mkdir" || e.operation === "rmdir" ? (
            <div class="viewer">
              <div class="tools">
                <span class="space" />
                <RevertButton undone={undone} isRevert={isRevert} onClick={revert} />
              </div>
              <p class="notice">An empty folder has no lines.</p>
            </div>
          ) : (
            <DiffPane
              url={`/workspaces/${encodeURIComponent(p.task.workspace_id)}/commits/${e.commit}/diff?task_id=${encodeURIComponent(p.task.task_id)}&change_id=${p.id}`}
              path={text(path, e.path_encoding)}
              label={`Diff of change ${p.id}`}
              images={{
                before: e.before_snapshot ? taskURL(p.task, `/changes/${p.id}/before`) : null,
                after: e.after_hash ? taskURL(p.task, `/content?path=${inURL(path, e.path_encoding)}&at=${e.commit}`) : null,
              }}
              tools={
                <>
                  <a class="button" href={historyOf}>
                    History
                  </a>
                  {e.call_id && !undone && (
                    <button type="button" onClick={() => p.onRevert({ kind: "call", id: e.call_id!, tool: e.tool ?? "" })}>
                      Undo the call …
                    </button>
                  )}
                  <RevertButton undone={undone} isRevert={isRevert} onClick={revert} />
                </>
              }
            />
          )}
        </>
      )}
    </section>
  );
}

function RevertButton(p: { undone: boolean; isRevert: boolean; onClick: () => void }) {
  return (
    <button type="button" class="primary" disabled={p.undone} onClick={p.onClick}>
      {p.undone ? "Undone already" : p.isRevert ? "Undo this revert …" : "Revert this change …"}
    </button>
  );
}

export function FileDetail(p: { task: Task; path: string; encoding: string | undefined; file: FileChange | undefined; version: number; onRevert: (s: Scope) => void }) {
  const query = inURL(p.path, p.encoding);
  const historyOf = to(["tasks", p.task.task_id, "history"], { path: p.path, enc: p.encoding });
  const revert = () => p.onRevert({ kind: "file", path: p.path, encoding: p.encoding });
  useKeys({ r: revert, h: () => go(historyOf) }, true);
  const name = split(text(p.path, p.encoding))[1];
  return (
    <section class="detail" aria-label={`File ${name}`}>
      <Back href={to(["tasks", p.task.task_id, "files"])} what="Files" />
      <header class="detail-head">
        <h2>
          <PathName path={p.file?.from ?? p.path} encoding={p.encoding} to={p.file?.from ? p.path : null} />
        </h2>
        {p.file && (
          <p class="meta">
            {p.file.status}
            {p.file.subtasks.length > 0 && <> in {p.file.subtasks.join(", ")}</>}
          </p>
        )}
      </header>
      <DiffPane
        key={p.path}
        url={taskURL(p.task, `/diff?path=${query}`)}
        path={text(p.path, p.encoding)}
        label={`Diff of ${name}`}
        version={p.version}
        empty="No net change to this file."
        images={{
          before: p.file?.before ? taskURL(p.task, `/content?path=${inURL(p.file.from ?? p.path, p.encoding)}&at=base`) : null,
          after: p.file?.after ? taskURL(p.task, `/content?path=${query}`) : null,
        }}
        tools={
          <>
            {p.file?.after && (
              <Save url={taskURL(p.task, `/content?path=${query}`)} name={name}>
                Download
              </Save>
            )}
            {p.file?.after && (
              <a class="button" href={`${historyOf}&view=file`}>
                Whole file
              </a>
            )}
            <a class="button" href={historyOf}>
              History
            </a>
            <button type="button" class="primary" onClick={revert}>
              Revert file …
            </button>
          </>
        }
      />
    </section>
  );
}

export function HistoryDetail(p: { task: Task; path: string; encoding: string | undefined; at: string; view: string; now: number; version: number; onRevert: (s: Scope) => void }) {
  const query = inURL(p.path, p.encoding);
  const loaded = useLoad(
    (signal) => getJSON<{ entries: Entry[]; next: string | null }>(`/workspaces/${encodeURIComponent(p.task.workspace_id)}/log?limit=500&path=${query}`, signal),
    [p.task.workspace_id, p.path, p.version],
  );
  const entries = loaded.data?.entries ?? [];
  const at = p.at || entries[0]?.commit || "";
  const chosen = entries.find((e) => e.commit === at);
  const name = split(text(p.path, p.encoding))[1];
  const address = (commit: string, view: string) => to(["tasks", p.task.task_id, "history"], { path: p.path, enc: p.encoding, at: commit, view });
  const older = entries.find((e) => e.operation === "rename" && e.new_path === p.path);
  const version = at ? taskURL(p.task, `/content?path=${query}&at=${at}`) : "";
  const revert = () => {
    if (!chosen || chosen.source === "baseline") return;
    p.onRevert(chosen.task_id === p.task.task_id && chosen.id !== null && chosen.source !== "revert" ? { kind: "change", id: chosen.id } : { kind: "commit", commit: chosen.commit, undo: chosen.source === "revert" });
  };
  useKeys({ r: revert }, true);
  // An image's version before a change is the task's to give, or that of the change before.
  const imagesOf = (e: Entry | undefined) => {
    if (!e) return undefined;
    const older = entries[entries.indexOf(e) + 1];
    const before = e.task_id === p.task.task_id && e.id !== null ? taskURL(p.task, `/changes/${e.id}/before`) : older && taskURL(p.task, `/content?path=${query}&at=${older.commit}`);
    return before || !e.before_snapshot ? { before: e.before_snapshot ? before! : null, after: e.after_hash ? version : null } : undefined;
  };
  const views: [string, string][] = [
    ["", "What changed"],
    ["file", "This version"],
    ["since", "Changes since"],
  ];
  return (
    <section class="detail" aria-label={`History of ${name}`}>
      <Back href={to(["tasks", p.task.task_id, "files"], { path: p.path, enc: p.encoding })} what="File" />
      <header class="detail-head">
        <h2>
          History of <PathName path={p.path} encoding={p.encoding} />
        </h2>
      </header>
      {loaded.error && <ErrorBox error={loaded.error} retry={loaded.reload} />}
      {!loaded.data && !loaded.error && <Loading what="the history" />}
      {loaded.data && entries.length === 0 && <p class="notice">No change of this file is recorded: it is as the task found it, or it is not there.</p>}
      {entries.length > 0 && (
        <ol class="versions" aria-label="Versions" tabIndex={0}>
          {entries.map((e) => (
            <li key={`${e.commit} ${e.operation} ${e.path}`}>
              <a href={address(e.commit, p.view)} aria-current={e.commit === at ? "true" : undefined}>
                <OpBadge operation={e.operation} source={e.source} />
                <span>
                  {operation(e.operation).word} by <b>{who(e)}</b> <Time at={e.timestamp} now={p.now} />
                  <span class="dim">
                    {" "}
                    · {e.task_id ? (e.task_id === p.task.task_id ? `#${e.id}` : `task ${e.task_id}`) : "no task"}
                    {e.subtask_id && `, ${turnName(e.subtask_id)}`} · {short(e.commit)}
                  </span>
                </span>
              </a>
            </li>
          ))}
          {older && (
            <li>
              <a href={to(["tasks", p.task.task_id, "history"], { path: older.path, enc: older.path_encoding })}>
                Before that it was <PathName path={older.path} encoding={older.path_encoding} />
              </a>
            </li>
          )}
        </ol>
      )}
      {at && entries.length > 0 && (
        <>
          <nav class="tabs" aria-label="What to show of the version">
            {views.map(([v, label]) => (
              <a key={v} href={address(at, v)} aria-current={p.view === v ? "page" : undefined}>
                {label}
              </a>
            ))}
          </nav>
          {p.view === "file" ? (
            <VersionPane
              key={`${p.path} ${at}`}
              url={version}
              path={text(p.path, p.encoding)}
              label={`${name} at ${short(at)}`}
              blame={{ workspace: p.task.workspace_id, path: p.path, encoding: p.encoding, at }}
              tools={
                <Save url={version} name={name}>
                  Download this version
                </Save>
              }
            />
          ) : p.view === "since" ? (
            <DiffPane key={`since ${at}`} url={taskURL(p.task, `/diff?path=${query}&from=${at}&to=head`)} path={text(p.path, p.encoding)} label={`Changes of ${name} since ${short(at)}`} images={sidesOf(p.task.task_id, query, at, undefined)} empty="Nothing has changed since." />
          ) : (
            <DiffPane
              key={`diff ${at}`}
              url={`/workspaces/${encodeURIComponent(p.task.workspace_id)}/commits/${at}/diff?path=${query}`}
              path={text(p.path, p.encoding)}
              label={`What changed in ${name} at ${short(at)}`}
              images={imagesOf(chosen)}
              tools={
                <>
                  {chosen?.task_id === p.task.task_id && chosen.id !== null ? (
                    <a class="button" href={to(["tasks", p.task.task_id, "changes", chosen.id])}>
                      Change #{chosen.id}
                    </a>
                  ) : null}
                  {chosen && chosen.source !== "baseline" && (
                    <button type="button" class="primary" onClick={revert}>
                      {chosen.source === "revert" ? "Undo this revert …" : "Revert this change …"}
                    </button>
                  )}
                </>
              }
            />
          )}
        </>
      )}
    </section>
  );
}

export function Overview(p: { task: Task; files: FileChange[] | undefined; now: number; onRevert: (s: Scope) => void }) {
  const { task } = p;
  const totals = { created: 0, modified: 0, deleted: 0, renamed: 0 };
  let plus = 0;
  let minus = 0;
  for (const f of p.files ?? []) {
    totals[f.status]++;
    plus += f.additions;
    minus += f.deletions;
  }
  const clone = `git clone ${location.origin}/git/${task.workspace_id}.git`;
  return (
    <section class="detail overview" aria-label="Overview">
      <h2>Overview</h2>
      <dl class="facts">
        <dt>State</dt>
        <dd>
          <StatusChip status={task.status} />
        </dd>
        <dt>Workspace</dt>
        <dd>
          <a href={to(["workspaces", task.workspace_id])}>{task.workspace ?? task.workspace_id}</a>
        </dd>
        <dt>Started</dt>
        <dd>
          <Time at={task.created} now={p.now} />
        </dd>
        <dt>Last change</dt>
        <dd>
          <Time at={task.updated} now={p.now} />
        </dd>
        <dt>Base</dt>
        <dd>
          <code>{short(task.base)}</code>
        </dd>
      </dl>
      <ul class="figures">
        <li>
          <b>{num(task.changes)}</b> changes
        </li>
        {(["created", "modified", "deleted", "renamed"] as const).map((k) => (
          <li key={k}>
            <b>{p.files ? num(totals[k]) : "…"}</b> {k}
          </li>
        ))}
        <li>
          <b>
            {p.files ? <Counts additions={plus} deletions={minus} /> : "…"}
          </b>
          lines
        </li>
      </ul>
      {task.subtasks.length > 0 && (
        <>
          <h3>Subtasks</h3>
          <ul class="subtasks">
            {task.subtasks.filter((s) => !s.id.startsWith(undoPrefix)).slice(0, 500).map((s) => (
              <li key={s.id}>
                <span class="name" title={s.id}>
                  {turnName(s.id)}
                </span>
                <span class="dim">
                  {count(s.changes, "change")}, #{s.first}{s.last !== s.first && ` – #${s.last}`}
                </span>
                <button type="button" class="small" onClick={() => p.onRevert({ kind: "subtask", id: s.id })} aria-label={`Revert subtask ${s.id}`}>
                  Revert …
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      <p class="downloads">
        <a class="button" href={to(["tasks", task.task_id, "compare"])}>
          Compare two points
        </a>
      </p>
      <h3>Take it along</h3>
      <p class="downloads">
        <Save url={taskURL(task, "/patches")} name={`${task.task_id}.mbox`}>
          Patches (git am)
        </Save>
        <Save url={taskURL(task, "/diff")} name={`${task.task_id}.diff`}>
          Diff (git apply)
        </Save>
        <Save url={taskURL(task, "/bundle")} name={`${task.task_id}.bundle`}>
          Bundle (git clone)
        </Save>
      </p>
      <Command line={clone} />
    </section>
  );
}
