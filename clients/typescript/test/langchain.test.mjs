import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";
import { createAgent, tool } from "langchain";
import { z } from "zod";
import { PhysicalStore, VirtualStore, createWorkspacesMiddleware } from "../dist/langchain.js";
import { Umbra } from "../dist/index.js";

const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
const folder = () => mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-"));

/** turns is a model that makes these calls, one list a turn; a function is run first. */
function turns(...list) {
  const model = fakeModel();
  for (const [i, calls] of list.entries()) {
    model.respond(() => new AIMessage({ content: "", tool_calls: calls.map((c, j) => ({ type: "tool_call", id: `c${i}-${j}`, ...c })) }));
  }
  return model.respond(new AIMessage("done"));
}

const results = (state) => state.messages.filter((m) => m.getType() === "tool");
const run = (agent) => agent.invoke({ messages: [{ role: "user", content: "go" }] });

test("every scope, and what a model may get wrong", async () => {
  const dir = await folder();
  await writeFile(join(dir, "a.txt"), "hello\n");
  const ro = await folder();
  await writeFile(join(ro, "b.txt"), "read me\n");
  const own = tool(async () => "mine", { name: "own", description: "own", schema: z.object({}) });
  const middleware = createWorkspacesMiddleware({ umbra, mounts: [
    { prefix: "/project", scope: "READ_WRITE", store: new PhysicalStore(dir) },
    { prefix: "/docs", scope: "READ_ONLY", store: new PhysicalStore(ro) },
    { prefix: "/out", scope: "WRITE_ONLY", store: new VirtualStore(["langchain", dir]) },
  ] });
  const model = turns(
    [{ name: "read_file", args: { path: "/project/a.txt" } }, { name: "own", args: {} }],
    [{ name: "write_file", args: { path: "/docs/b.txt", content: "x" } }, { name: "read_file", args: { path: "/out/x" } }, { name: "write_file", args: { path: "/out/x", content: "x" } }],
    [{ name: "read_file", args: { path: 7 } }, { name: "made_up", args: {} }, { name: "edit_file", args: { path: "/project/a.txt", old_string: "hello", new_string: "bye" } }],
  );
  const agent = createAgent({ model, tools: [own], middleware: [middleware], systemPrompt: "Be brief." });
  const out = results(await run(agent));
  assert.deepEqual(out.map((m) => [m.name, m.status ?? "success"]), [["read_file", "success"], ["own", "success"], ["write_file", "error"], ["read_file", "error"], ["write_file", "success"],
    ["read_file", "error"], ["made_up", "error"], ["edit_file", "success"]]);
  assert.match(out[0].content, /hello/);
  assert.match(out[2].content, /READ_ONLY/);
  assert.match(out[6].content, /Tool 'made_up' is not available/);
  assert.equal(await readFile(join(dir, "a.txt"), "utf8"), "bye\n");
  for (const call of model.calls) {
    const prompt = call.messages.find((m) => m.getType() === "system").text;
    assert.ok(prompt.startsWith("Be brief."));
    assert.equal(prompt.split("Filesystem Map:").length, 2);
  }
  const task = Object.values((await (await middleware.toolset).get()).tasks);
  assert.equal(task.length, 3);
  await middleware.close();
});

test("mounts that change are in force at the next turn", async () => {
  const dir = await folder();
  const store = new PhysicalStore(dir);
  const middleware = createWorkspacesMiddleware({ umbra, mounts: [{ prefix: "/p", scope: "READ_WRITE", store }] });
  const change = tool(async () => {
    await middleware.setMounts([{ prefix: "/p", scope: "READ_ONLY", store }]);
    return "changed";
  }, { name: "change", description: "c", schema: z.object({}) });
  const model = turns([{ name: "write_file", args: { path: "/p/a", content: "1" } }], [{ name: "change", args: {} }], [{ name: "write_file", args: { path: "/p/a", content: "2" } }]);
  const out = results(await run(createAgent({ model, tools: [change], middleware: [middleware] })));
  assert.deepEqual(out.map((m) => m.status ?? "success"), ["success", "success", "error"]);
  assert.equal(await store.read("/a"), "1");
  assert.deepEqual(await store.list("/"), ["a"]);
  await assert.rejects(store.write("/a", "3"), /not available/);
  await middleware.close();
});

