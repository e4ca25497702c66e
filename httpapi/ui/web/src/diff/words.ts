// Which words of a changed line differ from its mate's.

import { diffWordsWithSpace } from "diff";

/** Range is a part of a line, in UTF-16 units: from, to. */
export type Range = [number, number];

const longest = 1500;

/** marks gives what differs in each line; nothing where they have little in common. */
export function marks(before: string, after: string): { old: Range[]; now: Range[] } {
  const none = { old: [], now: [] };
  if (before.length > longest || after.length > longest || before === after) return none;
  const parts = diffWordsWithSpace(before, after, { timeout: 30 });
  if (!parts) return none;
  const old: Range[] = [];
  const now: Range[] = [];
  let a = 0;
  let b = 0;
  let common = 0;
  for (const part of parts) {
    const n = part.value.length;
    if (part.added) {
      now.push([b, b + n]);
      b += n;
    } else if (part.removed) {
      old.push([a, a + n]);
      a += n;
    } else {
      common += part.value.trim().length;
      a += n;
      b += n;
    }
  }
  const whole = Math.max(before.trim().length, after.trim().length);
  return common < whole * 0.25 ? none : { old: joined(old, before), now: joined(now, after) };
}

/** joined closes gaps of mere space between marks. */
function joined(ranges: Range[], line: string): Range[] {
  const out: Range[] = [];
  for (const r of ranges) {
    const last = out.at(-1);
    if (last && line.slice(last[1], r[0]).trim() === "") last[1] = r[1];
    else out.push(r);
  }
  return out;
}

/** Token is a highlighted part of a line: from, to, class. */
export type Token = [number, number, string];

export interface Segment {
  text: string;
  class: string;
}

/** segments cuts a line where its tokens and marks begin and end. */
export function segments(text: string, tokens: Token[] | undefined, marked: Range[] | undefined): Segment[] {
  if (!tokens?.length && !marked?.length) return [{ text, class: "" }];
  const cuts = new Set([0, text.length]);
  for (const [from, to] of tokens ?? []) {
    cuts.add(from);
    cuts.add(to);
  }
  for (const [from, to] of marked ?? []) {
    cuts.add(from);
    cuts.add(to);
  }
  const at = [...cuts].filter((c) => c <= text.length).sort((x, y) => x - y);
  const out: Segment[] = [];
  let t = 0;
  let m = 0;
  for (let i = 0; i + 1 < at.length; i++) {
    const from = at[i]!;
    while (tokens && t < tokens.length && tokens[t]![1] <= from) t++;
    while (marked && m < marked.length && marked[m]![1] <= from) m++;
    const token = tokens?.[t];
    const mark = marked?.[m];
    const names = [token && token[0] <= from ? token[2] : "", mark && mark[0] <= from ? "mark" : ""];
    out.push({ text: text.slice(from, at[i + 1]), class: names.filter(Boolean).join(" ") });
  }
  return out;
}
