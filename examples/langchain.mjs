// LangChain: two agents with the tools of one toolset. The middleware adds the tools
// that the mounts allow, and the map of the file system, at each turn.
import { createAgent } from "langchain";
import { PhysicalStore, createWorkspacesMiddleware } from "umbra-client/langchain";
import { chat } from "./models.mjs";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two agents of LangChain");
const agent = (name) => {
  const { old, now, own } = edits[name];
  return createAgent({
    model: chat({ go: [[["edit_file", { path: "/project/page.txt", old_string: old, new_string: now }], ["write_file", { path: `/project/${own}`, content: "notes\n" }]]] }),
    middleware: [createWorkspacesMiddleware({
      umbra: scene.umbra, taskId: scene.task.id, subtask: name,
      mounts: [{ prefix: "/project", scope: "READ_WRITE", store: new PhysicalStore(scene.project) }],
    })],
  });
};
await Promise.all(Object.keys(edits).map((name) => agent(name).invoke({ messages: [{ role: "user", content: "go" }] })));
await person(scene.project);
await undo(scene, "alice");
