// The AI SDK (Node 22): tools that work in the sandbox which the agent is given.
import { generateText, isStepCount, jsonSchema, tool } from "ai";
import { umbraSandbox } from "umbra-client/ai-sdk";
import { scripted } from "./ai-models.mjs";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two agents of the AI SDK");
const replace = tool({
  description: "Replace a text in a file.",
  inputSchema: jsonSchema({ type: "object", properties: { path: { type: "string" }, old: { type: "string" }, now: { type: "string" } }, required: ["path", "old", "now"] }),
  execute: async ({ path, old, now }, { experimental_sandbox: sandbox }) => {
    // A write over what another agent changed meanwhile is refused: look again.
    for (let tries = 1; ; tries++) {
      const text = await sandbox.readTextFile({ path });
      try {
        await sandbox.writeTextFile({ path, content: text.replace(old, now) });
        return "Replaced.";
      } catch (err) {
        if (tries === 5) throw err;
      }
    }
  },
});
const note = tool({
  description: "Write a file of notes.",
  inputSchema: jsonSchema({ type: "object", properties: { path: { type: "string" } }, required: ["path"] }),
  execute: async ({ path }, { experimental_sandbox: sandbox }) => {
    await sandbox.writeTextFile({ path, content: "notes\n" });
    return "Written.";
  },
});
const sandbox = umbraSandbox({ task: scene.task });
await Promise.all(Object.entries(edits).map(([name, { old, now, own }]) =>
  generateText({
    model: scripted([[["replace", { path: "page.txt", old, now }]], [["note", { path: own }]]]), prompt: "Improve the page.",
    tools: { replace, note }, stopWhen: isStepCount(5), experimental_sandbox: sandbox.subtask(name),
  })));
await person(scene.project);
await undo(scene, "alice");
