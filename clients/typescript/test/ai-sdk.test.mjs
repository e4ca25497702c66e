import assert from "node:assert/strict";
import * as http from "node:http";
import { test } from "node:test";
import { generateText, isStepCount, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV4, convertArrayToReadableStream } from "ai/test";
import { umbraSandbox, umbraTools } from "../dist/ai-sdk.js";
import { Umbra } from "../dist/index.js";

const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
const virtual = () => umbra.tasks.create({ goal: "test", kind: "virtual" });
const steps = isStepCount ?? stepCountIs;
const text = (bytes) => new TextDecoder().decode(bytes);
const collect = async (iterable) => { const out = []; for await (const x of iterable) out.push(x); return out; };
const usage = { inputTokens: { total: 1, noCache: 1 }, outputTokens: { total: 1, text: 1 } };

/** model plays a script: an array of tool calls a turn, or a text. */
function model(script) {
  let turn = 0;
  const next = () => {
    const said = script[Math.min(turn++, script.length - 1)];
    if (typeof said === "string") return { content: [{ type: "text", text: said }], finishReason: { unified: "stop" }, usage, warnings: [] };
    return { content: said.map(([toolName, input], i) => ({ type: "tool-call", toolCallId: `c${turn}-${i}`, toolName, input: JSON.stringify(input) })), finishReason: { unified: "tool-calls" }, usage, warnings: [] };
  };
  return new MockLanguageModelV4({
    doGenerate: async () => next(),
    doStream: async () => {
      const { content, finishReason } = next();
      const parts = content.flatMap((c, i) => (c.type === "text" ? [{ type: "text-start", id: `${i}` }, { type: "text-delta", id: `${i}`, delta: c.text }, { type: "text-end", id: `${i}` }] : [c]));
      return { stream: convertArrayToReadableStream([{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }]) };
    },
  });
}

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
  const s = umbraSandbox({ task, workingDirectory: "/work" });
  assert.equal(await s.readTextFile({ path: "none" }), null);
  assert.equal(await s.readBinaryFile({ path: "none" }), null);
  assert.equal(await s.readFile({ path: "none" }), null);
  assert.equal(await s.stat({ path: "none" }), null);
  assert.equal(await s.listDirectory({ path: "none" }), null);
  assert.equal(await s.deleteFile({ path: "none" }), false);
  await s.writeTextFile({ path: "d/a.txt", content: "one\ntwo\nthree\n" });
  assert.equal(text(await task.files.read("work/d/a.txt")), "one\ntwo\nthree\n");
  const lines = (startLine, endLine) => s.readTextFile({ path: "d/a.txt", startLine, endLine });
  assert.deepEqual([await lines(2, 2), await lines(2), await lines(undefined, 1), await lines(3, 99), await lines(50, 60)], ["two", "two\nthree\n", "one", "three\n", ""]);
  assert.deepEqual(await s.stat({ path: "/work/d" }), { type: "directory", size: 0 });
  assert.deepEqual(await s.stat({ path: "d/a.txt" }), { type: "file", size: 14 });
  await task.files.symlink("work/link", "d/a.txt");
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
    () => umbraSandbox({ task, maxReadBytes: 2 }).readBinaryFile({ path: "work/streamed.bin" }),
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

test("AI SDK: commands", async (t) => {
  const bodies = [];
  let closed;
  const gone = new Promise((done) => { closed = done; });
  const server = http.createServer(async (req, res) => {
    let raw = "";
    for await (const c of req) raw += c;
    const body = JSON.parse(raw);
    bodies.push([body, req.headers["x-subtask-id"]]);
    if (body.command === "off") {
      res.writeHead(403, { "Content-Type": "application/json" });
      return res.end(JSON.stringify({ error: "exec_disabled", detail: "off", request_id: "r" }));
    }
    if (req.headers.accept !== "text/event-stream") {
      res.writeHead(200, { "Content-Type": "application/json" });
      return res.end(JSON.stringify({ exit_code: 3, stdout: "out", stderr: "err", truncated: false, timed_out: false, commit: null, entries: [], conflicts: [] }));
    }
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    const send = (event, data) => res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    send("stdout", { text: "one\n" });
    if (body.command === "forever") return res.on("close", closed);
    send("stderr", { text: "oops" });
    send("end", { exit_code: 0 });
    res.end();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const s = umbraSandbox({ task: new Umbra({ url: `http://127.0.0.1:${server.address().port}` }).task("t"), workingDirectory: "/w", subtask: "sh" });
  assert.deepEqual(await s.run({ command: "x", env: { A: "1" } }), { exitCode: 3, stdout: "out", stderr: "err" });
  assert.deepEqual(bodies[0], [{ command: "x", cwd: "w", env: { A: "1" } }, "sh"]);
  await assert.rejects(async () => s.run({ command: "off" }), /exec\.enabled/);
  const before = bodies.length;
  await assert.rejects(async () => s.spawn({ command: "x", stdin: true }), /stdin/);
  await assert.rejects(async () => s.run({ command: "x", workingDirectory: "/../.." }), /Invalid path/);
  assert.equal(bodies.length, before);
  const p = await s.spawn({ command: "x" });
  assert.deepEqual(await p.wait(), { exitCode: 0 });
  assert.equal(text(Buffer.concat(await collect(p.stdout))), "one\n");
  assert.equal(text(Buffer.concat(await collect(p.stderr))), "oops");
  const forever = await s.spawn({ command: "forever" });
  await forever.stdout.getReader().read();
  await forever.kill();
  assert.deepEqual(await forever.wait(), { exitCode: 143 });
  await gone;
  const stop = new AbortController();
  const aborted = await s.spawn({ command: "forever", abortSignal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(async () => aborted.wait(), /enough/);
});
