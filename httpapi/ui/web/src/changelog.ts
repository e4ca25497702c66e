// A task's changelog in the page: the newest page first, the older ones behind
// it, and new ones from the stream.

import { aborted, getJSON, insist, sentence } from "./api";
import type { Call, Entry, StreamData } from "./types";

/** Item is what the timeline keeps of an entry; a hundred thousand must fit. */
export interface Item {
  /** id is 0 for a change that several agents may have made: it has no number. */
  id: number;
  seq: number;
  operation: string;
  path: string;
  newPath: string | null;
  encoding: string | undefined;
  time: string;
  subtask: string;
  actor: string;
  source: string;
  commit: string;
  reverts: number[] | null;
  message: string;
  call: string;
  tool: string;
  certainty: string;
  claimants: string[] | null;
  policy: string[] | null;
}

/** keyOf is an item's key in lists: its number, or its place in history. */
export function keyOf(it: Item): string | number {
  return it.id || `${it.seq} ${it.path}`;
}

const firstPage = 200;
const nextPages = 5000;
/** mostCalls is how many of a task's calls a page keeps. */
const mostCalls = 20_000;
/** mostItems bounds what a page keeps; older ones are asked for by hand. */
const mostItems = 300_000;

type RawEntry = Entry & { reverts_entries?: { task_id: string | null; id: number }[] };

export class Changelog {
  /** items are in the order of their ids, without a gap up to the newest. */
  items: Item[] = [];
  undone: Set<number> = new Set();
  /** undoneBy names, for each undone change, the commit that undid it. */
  undoneBy: Map<number, string> = new Map();
  calls: Map<string, Call> = new Map();
  /** oldest is the id before which nothing is loaded yet. */
  oldest = 0;
  complete = false;
  loading = false;
  error = "";
  /** retry asks again for what could not be loaded. */
  retry = () => {};
  /** ready reports that the newest entries are here. */
  ready = false;
  lastSeq = 0;
  version = 0;

  private readonly words = new Map<string, string>();
  private readonly listeners = new Set<() => void>();
  private readonly abort = new AbortController();
  private bound = mostItems;
  private scheduled = false;

  constructor(private readonly task: string) {}

  listen(fn: () => void): () => void {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  }

  close(): void {
    this.abort.abort();
    this.listeners.clear();
  }

