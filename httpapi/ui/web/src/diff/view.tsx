// A diff, or one version of a file, as a table of which only the visible rows are drawn.

import { useEffect, useMemo, useReducer, useRef } from "preact/hooks";

import type { Gutter } from "../blame";
import { visible } from "../format";
import { type ListHandle, VirtualList } from "../virtual";
import { highlight, languageOf } from "./highlight";
import type { Parsed, Row } from "./parse";
import { marks, type Range, type Segment, segments, type Token } from "./words";

export type Mode = "inline" | "split" | "plain";

const lineHeight = 20;
const charWidth = 7.3;
const blockRows = 200;
const warmUp = 100;
/** longestLine is how much of one line is drawn. */
const longestLine = 3000;

/** Paint keeps what colors a diff: tokens by row as they come from the thread, marks as they are asked for. */
export class Paint {
  readonly tokens = new Map<number, Token[]>();
  private readonly marked = new Map<number, Range[]>();
  private readonly asked = new Set<number>();

  constructor(
    private readonly rows: Row[],
    private readonly language: (row: number) => string,
    private readonly changed: () => void,
  ) {}

  marks(i: number): Range[] | undefined {
    const row = this.rows[i]!;
    if (row.mate < 0) return undefined;
    const known = this.marked.get(i);
    if (known) return known;
    const [d, a] = row.kind === "del" ? [i, row.mate] : [row.mate, i];
    const m = marks(this.rows[d]!.text, this.rows[a]!.text);
    this.marked.set(d, m.old);
    this.marked.set(a, m.now);
    return this.marked.get(i);
  }

  /** want asks for the colors of rows that came into view. */
  want(from: number, to: number): void {
    for (let b = Math.floor(from / blockRows); b * blockRows < to; b++) {
      if (this.asked.has(b)) continue;
      this.asked.add(b);
      const end = Math.min((b + 1) * blockRows, this.rows.length);
      for (let i = b * blockRows; i < end; ) {
        if (!code(this.rows[i]!)) {
          i++;
          continue;
        }
        let last = i;
        while (last < end && this.rows[last]!.kind !== "hunk" && this.rows[last]!.kind !== "file") last++;
        this.paint(i, last);
        i = last;
      }
    }
  }

  private paint(from: number, to: number): void {
    const language = this.language(from);
    if (!language) return;
    // The grammar needs lines above to know whether it begins in a comment or a string.
    let start = from;
    while (start > 0 && from - start < warmUp && this.rows[start - 1]!.kind !== "hunk" && this.rows[start - 1]!.kind !== "file") start--;
    for (const side of ["add", "del"] as const) {
      const lines: number[] = [];
      let own = false;
      for (let i = start; i < to; i++) {
        const kind = this.rows[i]!.kind;
        if (kind !== side && kind !== "context") continue;
        lines.push(i);
        own ||= i >= from && (kind === side || side === "add");
      }
      if (!own) continue;
      const text = lines.map((i) => this.rows[i]!.text.slice(0, longestLine)).join("\n");
      void highlight(language, text).then((tokens) => {
        tokens.forEach((t, k) => {
          const i = lines[k];
          if (i !== undefined && i >= from && (this.rows[i]!.kind === side || side === "add")) this.tokens.set(i, t);
        });
        if (tokens.length > 0) this.changed();
      });
    }
  }
}

/** languages names each row's language: that of path, or of the file whose row is above it. */
function languages(rows: Row[], path: string): (row: number) => string {
  const one = languageOf(path);
  if (!rows.some((r) => r.kind === "file")) return () => one;
  const starts: number[] = [];
  rows.forEach((r, i) => {
    if (r.kind === "file") starts.push(i);
  });
  return (row) => {
    const at = starts.findLast((s) => s <= row);
    return at === undefined ? one : languageOf(rows[at]!.text);
  };
}

/** heightOf estimates the height of a row of the inline form, in pixels. */
export function heightOf(row: Row, width: number): number {
  return fixed(row) ?? Math.max(1, Math.ceil(Math.min(row.text.length, longestLine) / Math.max(8, Math.floor((width - 110) / charWidth)))) * lineHeight;
}

