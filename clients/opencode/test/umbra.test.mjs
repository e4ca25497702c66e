// The plugin's hooks, called as opencode 1.18.33 calls them, against the server
// at UMBRA_TEST_URL.
import assert from "node:assert/strict";
import { mkdtemp, readFile, symlink, writeFile } from "node:fs/promises";
import * as http from "node:http";
import { join } from "node:path";
import { test } from "node:test";

// The plugin as umbra init writes it begins and ends calls by a command.
const { Umbra } = await import(process.env.UMBRA_TEST_PLUGIN ?? "../umbra.js");
const byCommand = process.env.UMBRA_TEST_PLUGIN !== undefined;

const url = process.env.UMBRA_TEST_URL;
process.env.UMBRA_SERVER = url;
const api = async (path) => (await fetch(url + path)).json();

async function host() {
  const directory = await mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-"));
  const lines = [];
  const client = { app: { log: async ({ body }) => { lines.push(body.message); } }, session: { get: async () => ({ data: {} }) } };
  const hooks = await Umbra({ client, directory, worktree: directory });
  const self = {
    directory, lines, hooks,
    file: (name) => join(directory, name),
    read: (name) => readFile(join(directory, name), "utf8"),
    session: (id, parentID) => hooks.event({ event: { type: "session.created", properties: { info: { id, parentID } } } }),
    says: (sessionID, id) => hooks["chat.message"]({ sessionID }, { message: { id }, parts: [] }),
    before: (tool, sessionID, callID, args) => hooks["tool.execute.before"]({ tool, sessionID, callID }, { args }),
    after: async (tool, sessionID, callID, args) => {
      const output = { title: "", output: "done", metadata: {} };
      await hooks["tool.execute.after"]({ tool, sessionID, callID, args }, output);
      return output.output;
    },
    write: async (sessionID, callID, name, content) => {
      const args = { filePath: join(directory, name), content };
      await self.before("write", sessionID, callID, args);
      await writeFile(args.filePath, content);
      return self.after("write", sessionID, callID, args);
    },
  };
  return self;
}

test("a tool's changes are its session's, and a turn is undone alone", async () => {
  const h = await host();
  await writeFile(h.file("kept.txt"), "a person's\n");
  await h.session("ses_root");
  await h.says("ses_root", "msg_1");
  await h.write("ses_root", "c1", "one.txt", "one\n");
  await h.says("ses_root", "msg_2");
  await h.before("bash", "ses_root", "c1b", { command: "echo two > two.txt" });
  const env = { env: {} };
  await h.hooks["shell.env"]({ cwd: h.directory, sessionID: "ses_root", callID: "c1b" }, env);
  await writeFile(h.file("two.txt"), "two\n");
  await h.after("bash", "ses_root", "c1b", {});
  const { UMBRA_CALL: id, UMBRA_TASK: task, UMBRA_SUBTASK: subtask, UMBRA_SERVER: server } = env.env;
  assert.equal(subtask, "msg_2");
  assert.equal(server, url);
  const call = await api("/calls/" + id);
  assert.equal(call.status, "ok");
  assert.equal(call.agent_session, "ses_root");
  const { entries } = await api(`/tasks/${task}/changes`);
  assert.deepEqual(entries.map((e) => [e.path, e.subtask_id, e.certainty]), [["one.txt", "msg_1", "exact"], ["two.txt", "msg_2", "window"]]);
  const context = { sessionID: "ses_root" };
  assert.match(await h.hooks.tool.umbra_changes.execute({}, context), /- one\.txt .*\n- two\.txt/);
  assert.match(await h.hooks.tool.umbra_undo.execute({}, context), /undid turn msg_2/);
  await assert.rejects(h.read("two.txt"));
  assert.equal(await h.read("one.txt"), "one\n");
  assert.match(await h.hooks.tool.umbra_undo.execute({}, context), /undid turn msg_1/);
  await assert.rejects(h.read("one.txt"));
  assert.match(await h.hooks.tool.umbra_undo.execute({}, context), /nothing to undo/);
  assert.equal(await h.read("kept.txt"), "a person's\n");
  assert.deepEqual(h.lines, []);
});

