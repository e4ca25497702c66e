// Whether the server can be reached. The first request that fails without an
// answer starts a look at /healthz each second, until it answers.

const interval = 1000;

let ok = true;
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<(ok: boolean) => void>();

export function reachable(): boolean {
  return ok;
}

/** onReach calls fn at each change until the returned function is called. */
export function onReach(fn: (ok: boolean) => void): () => void {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

function set(now: boolean): void {
  if (ok === now) return;
  ok = now;
  for (const fn of [...listeners]) fn(now);
}

async function look(): Promise<void> {
  timer = undefined;
  try {
    await fetch("/healthz", { cache: "no-store", credentials: "omit" });
    set(true);
  } catch {
    timer = setTimeout(() => void look(), interval);
  }
}

/** answered notes that the server answered; failed, that it did not. */
export function answered(): void {
  clearTimeout(timer);
  timer = undefined;
  set(true);
}

export function failed(): void {
  set(false);
  timer ??= setTimeout(() => void look(), interval);
}
