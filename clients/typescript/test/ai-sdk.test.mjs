import assert from "node:assert/strict";
import { mkdtemp, readFile, realpath, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { generateText, isStepCount, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { convertArrayToReadableStream } from "ai/test";
import { umbraSandbox, umbraSandboxProvider, umbraTools } from "../dist/ai-sdk.js";
import { Umbra } from "../dist/index.js";
import { scripted as model } from "./models.mjs";
import { running, unique } from "./machine.mjs";

const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
const virtual = () => umbra.tasks.create({ goal: "test", kind: "virtual" });
const steps = isStepCount ?? stepCountIs;
const text = (bytes) => new TextDecoder().decode(bytes);
const collect = async (iterable) => { const out = []; for await (const x of iterable) out.push(x); return out; };
const put = tool({
  inputSchema: jsonSchema({ type: "object", properties: { path: { type: "string" }, content: { type: "string" } } }),
  execute: async ({ path, content }, { experimental_sandbox }) => {
    await experimental_sandbox.writeTextFile({ path, content });
    return "written";
  },
});

test("AI SDK: tools of generateText and streamText write through the sandbox", async () => {
  const task = await virtual();
  const sandbox = umbraSandbox({ task });
  const first = await generateText({ model: model([[["put", { path: "a.txt", content: "a\n" }]], "done"]), prompt: "x", tools: { put }, stopWhen: steps(3), experimental_sandbox: sandbox.subtask("alice") });
  assert.equal(first.text, "done");
  const second = streamText({ model: model([[["put", { path: "/b.txt", content: "b\n" }]], "done"]), prompt: "x", tools: { put }, stopWhen: steps(3), experimental_sandbox: sandbox.subtask("bob") });
  assert.equal(await second.text, "done");
  assert.deepEqual((await collect(task.changes())).map((e) => [e.path, e.subtask_id]), [["a.txt", "alice"], ["b.txt", "bob"]]);
  await task.revert({ subtask: "alice" });
  assert.deepEqual((await sandbox.listDirectory({ path: "/" })).map((e) => e.name), ["b.txt"]);
});

test("AI SDK: the sandbox's files", async () => {
  const task = await virtual();
  const s = umbraSandbox({ task, workingDirectory: "/app" });
  assert.equal(await s.readTextFile({ path: "none" }), null);
  assert.equal(await s.readBinaryFile({ path: "none" }), null);
  assert.equal(await s.readFile({ path: "none" }), null);
  assert.equal(await s.stat({ path: "none" }), null);
  assert.equal(await s.listDirectory({ path: "none" }), null);
  assert.equal(await s.deleteFile({ path: "none" }), false);
  await s.writeTextFile({ path: "d/a.txt", content: "one\ntwo\nthree\n" });
  assert.equal(text(await task.files.read("app/d/a.txt")), "one\ntwo\nthree\n");
  const lines = (startLine, endLine) => s.readTextFile({ path: "d/a.txt", startLine, endLine });
  assert.deepEqual([await lines(2, 2), await lines(2), await lines(undefined, 1), await lines(3, 99), await lines(50, 60)], ["two", "two\nthree\n", "one", "three\n", ""]);
  assert.deepEqual(await s.stat({ path: "/app/d" }), { type: "directory", size: 0 });
  assert.deepEqual(await s.stat({ path: "d/a.txt" }), { type: "file", size: 14 });
  await task.files.symlink("app/link", "d/a.txt");
  assert.deepEqual(await s.listDirectory({ path: "." }), [{ name: "d", type: "directory" }, { name: "link", type: "symlink" }]);
  assert.deepEqual(await s.stat({ path: "link" }), { type: "file", size: 14 });
  assert.equal(await s.deleteFile({ path: "link" }), true);
  assert.equal(await s.deleteFile({ path: "link" }), false);
  assert.equal(text(await s.readBinaryFile({ path: "d/a.txt" })), "one\ntwo\nthree\n");
  const chunks = await collect(await s.readFile({ path: "d/a.txt" }));
  assert.equal(text(Buffer.concat(chunks)), "one\ntwo\nthree\n");
  await s.writeFile({ path: "streamed.bin", content: convertArrayToReadableStream([Uint8Array.of(0, 255), Uint8Array.of(1)]) });
  assert.deepEqual([...(await s.readBinaryFile({ path: "streamed.bin" }))], [0, 255, 1]);
  await s.writeTextFile({ path: "latin", content: "\u00e4", encoding: "latin1" });
  assert.equal(await s.readTextFile({ path: "latin", encoding: "latin1" }), "\u00e4");
  for (const refused of [
    () => s.writeTextFile({ path: "d", content: "x" }), () => s.writeTextFile({ path: "/", content: "x" }), () => s.deleteFile({ path: "d" }),
    () => s.listDirectory({ path: "d/a.txt" }), () => s.readTextFile({ path: "d" }), () => s.writeTextFile({ path: "../../x", content: "x" }),
    () => umbraSandbox({ task, maxReadBytes: 2 }).readBinaryFile({ path: "app/streamed.bin" }),
  ]) await assert.rejects(async () => refused(), Error);
  const stop = new AbortController();
  stop.abort(new Error("enough"));
  await assert.rejects(async () => s.readTextFile({ path: "d/a.txt", abortSignal: stop.signal }), /enough/);
});

test("AI SDK: a stale overwrite is refused", async () => {
  const s = umbraSandbox({ task: await virtual() });
  const [a, b] = [s.subtask("a"), s.subtask("b")];
  await a.writeTextFile({ path: "f", content: "1" });
  await b.readTextFile({ path: "f" });
  await a.writeTextFile({ path: "f", content: "2" });
  await assert.rejects(async () => b.writeTextFile({ path: "f", content: "3" }), /changed by subtask a since you read it/);
  await b.readTextFile({ path: "f" });
  await b.writeTextFile({ path: "f", content: "3" });
  assert.equal(await a.readTextFile({ path: "f" }), "3");
});

test("AI SDK: a toolset's tools, whose errors are results", async () => {
  const toolset = await umbra.toolsets.create({ mounts: [{ prefix: "/n", scope: "READ_WRITE", store: { type: "virtual", namespace: ["ai-sdk"] } }] });
  for (const format of ["mcp", "openai", "anthropic", "langchain"]) {
    const tools = await umbraTools({ toolset, format, subtask: "tools" });
    const { steps: made } = await generateText({
      model: model([[["write_file", { path: "/n/f", content: format }], ["write_file", { path: "/elsewhere/f", content: "x" }]], "done"]), prompt: "x", tools, stopWhen: steps(3),
    });
    const [good, bad] = made[0].toolResults;
    assert.equal(typeof good.output, "string");
    assert.match(bad.output, /elsewhere/);
    assert.equal((await toolset.call("read_file", { path: "/n/f" })).content, format);
  }
  await toolset.delete();
});

const folder = async () => realpath(await mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-")));
const onDisk = async () => umbra.tasks.create({ goal: "test", workspace: await folder() });

for (const [kind, make] of [["a virtual workspace", virtual], ["a directory", onDisk]]) {
  test(`AI SDK: commands on ${kind}`, async () => {
    const task = await make();
    const s = umbraSandbox({ task, workingDirectory: "/w" });
    const sh = s.subtask("sh");
    await sh.writeTextFile({ path: "a.txt", content: "one\n" });
    assert.deepEqual(await sh.run({ command: 'cat a.txt; echo "$A" >&2; sed -i s/one/two/ a.txt; echo new > b.txt; exit 3', env: { A: "from env" } }), { exitCode: 3, stdout: "one\n", stderr: "from env\n" });
    assert.equal(await sh.readTextFile({ path: "a.txt" }), "two\n");
    const by = async (path) => (await collect(task.changes({ path }))).map((e) => `${e.operation} ${e.subtask_id}`);
    assert.deepEqual([await by("w/a.txt"), await by("w/b.txt")], [["create sh", "modify sh"], ["create sh"]]);
    // What an agent's own command changed does not make its next write a stale one.
    await sh.run({ command: "echo three > a.txt" });
    await sh.writeTextFile({ path: "a.txt", content: "four\n" });
    assert.equal((await s.run({ command: "pwd; ls", workingDirectory: "/" })).stdout.split("\n").slice(1).join(), "w,");
    const p = await s.subtask("spawned").spawn({ command: "echo out; echo err >&2; echo s > s.txt; exit 7" });
    assert.deepEqual(await p.wait(), { exitCode: 7 });
    assert.deepEqual([text(Buffer.concat(await collect(p.stdout))), text(Buffer.concat(await collect(p.stderr)))], ["out\n", "err\n"]);
    assert.deepEqual(await by("w/s.txt"), ["create spawned"]);
    await assert.rejects(async () => s.spawn({ command: "touch never", stdin: true }), /stdin/);
    await assert.rejects(async () => s.run({ command: "touch never", workingDirectory: "/../.." }), /Invalid path/);
    assert.equal(await s.stat({ path: "never" }), null);
    await task.revert({ subtask: "sh" });
    assert.deepEqual((await s.listDirectory({ path: "/w" })).map((e) => e.name), ["s.txt"]);
  });
}

test("AI SDK: an abort ends the command and what it started", async () => {
  const s = umbraSandbox({ task: await onDisk() });
  const stop = new AbortController();
  const run = s.run({ command: `sleep ${unique(7101)} & sleep ${unique(7101)}`, abortSignal: stop.signal });
  await running(unique(7101), true);
  stop.abort(new Error("enough"));
  await assert.rejects(async () => run, /enough/);
  await running(unique(7101), false);
  const p = await s.spawn({ command: `echo begun; sleep ${unique(7102)} & sleep ${unique(7102)}` });
  assert.equal(text((await p.stdout.getReader().read()).value), "begun\n");
  await p.kill();
  await p.kill();
  assert.deepEqual(await p.wait(), { exitCode: 143 });
  await running(unique(7102), false);
  const aborted = new AbortController();
  const q = await s.spawn({ command: `sleep ${unique(7103)}`, abortSignal: aborted.signal });
  aborted.abort(new Error("enough"));
  await assert.rejects(async () => q.wait(), /enough/);
  await running(unique(7103), false);
});

test("AI SDK: commands that are off", async () => {
  const off = new Umbra({ url: "http://stand-in", fetch: async () => Response.json({ error: "exec_disabled", detail: "off" }, { status: 403 }) });
  const s = umbraSandbox({ task: off.task("t") });
  await assert.rejects(async () => s.run({ command: "x" }), /exec\.enabled/);
  await assert.rejects(async () => s.spawn({ command: "x" }), /exec\.enabled/);
});

test("AI SDK: sessions of a provider are tasks", async () => {
  const dir = await folder();
  await writeFile(join(dir, "given.txt"), "given\n");
  const provider = umbraSandboxProvider({ umbra, workspace: dir, ports: [4100] });
  assert.equal(provider.specificationVersion, "harness-sandbox-v1");
  const first = [];
  const id = `session-${process.pid}`;
  const s = await provider.createSession({ sessionId: id, onFirstCreate: async (session) => { first.push(await session.readTextFile({ path: "given.txt" })); } });
  assert.deepEqual([s.id, s.defaultWorkingDirectory, first], [id, dir, ["given\n"]]);
  await s.run({ command: `mkdir -p ${dir}/inner && pwd > ${dir}/inner/pwd && echo x > rel` });
  assert.equal(await s.readTextFile({ path: `${dir}/inner/pwd` }), dir + "\n");
  await s.restricted().writeTextFile({ path: join(dir, "inner/by-path"), content: "x" });
  assert.equal(await readFile(join(dir, "inner/by-path"), "utf8"), "x");
  await assert.rejects(async () => s.readTextFile({ path: "/etc/passwd" }), /Invalid path/);
  assert.deepEqual(await s.getPortEndpoint({ port: 4100, protocol: "ws" }), { url: `ws://${new URL(process.env.UMBRA_TEST_URL).hostname}:4100` });
  await assert.rejects(async () => s.getPortUrl({ port: 1 }), /does not expose port 1/);
  assert.equal(s.restricted().stop, undefined);
  const p = await s.spawn({ command: `sleep ${unique(7104)}` });
  await running(unique(7104), true);
  await s.stop();
  await s.stop();
  await assert.rejects(async () => p.wait(), /stopped/);
  await running(unique(7104), false);
  await assert.rejects(async () => s.run({ command: "true" }), /stopped/);
  assert.equal((await umbra.task(id).get()).status, "paused");
  const again = await provider.resumeSession({ sessionId: id });
  assert.equal(await again.readTextFile({ path: "rel" }), "x\n");
  assert.deepEqual(await again.run({ command: "cat rel" }), { exitCode: 0, stdout: "x\n", stderr: "" });
  await again.destroy();
  await again.destroy();
  assert.equal((await umbra.task(id).get()).status, "completed");
  await assert.rejects(async () => provider.createSession({ sessionId: id }), (e) => e.status === 409);
  await assert.rejects(async () => provider.resumeSession({ sessionId: "never-made" }), (e) => e.status === 404);
  assert.throws(() => umbraSandboxProvider({ umbra }), TypeError);
  const v = await umbraSandboxProvider({ umbra, virtual: true }).createSession();
  assert.equal(v.defaultWorkingDirectory, "/");
  await v.writeTextFile({ path: "f", content: "1" });
  assert.equal((await v.run({ command: "cat f" })).stdout, "1");
  await v.destroy();
});

test("AI SDK: an abort ends the tool's work, and nothing is written after it", async () => {
  const task = await virtual();
  const stop = new AbortController();
  const wait = tool({
    inputSchema: jsonSchema({ type: "object", properties: {} }),
    execute: async (_, { experimental_sandbox, abortSignal }) => {
      stop.abort(new Error("enough"));
      await experimental_sandbox.writeTextFile({ path: "late", content: "x", abortSignal });
      return "written";
    },
  });
  await assert.rejects(generateText({ model: model([[["wait", {}]], "done"]), prompt: "x", tools: { wait }, stopWhen: steps(3), experimental_sandbox: umbraSandbox({ task }), abortSignal: stop.signal }));
  assert.deepEqual(await collect(task.changes()), []);
});
