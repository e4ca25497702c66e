import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { publint } from "publint";
import { dir, project } from "./project.mjs";

const run = (file, args, o) => promisify(execFile)(file, args, { maxBuffer: 64 << 20, ...o });
const node = (args, o) => run(process.execPath, args, o).catch((err) => assert.fail(`${args.join(" ")}\n${err.stdout}\n${err.stderr}`));
const manifest = JSON.parse(await fs.readFile(join(dir, "package.json"), "utf8"));
const entries = Object.keys(manifest.exports).filter((e) => e !== "./package.json").map((e) => e.replace(/^\.\/?/, "") || "index");

/** packed is the package as npm packs it. */
let packing;
const packed = () => (packing ??= (async () => {
  const to = await fs.mkdtemp(join(process.env.UMBRA_TEST_DIR, "pack-"));
  const { stdout } = await run("npm", ["pack", "--json", "--ignore-scripts", "--offline", "--pack-destination", to], { cwd: dir });
  const [info] = Object.values(JSON.parse(stdout));
  return { file: join(to, info.filename), files: info.files.map((f) => f.path) };
})());

test("the package holds dist, README, LICENSE and package.json alone", async () => {
  const { files } = await packed();
  assert.deepEqual(files.filter((f) => !/^dist\/[\w-]+\.(js|d\.ts)$/.test(f)).sort(), ["LICENSE", "README.md", "package.json"]);
  for (const e of entries) for (const ext of ["js", "d.ts"]) assert.ok(files.includes(`dist/${e}.${ext}`), e);
  const sources = (await fs.readdir(join(dir, "src"))).map((f) => f.replace(/\.ts$/, ""));
  assert.deepEqual([...new Set(files.filter((f) => f.startsWith("dist/")).map((f) => f.replace(/^dist\/|\.(js|d\.ts)$/g, "")))].sort(), sources.sort());
});

test("publint and are-the-types-wrong find nothing", async () => {
  const { messages } = await publint({ pkgDir: dir, strict: true, pack: false });
  assert.deepEqual(messages, []);
  await node([join(dir, "node_modules/@arethetypeswrong/cli/dist/index.js"), (await packed()).file, "--profile", "esm-only", "--no-emoji"]);
});

test("the core's size, and an adapter brings no other", async () => {
  for (const entry of entries) {
    const { metafile, outputFiles } = await build({
      entryPoints: [join(dir, "dist", `${entry}.js`)], bundle: true, minify: true, format: "esm", write: false, metafile: true, packages: "external", platform: entry === "index" ? "browser" : "node", absWorkingDir: dir,
    });
    const brought = Object.keys(metafile.inputs).map((f) => f.replace(/^dist\/|\.js$/g, ""));
    assert.deepEqual(brought.filter((f) => entries.includes(f) && f !== entry && f !== "index"), [], entry);
    if (entry !== "index") continue;
    const size = gzipSync(outputFiles[0].contents, { level: 9 }).length;
    console.log(`core: ${size} bytes`);
    assert.ok(size <= 15 << 10, `${size} bytes`);
    assert.deepEqual(Object.values(metafile.outputs)[0].imports, []);
  }
  assert.equal(manifest.sideEffects, false);
  assert.equal(manifest.dependencies, undefined);
  // Whoever imports one name gets no more than it needs.
  const { outputFiles } = await build({ stdin: { contents: `import { UmbraError } from "./dist/index.js"; console.log(UmbraError)`, resolveDir: dir }, bundle: true, minify: true, format: "esm", write: false });
  assert.ok(outputFiles[0].contents.length < 3000, `${outputFiles[0].contents.length}`);
});