function code(row: Row): boolean {
  return row.kind === "context" || row.kind === "add" || row.kind === "del";
}

/** usePaint gives the colors of rows; the component is drawn again when more have come. */
export function usePaint(rows: Row[], language: (row: number) => string): Paint {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const frame = useRef(0);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return useMemo(
    () =>
      new Paint(rows, language, () => {
        frame.current ||= requestAnimationFrame(() => {
          frame.current = 0;
          redraw(0);
        });
      }),
    [rows],
  );
}

/** Lines are the rows of a small diff, all of them in the document. */
export function Lines(p: { rows: Row[]; path: string }) {
  const paint = usePaint(p.rows, () => languageOf(p.path));
  useEffect(() => paint.want(0, p.rows.length), [paint]);
  return (
    <>
      {p.rows.map((_, i) => (
        <InlineRow key={i} i={i} rows={p.rows} paint={paint} plain={false} />
      ))}
    </>
  );
}

/** Segments are the parts of a line, by their colors. */
export function Segments(p: { of: Segment[] }) {
  return <>{p.of.map((s, k) => (s.class ? <span key={k} class={s.class}>{bidi(s.text)}</span> : bidi(s.text)))}</>;
}

export function DiffView(p: { parsed: Parsed; path: string; mode: Mode; label: string; empty?: string; gutter?: ((line: number) => Gutter | undefined) | undefined; file?: string }) {
  const handle = useRef<ListHandle | null>(null);
  const language = useMemo(() => languages(p.parsed.rows, p.path), [p.parsed, p.path]);
  const paint = usePaint(p.parsed.rows, language);
  const { rows, pairs } = p.parsed;
  const split = p.mode === "split";
  const list = useMemo(() => ({ rows, split }), [rows, split]);
  const width = useMemo(() => digits(rows), [rows]);
  const chars = (n: number, width: number, gutters: number) =>
    Math.max(1, Math.ceil(Math.min(n, longestLine) / Math.max(8, Math.floor((width - gutters) / charWidth)))) * lineHeight;
  const estimate = (i: number, width: number) => {
    if (!split) return fixed(rows[i]!) ?? chars(rows[i]!.text.length, width, 110);
    const { left, right } = pairs[i]!;
    const l = rows[left];
    const r = rows[right];
    const own = fixed((l ?? r)!);
    return own ?? chars(Math.max(l?.text.length ?? 0, r?.text.length ?? 0), width / 2, 70);
  };
  const seen = (from: number, to: number) => {
    if (from >= to) return;
    if (!split) paint.want(from, to);
    else paint.want(first(pairs[from]!), last(pairs[to - 1]!) + 1);
  };

  // The file that is wanted comes to the top; once more when its rows are measured.
  useEffect(() => {
    if (!p.file) return;
    const at = rows.findIndex((r) => r.kind === "file" && (r.text === p.file || r.text.endsWith(` \u2192 ${p.file}`)));
    if (at < 0) return;
    const i = split ? pairs.findIndex((pair) => pair.left === at || pair.right === at) : at;
    handle.current?.toTop(i);
    const again = requestAnimationFrame(() => requestAnimationFrame(() => handle.current?.toTop(i)));
    return () => cancelAnimationFrame(again);
  }, [p.file, rows, split]);

  return (
    <>
      {p.parsed.clipped && <p class="notice">The diff is too long for a page: its beginning is shown. Download it to see all.</p>}
      <VirtualList
        class={`diff ${width} ${p.mode} ${p.gutter ? "blamed" : ""}`}
        role="table"
        label={p.label}
        data={list}
        count={split ? pairs.length : rows.length}
        estimate={estimate}
        seen={seen}
        handle={handle}
        empty={p.empty ?? "No line differs."}
        row={(i) => (split ? <SplitRow key={i} i={i} left={pairs[i]!.left} right={pairs[i]!.right} rows={rows} paint={paint} /> : <InlineRow key={i} i={i} rows={rows} paint={paint} plain={p.mode === "plain"} gutter={p.gutter} />)}
      />
    </>
  );
}

