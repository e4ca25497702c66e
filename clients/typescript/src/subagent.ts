import { legalSubtask } from "./adapter.js";

/** subagentOf returns the subtask of the agent that a graph's configuration describes; null for the main agent. */
export function subagentOf(config: any): string | null {
  if (config?.configurable?.ls_agent_type !== "subagent") return null;
  const name = config.metadata?.lc_agent_name ?? "subagent";
  const segments = String(config.configurable.checkpoint_ns ?? "").split("|");
  const segment = segments[segments.length - 2] ?? segments[segments.length - 1] ?? "";
  const digits = segment.slice(segment.indexOf(":") + 1).replace(/[^0-9a-fA-F]/g, "").slice(0, 8).toLowerCase();
  // A long name is cut before the digits, which tell two runs apart.
  return legalSubtask(digits === "" ? String(name) : `${String(name).slice(0, 119)}.${digits}`);
}