test("a sub-agent is a subtask, and equal call IDs of two sessions are two calls", async () => {
  const h = await host();
  await h.session("ses_p");
  await h.session("ses_a", "ses_p");
  await h.session("ses_b", "ses_p");
  await Promise.all([h.write("ses_a", "same", "a.txt", "a\n"), h.write("ses_b", "same", "b.txt", "b\n")]);
  const { calls } = await api("/calls");
  const mine = calls.filter((c) => c.agent_session === "ses_p");
  assert.deepEqual(mine.map((c) => c.subtask_id).sort(), ["ses_a", "ses_b"]);
  const { entries } = await api(`/tasks/${mine[0].task_id}/changes`);
  assert.deepEqual(Object.fromEntries(entries.map((e) => [e.path, e.subtask_id])), { "a.txt": "ses_a", "b.txt": "ses_b" });
});

test("a patch declares its files, and what others changed follows the output", async () => {
  const h = await host();
  await h.session("ses_patch");
  await h.write("ses_patch", "c1", "x.txt", "x\n");
  await writeFile(h.file("x.txt"), "a person was here\n");
  const patch = "*** Begin Patch\n*** Add File: new.txt\n+n\n*** Update File: y.txt\n*** Move to: z.txt\n*** End Patch";
  await h.before("patch", "ses_patch", "c2", { patchText: patch });
  await writeFile(h.file("new.txt"), "n\n");
  assert.match(await h.after("patch", "ses_patch", "c2", {}), /^done\n\numbra: others changed .*\n- x\.txt/);
  const { calls } = await api("/calls");
  const call = calls.find((c) => c.agent_session === "ses_patch" && c.tool === "patch");
  assert.deepEqual(call.paths.map((p) => p.path).sort(), ["new.txt", "y.txt", "z.txt"]);
  assert.equal(call.only_paths, true);
});

test("failed tools, idle sessions and dispose end their calls", async () => {
  const h = await host();
  for (const s of ["ses_f", "ses_i", "ses_d"]) {
    await h.session(s);
    await h.before("bash", s, "c", { command: "true" });
  }
  await h.hooks.event({ event: { type: "message.part.updated", properties: { part: { type: "tool", sessionID: "ses_f", callID: "c", state: { status: "error" } } } } });
  await h.hooks.event({ event: { type: "session.idle", properties: { sessionID: "ses_i" } } });
  await h.hooks.dispose();
  const { calls } = await api("/calls");
  const status = (s) => calls.find((c) => c.agent_session === s).status;
  assert.deepEqual(["ses_f", "ses_i", "ses_d"].map(status), ["failed", "cancelled", "cancelled"]);
});

test("without a server nothing is held up, and one line is logged", async (t) => {
  const gone = http.createServer();
  await new Promise((done) => gone.listen(0, "127.0.0.1", done));
  const { port } = gone.address();
  await new Promise((done) => gone.close(done));
  process.env.UMBRA_SERVER = `http://127.0.0.1:${port}`;
  t.after(() => { process.env.UMBRA_SERVER = url; });
  const h = await host();
  await h.session("ses_n");
  for (let i = 0; i < 5; i++) assert.equal(await h.write("ses_n", "c" + i, "f.txt", `${i}\n`), "done");
  const lines = byCommand ? 0 : 1; // the command has a log of its own
  assert.equal(h.lines.length, lines);
  if (!byCommand) assert.match(h.lines[0], /no server/);
  await h.hooks.dispose();
  assert.equal(h.lines.length, lines);
});

test("tools that only read have no call", async () => {
  const h = await host();
  await h.session("ses_r");
  await h.before("read", "ses_r", "c", { filePath: h.file("x") });
  const { calls } = await api("/calls");
  assert.equal(calls.some((c) => c.agent_session === "ses_r"), false);
});

