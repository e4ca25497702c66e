// just-bash: two agents with a shell each over the project. No process is started,
// and what a shell changes is its agent's.
import { generateText, isStepCount } from "ai";
import { createBashTool } from "bash-tool";
import { Bash } from "just-bash";
import { UmbraFs } from "umbra-client/just-bash";
import { scripted } from "./ai-models.mjs";
import { begin, edits, person, undo } from "./scene.mjs";

const scene = await begin("two agents with a shell");
const run = async (name) => {
  const { old, now, own } = edits[name];
  const shell = new Bash({ fs: await UmbraFs.create({ task: scene.task.subtask(name) }), cwd: "/" });
  const { tools } = await createBashTool({ sandbox: shell, destination: "/" });
  await generateText({
    model: scripted([[["bash", { command: `sed -i 's/${old}/${now}/' /page.txt && echo notes > /${own}` }]]]),
    prompt: "Improve the page.", tools, stopWhen: isStepCount(5),
  });
};
// A shell reads a file and writes it whole, so these two take turns.
for (const name of Object.keys(edits)) await run(name);
await person(scene.project);
await undo(scene, "alice");
