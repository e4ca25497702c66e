import assert from "node:assert/strict";
import { mkdtemp, readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";
import { createDeepAgent } from "deepagents";
import { UmbraBackend, UmbraSandbox, subagentOf } from "../dist/deepagents.js";
import { Umbra } from "../dist/index.js";
import { running, unique } from "./machine.mjs";

const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
const folder = () => mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-"));
const text = (bytes) => new TextDecoder().decode(bytes);
const collect = async (iterable) => { const out = []; for await (const x of iterable) out.push(x); return out; };

/** scripted answers each agent by its first human message and the number of its turns so far. */
function scripted(scripts) {
  const model = fakeModel();
  const answer = (messages) => {
    const human = messages.find((m) => m.getType() === "human");
    const script = scripts[String(human.content).trim()];
    if (script === undefined) return new Error(`no script for ${human.content}`);
    const turn = messages.filter((m) => m.getType() === "ai").length;
    const calls = script[turn];
    return calls === undefined ? new AIMessage("done") : new AIMessage({ content: "", tool_calls: calls.map((c, i) => ({ type: "tool_call", id: `${human.content}-${turn}-${i}`, ...c })) });
  };
  for (let i = 0; i < 40; i++) model.respond(answer);
  return model;
}

test("two subagents of one kind in parallel, one undone alone", async () => {
  const dir = await folder();
  const task = await umbra.tasks.create({ goal: "test", workspace: dir });
  await task.files.write("shared.txt", "top\n1\n2\n3\n4\n5\n6\n7\nbottom\n");
  const backend = new UmbraBackend({ task });
  const write = (path, content) => ({ name: "write_file", args: { file_path: path, content } });
  const edit = (path, o, n) => ({ name: "edit_file", args: { file_path: path, old_string: o, new_string: n } });
  const agent = createDeepAgent({
    model: scripted({
      main: [[write("/main.txt", "main\n")], [
        { name: "task", args: { description: "first", subagent_type: "worker" } },
        { name: "task", args: { description: "second", subagent_type: "worker" } },
      ]],
      first: [[write("/one.txt", "one\n")], [edit("/shared.txt", "top", "first")]],
      second: [[write("/two.txt", "two\n")], [edit("/shared.txt", "bottom", "second")]],
    }),
    backend,
    subagents: [{ name: "worker", description: "works", systemPrompt: "work" }],
  });
  await agent.invoke({ messages: [{ role: "user", content: "main" }] });
  const entries = await collect(task.changes());
  const by = (path) => entries.filter((e) => e.path === path).map((e) => e.subtask_id);
  assert.deepEqual(by("main.txt"), [null]);
  const [one] = by("one.txt");
  const [two] = by("two.txt");
  assert.match(one, /^worker\.[0-9a-f]{8}$/);
  assert.match(two, /^worker\.[0-9a-f]{8}$/);
  assert.notEqual(one, two);
  assert.equal(await readFile(join(dir, "shared.txt"), "utf8"), "first\n1\n2\n3\n4\n5\n6\n7\nsecond\n");
  await task.revert({ subtask: one });
  assert.equal(await readFile(join(dir, "shared.txt"), "utf8"), "top\n1\n2\n3\n4\n5\n6\n7\nsecond\n");
  assert.equal(await readFile(join(dir, "two.txt"), "utf8"), "two\n");
  assert.equal(await readFile(join(dir, "main.txt"), "utf8"), "main\n");
  await assert.rejects(readFile(join(dir, "one.txt")));
});

test("the backend's methods", async () => {
  const task = await umbra.tasks.create({ goal: "test", kind: "virtual" });
  const b = new UmbraBackend({ task });
  const w = await b.write("/a dir/ü.txt", "one\ntwo\nthree\n");
  assert.equal(w.filesUpdate, null);
  assert.equal(w.metadata.umbra.task_id, task.id);
  assert.ok(w.metadata.umbra.commit);
  await b.write("/.hidden", "needle (x)\n");
  assert.deepEqual((await b.ls("/")).files.map((f) => [f.path, f.is_dir]), [["/.hidden", false], ["/a dir/", true]]);
  assert.deepEqual((await b.ls("/a dir")).files.map((f) => f.path), ["/a dir/ü.txt"]);
  assert.deepEqual((await b.ls("a dir/")).files.map((f) => f.path), ["a dir/ü.txt"]);
  assert.deepEqual(await b.ls("/none"), { files: [] });
  assert.match((await b.ls("/.hidden")).error, /not a directory/);
  assert.deepEqual(await b.read("/a dir/ü.txt", 1, 1), { content: "two\n", mimeType: "text/plain", totalLines: 3, startLine: 2, endLine: 2, nextOffset: 2 });
  assert.equal((await b.read("/a dir/ü.txt", 1)).nextOffset, undefined);
  assert.equal((await b.read("/a dir/ü.txt", 9)).content, "");
  assert.equal((await b.read("/a dir/ü.txt", 0, 0)).content, "");
  assert.equal((await b.read("/none")).error, "File '/none' not found");
  assert.match((await b.read("/../x")).error, /Invalid path/);
  assert.equal((await b.edit("/a dir/ü.txt", "two", "2")).occurrences, 1);
  assert.match((await b.edit("/a dir/ü.txt", "nothing", "2")).error, /String not found in file/);
  assert.match((await b.edit("/a dir/ü.txt", "e", "x")).error, /appears multiple times \(3\)/);
  assert.equal((await b.edit("/a dir/ü.txt", "e", "x", true)).occurrences, 3);
  assert.deepEqual(await b.grep("needle (x)"), { matches: [{ path: "/.hidden", line: 1, text: "needle (x)" }], truncated: false });
  assert.deepEqual(await b.grep("nowhere"), { matches: [], truncated: false });
  await b.write("/src/a.ts", "x\nx\n");
  assert.equal((await b.grep("x", "/src", "*.ts", 1)).truncated, true);
  assert.deepEqual((await b.glob("**/*.ts", "/")).files.map((f) => f.path), ["src/a.ts"]);
  assert.deepEqual((await b.glob("[ab].ts", "/src")).files.map((f) => f.path), ["a.ts"]);
  const up = await b.uploadFiles([["/u1", new Uint8Array([1, 255])], ["/../bad", new Uint8Array()], ["/src", new Uint8Array()], ["/u2", new TextEncoder().encode("u2")]]);
  assert.deepEqual(up.map((r) => r.error), [null, "invalid_path", "is_directory", null]);
  assert.equal(new Set((await collect(task.changes({ path: "u1" }))).concat(await collect(task.changes({ path: "u2" }))).map((e) => e.commit)).size, 1);
  const down = await b.downloadFiles(["/u1", "/none", "/src", "/../x"]);
  assert.deepEqual(down.map((r) => r.error), [null, "file_not_found", "is_directory", "invalid_path"]);
  assert.deepEqual([...down[0].content], [1, 255]);
  assert.deepEqual([...(await b.read("/u1")).content], [1, 255]);
  assert.equal((await b.readRaw("/u2")).data.content, "u2");
  assert.equal((await b.delete("/src")).path, "/src");
  assert.equal((await b.delete("/src")).error, "File '/src' not found");
  const small = new UmbraBackend({ task, maxReadBytes: 1 });
  assert.match((await small.read("/u2")).error, /too large/);
});

test("a stale overwrite is refused, and an edit is not", async () => {
  const task = await umbra.tasks.create({ goal: "test", kind: "virtual" });
  const a = new UmbraBackend({ task, subtask: "a" });
  const b = new UmbraBackend({ task, subtask: "b" });
  await a.write("/f", "1\n");
  await b.read("/f");
  await a.write("/f", "2\n");
  const refused = await b.write("/f", "3\n");
  assert.match(refused.error, /changed by subtask a since you read it.*[Rr]ead it again/);
  assert.equal(text(await task.files.read("f")), "2\n");
  assert.equal((await b.edit("/f", "2", "4")).occurrences, 1);
  assert.match((await b.write("/f", "5\n")).error, /changed/);
  await b.read("/f");
  assert.equal((await b.write("/f", "5\n")).error, undefined);
  assert.equal((await b.write("/f", "6\n")).error, undefined);
  // An upload renews what was read as a write does, and others' later changes stay guarded.
  await b.uploadFiles([["/f", new TextEncoder().encode("up\n")]]);
  assert.equal((await b.write("/f", "5\n")).error, undefined);
  await b.uploadFiles([["/f", new TextEncoder().encode("up\n")]]);
  await a.edit("/f", "up", "theirs");
  assert.match((await b.write("/f", "6\n")).error, /changed by subtask a/);
  await b.read("/f");
  const free = new UmbraBackend({ task, subtask: "c", guard: "none" });
  await free.read("/f");
  await b.write("/f", "7\n");
  assert.equal((await free.write("/f", "8\n")).error, undefined);
});

test("a sandbox makes its task, and completes it", async () => {
  const dir = await folder();
  const s = await UmbraSandbox.create({ umbra, workspace: dir, goal: "box", initialFiles: { [join(dir, "a.txt")]: "a\n" } });
  assert.ok(s.isRunning && s.id !== "");
  assert.equal((await s.read(join(dir, "a.txt"))).content, "a\n");
  assert.match((await s.read("/etc/passwd")).error, /Invalid path/);
  assert.deepEqual((await s.grep("a")).matches.map((m) => m.path), [join(dir, "a.txt")]);
  const done = await s.execute("true");
  assert.equal(typeof done.output, "string");
  const id = s.id;
  await s.close();
  assert.equal(s.isRunning, false);
  assert.equal((await umbra.task(id).get()).status, "completed");
});

for (const kind of ["a directory", "a virtual workspace"]) {
  test(`commands of a sandbox on ${kind}`, async () => {
    const dir = await folder();
    const s = await UmbraSandbox.create({ umbra, ...(kind === "a directory" ? { workspace: dir } : { virtual: true }) });
    const top = kind === "a directory" ? await realpath(dir) : "";
    await s.write(`${top}/a.txt`, "one\n");
    const done = await s.execute("cat a.txt; echo err >&2; pwd; echo two > a.txt; echo b > b.txt; exit 3");
    const lines = done.output.trimEnd().split("\n");
    assert.deepEqual([done.exitCode, done.truncated, lines.length], [3, false, 3]);
    assert.ok(lines.includes("one") && lines.includes("err"));
    if (top !== "") assert.ok(lines.includes(top));
    assert.equal((await s.read(`${top}/b.txt`)).content, "b\n");
    assert.equal((await s.write(`${top}/a.txt`, "three\n")).error, undefined); // its own command is no stranger
    await s.execute("echo four > a.txt");
    await s.task.subtask("other").files.write("a.txt", "theirs\n");
    assert.match((await s.write(`${top}/a.txt`, "five\n")).error, /changed by subtask other/);
    const both = (await s.execute("for i in 1 2 3; do echo out$i; echo err$i >&2; done")).output.trimEnd().split("\n");
    for (const stream of ["out", "err"]) assert.deepEqual(both.filter((l) => l.startsWith(stream)), [1, 2, 3].map((n) => `${stream}${n}`));
    const much = await s.execute("yes | head -c 3000000");
    assert.deepEqual([much.truncated, much.output.length], [true, 1 << 20]);
    assert.equal((await s.execute("ls none-such")).exitCode, 2);
    await s.task.revert();
    assert.deepEqual((await s.ls(top || "/")).files, []);
    await s.close();
  });
}

test("a time-out has no exit code, and a server may have commands turned off", async () => {
  const requests = [];
  const fake = new Umbra({ url: "http://stand-in", retries: 0, fetch: async (input, init) => {
    requests.push([init.method, new URL(input).pathname, init.body && JSON.parse(init.body)]);
    if (init.method === "POST" && String(input).endsWith("/tasks")) return Response.json({ task_id: "t" }, { status: 201 });
    if (requests.length > 2) return Response.json({ error: "exec_disabled", detail: "off" }, { status: 403 });
    const end = { exit_code: null, stdout: "out\n", stderr: "", truncated: false, timed_out: true };
    return new Response(`event: stdout\ndata: {"text":"out\\n"}\n\nevent: end\ndata: ${JSON.stringify(end)}\n\n`, { headers: { "Content-Type": "text/event-stream" } });
  } });
  const s = await UmbraSandbox.create({ umbra: fake, virtual: true });
  assert.deepEqual(await s.execute("make"), { output: "out\n", exitCode: null, truncated: false });
  assert.match((await s.execute("x")).output, /exec\.enabled: true/);
  assert.deepEqual(requests[1], ["POST", "/tasks/t/exec", { command: "make" }]);
});

test("an agent's commands are its subtask's, and an abort ends them", async () => {
  const s = await UmbraSandbox.create({ umbra, workspace: await folder() });
  const run = (command) => ({ name: "execute", args: { command } });
  const agent = createDeepAgent({
    model: scripted({ main: [[run("echo main > main.txt")], [{ name: "task", args: { description: "sub", subagent_type: "worker" } }]], sub: [[run("echo sub > sub.txt; echo more >> main.txt")]] }),
    backend: s,
    subagents: [{ name: "worker", description: "works", systemPrompt: "work" }],
  });
  await agent.invoke({ messages: [{ role: "user", content: "main" }] });
  const by = (await collect(s.task.changes())).map((e) => `${e.path} ${(e.subtask_id ?? "").replace(/\.[0-9a-f]{8}$/, "")}`).sort();
  assert.deepEqual(by, ["main.txt ", "main.txt worker", "sub.txt worker"]);
  const slow = createDeepAgent({ model: scripted({ main: [[run(`sleep ${unique(7201)}`)]] }), backend: s });
  const stop = new AbortController();
  const going = slow.invoke({ messages: [{ role: "user", content: "main" }] }, { signal: stop.signal });
  await running(unique(7201), true);
  stop.abort();
  await assert.rejects(going);
  await running(unique(7201), false);
  await s.close();
});

test("whose a call is", () => {
  const sub = (ns) => subagentOf({ configurable: { ls_agent_type: "subagent", checkpoint_ns: ns }, metadata: { lc_agent_name: "a b" } });
  assert.equal(sub("tools:0123ABCD-ef01|model_request:ffffffff"), "a-b.0123abcd");
  assert.equal(subagentOf({ configurable: { checkpoint_ns: "tools:01234567|x:1" } }), null);
  assert.equal(subagentOf(undefined), null);
});
