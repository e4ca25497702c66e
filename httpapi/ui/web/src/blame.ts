// Who wrote each line of a file, for the gutter of a file's view.

import { getJSON, inURL } from "./api";
import { agentColor } from "./bits";
import type { BlameRange } from "./types";
import { short, visible } from "./format";
import { to } from "./route";

/** mostRanges is how many ranges of a file a page reads. */
const mostRanges = 200_000;

/** Gutter is what the gutter shows of a line. */
export interface Gutter {
  /** label is set on the first line of a range alone. */
  label: string;
  title: string;
  class: string;
  href: string;
}

/** writer names who wrote a range: the agent, else the actor, else what brought it. */
function writer(r: BlameRange): string {
  if (r.agent) return r.agent;
  if (r.source === "baseline") return r.project?.author ?? "before umbra";
  if (r.source === "shared") return "several agents";
  return r.actor ?? (r.source === "external" ? "a user on disk" : "the server");
}

/** readBlame reads the blame of a file at a commit; lines count from 1. */
export async function readBlame(workspace: string, path: string, encoding: string | undefined, at: string, signal: AbortSignal): Promise<(line: number) => Gutter | undefined> {
  const ranges: BlameRange[] = [];
  let after: string | null = null;
  do {
    const url: string = `/workspaces/${encodeURIComponent(workspace)}/blame?path=${inURL(path, encoding)}&limit=10000${at ? `&at=${encodeURIComponent(at)}` : ""}${after ? `&after=${encodeURIComponent(after)}` : ""}`;
    const page: { ranges: BlameRange[]; next: string | null } = await getJSON(url, signal);
    for (const r of page.ranges) ranges.push(r);
    after = page.next;
  } while (after && ranges.length < mostRanges);
  return (line) => {
    let lo = 0;
    let hi = ranges.length - 1;
    while (lo <= hi) {
      const mid = (lo + hi) >> 1;
      const r = ranges[mid]!;
      if (line < r.start) hi = mid - 1;
      else if (line > r.end) lo = mid + 1;
      else {
        const name = visible(writer(r));
        const turn = r.subtask_id ? `, ${r.subtask_id}` : "";
        const old = r.source === "baseline";
        return {
          label: line === r.start ? name : "",
          title: `${name}${turn}${r.tool ? ` with ${r.tool}` : ""}, ${new Date(old && r.project ? r.project.at : r.at).toLocaleString()}, ${short(r.commit)}${r.certainty ? `, ${r.certainty}` : ""}`,
          class: old ? "baseline" : agentColor(writer(r)),
          href: to(["workspaces", workspace, "commits", r.commit], { path: r.origin_path, enc: r.origin_path_encoding }),
        };
      }
    }
    return undefined;
  };
}
