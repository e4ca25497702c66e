// Loads a diff or a version of a file and shows it, with its tools.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { aborted, getJSON, request, sentence, text } from "./api";
import { readBlame } from "./blame";
import { Counts, ErrorBox, Loading, useKeys, useLoad } from "./bits";
import { type Parsed, parse, plain } from "./diff/parse";
import { DiffView, type Mode } from "./diff/view";
import { Images, isImage, type Sides } from "./images";
import { bytes } from "./format";
import type { Diff } from "./types";

const blameKey = "umbra.blame";
const modeKey = "umbra.diff";
/** largest is up to which size a diff or file is shown, in characters. */
const largest = 48 << 20;

/** narrow reports whether the window is too narrow for two sides. */
function narrow(): boolean {
  return matchMedia("(max-width: 900px)").matches;
}

export function useMode(): [Mode, (m: Mode) => void] {
  const [mode, set] = useState<Mode>(() => (localStorage.getItem(modeKey) === "split" && !narrow() ? "split" : "inline"));
  const choose = (m: Mode) => {
    localStorage.setItem(modeKey, m);
    set(m);
  };
  useKeys({ s: () => choose(mode === "split" ? "inline" : "split") });
  return [mode, choose];
}

export function DiffPane(p: { url: string; path: string; label: string; files?: boolean; version?: unknown; tools?: ComponentChildren; context?: boolean; empty?: string; images?: Sides | undefined; file?: string }) {
  const [mode, setMode] = useMode();
  const [context, setContext] = useState(3);
  const url = context === 3 ? p.url : `${p.url}${p.url.includes("?") ? "&" : "?"}context=${context}`;
  const loaded = useLoad(async (signal) => {
    // A comparison of workspaces has its counts apart.
    const d = await getJSON<Diff & { summary?: { additions: number; deletions: number } }>(url, signal);
    return d.summary ? { ...d, ...d.summary, binary: false } : d;
  }, [url, p.version]);
  const [parsed, setParsed] = useState<{ of: Diff; parsed: Parsed } | null>(null);
  const [failed, setFailed] = useState("");
  useEffect(() => {
    const d = loaded.data;
    if (!d || d.diff.length > largest) return;
    const abort = new AbortController();
    setFailed("");
    parse(text(d.diff, d.diff_encoding), p.files ?? false, abort.signal).then(
      (result) => abort.signal.aborted || setParsed({ of: d, parsed: result }),
      (e) => aborted(e) || setFailed(sentence(e)),
    );
    return () => abort.abort();
  }, [loaded.data]);
  const d = loaded.data;
  const ready = d && parsed?.of === d ? parsed.parsed : null;
  return (
    <div class="viewer">
      <div class="tools">
        <div class="switch" role="group" aria-label="Form of the diff">
          <button type="button" aria-pressed={mode === "inline"} onClick={() => setMode("inline")}>
            Inline
          </button>
          <button type="button" aria-pressed={mode === "split"} onClick={() => setMode("split")}>
            Side by side
          </button>
        </div>
        {p.context !== false && (
          <select aria-label="Lines around each change" value={String(context)} onChange={(e) => setContext(Number(e.currentTarget.value))}>
            <option value="3">3 lines around</option>
            <option value="25">25 lines around</option>
            <option value="100000">whole file</option>
          </select>
        )}
        {d && <Counts additions={d.additions} deletions={d.deletions} binary={d.binary} />}
        <span class="space" />
        {p.tools}
      </div>
      {d?.mixed && <p class="notice">Others changed {p.files ? "some of these files" : "this file"} between the task's changes. Some of the shown lines may be theirs.</p>}
      {loaded.error || failed ? (
        <ErrorBox error={loaded.error || failed} retry={loaded.reload} />
      ) : d && d.diff.length > largest ? (
        <p class="notice">The diff has {bytes(d.diff.length)}: too much for a page. Download it instead.</p>
      ) : d?.binary && p.images && isImage(p.path) ? (
        <Images versions={[["Before", p.images.before], ["After", p.images.after]]} name={p.path} />
      ) : ready ? (
        <DiffView parsed={ready} path={p.path} mode={mode} label={p.label} {...(p.empty ? { empty: p.empty } : {})} {...(p.file ? { file: p.file } : {})} />
      ) : (
        <Loading what="the diff" />
      )}
    </div>
  );
}

type Shown = { parsed: Parsed } | { note: string };

async function readVersion(url: string, signal: AbortSignal): Promise<Shown> {
  const res = await request(url, { signal });
  const size = Number(res.headers.get("Content-Length") ?? 0);
  if (size > largest) {
    await res.body?.cancel();
    return { note: `The file has ${bytes(size)}: too much for a page. Download it instead.` };
  }
  const data = new Uint8Array(await res.arrayBuffer());
  if (data.subarray(0, 8000).includes(0)) return { note: `The file is binary, ${bytes(data.length)}.` };
  return { parsed: plain(new TextDecoder().decode(data)) };
}

export function VersionPane(p: { url: string; path: string; label: string; tools?: ComponentChildren; blame?: { workspace: string; path: string; encoding: string | undefined; at: string } }) {
  const loaded = useLoad((signal) => readVersion(p.url, signal), [p.url]);
  const shown = loaded.data;
  const [blaming, setBlaming] = useState(localStorage.getItem(blameKey) !== "no");
  const { blame: of } = p;
  const toggle = () => {
    localStorage.setItem(blameKey, blaming ? "no" : "yes");
    setBlaming(!blaming);
  };
  useKeys(of ? { b: toggle } : {});
  const wanted = of !== undefined && blaming && shown !== undefined && "parsed" in shown;
  const blamed = useLoad(async (signal) => (wanted ? readBlame(of.workspace, of.path, of.encoding, of.at, signal) : null), [wanted, of?.workspace, of?.path, of?.at]);
  const parsed = useMemo(() => (shown && "parsed" in shown ? shown.parsed : null), [shown]);
  return (
    <div class="viewer">
      <div class="tools">
        {of && (
          <button type="button" aria-pressed={blaming} onClick={toggle} title="Who wrote each line (b)">
            Blame
          </button>
        )}
        {blamed.error && <span class="dim">{blamed.error}</span>}
        <span class="space" />
        {p.tools}
      </div>
      {loaded.error ? (
        <ErrorBox error={loaded.error} retry={loaded.reload} />
      ) : parsed ? (
        <DiffView parsed={parsed} path={p.path} mode="plain" label={p.label} gutter={(wanted && blamed.data) || undefined} empty="The file is empty." />
      ) : shown && isImage(p.path) ? (
        <Images versions={[["This version", p.url]]} name={p.path} />
      ) : shown && "note" in shown ? (
        <p class="notice">{shown.note}</p>
      ) : (
        <Loading what="the file" />
      )}
    </div>
  );
}
