// The palette: any page by a few letters, on Ctrl-K.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { getJSON } from "./api";
import { Dialog } from "./dialog";
import { visible } from "./format";
import { go, to } from "./route";
import type { FileChange, Task, Workspace } from "./types";

export interface Command {
  name: string;
  hint: string;
  run: () => void;
}

/** most is how many entries are drawn. */
const most = 50;

export function Palette(p: { task: string; commands: Command[]; onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [loaded, setLoaded] = useState<Command[]>([]);
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const page = (address: string) => () => go(address);

  // In the task of the key that opened it: what is typed next is not lost.
  useLayoutEffect(() => field.current?.focus(), []);
  useEffect(() => {
    const abort = new AbortController();
    const add = (more: Command[]) => abort.signal.aborted || setLoaded((l) => l.concat(more));
    const load = async <T,>(url: string, of: (answer: T) => Command[]) => add(of(await getJSON<T>(url, abort.signal)));
    const quiet = () => undefined; // what cannot be loaded is not offered
    void load<{ tasks: Task[] }>("/tasks?limit=200", (a) =>
      a.tasks.map((t) => ({ name: t.goal, hint: `task ${t.task_id}`, run: page(to(["tasks", t.task_id])) })),
    ).catch(quiet);
    void load<{ workspaces: Workspace[] }>("/workspaces", (a) =>
      a.workspaces.map((w) => ({ name: w.root?.split("/").pop() || w.id, hint: `workspace ${w.root ?? "virtual"}`, run: page(to(["workspaces", w.id])) })),
    ).catch(quiet);
    if (p.task)
      void load<{ files: FileChange[] }>(`/tasks/${encodeURIComponent(p.task)}/files`, (a) =>
        a.files.map((f) => ({ name: f.path, hint: "file of this task", run: page(to(["tasks", p.task, "files"], { path: f.path, enc: f.path_encoding })) })),
      ).catch(quiet);
    return () => abort.abort();
  }, []);

  const shown = useMemo(() => {
    const views: Command[] = p.task
      ? (
          [
            ["Timeline", []],
            ["Files", ["files"]],
            ["Whole diff", ["diff"]],
            ["Review", ["review"]],
            ["Compare two points", ["compare"]],
            ["Overview", ["overview"]],
          ] as [string, string[]][]
        ).map(([name, rest]) => ({ name, hint: "this task", run: page(to(["tasks", p.task, ...rest])) }))
      : [];
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = [...views, ...p.commands, ...loaded].filter((c) => {
      const hay = `${c.name} ${c.hint}`.toLowerCase();
      return words.every((w) => hay.includes(w));
    });
    const wanted = text.trim();
    if (wanted) fits.splice(most - 1, 0, { name: `Search for “${wanted}”`, hint: "files and history", run: page(to(["search"], { text: wanted })) });
    return fits.slice(0, most);
  }, [text, loaded, p.task]);
  const chosen = Math.min(at, shown.length - 1);

  const choose = (c: Command | undefined) => {
    if (!c) return;
    p.onClose();
    c.run();
  };
  const key = (e: KeyboardEvent) => {
    if (e.key === "Enter") choose(shown[chosen]);
    else if (e.key === "ArrowDown") setAt(Math.min(shown.length - 1, chosen + 1));
    else if (e.key === "ArrowUp") setAt(Math.max(0, chosen - 1));
    else return;
    e.preventDefault();
  };
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  return (
    <Dialog title="Go to" onClose={p.onClose} class="palette">
      <input
        ref={field}
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={chosen >= 0 ? `palette-${chosen}` : undefined}
        aria-label="Go to a page, task, workspace or file"
        placeholder="Task, file, page, or text to find"
        spellcheck={false}
        value={text}
        onKeyDown={key}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setAt(0);
        }}
      />
      <ul ref={list} id="palette-list" role="listbox" aria-label="Pages" tabIndex={-1}>
        {shown.map((c, i) => (
          <li key={`${c.name} ${c.hint}`} id={`palette-${i}`} role="option" aria-selected={i === chosen} onMouseDown={(e) => e.preventDefault()} onClick={() => choose(c)}>
            <span class="name">{visible(c.name)}</span>
            <span class="dim">{visible(c.hint)}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
