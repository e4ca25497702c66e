// Small pieces that all pages use.

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { aborted, sentence, text } from "./api";
import { ago, exact, operation, split, visible, who } from "./format";
import { onReach } from "./reach";
import type { Status } from "./types";

/** useLoad loads something when its key changes; what was there stays until the new one has come. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, key: unknown[]): { data: T | undefined; error: string; loading: boolean; reload: () => void } {
  const [state, set] = useState<{ data: T | undefined; error: string; loading: boolean; key: string }>({ data: undefined, error: "", loading: true, key: "" });
  const [round, again] = useState(0);
  const name = JSON.stringify(key);
  useEffect(() => {
    const abort = new AbortController();
    set((s) => ({ ...s, data: s.key === name ? s.data : undefined, loading: true, key: name }));
    load(abort.signal).then(
      (data) => abort.signal.aborted || set({ data, error: "", loading: false, key: name }),
      (e) => {
        if (!aborted(e) && !abort.signal.aborted) set({ data: undefined, error: sentence(e), loading: false, key: name });
      },
    );
    return () => abort.abort();
  }, [name, round]);
  const reload = useCallback(() => again((n) => n + 1), []);
  const current = state.key === name;
  // What failed without an answer is loaded again once the server is back.
  const failed = state.error !== "";
  useEffect(() => (failed ? onReach((ok) => ok && reload()) : undefined), [failed]);
  return { data: current ? state.data : undefined, error: current ? state.error : "", loading: !current || state.loading, reload };
}

/** usePoll loads something again and again, as long as the page is visible, and at once when it becomes so; a new key starts over. If a load fails, the data before it stays. */
export function usePoll<T>(load: (signal: AbortSignal) => Promise<T>, every: number, key: unknown[]): { data: T | undefined; error: string; reload: () => void } {
  const name = JSON.stringify(key);
  const [state, set] = useState<{ data: T | undefined; text: string; error: string; key: string }>({ data: undefined, text: "", error: "", key: name });
  const [round, again] = useState(0);
  const current = useRef(load);
  current.current = load;
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asked = 0;
    const run = async () => {
      clearTimeout(timer);
      const round = ++asked;
      // An answer that a later one has overtaken is not shown.
      const overtaken = () => abort.signal.aborted || round !== asked;
      if (document.visibilityState === "visible") {
        try {
          const data = await current.current(abort.signal);
          const text = JSON.stringify(data);
          // What is as it was is not drawn again.
          if (!overtaken()) set((s) => (s.key === name && s.text === text && s.error === "" ? s : { data, text, error: "", key: name }));
        } catch (e) {
          if (!aborted(e) && !overtaken()) set((s) => ({ ...(s.key === name ? s : { data: undefined, text: "" }), error: sentence(e), key: name }));
        }
      }
      if (overtaken()) return;
      clearTimeout(timer);
      timer = setTimeout(run, every);
    };
    const seen = () => document.visibilityState === "visible" && void run();
    void run();
    document.addEventListener("visibilitychange", seen);
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [name, round]);
  const reload = useCallback(() => again((n) => n + 1), []);
  return { data: state.key === name ? state.data : undefined, error: state.key === name ? state.error : "", reload };
}

/** useNow is the time for "5 min ago", renewed now and then. */
export function useNow(): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 10_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** useKeys listens to keys outside of fields. With inner, it comes before the page's own keys. */
export function useKeys(keys: Record<string, (e: KeyboardEvent) => void>, inner = false): void {
  const current = useRef(keys);
  current.current = keys;
  // Before the first paint: a key that comes with it is one of this page.
  useLayoutEffect(() => {
    const down = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
      if (document.querySelector("dialog[open]")) return;
      const target = e.target as HTMLElement;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) {
        if (e.key === "Escape") target.blur();
        return;
      }
      const fn = current.current[e.key];
      if (!fn) return;
      e.preventDefault();
      fn(e);
    };
    addEventListener("keydown", down, inner);
    return () => removeEventListener("keydown", down, inner);
  }, []);
}

/** announce has a screen reader read a text, once it is idle. */
export function announce(what: string): void {
  const region = document.getElementById("live");
  if (region) region.textContent = what;
}

export function Time(p: { at: string; now: number }) {
  return (
    <time dateTime={p.at} title={exact(p.at)}>
      {ago(p.at, p.now)}
    </time>
  );
}

/** agentColors is how many colors agents have; style.css names them agent-0 and on. */
const agentColors = 8;

/** knownAgents have colors of their own, so that no two of them look alike. */
const knownAgents = ["codex", "claude-code", "opencode", "gemini-cli", "cursor", "qwen-code", "copilot"];

/** agentColor is an agent's or actor's color: the same name has the same one on every page. */
export function agentColor(name: string): string {
  const known = knownAgents.indexOf(name);
  if (known >= 0) return `agent-${known}`;
  let h = 2166136261;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
  return `agent-${(h >>> 8) % agentColors}`;
}

/** Against names the rules of the policy that a change is against. */
export function Against(p: { rules: string[] | null | undefined }) {
  if (!p.rules || p.rules.length === 0) return null;
  return (
    <span class="tag against" title="A command did this; the policy would have refused it.">
      against policy: {visible(p.rules.join(", "))}
    </span>
  );
}

/** Agent is an agent's name, with its color next to it. */
export function Agent(p: { name: string }) {
  return <span class={`agent ${agentColor(p.name)}`}>{visible(p.name)}</span>;
}