test("a user's project passes tsc with skipLibCheck false", async () => {
  const at = await project();
  await fs.rm(join(at, "node_modules/umbra-client"));
  await fs.mkdir(join(at, "node_modules/umbra-client"));
  await run("tar", ["xzf", (await packed()).file, "--strip-components=1", "-C", join(at, "node_modules/umbra-client")]);
  // Mastra is left out: its own declarations do not pass, whatever one does with them.
  const uses = {
    core: `import { Umbra, UmbraError, type TaskEntry } from "umbra-client";
      import { findServer, socketFetch } from "umbra-client/node";
      const umbra = new Umbra({ url: "x", token: async () => "t", fetch: socketFetch("unix:/x") });
      const task = umbra.task("t").subtask("a").as("b");
      for await (const e of task.changes()) { const entry: TaskEntry = e; entry.path.length; }
      for await (const e of await task.execStream("ls")) if (e.event === "end") e.result.exit_code; else e.text.length;
      const w: string | null = (await task.files.write("a", "b", { ifMatch: "x" })).commit;
      try { await findServer(); } catch (e) { if (e instanceof UmbraError) { e.code.length; w?.length; } }
      // @ts-expect-error a mode that is none
      task.files.write("a", "b", { mode: "644" });`,
    deepagents: `import { createDeepAgent } from "deepagents"; import { Umbra } from "umbra-client"; import { UmbraBackend, UmbraSandbox } from "umbra-client/deepagents";
      const umbra = new Umbra(); createDeepAgent({ backend: new UmbraBackend({ task: umbra.task("t") }) }); createDeepAgent({ backend: await UmbraSandbox.create({ umbra, virtual: true }) });`,
    langchain: `import { createAgent } from "langchain"; import { Umbra } from "umbra-client"; import { VirtualStore, createWorkspacesMiddleware } from "umbra-client/langchain";
      createAgent({ model: "m", middleware: [createWorkspacesMiddleware({ umbra: new Umbra(), mounts: [{ prefix: "/n", scope: "READ_ONLY", store: new VirtualStore(["n"]) }] })] });`,
    "ai-sdk": `import { generateText, type ToolSet } from "ai"; import type { HarnessV1SandboxProvider } from "@ai-sdk/harness"; import { Umbra } from "umbra-client"; import { umbraSandbox, umbraSandboxProvider, umbraTools } from "umbra-client/ai-sdk";
      const umbra = new Umbra(); const provider: HarnessV1SandboxProvider = umbraSandboxProvider({ umbra, virtual: true });
      const tools: ToolSet = await umbraTools({ toolset: await umbra.toolsets.get("t") });
      generateText({ model: "m", prompt: provider.providerId, tools, experimental_sandbox: umbraSandbox({ task: umbra.task("t") }).subtask("a") });`,
    others: `import { applyPatchTool } from "@openai/agents-core"; import { betaMemoryTool } from "@anthropic-ai/sdk/helpers/beta/memory"; import { Bash } from "just-bash"; import { Umbra } from "umbra-client";
      import { umbraMemory } from "umbra-client/anthropic-memory"; import { UmbraFs } from "umbra-client/just-bash"; import { UmbraEditor } from "umbra-client/openai-agents";
      const task = new Umbra().task("t"); applyPatchTool({ editor: new UmbraEditor({ task }) }); betaMemoryTool(await umbraMemory({ task })); new Bash({ fs: await UmbraFs.create({ task }) });`,
  };
  for (const [name, text] of Object.entries(uses)) await fs.writeFile(join(at, `${name}.ts`), text);
  const options = { target: "ES2022", module: "NodeNext", moduleResolution: "NodeNext", lib: ["ES2023", "DOM", "DOM.Iterable", "DOM.AsyncIterable"], types: ["node"], strict: true, noEmit: true, skipLibCheck: false };
  await fs.writeFile(join(at, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["*.ts"] }));
  const { stdout } = await run(process.execPath, [join(dir, "node_modules/typescript/bin/tsc"), "-p", at, "--pretty", "false"], { cwd: at }).catch((err) => err);
  // A framework's own declarations may have errors of their own.
  const ours = stdout.split("\n").filter((line) => line !== "" && !line.startsWith(" ") && !/^(\.\.\/)*([\w./-]*\/)?node_modules\/(?!umbra-client)/.test(line));
  assert.deepEqual(ours, []);
});