  /** loadCalls reads the task's calls; again, only the newest. */
  async loadCalls(again = false): Promise<void> {
    let after: string | null = null;
    do {
      const limit = again ? 100 : 1000;
      const url: string = `/calls?task_id=${encodeURIComponent(this.task)}&limit=${limit}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
      const page: { calls: Call[]; next: string | null } = await getJSON(url, this.abort.signal);
      if (page.calls.length === 0) return;
      for (const c of page.calls) this.calls.set(c.call_id, c);
      this.settle();
      after = again ? null : page.next;
    } while (after && this.calls.size < mostCalls);
  }

  /** turnOf is the subtask of an item; of a shared one, that of a call of this task which may have made it. */
  turnOf(it: Item): string {
    if (it.subtask || !it.claimants) return it.subtask;
    for (const id of it.claimants) {
      const c = this.calls.get(id);
      if (c) return c.subtask_id ?? "";
    }
    return "";
  }

  /** callOf is the call that an item is shown under. */
  callOf(it: Item): string {
    if (it.call || !it.claimants) return it.call;
    return it.claimants.find((id) => this.calls.has(id)) ?? "";
  }

  /** open loads the newest entries of a task that has had so many; the rest follows by itself. */
  async open(changes: number): Promise<void> {
    this.oldest = Math.max(0, changes - firstPage);
    this.loading = true;
    try {
      const page = await this.page(this.oldest, firstPage + 1000);
      this.items = page;
      this.ready = true;
      this.settle();
      // The requested entries are drawn before anything else is loaded.
      requestAnimationFrame(() => setTimeout(() => void this.older(), 50));
    } catch (e) {
      this.fail(e);
    }
  }

  /** more lifts the bound on how much is kept. */
  more(): void {
    this.bound += mostItems;
    void this.older();
  }

  private async older(): Promise<void> {
    this.loading = true;
    try {
      while (this.oldest > 0 && this.items.length < this.bound) {
        const from = Math.max(0, this.oldest - nextPages);
        const page = await this.page(from, this.oldest - from);
        // Other things first: the person scrolls meanwhile.
        await new Promise((resolve) => setTimeout(resolve, 0));
        const end = page.findIndex((i) => i.id > this.oldest);
        this.items = (end < 0 ? page : page.slice(0, end)).concat(this.items);
        this.oldest = from;
        this.settle();
      }
      this.complete = this.oldest === 0;
    } catch (e) {
      this.fail(e);
      return;
    }
    this.loading = false;
    this.settle();
  }

  private async page(after: number, limit: number): Promise<Item[]> {
    const url = `/tasks/${encodeURIComponent(this.task)}/changes?after=${after}&limit=${limit}`;
    const body = await insist<{ entries: RawEntry[] }>(url, this.abort.signal, (error, again) => {
      this.error = error;
      this.retry = again;
      if (error) this.ready = true;
      this.settle();
    });
    return body.entries.map((e) => this.item(e));
  }

  /** add takes an event of the stream. Entries that are known already are dropped. */
  add(data: StreamData): Item[] {
    const newest = this.items.findLast((i) => i.id > 0)?.id ?? 0;
    const added: Item[] = [];
    for (const e of data.entries as RawEntry[]) {
      if (e.task_id === this.task && e.id !== null && e.id > newest) added.push(this.item(e));
      else if (e.source === "shared" && e.seq > this.lastSeq) added.push(this.item(e));
    }
    this.lastSeq = Math.max(this.lastSeq, data.seq);
    if (added.length > 0) {
      this.items = this.items.concat(added);
      this.settle();
    }
    return added;
  }

  private item(e: RawEntry): Item {
    let reverts = e.reverts;
    if (e.reverts_entries) reverts = e.reverts_entries.filter((r) => r.task_id === this.task).map((r) => r.id);
    return {
      id: e.id ?? 0,
      seq: e.seq,
      operation: this.word(e.operation),
      path: e.path,
      newPath: e.new_path,
      encoding: e.path_encoding,
      time: this.word(e.timestamp),
      subtask: this.word(e.subtask_id ?? ""),
      actor: this.word(e.actor),
      source: this.word(e.source),
      commit: this.word(e.commit),
      reverts: reverts && reverts.length > 0 ? reverts : null,
      message: e.message ?? "",
      call: this.word(e.call_id ?? ""),
      tool: this.word(e.tool ?? ""),
      certainty: this.word(e.certainty ?? ""),
      claimants: e.claimants && e.claimants.length > 0 ? e.claimants : null,
      policy: e.policy && e.policy.length > 0 ? e.policy : null,
    };
  }

  /** word keeps one copy of texts that many entries share. */
  private word(s: string): string {
    const known = this.words.get(s);
    if (known !== undefined) return known;
    this.words.set(s, s);
    return s;
  }

  private fail(e: unknown): void {
    if (aborted(e)) return;
    this.loading = false;
    this.ready = true;
    this.error = sentence(e);
    this.settle();
  }

  private settle(): void {
    this.lastSeq = Math.max(this.lastSeq, this.items.at(-1)?.seq ?? 0);
    // Later entries decide first: an undone revert undoes nothing.
    const undone = new Set<number>();
    const by = new Map<number, string>();
    for (let i = this.items.length - 1; i >= 0; i--) {
      const it = this.items[i]!;
      if (it.reverts && !undone.has(it.id)) {
        for (const id of it.reverts) {
          undone.add(id);
          if (!by.has(id)) by.set(id, it.commit);
        }
      }
    }
    this.undone = undone;
    this.undoneBy = by;
    this.version++;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      for (const fn of this.listeners) fn();
    });
  }
}