/** Who is who made a change: an agent or actor with its color. */
export function Who(p: { of: { actor: string; source: string } }) {
  return p.of.actor && p.of.source !== "revert" ? <Agent name={p.of.actor} /> : <>{visible(who(p.of))}</>;
}

const statusWords: Record<Status, string> = { executing: "executing", paused: "paused", completed: "completed", failed: "failed", cancelled: "cancelled" };

export function StatusChip(p: { status: Status }) {
  return <span class={`chip ${p.status}`}>{statusWords[p.status] ?? p.status}</span>;
}

export function OpBadge(p: { operation: string; source?: string }) {
  const op = operation(p.operation);
  const undo = p.source === "revert" || p.source === "rollback";
  return (
    <span class={`op ${undo ? "undo" : op.kind}`} title={undo ? `${p.source}: ${op.word}` : op.word}>
      <span aria-hidden="true">{undo ? "\u21b6" : op.letter}</span>
      <span class="hidden">{undo ? `${p.source}, ` : ""}{op.word}</span>
    </span>
  );
}

export function PathName(p: { path: string; encoding?: string | undefined; to?: string | null | undefined }) {
  const [dir, base] = split(visible(text(p.to ?? p.path, p.encoding)));
  return (
    <span class="path">
      {p.to ? (
        <>
          <span class="dir">{visible(text(p.path, p.encoding))} → </span>
        </>
      ) : null}
      <span class="dir">{dir}</span>
      <span class="base">{base}</span>
    </span>
  );
}

/** certaintyWords say what a certainty means. */
export const certaintyWords: Record<string, string> = {
  exact: "Exact: the content is known to come from this call.",
  declared: "Declared: this call alone named the path.",
  window: "Window: this call alone was open when the file changed.",
  shared: "Shared: several calls were open, any of them may have made it.",
};

/** sharedBy is a change's source; of a shared one, with how many calls may have made it. */
export function sharedBy(e: { source: string; claimants?: string[] | null | undefined }): string {
  return e.source === "shared" && e.claimants?.length ? `shared by ${e.claimants.length}` : e.source;
}

export function Counts(p: { additions: number; deletions: number; binary?: boolean }) {
  if (p.binary) return <span class="counts dim">binary</span>;
  return (
    <span class="counts">
      <span class="plus">+{p.additions}</span> <span class="minus">−{p.deletions}</span>
      <span class="hidden"> lines</span>
    </span>
  );
}

export function ErrorBox(p: { error: string; retry?: () => void; home?: boolean }) {
  return (
    <div class="error" role="alert">
      {p.home ? <h1>{p.error}</h1> : <p>{p.error}</p>}
      {p.retry && (
        <button type="button" onClick={p.retry}>
          Try again
        </button>
      )}
      {p.home && (
        <p>
          <a href="#/">All tasks and workspaces</a>
        </p>
      )}
    </div>
  );
}

/** Failed is an error in a line of text, and a button that tries again. */
export function Failed(p: { error: string; retry: () => void }) {
  if (!p.error) return null;
  return (
    <>
      , {p.error}{" "}
      <button type="button" class="link" onClick={p.retry}>
        Try again
      </button>
    </>
  );
}

export function Loading(p: { what: string }) {
  return <p class="loading">Loading {p.what} …</p>;
}

export function Field(p: { label: string; children: ComponentChildren; class?: string }) {
  return (
    <label class={`field ${p.class ?? ""}`}>
      <span>{p.label}</span>
      {p.children}
    </label>
  );
}

const drawings: Record<string, string> = {
  undo: "M4 7h7.5a3.5 3.5 0 0 1 0 7H8M4 7l3-3M4 7l3 3",
  clock: "M9 4.5V9l3 2M16 9A7 7 0 1 1 2 9a7 7 0 0 1 14 0",
  down: "M9 3v9m0 0 3.5-3.5M9 12 5.5 8.5M3 15h12",
  search: "M12 12l4 4M13.5 7.75a5.75 5.75 0 1 1-11.5 0 5.75 5.75 0 0 1 11.5 0",
  sun: "M9 12.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7M9 1v1.5M9 15.5V17M1 9h1.5M15.5 9H17M3.3 3.3l1.1 1.1M13.6 13.6l1.1 1.1M3.3 14.7l1.1-1.1M13.6 4.4l1.1-1.1",
  moon: "M15 10.5A6.5 6.5 0 0 1 7.5 3a6.5 6.5 0 1 0 7.5 7.5",
  back: "M11 4 6 9l5 5",
  right: "M7 4l5 5-5 5",
  file: "M4 2h6l4 4v10H4zM10 2v4h4",
  close: "M4.5 4.5l9 9M13.5 4.5l-9 9",
};

export function Icon(p: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 18 18" width="18" height="18" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={drawings[p.name] ?? ""} />
    </svg>
  );
}

/** Command shows a line for a shell, with a button that copies it. */
export function Command(p: { line: string }) {
  const [said, say] = useState("");
  const end = (text: string, how: string) => {
    say(text);
    announce(how);
  };
  useEffect(() => {
    if (said === "") return;
    const timer = setTimeout(() => say(""), 2000);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <p class="command">
      <code>{p.line}</code>
      <button
        type="button"
        class="small"
        aria-label={`Copy ${p.line}`}
        onClick={() =>
          (navigator.clipboard?.writeText(p.line) ?? Promise.reject()).then(
            () => end("Copied", "Copied."),
            () => end("Not copied", "The browser does not let the page copy."),
          )
        }
      >
        {said || "Copy"}
      </button>
    </p>
  );
}
