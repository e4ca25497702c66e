import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { dir, project } from "./project.mjs";

// The names that an example takes as given are globals, so that it runs as it is printed.
const given = `
const send = globalThis.fetch;
globalThis.fetch = (input, init) => send(String(input).replace("http://127.0.0.1:8080", process.env.UMBRA_TEST_URL), init);
const { Umbra } = await import("umbra-client");
const langchain = process.env.UMBRA_TEST_MODEL === "langchain";
const { fakeModel } = langchain ? await import("@langchain/core/testing") : {};
const { scripted } = langchain ? {} : await import(${JSON.stringify(join(dir, "test/models.mjs"))});
const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
Object.assign(globalThis, {
  umbra, task: await umbra.tasks.create({ goal: "readme", kind: "virtual" }),
  toolset: await umbra.toolsets.create({ mounts: [{ prefix: "/n", scope: "READ_WRITE", store: { type: "virtual", namespace: ["readme"] } }] }),
  model: langchain ? fakeModel() : scripted(["done"]), prompt: "hello", instructions: "work", tools: {},
});
`;

test("the examples of the README run as they are printed", async () => {
  const at = await project();
  await fs.writeFile(join(at, "given.mjs"), given);
  const blocks = [...(await fs.readFile(join(dir, "README.md"), "utf8")).matchAll(/^```js\n(.*?)^```$/gms)].map((m) => m[1]);
  assert.ok(blocks.length >= 6);
  const entries = Object.keys(JSON.parse(await fs.readFile(join(dir, "package.json"), "utf8")).exports).filter((e) => !["./package.json", "./node"].includes(e));
  for (const e of entries) assert.ok(blocks.some((b) => b.includes(`"umbra-client${e.slice(1)}"`)), `no example for ${e}`);
  for (const [i, block] of blocks.entries()) {
    await fs.writeFile(join(at, `${i}.mjs`), block);
    const env = { ...process.env, UMBRA_TEST_MODEL: /"(deepagents|langchain)"/.test(block) ? "langchain" : "ai" };
    const { stdout } = await promisify(execFile)(process.execPath, ["--import", "./given.mjs", `${i}.mjs`], { cwd: at, env }).catch((err) => assert.fail(`${block}\n${err.stderr}`));
    if (i === 0) assert.equal(stdout, "b.txt\n");
  }
});
