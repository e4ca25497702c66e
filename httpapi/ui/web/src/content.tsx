// What a text search finds: lines of files as they are now, and changes of the
// history that added or removed lines with it.

import { useEffect, useRef, useState } from "preact/hooks";

import { aborted, type Failing, getJSON, insist, sentence, text } from "./api";
import { ErrorBox, Failed, Loading, OpBadge, PathName, Time, useLoad } from "./bits";
import { useTokens } from "./diff/highlight";
import { segments } from "./diff/words";
import { count, visible, who } from "./format";
import type { Source } from "./log";
import { to } from "./route";
import type { Entry } from "./types";

interface Match {
  path: string;
  path_encoding?: string;
  line: number;
  text: string;
}

interface Hit extends Entry {
  workspace: string;
  lines: { added: boolean; line: number; text: string }[];
  more: number;
}

/** mostMatches is how many lines of one workspace are shown. */
const mostMatches = 200;
/** mostShown is how much of a line is shown. */
const mostShown = 300;

/** around cuts a line so that the text in it is seen. */
function around(line: string, at: number): { line: string; at: number } {
  if (line.length <= mostShown) return { line, at };
  const from = Math.max(0, at - 40);
  return { line: `${from > 0 ? "…" : ""}${line.slice(from, from + mostShown)}…`, at: at - from + (from > 0 ? 1 : 0) };
}

/** Marked is a line with the text in it marked. */
function Marked(p: { line: string; text: string; path: string }) {
  const found = p.line.toLowerCase().indexOf(p.text.toLowerCase());
  const { line, at } = around(p.line, Math.max(0, found));
  const [tokens] = useTokens(p.path, line);
  const parts = segments(line, tokens, found < 0 ? undefined : [[at, at + p.text.length]]);
  return (
    <code>
      {parts.map((s, k) => {
        const name = s.class.replace(/ ?\bmark$/, "");
        const shown = name ? <span class={name}>{visible(s.text)}</span> : visible(s.text);
        return name === s.class ? shown : <mark key={k}>{shown}</mark>;
      })}
    </code>
  );
}

function query(text: string): string {
  return `pattern=${encodeURIComponent(text)}&literal=true&ignore_case=true`;
}

export function Content(p: { sources: Source[]; text: string; path: string; now: number }) {
  return (
    <>
      <Files {...p} />
      <Past {...p} />
    </>
  );
}