test("an undo goes past turns that changed no file, however many calls they had", async () => {
  const h = await host();
  await h.session("ses_idle");
  await h.hooks["chat.message"]({ sessionID: "ses_idle", messageID: "m1" }, { message: { id: "m1" } });
  await h.write("ses_idle", "w", "kept.txt", "x\n");
  await h.hooks["chat.message"]({ sessionID: "ses_idle", messageID: "m2" }, { message: { id: "m2" } });
  for (let i = 0; i < (byCommand ? 1 : 101); i++) { // a page of calls is 100; a command for each takes long
    await h.before("write", "ses_idle", "c" + i, { filePath: h.file("never.txt"), content: "x" });
    await h.after("write", "ses_idle", "c" + i, {});
  }
  assert.match(await h.hooks.tool.umbra_undo.execute({}, { sessionID: "ses_idle" }), /undid turn .*m1[^]*kept\.txt/);
  await assert.rejects(readFile(h.file("kept.txt")));
});

test("opencode's workspaces are forks of the project", async () => {
  const directory = await mkdtemp(join(process.env.UMBRA_TEST_DIR, "parent-"));
  const client = { app: { log: async () => {} }, session: { get: async () => ({ data: {} }) } };
  const adapters = new Map();
  const hooks = await Umbra({ client, directory, worktree: directory, project: { id: "p" }, experimental_workspace: { register: (type, a) => adapters.set(type, a) } });
  const forks = adapters.get("umbra");
  const config = await forks.configure({ id: "wrk_1", type: "umbra", name: "try it!", branch: null, directory: null, extra: null, projectID: "p" });
  assert.equal(config.name, "try-it");
  assert.equal(config.directory, directory + "-try-it");
  assert.deepEqual(await forks.target(config), { type: "local", directory: config.directory });
  // Nothing is opened by a guess: the project has to be a workspace.
  await assert.rejects(forks.create(config, {}), /no workspace yet/);
  assert.deepEqual(await forks.list(), []);

  const write = async (session, call, dir, text) => {
    const args = { filePath: join(dir, "a.txt"), content: text };
    await hooks["tool.execute.before"]({ tool: "write", sessionID: session, callID: call }, { args });
    await writeFile(args.filePath, text);
    await hooks["tool.execute.after"]({ tool: "write", sessionID: session, callID: call, args }, { title: "", output: "", metadata: {} });
  };
  await write("ses_forks", "c1", directory, "parent\n");
  await forks.create(config, {});
  assert.equal(await readFile(join(config.directory, "a.txt"), "utf8"), "parent\n");
  const fork = (await api("/workspaces")).workspaces.find((w) => w.root === config.directory);
  assert.ok(fork.fork_of);
  await assert.rejects(forks.create(config, {}), /umbra: /); // the directory exists

  // Work that was never merged is not deleted.
  await writeFile(join(config.directory, "a.txt"), "fork\n");
  await fetch(`${url}/workspaces/${fork.id}/sync`, { method: "POST" });
  await assert.rejects(forks.remove(config), /umbra: /);
  // opencode forgets it all the same, and registers again what is listed.
  assert.deepEqual(await forks.list(), [{ type: "umbra", name: "try-it", branch: null, directory: config.directory, extra: null, projectID: "p" }]);
  assert.equal(await readFile(join(config.directory, "a.txt"), "utf8"), "fork\n");
  await fetch(`${url}/workspaces/${fork.id}/merge`, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
  assert.equal(await readFile(join(directory, "a.txt"), "utf8"), "fork\n");
  await forks.remove(config);
  assert.deepEqual(await forks.list(), []);
  await assert.rejects(readFile(join(config.directory, "a.txt")));
  await assert.rejects(forks.remove({ ...config, directory }), /not a fork/);

  // A directory is never guessed: forks without one are others'.
  const parent = (await api("/workspaces")).workspaces.find((w) => w.root === directory);
  const made = await fetch(`${url}/workspaces/${parent.id}/forks`, { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"kind":"virtual"}' });
  const [virtual] = (await made.json()).forks;
  for (const none of [null, undefined, "relative"]) {
    await assert.rejects(forks.remove({ ...config, directory: none }), /no absolute directory/);
    await assert.rejects(forks.create({ ...config, directory: none }, {}), /no absolute directory/);
  }
  assert.ok((await api("/workspaces")).workspaces.some((w) => w.id === virtual.id));

  // A project that is reached by a link is the same project.
  const link = directory + "-link";
  await symlink(directory, link);
  await forks.create({ ...config, name: "linked" }, {}, { directory: link });
  await forks.remove({ ...config, name: "linked" });
});
