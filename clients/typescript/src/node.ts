import { readFile } from "node:fs/promises";
import * as http from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";

/**
 * socketFetch returns a fetch that reaches a server at a Unix socket, a path or
 * `unix:PATH`. Connections are not kept.
 */
export function socketFetch(path: string): typeof fetch {
  const socketPath = path.replace(/^unix:(\/\/)?/, "");
  return async (input, init) => {
    const req = new Request(input as any, init as any);
    const body = req.body === null ? undefined : new Uint8Array(await req.arrayBuffer());
    const url = new URL(req.url);
    return new Promise<Response>((resolve, reject) => {
      const headers: Record<string, string> = { host: "localhost" };
      req.headers.forEach((value, name) => { headers[name] = value; });
      headers.host = "localhost";
      if (body !== undefined) headers["content-length"] = String(body.byteLength);
      const out = http.request({ socketPath, path: url.pathname + url.search, method: req.method, headers, signal: req.signal, agent: false }, (res) => {
        const answered = new Headers();
        for (let i = 0; i < res.rawHeaders.length; i += 2) answered.append(res.rawHeaders[i]!, res.rawHeaders[i + 1]!);
        const status = res.statusCode ?? 502;
        const empty = status === 204 || status === 304 || req.method === "HEAD";
        try {
          resolve(new Response(empty ? null : (Readable.toWeb(res) as any), { status, headers: answered }));
          if (empty) res.resume();
        } catch (err) {
          out.destroy();
          reject(err); // a status that no Response can have
        }
      });
      out.on("error", reject);
      out.end(body);
    });
  };
}

function alive(pid: unknown): boolean {
  if (typeof pid !== "number") return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (err) {
    return (err as { code?: string }).code === "EPERM";
  }
}

/**
 * findServer returns the options that reach this machine's server: UMBRA_SERVER
 * and UMBRA_TOKEN, else the address that the server wrote to its data
 * directory, else the default address.
 */
export async function findServer(): Promise<{ url: string; token?: string; fetch?: typeof fetch }> {
  const of = (address: string) => {
    const found: { url: string; token?: string; fetch?: typeof fetch } = { url: address };
    if (address.startsWith("unix:")) {
      found.url = "http://localhost";
      found.fetch = socketFetch(address);
    } else if (!/^https?:/.test(address)) {
      found.url = "http://" + address;
    }
    if (process.env.UMBRA_TOKEN) found.token = process.env.UMBRA_TOKEN;
    return found;
  };
  if (process.env.UMBRA_SERVER) return of(process.env.UMBRA_SERVER);
  const data = process.env.UMBRA_DATA_DIR ?? join(process.env.XDG_DATA_HOME || join(homedir(), ".local", "share"), "umbra");
  try {
    const holder = JSON.parse(await readFile(join(data, "lock"), "utf8"));
    if (typeof holder.address === "string" && holder.address !== "" && alive(holder.pid)) return of(holder.address);
  } catch {
    // No server has used the data directory.
  }
  return of("http://127.0.0.1:8080");
}