function Files(p: { sources: Source[]; text: string; path: string }) {
  const loaded = useLoad(
    async (signal) =>
      Promise.all(
        p.sources.map(async (s) => ({
          source: s,
          ...(await getJSON<{ matches: Match[]; truncated: boolean }>(`/workspaces/${encodeURIComponent(s.workspace)}/search?${query(p.text)}&max=${mostMatches}`, signal)),
        })),
      ),
    [p.sources.map((s) => s.workspace), p.text],
  );
  const wanted = p.path.toLowerCase();
  const list = (loaded.data ?? []).flatMap((of) => of.matches.filter((m) => m.path.toLowerCase().includes(wanted)).map((m) => ({ ...m, source: of.source })));
  return (
    <section class="found" aria-label="Found in files">
      <h2>In files</h2>
      {loaded.error && <ErrorBox error={loaded.error} retry={loaded.reload} />}
      {!loaded.data && !loaded.error && <Loading what="the files" />}
      {loaded.data && (
        <p class="state dim" role="status">
          {list.length === 0 ? "No line has this text" : count(list.length, "line")}
          {loaded.data.some((of) => of.truncated) && `, the first ${mostMatches} of a workspace`}
        </p>
      )}
      <ol>
        {list.map((m) => (
          <li key={`${m.source.workspace} ${m.path} ${m.line}`}>
            <a href={to(["search"], { path: m.path, ws: m.source.workspace })} title="Who changed this file">
              <span class="meta">
                <PathName path={m.path} encoding={m.path_encoding} />:{m.line}
                {p.sources.length > 1 && ` · ${m.source.name}`}
              </span>
              <Marked line={m.text} text={p.text} path={text(m.path, m.path_encoding)} />
            </a>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Past(p: { sources: Source[]; text: string; path: string; now: number }) {
  const [hits, setHits] = useState<Hit[]>([]);
  const [searched, setSearched] = useState(0);
  const [state, setState] = useState<"reading" | "more" | "done">("reading");
  const [error, setError] = useState("");
  const [resume, setResume] = useState<(() => void) | null>(null);
  const again = useRef(() => {});
  const key = JSON.stringify([p.sources.map((s) => s.workspace), p.text]);
  useEffect(() => {
    const abort = new AbortController();
    let release: (() => void) | null = null;
    setHits([]);
    setSearched(0);
    setError("");
    setState("reading");
    const failing: Failing = (said, retry) => {
      again.current = retry;
      setError(said);
    };
    const run = async () => {
      for (const s of p.sources) {
        let next: string | null = null;
        do {
          const url: string = `/workspaces/${encodeURIComponent(s.workspace)}/log/search?${query(p.text)}${next ? `&after=${encodeURIComponent(next)}` : ""}`;
          const page: { hits: Omit<Hit, "workspace">[]; next: string | null; searched: number } = await insist(url, abort.signal, failing);
          setHits((h) => h.concat(page.hits.map((e) => ({ ...e, workspace: s.workspace }))));
          setSearched((n) => n + page.searched);
          next = page.next;
          // What was asked for is there; more of the history is read on request.
          if (next && page.hits.length > 0) {
            setState("more");
            await new Promise<void>((go) => {
              release = go;
              setResume(() => go);
            });
            if (abort.signal.aborted) return;
            setState("reading");
          }
        } while (next);
      }
      setState("done");
    };
    run().catch((e) => {
      if (aborted(e)) return;
      setError(sentence(e));
      setState("done");
    });
    return () => {
      abort.abort();
      release?.();
    };
  }, [key]);
  const wanted = p.path.toLowerCase();
  const list = hits.filter((h) => h.path.toLowerCase().includes(wanted) || (h.new_path ?? "").toLowerCase().includes(wanted));
  return (
    <section class="found" aria-label="Found in history">
      <h2>In history</h2>
      <p class="state dim" role="status">
        {list.length === 0 && state === "done" ? `None of ${count(searched, "change")} added or removed this text` : `${count(list.length, "change")} of ${count(searched, "change")}`}
        {state === "reading" && !error && ", reading …"}
        <Failed error={error} retry={() => again.current()} />
        {state === "more" && (
          <button type="button" class="link" onClick={() => resume?.()}>
            search on
          </button>
        )}
      </p>
      <ol>
        {list.map((h) => (
          <li key={`${h.workspace} ${h.commit} ${h.path}`}>
            <a href={h.task_id && h.id ? to(["tasks", h.task_id, "changes", h.id]) : to(["workspaces", h.workspace, "commits", h.commit], { path: h.new_path ?? h.path, enc: h.path_encoding })}>
              <span class="meta">
                <OpBadge operation={h.operation} source={h.source} /> <PathName path={h.path} encoding={h.path_encoding} to={h.new_path} /> · {who(h)} · <Time at={h.timestamp} now={p.now} />
                {h.task_id && ` · ${h.task_id} #${h.id}`}
              </span>
              {h.lines.map((l) => (
                <span class={`line ${l.added ? "add" : "del"}`} key={`${l.added} ${l.line}`}>
                  <span class="sign">{l.added ? "+" : "\u2212"}</span>
                  <Marked line={l.text} text={p.text} path={text(h.new_path ?? h.path, h.path_encoding)} />
                </span>
              ))}
              {h.more > 0 && <span class="dim">and {count(h.more, "line")} more</span>}
            </a>
          </li>
        ))}
      </ol>
    </section>
  );
}
