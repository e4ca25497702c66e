// A list of which only the visible part is in the document. Heights are
// estimated, and put right when a row has been seen.

import type { ComponentChildren, VNode } from "preact";
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Sums keeps heights so that both "where is row i" and "which row is at y" take O(log n). */
class Sums {
  private readonly tree: Float64Array;
  private readonly top: number;
  readonly heights: Float32Array;

  constructor(
    readonly count: number,
    estimate: (i: number, width: number) => number,
    width: number,
  ) {
    this.heights = new Float32Array(count);
    this.tree = new Float64Array(count + 1);
    for (let i = 0; i < count; i++) {
      this.heights[i] = estimate(i, width);
      this.tree[i + 1]! += this.heights[i]!;
      const parent = i + 1 + ((i + 1) & -(i + 1));
      if (parent <= count) this.tree[parent]! += this.tree[i + 1]!;
    }
    let top = 1;
    while (top * 2 <= count) top *= 2;
    this.top = top;
  }

  /** before is the height of everything before row i. */
  before(i: number): number {
    let sum = 0;
    for (let k = Math.min(i, this.count); k > 0; k -= k & -k) sum += this.tree[k]!;
    return sum;
  }

  set(i: number, height: number): number {
    const change = height - this.heights[i]!;
    this.heights[i] = height;
    for (let k = i + 1; k <= this.count; k += k & -k) this.tree[k]! += change;
    return change;
  }

  /** at is the row at y. */
  at(y: number): number {
    let k = 0;
    for (let step = this.top; step > 0; step >>= 1) {
      if (k + step <= this.count && this.tree[k + step]! <= y) {
        k += step;
        y -= this.tree[k]!;
      }
    }
    return Math.min(k, this.count - 1);
  }
}

export interface ListHandle {
  scrollTo(i: number): void;
  /** toTop puts row i at the top of what is seen. */
  toTop(i: number): void;
}

export interface ListProps {
  count: number;
  /** data is what the rows are made of: another object means other rows. */
  data: unknown;
  /** estimate is a row's height in a list of that width, in pixels. */
  estimate: (i: number, width: number) => number;
  row: (i: number) => VNode;
  /** keyOf names a row for good, so that the list stays where it is when rows come above. */
  keyOf?: (i: number) => string | number;
  label: string;
  role?: "list" | "table";
  class?: string;
  handle?: RefObject<ListHandle | null>;
  seen?: (from: number, to: number) => void;
  empty?: ComponentChildren;
}

const overscan = 240;

export function VirtualList(p: ListProps) {
  const box = useRef<HTMLDivElement>(null);
  const block = useRef<HTMLDivElement>(null);
  const state = useRef<{ data: unknown; width: number; sums: Sums; keys: (string | number)[] } | undefined>(undefined);
  const [view, setView] = useState({ top: 0, height: 900, width: 0 });
  const wanted = useRef<number | null>(null);

  let s = state.current;
  if (!s || s.data !== p.data || s.sums.count !== p.count || (s.width !== view.width && s.width !== 0)) {
    const old = s;
    s = { data: p.data, width: view.width, sums: new Sums(p.count, p.estimate, view.width), keys: [] };
    if (old && p.keyOf && old.data !== p.data && view.top > 4) {
      // The first visible row stays where it is.
      const first = old.keys[0];
      if (first !== undefined) {
        for (let i = 0; i < p.count; i++) {
          if (p.keyOf(i) === first) {
            wanted.current = s.sums.before(i);
            break;
          }
        }
      }
    }
    state.current = s;
  }
  if (s.width === 0) s.width = view.width;
  const sums = s.sums;
  const total = sums.before(p.count);
  const scrollTop = wanted.current ?? view.top;
  const from = p.count === 0 ? 0 : sums.at(Math.max(0, scrollTop - overscan));
  const to = p.count === 0 ? 0 : Math.min(p.count, sums.at(scrollTop + view.height + overscan) + 1);
  const offset = sums.before(from);
  const rows: VNode[] = [];
  for (let i = from; i < to; i++) rows.push(p.row(i));
  if (p.keyOf && p.count > 0) s.keys = [p.keyOf(sums.at(scrollTop))];

  useLayoutEffect(() => {
    const el = box.current!;
    if (wanted.current !== null) {
      el.scrollTop = wanted.current;
      wanted.current = null;
    }
    // Put right what was estimated; what changes above the view moves the view.
    let above = 0;
    let changed = false;
    const children = block.current?.children;
    for (let i = 0; children && i < children.length; i++) {
      const h = (children[i] as HTMLElement).offsetHeight;
      const k = from + i;
      if (k >= sums.count || h === 0 || Math.abs(h - sums.heights[k]!) < 0.5) continue;
      const at = sums.before(k);
      const change = sums.set(k, h);
      changed = true;
      if (at + h <= el.scrollTop) above += change;
    }
    if (above !== 0) el.scrollTop += above;
    if (changed || el.scrollTop !== view.top) setView((v) => ({ ...v, top: el.scrollTop }));
    p.seen?.(from, to);
  });

  useEffect(() => {
    const el = box.current!;
    let frame = 0;
    const measure = () => {
      frame = 0;
      setView((v) => {
        const next = { top: el.scrollTop, height: el.clientHeight, width: el.clientWidth };
        return next.top === v.top && next.height === v.height && next.width === v.width ? v : next;
      });
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    el.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(el);
    return () => {
      cancelAnimationFrame(frame);
      el.removeEventListener("scroll", later);
      observer.disconnect();
    };
  }, []);

  if (p.handle) {
    p.handle.current = {
      toTop: (i) => {
        box.current!.scrollTop = state.current!.sums.before(i);
      },
      scrollTo: (i) => {
        const el = box.current!;
        const at = state.current!.sums.before(i);
        const height = state.current!.sums.heights[i] ?? 0;
        if (at < el.scrollTop) el.scrollTop = at;
        else if (at + height > el.scrollTop + el.clientHeight) el.scrollTop = at + height - el.clientHeight;
      },
    };
  }

  return (
    <div ref={box} class={`scroll ${p.class ?? ""}`} tabIndex={0} role="region" aria-label={p.label}>
      {p.count === 0 ? (
        <div class="empty">{p.empty}</div>
      ) : (
        <div class="virtual" style={{ height: `${total}px` }} role={p.role ?? "list"} {...(p.role === "table" ? { "aria-label": p.label, "aria-rowcount": p.count } : {})}>
          <div ref={block} class="block" style={{ transform: `translateY(${offset}px)` }} role={p.role === "table" ? "rowgroup" : "presentation"}>
            {rows}
          </div>
        </div>
      )}
    </div>
  );
}
