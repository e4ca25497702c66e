// Addresses after the "#": the server knows one page only, and its 404s stay.

import { useEffect, useState } from "preact/hooks";

export interface Route {
  /** parts are the decoded segments: ["tasks", "t1", "changes", "4"]. */
  parts: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = split(hash.replace(/^#\/?/, ""));
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function split(s: string): [string, string] {
  const at = s.indexOf("?");
  return at < 0 ? [s, ""] : [s.slice(0, at), s.slice(at + 1)];
}

function decode(s: string): string {
  try {
    return decodeURIComponent(s);
  } catch {
    return s;
  }
}

/** to gives the address of a page. Empty parameters are left out. */
export function to(parts: (string | number)[], query: Record<string, string | number | null | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") q.set(name, String(value));
  }
  const tail = q.toString();
  return `#/${parts.map((p) => encodeURIComponent(p)).join("/")}${tail ? `?${tail}` : ""}`;
}

export function go(address: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}

export function useRoute(): Route {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const change = () => set(parse(location.hash));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}