test("no server is an error to the model, not a broken conversation", async () => {
  let away = false;
  const client = new Umbra({ url: process.env.UMBRA_TEST_URL, retries: 0, fetch: (...a) => (away ? Promise.reject(new TypeError("away")) : fetch(...a)) });
  const middleware = createWorkspacesMiddleware({ umbra: client, mounts: [{ prefix: "/p", scope: "READ_WRITE", store: new PhysicalStore(await folder()) }] });
  const stop = tool(async () => { away = true; return "stopped"; }, { name: "stop", description: "s", schema: z.object({}) });
  const model = turns([{ name: "write_file", args: { path: "/p/a", content: "1" } }], [{ name: "stop", args: {} }], [{ name: "read_file", args: { path: "/p/a" } }]);
  const out = results(await run(createAgent({ model, tools: [stop], middleware: [middleware] })));
  assert.deepEqual(out.map((m) => m.status ?? "success"), ["success", "success", "error"]);
  assert.match(out[2].content, /did not answer/);
});

test("a server that is stopped between turns, and is there again", async () => {
  const data = await folder();
  const start = async (listen) => {
    const program = spawn(process.env.UMBRA_TEST_PROGRAM, ["serve", "--data-dir", data, "--listen", listen], { stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await once(createInterface(program.stdout), "line");
    return { url: /http:\S+/.exec(line)[0], stop: async () => { program.kill("SIGTERM"); await once(program, "exit"); } };
  };
  let server = await start("127.0.0.1:0");
  const { url } = server;
  const middleware = createWorkspacesMiddleware({ umbra: new Umbra({ url, retries: 0 }), mounts: [{ prefix: "/p", scope: "READ_WRITE", store: new PhysicalStore(await folder()) }] });
  const stop = tool(async () => { await server.stop(); return "stopped"; }, { name: "stop", description: "s", schema: z.object({}) });
  const again = tool(async () => { server = await start(new URL(url).host); return "started"; }, { name: "again", description: "a", schema: z.object({}) });
  const read = [{ name: "read_file", args: { path: "/p/a" } }];
  try {
    const model = turns([{ name: "write_file", args: { path: "/p/a", content: "1" } }], [{ name: "stop", args: {} }], read, [{ name: "again", args: {} }], read);
    const out = results(await run(createAgent({ model, tools: [stop, again], middleware: [middleware] })));
    assert.deepEqual(out.map((m) => [m.name, m.status ?? "success"]), [["write_file", "success"], ["stop", "success"], ["read_file", "error"], ["again", "success"], ["read_file", "success"]]);
    assert.match(out[2].content, /did not answer/);
    assert.equal(out[4].content, "1");
    await middleware.close();
  } finally {
    await server.stop();
  }
});

test("mounts that cannot be", async () => {
  assert.throws(() => createWorkspacesMiddleware({ umbra, mounts: [{ prefix: "/p", scope: "READ_WRITE", store: { read() {}, write() {}, edit() {}, list() {} } }] }), TypeError);
  const wrong = createWorkspacesMiddleware({ umbra, mounts: [{ prefix: "/p", scope: "NONE", store: new PhysicalStore("/") }] });
  await assert.rejects(run(createAgent({ model: turns(), tools: [], middleware: [wrong] })), /scope/i);
  const clash = tool(async () => "", { name: "read_file", description: "r", schema: z.object({}) });
  const middleware = createWorkspacesMiddleware({ umbra, mounts: [{ prefix: "/p", scope: "READ_WRITE", store: new PhysicalStore(await folder()) }] });
  await assert.rejects(run(createAgent({ model: turns(), tools: [clash], middleware: [middleware] })), /read_file/);
});
