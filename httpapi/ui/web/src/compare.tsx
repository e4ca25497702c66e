// Any two points of a task, compared: its base, its changes, checkpoints, commits, now.

import { useEffect, useState } from "preact/hooks";

import { getJSON, inURL, text } from "./api";
import { Field, Icon, useLoad } from "./bits";
import type { Changelog } from "./changelog";
import { operation } from "./format";
import { sidesOf } from "./images";
import { go, type Route, to } from "./route";
import type { Checkpoint, Task } from "./types";
import { DiffPane } from "./viewer";

/** mostChoices is how many of the newest changes are offered. */
const mostChoices = 200;

export function Compare(p: { task: Task; log: Changelog; version: number; route: Route }) {
  const q = p.route.query;
  const from = q.get("from") || "base";
  const end = q.get("to") || "head";
  const path = q.get("path") ?? "";
  const [points, setPoints] = useState({ from, to: end, path });
  const checkpoints = useLoad(async (signal) => (await getJSON<{ checkpoints: Checkpoint[] }>(`/workspaces/${encodeURIComponent(p.task.workspace_id)}/checkpoints`, signal)).checkpoints, [p.task.workspace_id]);
  useEffect(() => setPoints({ from, to: end, path }), [from, end, path]);
  // A checkpoint's name is not a point of a task's diff; its commit is.
  const commitOf = (point: string) => checkpoints.data?.find((c) => c.name === point)?.commit ?? point;
  const base = ["tasks", p.task.task_id];
  const field = (label: string, name: "from" | "to") => (
    <Field label={label}>
      <input type="search" list="points" spellcheck={false} value={points[name]} onInput={(e) => setPoints({ ...points, [name]: e.currentTarget.value })} />
    </Field>
  );
  return (
    <section class="detail" aria-label="Compare">
      <a class="back" href={to(base)}>
        <Icon name="back" /> Timeline
      </a>
      <form
        class="tools compare"
        onSubmit={(e) => {
          e.preventDefault();
          go(to([...base, "compare"], { from: points.from.trim(), to: points.to.trim(), path: points.path.trim() }));
        }}
      >
        {field("From", "from")}
        {field("To", "to")}
        <Field label="File">
          <input type="search" spellcheck={false} placeholder="all files" value={points.path} onInput={(e) => setPoints({ ...points, path: e.currentTarget.value })} />
        </Field>
        <button type="submit" class="primary">
          Compare
        </button>
        <datalist id="points">
          <option value="base">where the task began</option>
          <option value="head">now</option>
          {checkpoints.data?.map((c) => (
            <option key={c.name} value={c.name}>
              checkpoint
            </option>
          ))}
          {p.log.items
            .slice(-mostChoices)
            .reverse()
            .filter((it) => it.id > 0)
            .map((it) => (
              <option key={it.id} value={String(it.id)}>
                {`after #${it.id}: ${text(it.newPath ?? it.path, it.encoding)} ${operation(it.operation).word}`}
              </option>
            ))}
        </datalist>
      </form>
      {checkpoints.loading ? null : (
        <DiffPane
          key={`${from} ${end} ${path}`}
          url={`/tasks/${encodeURIComponent(p.task.task_id)}/diff?from=${encodeURIComponent(commitOf(from))}&to=${encodeURIComponent(commitOf(end))}${path ? `&path=${inURL(path)}` : ""}`}
          path={path}
          files={!path}
          label={`Changes from ${from} to ${end}`}
          empty="Nothing differs between these two points."
          images={path ? sidesOf(p.task.task_id, inURL(path), commitOf(from), end === "head" ? undefined : commitOf(end)) : undefined}
          version={p.version}
        />
      )}
    </section>
  );
}
