// Deep Agents: one backend serves the main agent and its sub-agents; each run of a
// sub-agent is a subtask of its own.
import { createDeepAgent } from "deepagents";
import { UmbraBackend } from "umbra-client/deepagents";
import { chat } from "./models.mjs";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two sub-agents of Deep Agents");
const work = ({ old, now, own }) => [
  [["edit_file", { file_path: "/page.txt", old_string: old, new_string: now }]],
  [["write_file", { file_path: `/${own}`, content: "notes\n" }]],
];
const agent = createDeepAgent({
  model: chat({
    // Both in one answer, so they work at the same time.
    "improve the page": [[["task", { description: "write the title", subagent_type: "alice" }], ["task", { description: "write the footer", subagent_type: "bob" }]]],
    "write the title": work(edits.alice),
    "write the footer": work(edits.bob),
  }),
  backend: new UmbraBackend({ task: scene.task }),
  subagents: Object.keys(edits).map((name) => ({ name, description: `is ${name}`, systemPrompt: "Edit the page." })),
});
await agent.invoke({ messages: [{ role: "user", content: "improve the page" }] });
await person(scene.project);

const { subtasks } = await scene.task.get();
await undo(scene, subtasks.find(({ id }) => id.startsWith("alice.")).id);