/** digits is the class for the width of the longest line number. */
export function digits(rows: Row[]): string {
  return `digits-${String(rows.reduce((most, r) => Math.max(most, r.old, r.now), 0)).length}`;
}

function fixed(row: Row): number | undefined {
  if (row.kind === "hunk") return 28;
  if (row.kind === "file") return 36;
  return undefined;
}

function first(pair: { left: number; right: number }): number {
  return pair.left < 0 ? pair.right : pair.right < 0 ? pair.left : Math.min(pair.left, pair.right);
}

function last(pair: { left: number; right: number }): number {
  return Math.max(pair.left, pair.right);
}

const signs: Record<string, string> = { add: "+", del: "\u2212", context: "", note: "" };

function Code(p: { i: number; row: Row; paint: Paint }) {
  const { row } = p;
  const clipped = row.text.length > longestLine;
  const shown = clipped ? row.text.slice(0, longestLine) : row.text;
  const line = shown.endsWith("\r") ? shown.slice(0, -1) : shown;
  const parts = segments(line, p.paint.tokens.get(p.i), row.kind === "context" ? undefined : p.paint.marks(p.i));
  return (
    <>
      <Segments of={parts} />
      {shown !== line && <span class="eol" title="carriage return">␍</span>}
      {clipped && <span class="more"> … {row.text.length - longestLine} more characters</span>}
    </>
  );
}

/** bidi makes characters visible that would turn a line around. */
function bidi(text: string): string {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (c) => `\u27e8${c.charCodeAt(0).toString(16)}\u27e9`);
}

function Across(p: { i: number; row: Row }) {
  return (
    <div class={`line ${p.row.kind}`} role="row" aria-rowindex={p.i + 1}>
      <span class="across" role="cell">{visible(p.row.text)}</span>
    </div>
  );
}

/** Blame is a line's cell of the gutter: whose it is, by color, and by name where a range begins. */
function Blame(p: { of: Gutter | undefined }) {
  const { of } = p;
  if (!of) return <span class="blame" role="cell" />;
  return (
    <span class={`blame ${of.class}`} role="cell" title={of.title}>
      {of.label && <a href={of.href}>{of.label}</a>}
    </span>
  );
}

export function InlineRow(p: { i: number; rows: Row[]; paint: Paint; plain: boolean; gutter?: ((line: number) => Gutter | undefined) | undefined }) {
  const row = p.rows[p.i]!;
  if (!code(row)) return <Across i={p.i} row={row} />;
  return (
    <div class={`line ${row.kind}`} role="row" aria-rowindex={p.i + 1}>
      {p.gutter && <Blame of={p.gutter(row.now)} />}
      {!p.plain && <span class="num" role="cell">{row.old || ""}</span>}
      <span class="num" role="cell">{row.now || ""}</span>
      {!p.plain && <span class="sign" role="cell">{signs[row.kind]}</span>}
      <span class="code" role="cell">
        <Code i={p.i} row={row} paint={p.paint} />
      </span>
    </div>
  );
}

function SplitRow(p: { i: number; left: number; right: number; rows: Row[]; paint: Paint }) {
  const l = p.rows[p.left];
  const r = p.rows[p.right];
  if (!code((l ?? r)!)) return <Across i={p.i} row={(l ?? r)!} />;
  const half = (row: Row | undefined, i: number, number: number) => (
    <>
      <span class={`num ${row ? row.kind : "none"}`} role="cell">{number || ""}</span>
      <span class={`sign ${row ? row.kind : "none"}`} role="cell">{row ? signs[row.kind] : ""}</span>
      <span class={`code ${row ? row.kind : "none"}`} role="cell">{row && <Code i={i} row={row} paint={p.paint} />}</span>
    </>
  );
  return (
    <div class="line split" role="row" aria-rowindex={p.i + 1}>
      {half(l, p.left, l?.old ?? 0)}
      {half(r, p.right, r?.now ?? 0)}
    </div>
  );
}
