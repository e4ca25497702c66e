// The page's side of the highlighting thread.

import { useEffect, useState } from "preact/hooks";

import type { Done, Job } from "./worker";
import type { Token } from "./words";

/** patience is how long a block may take, in milliseconds, before its thread is ended. */
const patience = 3000;
const longestBlock = 200_000;

declare const __WORKER__: string;

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): { createScriptURL(url: string): string };
}

let worker: Worker | null = null;
let policy: { createScriptURL(url: string): string } | null = null;
let nextID = 1;
let busy: { job: Job; done: (lines: Token[][]) => void; timer: ReturnType<typeof setTimeout> } | null = null;
const waiting: { job: Job; done: (lines: Token[][]) => void }[] = [];
const given = new Set<string>();

function start(): Worker {
  const types = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes;
  // The only script that the page ever loads by name is this one.
  policy ??= types
    ? types.createPolicy("umbra-worker", {
        createScriptURL: (url) => {
          if (url !== __WORKER__) throw new TypeError("not our worker");
          return url;
        },
      })
    : { createScriptURL: (url) => url };
  const w = new Worker(policy.createScriptURL(__WORKER__));
  w.addEventListener("message", (e: MessageEvent<Done>) => {
    if (busy?.job.id !== e.data.id) return;
    finish(e.data.lines);
  });
  w.addEventListener("error", () => give());
  return w;
}

function finish(lines: Token[][]): void {
  if (!busy) return;
  clearTimeout(busy.timer);
  const { done } = busy;
  busy = null;
  done(lines);
  next();
}

/** give ends a thread that does not answer; its language stays plain in this page. */
function give(): void {
  worker?.terminate();
  worker = null;
  if (busy) given.add(busy.job.language);
  finish([]);
}

function next(): void {
  if (busy) return;
  // The newest request is for the visible rows.
  const item = waiting.pop();
  if (!item) return;
  worker ??= start();
  busy = { ...item, timer: setTimeout(give, patience) };
  worker.postMessage(item.job);
}

/** highlight gives the tokens of each line, none where the language is not known. */
export function highlight(language: string, text: string): Promise<Token[][]> {
  if (!language || text.length > longestBlock || given.has(language)) return Promise.resolve([]);
  return new Promise((done) => {
    waiting.push({ job: { id: nextID++, language, text }, done });
    next();
  });
}

/** useTokens gives the tokens of each line of a text, once the thread has them. */
export function useTokens(path: string, text: string): Token[][] {
  const [found, set] = useState<{ of: string; tokens: Token[][] }>({ of: "", tokens: [] });
  useEffect(() => {
    let current = true;
    void highlight(languageOf(path), text).then((tokens) => current && tokens.length > 0 && set({ of: text, tokens }));
    return () => {
      current = false;
    };
  }, [path, text]);
  return found.of === text ? found.tokens : [];
}

const byName: Record<string, string> = {
  makefile: "makefile", gnumakefile: "makefile", dockerfile: "bash", containerfile: "bash", "go.mod": "go", ".bashrc": "bash", ".profile": "bash",
};

const byExtension: Record<string, string> = {
  ts: "typescript", tsx: "typescript", mts: "typescript", cts: "typescript", js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript",
  go: "go", py: "python", pyi: "python", rb: "ruby", rs: "rust", c: "c", h: "c", cc: "cpp", cpp: "cpp", hpp: "cpp", cxx: "cpp", cs: "csharp", java: "java",
  kt: "kotlin", kts: "kotlin", swift: "swift", m: "objectivec", php: "php", pl: "perl", pm: "perl", lua: "lua", luau: "lua", r: "r", sql: "sql",
  sh: "bash", bash: "bash", zsh: "bash", json: "json", jsonc: "json", yaml: "yaml", yml: "yaml", toml: "ini", ini: "ini", cfg: "ini", conf: "ini",
  xml: "xml", html: "xml", htm: "xml", svg: "xml", vue: "xml", css: "css", scss: "scss", less: "less", md: "markdown", markdown: "markdown",
  diff: "diff", patch: "diff", graphql: "graphql", gql: "graphql", mk: "makefile", vb: "vbnet", wat: "wasm",
};

export function languageOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  return byName[name] ?? byExtension[name.slice(name.lastIndexOf(".") + 1)] ?? "";
}
