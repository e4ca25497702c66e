// Mastra (Node 22.13): one workspace for all agents; the resolver gives each request
// the subtask of its agent.
import { Agent } from "@mastra/core/agent";
import { RequestContext } from "@mastra/core/request-context";
import { WORKSPACE_TOOLS, Workspace } from "@mastra/core/workspace";
import { UmbraFilesystem } from "umbra-client/mastra";
import { scripted } from "./ai-models.mjs";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two agents of Mastra");
const workspace = new Workspace({ filesystem: UmbraFilesystem.resolver((context) => scene.task.subtask(context.get("agent"))) });
const { READ_FILE, EDIT_FILE, WRITE_FILE } = WORKSPACE_TOOLS.FILESYSTEM;
const run = (name) => {
  const { old, now, own } = edits[name];
  const edit = [EDIT_FILE, { path: "page.txt", old_string: old, new_string: now }];
  // The edit is made twice: where another agent came in between, the first one is refused.
  const model = scripted([[[READ_FILE, { path: "page.txt" }]], [edit], [[READ_FILE, { path: "page.txt" }]], [edit], [[WRITE_FILE, { path: own, content: "notes\n" }]]]);
  const requestContext = new RequestContext();
  requestContext.set("agent", name);
  return new Agent({ id: name, name, instructions: "Improve the page.", model, workspace }).generate("go", { requestContext, maxSteps: 10 });
};
await Promise.all(Object.keys(edits).map(run));
await person(scene.project);
await undo(scene, "alice");

// The file system's history is the task's changelog.
const history = await new UmbraFilesystem({ task: scene.task }).getHistory({ operations: ["write"] });
console.log(`Bob's changes: ${history.filter((e) => e.metadata.subtask === "bob").map((e) => e.path).sort().join(" ")}`);
