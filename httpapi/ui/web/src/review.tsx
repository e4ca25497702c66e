// The review of a task: its net difference in hunks, each accepted or rejected.
// Decisions are marks of this page until they are applied, in one request.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { aborted, ApiError, getJSON, inURL, postJSON, sentence, text } from "./api";
import { Against, Agent, announce, ErrorBox, Icon, Loading, PathName, useKeys } from "./bits";
import type { Changelog } from "./changelog";
import { Dialog } from "./dialog";
import { languageOf } from "./diff/highlight";
import { pair, parse, type Row } from "./diff/parse";
import { digits, heightOf, InlineRow, usePaint } from "./diff/view";
import { count, num, short, visible } from "./format";
import { Images, isImage, type Sides } from "./images";
import { to } from "./route";
import type { Conflict, Diff, Hunk, Task } from "./types";
import { type ListHandle, VirtualList } from "./virtual";

type Mark = "accept" | "reject";

const firstPage = 1000;
const nextPages = 10_000;
/** largestFile is up to which size the content of a whole-file hunk is shown, in characters. */
const largestFile = 1 << 20;

/** useHunks keeps the hunks as the server has them. */
function useHunks(task: Task, version: number) {
  const [hunks, setHunks] = useState<Hunk[] | null>(null);
  const [error, setError] = useState("");
  const [loading, setLoading] = useState(true);
  const [round, again] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    const load = async () => {
      setLoading(true);
      setError("");
      let all: Hunk[] = [];
      let after: string | null = null;
      let plan = "";
      do {
        const url: string = `/tasks/${encodeURIComponent(task.task_id)}/hunks?limit=${after ? nextPages : firstPage}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
        const page: { plan: string; hunks: Hunk[]; next: string | null } = await getJSON(url, abort.signal);
        if (plan && page.plan !== plan) {
          // The hunks changed between two pages, which count from the first hunk.
          again((n) => n + 1);
          return;
        }
        plan = page.plan;
        all = all.concat(page.hunks);
        after = page.next;
        const read = all;
        // The first page is shown at once; later ones only where less was shown before.
        setHunks((shown) => (!after || !shown || shown.length < read.length ? read : shown));
      } while (after);
      setLoading(false);
    };
    load().catch((e) => {
      if (aborted(e)) return;
      setError(sentence(e));
      setLoading(false);
    });
    return () => abort.abort();
  }, [task.task_id, version, round]);
  return { hunks, error, loading, reload: () => again((n) => n + 1) };
}

/** useMarks keeps the marks for as long as the browser session lasts. */
function useMarks(task: string): [Map<string, Mark>, (next: Map<string, Mark>) => void] {
  const key = `umbra.review.${task}`;
  const [marks, set] = useState<Map<string, Mark>>(() => {
    try {
      return new Map(JSON.parse(sessionStorage.getItem(key) ?? "[]") as [string, Mark][]);
    } catch {
      return new Map();
    }
  });
  return [
    marks,
    (next) => {
      set(next);
      try {
        sessionStorage.setItem(key, JSON.stringify([...next]));
      } catch {
        // no room: the marks are kept in the page alone
      }
    },
  ];
}

interface Who {
  agents: string[];
  turns: string[];
  /** policy is the rules that changes of the hunk are against. */
  policy: string[];
}

/** Piece is what is decided on: a hunk, or one change of a hunk that is split. */
interface Piece extends Hunk {
  /** of is the hunk that it is the nth part of, of total. */
  of?: string;
  nth?: number;
  total?: number;
}

function pieces(hunks: Hunk[], split: (h: Hunk) => boolean): Piece[] {
  return hunks.flatMap((h): Piece[] => {
    if (!h.parts || !split(h)) return [h];
    const { parts, ...rest } = h;
    return parts.map((p, i) => ({ ...rest, ...p, of: h.id, nth: i + 1, total: parts.length }));
  });
}

/** undecided reports whether a hunk waits for a decision. */
function undecided(h: Hunk, marks: Map<string, Mark>): boolean {
  return h.status === "open" && !h.held && !marks.has(h.id);
}

/** Body is what is shown of a whole-file hunk. */
type Body = Row[] | Sides;

/** Lines is what the list shows: rows, and the hunk that each belongs to. */
interface Lines {
  rows: Row[];
  of: number[];
  /** heads are the rows at which the hunks begin, files those of the files. */
  heads: number[];
  files: { path: string; encoding: string | undefined; row: number; hunks: number[] }[];
}

function layOut(hunks: Piece[], bodies: Map<string, Body>): Lines {
  const rows: Row[] = [];
  const of: number[] = [];
  const heads: number[] = [];
  const files: Lines["files"] = [];
  const push = (kind: Row["kind"], line: string, h: number, old = 0, now = 0) => {
    rows.push({ kind, text: line, old, now, mate: -1 });
    of.push(h);
  };
  hunks.forEach((h, k) => {
    let file = files.at(-1);
    if (!file || file.path !== h.path || file.encoding !== h.path_encoding) {
      file = { path: h.path, encoding: h.path_encoding, row: rows.length, hunks: [] };
      files.push(file);
      push("file", text(h.path, h.path_encoding), k);
    }
    file.hunks.push(k);
    heads.push(rows.length);
    push("hunk", "", k);
    const body = bodies.get(h.id);
    if (body && !Array.isArray(body)) {
      push("note", "", k);
      return;
    }
    if (body) {
      for (const r of body) {
        rows.push({ ...r, mate: -1 });
        of.push(k);
      }
      return;
    }
    let old = h.old_start;
    let now = h.new_start;
    const lines = text(h.text, h.text_encoding).split("\n");
    if (lines.at(-1) === "") lines.pop();
    if (!lines[0]?.startsWith("@@")) return;
    for (const line of lines.slice(1)) {
      if (line[0] === "+") push("add", line.slice(1), k, 0, now++);
      else if (line[0] === "-") push("del", line.slice(1), k, old++, 0);
      else if (line[0] === "\\") push("note", line.slice(2), k);
      else push("context", line.slice(1), k, old++, now++);
    }
  });
  pair(rows);
  return { rows, of, heads, files };
}

const wholeWords: Record<string, string> = { create: "New file", delete: "Deleted file", modify: "Content replaced", rename: "Renamed", mode: "Mode" };

/** place is what a hunk's head says of where it is, or of what it does to the file. */
export function place(h: Hunk): string {
  const line = text(h.text, h.text_encoding).split("\n")[0] ?? "";
  if (line.startsWith("@@")) return line;
  const [verb = "", ...rest] = line.split(" ");
  if (verb === "rename" && h.old_path) return `Renamed from ${visible(h.old_path)}`;
  if (verb === "mode") return `Mode ${rest.join(" ")}`;
  return wholeWords[verb] ?? line;
}

/** whole reports whether a hunk's lines are not in it: a new, deleted or replaced file. */
function whole(h: Hunk): boolean {
  return /^(create|delete|modify) /.test(h.text);
}

export function Review(p: { task: Task; log: Changelog; version: number; settled: number; tabs: ComponentChildren; onUndo: (commit: string) => void }) {
  const { task, log } = p;
  const loaded = useHunks(task, p.settled);
  const [marks, setMarks] = useMarks(task.task_id);
  const [filter, setFilter] = useState({ path: "", status: "open", agent: "", subtask: "" });
  const [current, setCurrent] = useState("");
  const [bodies, setBodies] = useState<Map<string, Body>>(new Map());
  // What was shown or hidden by hand, or is being loaded, is not shown by itself.
  const touched = useRef<Set<string>>(new Set());
  const [cut, setCut] = useState<Set<string>>(new Set());
  const [applying, setApplying] = useState(false);
  const handle = useRef<ListHandle | null>(null);
  const jump = useRef("");
  // Keys may come faster than the page is drawn: they work on these.
  const latest = useRef({ marks, current });

  // A hunk whose parts are decided on differently is split.
  const several = useMemo(() => (loaded.hunks ?? []).filter((h) => h.parts), [loaded.hunks]);
  const split = several.filter((h) => cut.has(h.id) || h.parts!.some((x) => marks.has(x.id) || x.status !== h.status)).map((h) => h.id);
  const all = useMemo(() => {
    const ids = new Set(split);
    return pieces(loaded.hunks ?? [], (h) => ids.has(h.id));
  }, [loaded.hunks, split.join()]);
  const who = useMemo(() => {
    const items = new Map(log.items.map((it) => [it.id, it]));
    const own = typeof task.metadata.agent === "string" ? task.metadata.agent : "";
    const against = log.items.some((it) => it.policy);
    const out = new Map<string, Who>();
    for (const h of all) {
      const agents = new Set<string>();
      const turns = new Set(h.subtasks);
      for (const id of h.calls) {
        const c = log.calls.get(id);
        if (c?.agent) agents.add(c.agent);
        if (c?.subtask_id) turns.add(c.subtask_id);
      }
      if (agents.size === 0) for (const id of h.entries) if (items.get(id)?.actor) agents.add(items.get(id)!.actor);
      if (agents.size === 0 && own) agents.add(own);
      const rules = against ? new Set(h.entries.flatMap((id) => items.get(id)?.policy ?? [])) : [];
      out.set(h.id, { agents: [...agents], turns: [...turns], policy: [...rules] });
    }
    return out;
  }, [all, p.version]);
  const choices = useMemo(() => {
    const agents = new Set<string>();
    const subtasks = new Set<string>();
    for (const w of who.values()) {
      w.agents.forEach((a) => agents.add(a));
      w.turns.forEach((s) => subtasks.add(s));
    }
    return { agents: [...agents].sort(), subtasks: [...subtasks].sort() };
  }, [who]);
  const shown = useMemo(() => {
    const words = filter.path.toLowerCase().split(/\s+/).filter(Boolean);
    return all.filter((h) => {
      const w = who.get(h.id)!;
      if (filter.status === "held" ? !h.held : filter.status && h.status !== filter.status) return false;
      if (filter.agent && !w.agents.includes(filter.agent)) return false;
      if (filter.subtask && !w.turns.includes(filter.subtask)) return false;
      const path = text(h.path, h.path_encoding).toLowerCase();
      return words.every((word) => path.includes(word));
    });
  }, [all, who, filter]);
  const lines = useMemo(() => layOut(shown, bodies), [shown, bodies]);
  const width = useMemo(() => digits(lines.rows), [lines]);
  const paint = usePaint(lines.rows, (i) => languageOf(shown[lines.of[i]!]!.path));

  const open = all.filter((h) => undecided(h, marks)).length;
  const held = all.filter((h) => h.held).length;
  const decided = all.filter((h) => h.status === "open" && marks.has(h.id));
  const at = Math.max(0, shown.findIndex((h) => h.id === current));
  const atNow = () => Math.max(0, shown.findIndex((h) => h.id === latest.current.current));

  const narrow = (by: Partial<typeof filter>) => {
    setFilter({ ...filter, ...by });
    choose("");
  };
  const choose = (id: string) => {
    latest.current.current = id;
    setCurrent(id);
  };
  const move = (k: number) => {
    const h = shown[Math.max(0, Math.min(shown.length - 1, k))];
    if (!h) return;
    choose(h.id);
    jump.current = h.id;
    announce(`${text(h.path, h.path_encoding)}, ${place(h)}, ${latest.current.marks.get(h.id) ?? h.status}`);
  };
  // After the list has its rows: to the hunk that is current.
  useEffect(() => {
    const k = jump.current ? shown.findIndex((h) => h.id === jump.current) : -1;
    if (k < 0) return;
    const first = lines.heads[k]!;
    handle.current?.scrollTo((lines.heads[k + 1] ?? lines.rows.length) - 1);
    handle.current?.scrollTo(lines.files.some((f) => f.hunks[0] === k) ? first - 1 : first);
    jump.current = "";
  });
  const mark = (ids: string[], as: Mark | null, next = false) => {
    const m = new Map(latest.current.marks);
    for (const id of ids) {
      if (as) m.set(id, as);
      else m.delete(id);
    }
    latest.current.marks = m;
    setMarks(m);
    if (!next) return;
    const from = atNow();
    const later = shown.findIndex((h, k) => k > from && undecided(h, m));
    const any = later >= 0 ? later : shown.findIndex((h) => undecided(h, m));
    if (any >= 0) move(any);
    else announce("No hunk is open. Press c to apply.");
  };
  const decide = (as: Mark) => {
    const h = shown[atNow()];
    if (h && mayMark(h, as)) mark([h.id], as, true);
  };
  const file = (by: number) => {
    const k = lines.files.findIndex((f) => f.hunks.includes(atNow()));
    const f = lines.files[Math.max(0, Math.min(lines.files.length - 1, k + by))];
    if (f) move(f.hunks[0]!);
  };
  const decideFile = (as: Mark) => {
    const f = lines.files.find((g) => g.hunks.includes(atNow()));
    if (f) mark(f.hunks.map((k) => shown[k]!).filter((h) => h.status === "open" && !h.held).map((h) => h.id), as, true);
  };
  const cutUp = (h: Piece | undefined) => {
    if (!h || (!h.parts && !h.of)) return;
    const id = h.of ?? h.id;
    const next = new Set(cut);
    const hunk = several.find((x) => x.id === id)!;
    if (h.of && hunk.parts!.some((x) => x.status !== hunk.status)) return announce("The parts are decided on differently.");
    mark([id, ...hunk.parts!.map((x) => x.id)], null);
    if (h.of) next.delete(id);
    else next.add(id);
    setCut(next);
    choose(h.of ? id : hunk.parts![0]!.id);
  };
  const show = (h: Hunk | undefined) => {
    if (!h || !whole(h)) return;
    touched.current.add(h.id);
    if (bodies.has(h.id)) {
      const next = new Map(bodies);
      next.delete(h.id);
      setBodies(next);
      return;
    }
    const load = async () => {
      if (isImage(h.path)) {
        const [verb] = h.text.split(" ", 1);
        const of = (at: string) => `/tasks/${encodeURIComponent(task.task_id)}/content?path=${inURL(h.path, h.path_encoding)}${at}`;
        setBodies((b) => new Map(b).set(h.id, { before: verb === "create" ? null : of("&at=base"), after: verb === "delete" ? null : of("") }));
        return;
      }
      const d = await getJSON<Diff>(`/tasks/${encodeURIComponent(task.task_id)}/diff?path=${inURL(h.path, h.path_encoding)}`);
      const rows = d.diff.length > largestFile ? [] : (await parse(text(d.diff, d.diff_encoding), false)).rows.filter((r) => r.kind !== "hunk");
      if (rows.length === 0) rows.push({ kind: "note", text: d.diff.length > largestFile ? "The file is too large to show here." : "The file has no lines.", old: 0, now: 0, mate: -1 });
      setBodies((b) => new Map(b).set(h.id, rows));
    };
    load().catch((e) => {
      touched.current.delete(h.id); // it is loaded when it is seen again
      announce(sentence(e));
    });
  };
  useKeys(
    {
      j: () => move(atNow() + (latest.current.current ? 1 : 0)),
      ArrowDown: () => move(atNow() + (latest.current.current ? 1 : 0)),
      k: () => move(atNow() - 1),
      ArrowUp: () => move(atNow() - 1),
      "]": () => file(1),
      "[": () => file(-1),
      a: () => decide("accept"),
      y: () => decide("accept"),
      x: () => decide("reject"),
      n: () => decide("reject"),
      A: () => decideFile("accept"),
      X: () => decideFile("reject"),
      z: () => shown[atNow()] && mark([shown[atNow()]!.id], null),
      v: () => show(shown[atNow()]),
      s: () => cutUp(shown[atNow()]),
      c: () => decided.length > 0 && setApplying(true),
    },
    true,
  );

  // New and replaced files are shown when they come into view.
  const seen = (from: number, end: number) => {
    if (from >= end) return;
    paint.want(from, end);
    for (let k = lines.of[from]!; k <= lines.of[end - 1]!; k++) {
      const h = shown[k]!;
      if (whole(h) && !h.text.startsWith("delete ") && !touched.current.has(h.id)) show(h);
    }
  };
  const rest = shown.filter((h) => undecided(h, marks)).map((h) => h.id);
  const select = (label: string, name: "status" | "agent" | "subtask", options: [string, string][]) => (
    <select aria-label={label} value={filter[name]} onChange={(e) => narrow({ [name]: e.currentTarget.value })}>
      {options.map(([value, word]) => (
        <option key={value} value={value}>
          {word}
        </option>
      ))}
    </select>
  );
  return (
    <>
      <div class="left">
        {p.tabs}
        <ReviewFiles lines={lines} shown={shown} marks={marks} at={at} onChoose={move} />
      </div>
      <section class="right review" aria-label="Review">
        <a class="back" href={to(["tasks", task.task_id])}>
          <Icon name="back" /> Timeline
        </a>
        <div class="tools">
          <input type="search" class="filter" data-search aria-label="Filter the hunks by path" placeholder="Filter by path" value={filter.path} onInput={(e) => narrow({ path: e.currentTarget.value })} />
          {select("State", "status", [["open", "open"], ...(held > 0 || filter.status === "held" ? ([["held", "held"]] as [string, string][]) : []), ["accepted", "accepted"], ["rejected", "rejected"], ["", "all"]])}
          {select("Agent", "agent", [["", "any agent"], ...choices.agents.map((a): [string, string] => [a, visible(a)])])}
          {select("Turn or subtask", "subtask", [["", "any turn"], ...choices.subtasks.map((s): [string, string] => [s, s])])}
        </div>
        <div class="tools verdict">
          <p class="open" role="status">
            <b>{num(open)}</b> open{decided.length > 0 && `, ${num(decided.length)} decided`}
            {held > 0 && `, ${num(held)} held`}
            {loaded.loading && ", reading …"}
          </p>
          <span class="space" />
          {rest.length > 0 && (
            <>
              <button type="button" class="small" onClick={() => mark(rest, "accept")}>
                Accept the {num(rest.length)} shown
              </button>
              <button type="button" class="small" onClick={() => mark(rest, "reject")}>
                Reject the {num(rest.length)} shown
              </button>
            </>
          )}
          <button type="button" class="primary" disabled={decided.length === 0} onClick={() => setApplying(true)} title="Apply (c)">
            Apply {decided.length > 0 ? num(decided.length) : ""} …
          </button>
        </div>
        {loaded.error && <ErrorBox error={loaded.error} retry={loaded.reload} />}
        {!loaded.hunks && !loaded.error && <Loading what="the hunks" />}
        {loaded.hunks && (
          <VirtualList
            class={`diff ${width} inline`}
            role="table"
            label="Hunks"
            handle={handle}
            data={lines}
            count={lines.rows.length}
            estimate={(i, width) => (lines.rows[i]!.kind === "hunk" ? 40 : heightOf(lines.rows[i]!, width))}
            keyOf={(i) => `${shown[lines.of[i]!]!.id} ${i - lines.heads[lines.of[i]!]!}`}
            seen={seen}
            empty={all.length === 0 ? "The task changes nothing." : filter.status === "open" && open + decided.length === 0 ? "No hunk is open. All is reviewed." : "No hunk fits."}
            row={(i) => {
              const row = lines.rows[i]!;
              const k = lines.of[i]!;
              const h = shown[k]!;
              const body = bodies.get(h.id);
              if (row.kind === "note" && body && !Array.isArray(body))
                return (
                  <div key={i} class="line note" role="row" aria-rowindex={i + 1}>
                    <div role="cell">
                      <Images versions={[["Before", body.before], ["After", body.after]]} name={text(h.path, h.path_encoding)} />
                    </div>
                  </div>
                );
              if (row.kind !== "hunk") return <InlineRow key={i} i={i} rows={lines.rows} paint={paint} plain={false} />;
              return (
                <HunkHead
                  key={i}
                  i={i}
                  hunk={h}
                  who={who.get(h.id)!}
                  mark={marks.get(h.id)}
                  current={k === at && current !== ""}
                  shownFile={bodies.has(h.id)}
                  onMark={(m) => {
                    choose(h.id);
                    mark([h.id], m);
                  }}
                  onShow={() => show(h)}
                  onSplit={() => cutUp(h)}
                />
              );
            }}
          />
        )}
      </section>
      {applying && (
        <Apply
          task={task}
          hunks={decided}
          marks={marks}
          onClose={() => setApplying(false)}
          onUndo={p.onUndo}
          onDone={() => {
            const left = new Map(latest.current.marks);
            for (const h of decided) left.delete(h.id);
            latest.current.marks = left;
            setMarks(left);
            loaded.reload();
          }}
          onStale={loaded.reload}
        />
      )}
    </>
  );
}

const verdicts: Record<Mark, string> = { accept: "will be accepted", reject: "will be rejected" };

/** mayMark reports whether a decision on a hunk means anything: a rejection that is held is made already. */
function mayMark(h: Hunk, as: Mark): boolean {
  return h.status === "open" && !(h.held && as === "reject");
}

function HunkHead(p: { i: number; hunk: Piece; who: Who; mark: Mark | undefined; current: boolean; shownFile: boolean; onMark: (m: Mark | null) => void; onShow: () => void; onSplit: () => void }) {
  const { hunk: h, mark } = p;
  const name = `${text(h.path, h.path_encoding)} ${place(h)}`;
  const press = (m: Mark, word: string) => (
    <button type="button" class={`small ${m}`} aria-pressed={mark === m} aria-label={`${word} ${name}`} onClick={() => p.onMark(mark === m ? null : m)}>
      {word}
    </button>
  );
  return (
    <div class={`line hunk-head ${mark ?? h.status} ${p.current ? "current" : ""}`} role="row" aria-rowindex={p.i + 1} aria-current={p.current ? "true" : undefined}>
      <div class="across" role="cell">
        <span class="at">{place(h)}</span>
        <span class="who">
          {p.who.agents.map((a) => (
            <Agent key={a} name={a} />
          ))}
          {p.who.turns.length > 0 && <span class="dim">{p.who.turns.join(", ")}</span>}
          {h.of && (
            <span class="tag">
              part {h.nth} of {h.total}
            </span>
          )}
          <Against rules={p.who.policy} />
          {h.certainty === "shared" && <span class="tag shared">shared</span>}
          {h.mixed && (
            <span class="tag warn" title="Others changed the same lines since: it cannot be rejected alone.">
              mixed
            </span>
          )}
        </span>
        <span class="space" />
        {whole(h) && (
          <button type="button" class="small" aria-expanded={p.shownFile} aria-label={`${p.shownFile ? "Hide" : "Show"} the lines of ${text(h.path, h.path_encoding)}`} onClick={p.onShow}>
            {p.shownFile ? "Hide" : "Show"}
          </button>
        )}
        {(h.parts || h.of) && (
          <button type="button" class="small" aria-label={`${h.of ? "Join the parts of" : "Split"} ${name}`} title={h.of ? "One decision for all parts (s)" : "Decide on each of its changes (s)"} onClick={p.onSplit}>
            {h.of ? "Join" : "Split"}
          </button>
        )}
        {mark && <span class="tag verdict">{verdicts[mark]}</span>}
        {h.held && !mark && (
          <span class="tag held" title="Its lines are taken back when the agent's calls have ended, in 10 minutes at the latest. Accept it to keep them.">
            rejection held
          </span>
        )}
        {h.status === "open" ? (
          <span class="buttons">
            {press("accept", "Accept")}
            {mayMark(h, "reject") && press("reject", "Reject")}
          </span>
        ) : (
          <span class="tag">{h.status}</span>
        )}
      </div>
    </div>
  );
}

function ReviewFiles(p: { lines: Lines; shown: Piece[]; marks: Map<string, Mark>; at: number; onChoose: (hunk: number) => void }) {
  const { files } = p.lines;
  const handle = useRef<ListHandle | null>(null);
  const current = files.findIndex((f) => f.hunks[0]! <= p.at && p.at <= f.hunks.at(-1)!);
  useEffect(() => {
    if (current >= 0) handle.current?.scrollTo(current);
  }, [current]);
  return (
    <section class="files" aria-label="Files of the review">
      <VirtualList
        handle={handle}
        label="Files with hunks"
        data={p.lines}
        count={files.length}
        estimate={() => 38}
        empty="No file."
        row={(i) => {
          const f = files[i]!;
          const left = f.hunks.filter((k) => undecided(p.shown[k]!, p.marks)).length;
          return (
            <div class="file" role="listitem" key={`${f.path} ${i}`} aria-setsize={files.length} aria-posinset={i + 1}>
              <button type="button" class="plain" aria-current={i === current ? "true" : undefined} onClick={() => p.onChoose(f.hunks[0]!)}>
                <PathName path={f.path} encoding={f.encoding} />
                <span class={`counts ${left === 0 ? "dim" : ""}`}>{left > 0 ? `${num(left)} open` : "done"}</span>
              </button>
            </div>
          );
        }}
      />
    </section>
  );
}

interface Decided {
  commit: string | null;
  accepted: string[];
  rejected: string[];
  conflicts: Conflict[];
  files: string[];
  /** held is how many rejections wait for the agent's calls to end. */
  held?: number;
}

/** Apply shows what the marks would do, and does it on one click. */
function Apply(p: { task: Task; hunks: Hunk[]; marks: Map<string, Mark>; onClose: () => void; onDone: () => void; onStale: () => void; onUndo: (commit: string) => void }) {
  const url = `/tasks/${encodeURIComponent(p.task.task_id)}/review`;
  // What is decided on is what was marked when the dialog was opened.
  const [body] = useState(() => {
    const ids = (m: Mark) => p.hunks.filter((h) => p.marks.get(h.id) === m).map((h) => h.id);
    return { accept: ids("accept"), reject: ids("reject") };
  });
  const [plan, setPlan] = useState<Decided | null>(null);
  const [conflicts, setConflicts] = useState<Conflict[]>([]);
  const [error, setError] = useState("");
  const [working, setWorking] = useState(false);
  const [done, setDone] = useState<Decided | null>(null);
  const fail = (e: unknown) => {
    setError(sentence(e));
    if (!(e instanceof ApiError)) return;
    if (Array.isArray(e.body.conflicts)) setConflicts(e.body.conflicts as Conflict[]);
    if (e.code === "hunk_changed") p.onStale();
  };
  useEffect(() => {
    let current = true;
    postJSON<Decided>(url, { ...body, dry_run: true }).then(
      (made) => {
        if (!current) return;
        setPlan(made);
        setConflicts(made.conflicts);
      },
      (e) => current && fail(e),
    );
    return () => {
      current = false;
    };
  }, []);
  const apply = async () => {
    setWorking(true);
    try {
      const res = await postJSON<Decided>(url, body);
      setDone(res);
      announce(`${count(res.accepted.length, "hunk")} accepted, ${res.rejected.length} rejected${res.held ? `, ${res.held} held` : ""}.`);
      p.onDone();
    } catch (e) {
      fail(e);
    } finally {
      setWorking(false);
    }
  };
  const words = [body.accept.length > 0 ? `accept ${num(body.accept.length)}` : "", body.reject.length > 0 ? `reject ${num(body.reject.length)}` : ""].filter(Boolean).join(" and ");
  const label = `${words.charAt(0).toUpperCase()}${words.slice(1)} ${body.accept.length + body.reject.length === 1 ? "hunk" : "hunks"}`;
  if (done)
    return (
      <Dialog
        title="Reviewed"
        onClose={p.onClose}
        footer={
          <>
            {done.commit && done.rejected.length > 0 && (
              <button
                type="button"
                onClick={() => {
                  p.onClose();
                  p.onUndo(done.commit!);
                }}
              >
                Undo this …
              </button>
            )}
            <button type="button" class="primary" onClick={p.onClose}>
              Close
            </button>
          </>
        }
      >
        <p role="status" hidden={done.held !== undefined && !done.commit}>
          {count(done.accepted.length, "hunk")} accepted, {num(done.rejected.length)} rejected
          {done.commit && (
            <>
              , commit <a href={to(["workspaces", p.task.workspace_id, "commits", done.commit])}>{short(done.commit)}</a>
            </>
          )}
          .
        </p>
        {done.held ? (
          <p class="notice">
            {count(done.held, "rejection")} {done.held === 1 ? "waits" : "wait"} until the agent's calls have ended, 10 minutes at most.
          </p>
        ) : null}
      </Dialog>
    );
  return (
    <Dialog
      title="Apply the review"
      onClose={p.onClose}
      footer={
        <>
          <button type="button" onClick={p.onClose}>
            Cancel
          </button>
          <button type="button" class="primary" disabled={!plan || conflicts.length > 0 || working} onClick={() => void apply()}>
            {working ? "Applying …" : label}
          </button>
        </>
      }
    >
      {error && <p class="error">{error}</p>}
      {!plan && !error && <Loading what="the plan" />}
      {plan && (
        <p>
          {body.reject.length > 0
            ? `The rejected lines are taken back in ${count(plan.files.length, "file")}, as one new commit. It can be undone. Others' later lines stay.`
            : "No file changes. The decision is recorded in the history."}
        </p>
      )}
      {conflicts.length > 0 && (
        <>
          <p class="notice" role="alert">
            Others changed the same lines since in {count(conflicts.length, "file")}. Clear these marks to apply the rest.
          </p>
          <ul class="entries" aria-label="Conflicts" tabIndex={0}>
            {conflicts.slice(0, 200).map((c) => (
              <li key={`${c.path} ${c.entry}`}>
                <PathName path={c.path} encoding={c.path_encoding} /> <span class="dim">{c.changed_by?.actor && `by ${visible(c.changed_by.actor)}`}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      {plan && plan.files.length > 0 && (
        <ul class="entries" aria-label="Files" tabIndex={0}>
          {plan.files.slice(0, 200).map((f) => (
            <li key={f}>
              <PathName path={f} />
            </li>
          ))}
          {plan.files.length > 200 && <li class="dim">and {count(plan.files.length - 200, "file")} more</li>}
        </ul>
      )}
    </Dialog>
  );
}
