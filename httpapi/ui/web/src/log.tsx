// A workspace's log: all changes. Read page by page as it is scrolled;
// searched by path and actor in the page, since the server knows paths only.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { aborted, type Failing, insist, sentence, text } from "./api";
import { Flags, flagsOf } from "./checkpoints";
import { certaintyWords, Failed, OpBadge, PathName, sharedBy, Time, Who } from "./bits";
import { count, num, turnName } from "./format";
import { to } from "./route";
import type { Checkpoint, Entry } from "./types";
import { VirtualList } from "./virtual";

export interface LogQuery {
  path: string;
  actor: string;
}

const page = 1000;
/** enough is how many hits a search gathers before it asks whether to go on. */
const enough = 500;

export interface Source {
  workspace: string;
  name: string;
}

type Hit = Entry & { workspace: string };

/** LogList shows the entries of some workspaces, newest first, one workspace after the other. */
export function LogList(p: { sources: Source[]; query: LogQuery; now: number; label: string; version: unknown; checkpoints?: Checkpoint[] | undefined }) {
  const [hits, setHits] = useState<Hit[]>([]);
  const [read, setRead] = useState(0);
  const [state, setState] = useState<"reading" | "more" | "done">("reading");
  const [error, setError] = useState("");
  const resume = useRef<(() => void) | null>(null);
  const again = useRef(() => {});
  const searching = p.query.path !== "" || p.query.actor !== "";
  const key = JSON.stringify([p.sources.map((s) => s.workspace), p.query, p.version]);

  useEffect(() => {
    const abort = new AbortController();
    const path = p.query.path.toLowerCase();
    const actor = p.query.actor.toLowerCase();
    setHits([]);
    setRead(0);
    setError("");
    setState("reading");
    const fits = (e: Entry) =>
      (!path || text(e.path, e.path_encoding).toLowerCase().includes(path) || (e.new_path !== null && text(e.new_path, e.path_encoding).toLowerCase().includes(path))) &&
      (!actor || e.actor.toLowerCase().includes(actor));
    const failing: Failing = (said, retry) => {
      again.current = retry;
      setError(said);
    };
    const run = async () => {
      let found = 0;
      let bound = enough;
      for (const source of p.sources) {
        let next: string | null = null;
        do {
          const url: string = `/workspaces/${encodeURIComponent(source.workspace)}/log?limit=${page}${next ? `&after=${encodeURIComponent(next)}` : ""}`;
          const answer: { entries: Entry[]; next: string | null } = await insist(url, abort.signal, failing);
          const more: Hit[] = answer.entries.filter(fits).map((e) => ({ ...e, workspace: source.workspace }));
          found += more.length;
          setRead((n) => n + answer.entries.length);
          if (more.length > 0) setHits((h) => h.concat(more));
          next = answer.next;
          if (found >= bound && next) {
            setState("more");
            await new Promise<void>((go) => (resume.current = go));
            if (abort.signal.aborted) return;
            bound = found + enough;
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
      resume.current?.();
    };
  }, [key]);

  const flags = useMemo(() => flagsOf(p.checkpoints, hits.length, (i) => hits[i]!.seq, true), [p.checkpoints, hits]);
  const seen = (_: number, end: number) => {
    // Without a search the log goes on by itself as far as one scrolls.
    if (!searching && state === "more" && end > hits.length - 200) {
      resume.current?.();
      resume.current = null;
    }
  };

  return (
    <section class="log" aria-label={p.label}>
      <p class="state dim" role="status">
        {searching ? `${num(hits.length)} of ${count(read, "change")}` : count(hits.length, "change")}
        {state === "reading" && !error && ", reading …"}
        {state === "more" && !searching && ", more below"}
        <Failed error={error} retry={() => again.current()} />
        {state === "more" && searching && (
          <button type="button" class="link" onClick={() => resume.current?.()}>
            search on
          </button>
        )}
      </p>
      <VirtualList
        label={`${p.label}, list`}
        data={flags}
        count={hits.length}
        estimate={() => 52}
        seen={seen}
        empty={state === "reading" ? "Reading …" : searching ? "No change fits." : "No change is recorded yet."}
        row={(i) => {
          const e = hits[i]!;
          const href = e.task_id && e.id ? to(["tasks", e.task_id, "changes", e.id]) : to(["workspaces", e.workspace, "commits", e.commit]);
          return (
            <div class="entry" role="listitem" key={`${e.workspace} ${e.seq} ${i}`} aria-setsize={hits.length} aria-posinset={i + 1}>
              <a href={href}>
                <OpBadge operation={e.operation} source={e.source} />
                <span class="what">
                  <PathName path={e.path} encoding={e.path_encoding} to={e.new_path} />
                  <span class="meta">
                    <Who of={e} /> · <Time at={e.timestamp} now={p.now} /> · {e.task_id ? `${e.task_id} #${e.id}` : "no task"}
                    {e.subtask_id && `, ${turnName(e.subtask_id)}`}
                    {p.sources.length > 1 && ` · ${p.sources.find((s) => s.workspace === e.workspace)?.name ?? ""}`}
                    {e.tool && ` · ${e.tool}`}
                    {e.certainty && e.source !== "shared" && (
                      <span class="tag call" title={certaintyWords[e.certainty]}>
                        {e.certainty}
                      </span>
                    )}
                    {e.source !== "api" && e.source !== "call" && (
                      <span class={`tag ${e.source}`} title={e.claimants?.length ? `${certaintyWords.shared} ${e.claimants.join(", ")}` : undefined}>
                        {e.source === "external" ? "outside" : sharedBy(e)}
                      </span>
                    )}
                    <Flags of={flags.get(i)} />
                  </span>
                </span>
              </a>
            </div>
          );
        }}
      />
    </section>
  );
}
