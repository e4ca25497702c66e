// What all examples share: a project with one file, a person who edits it too,
// and the undo of one sub-agent.
import { mkdtemp, readFile, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Umbra } from "umbra-client";
import { findServer } from "umbra-client/node";

const file = "page.txt";
const text = ["title: draft", "", "body: draft", "", "footer: draft", ""].join("\n");

/** What the two sub-agents change: each its own line of the one file, and a file of its own. */
export const edits = {
  alice: { old: "title: draft", now: "title: by alice", own: "alice.txt" },
  bob: { old: "footer: draft", now: "footer: by bob", own: "bob.txt" },
};

/** begin makes a project and a task on it. The server must be on this machine. */
export async function begin(goal) {
  const project = process.argv[2] ?? (await mkdtemp(join(tmpdir(), "umbra-example-")));
  await writeFile(join(project, file), text);
  const umbra = new Umbra(await findServer());
  return { project, umbra, task: await umbra.tasks.create({ goal, workspace: project }) };
}

/** A person edits the same file on disk, with an editor that knows nothing of umbra. */
export async function person(project) {
  const now = await readFile(join(project, file), "utf8");
  await writeFile(join(project, file), now.replace("body: draft", "body: by a person"));
}

/** undo takes back what one sub-agent did, and nothing else. */
export async function undo({ project, task }, subtask) {
  console.log(`Before:\n${await show(project)}`);
  const preview = await task.revert({ subtask, dryRun: true });
  await task.revert({ subtask, plan: preview.plan });
  console.log(`After ${subtask} was undone:\n${await show(project)}`);
  await task.complete();
}

async function show(project) {
  const lines = (await readFile(join(project, file), "utf8")).split("\n").filter((line) => line !== "");
  return [...lines, `files: ${(await readdir(project)).sort().join(" ")}`].map((line) => `  ${line}`).join("\n");
}
