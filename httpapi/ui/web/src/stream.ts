// Server-sent events by fetch: unlike EventSource it can send the token, and a
// hidden page gives its connection back.

import { onReach } from "./reach";
import { aborted, ApiError, request } from "./api";

export interface StreamEvent {
  id: string;
  name: string;
  data: string;
}

export type Connection = "live" | "connecting" | "paused" | "ended";

export interface StreamOptions {
  /** where: the stream's path, asked before each connection. */
  path: () => string;
  /** after is the last event that is known, null to begin now. */
  after: number | null;
  event: (e: StreamEvent) => void;
  state: (s: Connection) => void;
  /** missed is called after a connection before which events may have passed: no event was known, or the server no longer has those after it. */
  missed?: () => void;
  /** more reports, after the server has ended the stream, whether to connect again. */
  more: () => boolean;
}

/** follow keeps a stream open until the returned function is called. */
export function follow(o: StreamOptions): () => void {
  let last = o.after;
  let gap = false; // events may have passed since the stream was open
  let stopped = false;
  let current: AbortController | null = null;
  let wake: (() => void) | null = null;

  const visible = () => document.visibilityState === "visible";
  const change = () => {
    if (visible()) wake?.();
    else current?.abort();
  };
  document.addEventListener("visibilitychange", change);
  const unlisten = onReach((ok) => ok && wake?.());

  const pause = (ms: number) =>
    new Promise<void>((resolve) => {
      const timer = ms > 0 ? setTimeout(resolve, ms) : undefined;
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  const run = async () => {
    let wait = 250;
    while (!stopped) {
      if (!visible()) {
        o.state("paused");
        await pause(0);
        continue;
      }
      o.state("connecting");
      current = new AbortController();
      try {
        const res = await request(o.path(), {
          headers: { Accept: "text/event-stream", ...(last !== null ? { "Last-Event-ID": String(last) } : {}) },
          signal: current.signal,
        });
        o.state("live");
        wait = 250;
        if (gap) o.missed?.();
        gap = last === null;
        await read(res, (e) => {
          if (e.id) {
            last = Number(e.id);
            gap = false;
          }
          o.event(e);
        });
        if (!stopped && !o.more()) {
          o.state("ended");
          return;
        }
      } catch (e) {
        if (e instanceof ApiError && e.status === 410 && last !== null && o.missed) {
          last = null;
          gap = true;
          continue;
        }
        if (e instanceof ApiError && e.status >= 400 && e.status < 500 && e.status !== 429) {
          o.state("ended");
          return;
        }
        gap ||= last === null;
        if (aborted(e)) continue;
      }
      if (stopped) return;
      o.state("connecting");
      await pause(wait);
      wait = Math.min(wait * 2, 10_000);
    }
  };
  void run();
  return () => {
    stopped = true;
    unlisten();
    document.removeEventListener("visibilitychange", change);
    current?.abort();
    wake?.();
  };
}

/** read parses the WHATWG's event stream format. */
async function read(res: Response, event: (e: StreamEvent) => void): Promise<void> {
  const reader = res.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let e: StreamEvent = { id: "", name: "", data: "" };
  let data: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) event({ ...e, data: data.join("\n") });
        e = { id: "", name: "", data: "" };
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "id") e.id = content;
      else if (field === "event") e.name = content;
      else if (field === "data") data.push(content);
    }
  }
}
