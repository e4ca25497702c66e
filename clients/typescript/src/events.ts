import { UmbraError } from "./errors.js";
import { Transport, delay, network, next, sleep } from "./http.js";

/** UmbraEvent is one event of a stream: contracts/tasks.md, Events. */
export interface UmbraEvent {
  event: "change" | "revert" | "task" | string;
  /** The workspace's sequence number; absent for `task`. */
  id?: number;
  data: any;
}

export interface EventsOptions {
  /** Events after this sequence number; without it from now on. */
  after?: number;
  signal?: AbortSignal;
}

/** Milliseconds without a byte after which a connection counts as broken. */
const silence = 45_000;
/** Characters of one event. */
const maxEvent = 64 << 20;

export interface Source {
  path: string;
  headers: Record<string, string>;
  /** The newest sequence number, for a stream that begins now. */
  now(signal?: AbortSignal): Promise<number>;
  /** Whether a stream that was closed by the server is at its end. */
  ended(signal?: AbortSignal): Promise<boolean>;
}

/**
 * follow yields events without a gap and without a repeat over any number of
 * connections. It reads on only when the caller asks for more, so no more is
 * buffered than what one read of the connection brought.
 */
export async function* follow(http: Transport, source: Source, o: EventsOptions): AsyncGenerator<UmbraEvent, void, void> {
  let last = o.after ?? (await source.now(o.signal));
  let failures = 0;
  let reported = "";
  for (;;) {
    o.signal?.throwIfAborted();
    let seen = 0;
    let resume: number | undefined;
    const connection = new AbortController();
    const stop = () => connection.abort(o.signal?.reason);
    o.signal?.addEventListener("abort", stop, { once: true });
    try {
      const res = await http.send("GET", source.path, {
        headers: { ...source.headers, Accept: "text/event-stream", "Last-Event-ID": String(last) },
        query: { after: last },
        signal: connection.signal,
      });
      for await (const e of parse(res, connection)) {
        failures = 0;
        if (e.event === "lagged") {
          resume = typeof e.data?.after === "number" ? e.data.after : last;
          break;
        }
        if (e.id !== undefined) {
          if (e.id <= last) continue;
          last = e.id;
          seen++;
        } else if (e.event === "task") {
          // A new connection may report the same state again.
          const state = JSON.stringify(e.data);
          if (state === reported) continue;
          reported = state;
        }
        yield e;
      }
      if (resume !== undefined) last = Math.max(last, resume);
      else if (seen === 0 && (await source.ended(o.signal))) return;
    } catch (err) {
      if (o.signal?.aborted) throw o.signal.reason;
      const failure = err instanceof UmbraError ? err : network(err);
      if (failure.code !== "network" && ![502, 503, 504].includes(failure.status)) throw failure;
      failures++;
      if (failures > 1000) throw failure;
    } finally {
      o.signal?.removeEventListener("abort", stop);
      connection.abort();
    }
    if (seen === 0) await sleep(delay(failures), o.signal);
  }
}

/** parse reads server-sent events (WHATWG HTML, section 9.2). Without a byte for quietMs the connection counts as broken; 0: never. */
export async function* parse(res: Response, connection: AbortController, quietMs = silence): AsyncGenerator<UmbraEvent, void, void> {
  if (!(res.headers.get("content-type") ?? "").startsWith("text/event-stream") || res.body === null) {
    throw new UmbraError({ code: "bad_response", status: res.status, detail: "The answer is not an event stream." });
  }
  const reader = res.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let event = "message";
  let id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const piece = await next(reader, quietMs, connection.signal);
      if (piece.done) return;
      text += decoder.decode(piece.value, { stream: true });
      if (text.length > maxEvent) throw new UmbraError({ code: "response_too_large", status: res.status, detail: "An event is too large." });
      for (let end = text.search(/\r\n|\n|\r(?!$)/); end >= 0; end = text.search(/\r\n|\n|\r(?!$)/)) {
        const line = text.slice(0, end);
        text = text.slice(end + (text.startsWith("\r\n", end) ? 2 : 1));
        if (line === "") {
          if (data.length > 0) {
            let value: any;
            try {
              value = JSON.parse(data.join("\n"));
            } catch {
              throw new UmbraError({ code: "bad_response", status: res.status, detail: "An event is not JSON." });
            }
            const out: UmbraEvent = { event, data: value };
            if (id !== undefined && /^\d+$/.test(id)) out.id = Number(id);
            yield out;
          }
          event = "message";
          id = undefined;
          data = [];
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue;
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") event = value;
        else if (field === "id") id = value;
        else if (field === "data") data.push(value);
      }
    }
  } finally {
    connection.abort();
    reader.cancel().catch(() => {});
  }
}
