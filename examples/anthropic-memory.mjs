// Anthropic's memory tool: two agents share a memory, which here is the project itself.
import Anthropic from "@anthropic-ai/sdk";
import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory";
import { umbraMemory } from "umbra-client/anthropic-memory";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two agents with a memory");

/** A client whose model makes these calls, one a turn, instead of asking a service. */
function scripted(commands) {
  const turns = commands.map((input, i) => ({ stop_reason: "tool_use", content: [{ type: "tool_use", id: `toolu_${i}`, name: "memory", input }] }));
  const fetch = async () => Response.json({
    id: "msg", type: "message", role: "assistant", model: "scripted", stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 },
    ...(turns.shift() ?? { stop_reason: "end_turn", content: [{ type: "text", text: "Done." }] }),
  });
  return new Anthropic({ apiKey: "none", fetch });
}
const run = async (name) => {
  const { old, now, own } = edits[name];
  const client = scripted([
    { command: "str_replace", path: "/memories/page.txt", old_str: old, new_str: now },
    { command: "create", path: `/memories/${own}`, file_text: "notes\n" },
  ]);
  const memory = betaMemoryTool(await umbraMemory({ task: scene.task.subtask(name), root: "/" }));
  await client.beta.messages.toolRunner({ model: "scripted", max_tokens: 1000, messages: [{ role: "user", content: "Improve the page." }], tools: [memory] });
};
await Promise.all(Object.keys(edits).map(run));
await person(scene.project);
await undo(scene, "alice");
