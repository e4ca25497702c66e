// Highlights in a thread of its own: hostile text may keep a grammar busy, and
// then only this thread hangs, and is ended.

import { common, createLowlight } from "lowlight";
import type { Token } from "./words";

export interface Job {
  id: number;
  language: string;
  text: string;
}

export interface Done {
  id: number;
  lines: Token[][];
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Node[];
}

const lowlight = createLowlight(common);

function highlight(job: Job): Token[][] {
  const lines: Token[][] = [[]];
  let column = 0;
  const walk = (node: Node, name: string) => {
    if (node.type === "text") {
      const parts = (node.value ?? "").split("\n");
      parts.forEach((part, i) => {
        if (i > 0) {
          lines.push([]);
          column = 0;
        }
        if (name && part) lines.at(-1)!.push([column, column + part.length, name]);
        column += part.length;
      });
      return;
    }
    const names = node.properties?.className;
    const own = Array.isArray(names) && typeof names[0] === "string" ? names[0] : name;
    for (const child of node.children ?? []) walk(child, own);
  };
  walk(lowlight.highlight(job.language, job.text) as Node, "");
  return lines;
}

addEventListener("message", (e: MessageEvent<Job>) => {
  let lines: Token[][] = [];
  try {
    lines = highlight(e.data);
  } catch {
    // a language that is not here: plain text
  }
  postMessage({ id: e.data.id, lines } satisfies Done);
});
