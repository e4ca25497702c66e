// The OpenAI Agents SDK: patches of two agents are applied by the editor.
import { Agent, Runner, Usage, applyPatchTool } from "@openai/agents-core";
import { UmbraEditor } from "umbra-client/openai-agents";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two agents of the OpenAI Agents SDK");

/** A model that answers with these items, one list a turn. */
const scripted = (turns) => ({
  async getResponse() {
    const done = [{ type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: "Done." }] }];
    return { usage: new Usage(), output: turns.shift() ?? done };
  },
  getStreamedResponse() { throw new Error("not streamed"); },
});
const patch = (callId, operation) => ({ type: "apply_patch_call", callId, status: "completed", operation });
const agent = (name) => {
  const { old, now, own } = edits[name];
  return new Agent({
    name,
    model: scripted([
      [patch("1", { type: "update_file", path: "page.txt", diff: `@@\n-${old}\n+${now}\n` })],
      [patch("2", { type: "create_file", path: own, diff: "+notes\n" })],
    ]),
    tools: [applyPatchTool({ editor: new UmbraEditor({ task: scene.task, subtask: name }) })],
  });
};
const runner = new Runner({ tracingDisabled: true });
await Promise.all(Object.keys(edits).map((name) => runner.run(agent(name), "Improve the page.")));
await person(scene.project);
await undo(scene, "alice");
