import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Agent } from "@mastra/core/agent";
import { RequestContext } from "@mastra/core/request-context";
import { LocalFilesystem, PermissionError, StaleFileError, UnsupportedGrepPatternError, WORKSPACE_TOOLS, Workspace, WorkspaceReadOnlyError, createWorkspaceTools } from "@mastra/core/workspace";
import { Umbra } from "../dist/index.js";
import { UmbraFilesystem } from "../dist/mastra.js";
import { scripted } from "./models.mjs";

const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
const folder = () => fs.mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-"));
const virtual = () => umbra.tasks.create({ goal: "test", kind: "virtual" });
const collect = async (iterable) => { const out = []; for await (const x of iterable) out.push(x); return out; };
const { FILESYSTEM: names } = WORKSPACE_TOOLS;

/**
 * outcome is a result (without the \r and the empty last line that LocalFilesystem takes for text,
 * and a directory's size 0, as the interface says), or an error by its class, or by its code where Node's own came through. */
async function outcome(fn) {
  try {
    const value = await fn();
    return typeof value === "string" ? value.replace(/(directory Size: )4096/, "$10").replace(/Modified: \S+/, "Modified: T").replace(/\r$/gm, "").replace(/\n[^\n]*:\d+- (?=\n--|$)/g, "") : value;
  } catch (err) {
    return { error: ["Error", "SystemError"].includes(err.name) ? err.code : `${err.name} ${err.code}`, code: err.code };
  }
}

function same(ours, theirs, what) {
  if (theirs?.error !== undefined && !theirs.error.includes(" ")) {
    // Below a file there is nothing: the interface names FileNotFoundError.
    return assert.ok(ours?.code === theirs.code || theirs.code === "ENOTDIR" && ours?.code === "ENOENT", `${what}: ${JSON.stringify(ours)} ${theirs.code}`);
  }
  assert.deepEqual(ours, theirs, what);
}

/** pair is a tree in a directory of Mastra's own file system and in a task. */
async function pair(task) {
  const dir = await folder();
  const files = {
    ".gitignore": "build/\n*.log\n", ".hidden/secret.ts": "needle hidden\n", "README.md": "# top\n\nneedle one\n", "src/app.ts": "import x\nneedle two\n\tconst needle = 3;\n",
    "src/deep/er/a.ts": "needle deep\r\nsecond\r\n", "src/ü b.txt": "ünï needle\n", "build/out.ts": "needle built\n", "debug.log": "needle logged\n", "bin.dat": "\0\u0001needle", "img.png": "\u0089PNG",
    "data.zip": "PK", "noext": "needle\n", "empty.txt": "", "long.txt": Array.from({ length: 30 }, (_, i) => `line ${i}`).join("\n"),
  };
  for (const [path, text] of Object.entries(files)) {
    await fs.mkdir(join(dir, path, ".."), { recursive: true });
    await fs.writeFile(join(dir, path), text);
    await task.files.write(path, text);
  }
  await fs.symlink("src/app.ts", join(dir, "link"));
  await task.files.symlink("link", "src/app.ts");
  await fs.symlink("src", join(dir, "dirlink"));
  await task.files.symlink("dirlink", "src");
  const theirs = new LocalFilesystem({ basePath: dir });
  const ours = new UmbraFilesystem({ task });
  return { dir, ours, theirs };
}

const calls = [
  ...["README.md", "src/app.ts", "src/ü b.txt", "empty.txt", "noext", "img.png", "data.zip", "bin.dat", "link", "none", "src", "none/x", "../x", "README.md/x"].map((path) => [names.READ_FILE, { path }]),
  ...[{ offset: 2 }, { limit: 1 }, { offset: 3, limit: 2 }, { offset: 99 }, { showLineNumbers: false }, { encoding: "base64" }, { encoding: "hex" }].map((o) => [names.READ_FILE, { path: "long.txt", ...o }]),
  ...[{}, { path: "src" }, { path: "src", maxDepth: 5 }, { showHidden: true }, { dirsOnly: true }, { maxDepth: 9 }, { maxDepth: 1 }, { extension: ".ts", maxDepth: 9 }, { pattern: "**/*.ts", maxDepth: 9 },
    { exclude: "deep", maxDepth: 9 }, { respectGitignore: false, maxDepth: 9 }, { path: "none" }, { path: "README.md" }, { path: "build" }, { path: "../x" }, { showHidden: true, maxDepth: 5 }].map((o) => [names.LIST_FILES, o]),
  ...[{ pattern: "needle" }, { pattern: "NEEDLE", caseSensitive: false }, { pattern: "needle", path: "src" }, { pattern: "needle", path: "src/**/*.ts" }, { pattern: "needle", path: "*.md" }, { pattern: "^needle" },
    { pattern: "needle", contextLines: 1 }, { pattern: "\\s+needle\\b" }, { pattern: "line \\d$", maxCount: 3 }, { pattern: "needle", includeHidden: true }, { pattern: "needle", path: "src/app.ts" }, { pattern: "(?=needle)n" },
    { pattern: "(n)eedl\\1?" }, { pattern: "(", path: "src" }, { pattern: "ünï" }, { pattern: "needle", path: "none" }, { pattern: "needle", path: "build" }, { pattern: "x|two" }, { pattern: "[^\\s]+needle" }, { pattern: "two$" }].map((o) => [names.GREP, o]),
  ...["README.md", "src", "none", "empty.txt", "link", "../x", "src/none"].map((path) => [names.FILE_STAT, { path }]),
  [names.WRITE_FILE, { path: "new/dir/f.txt", content: "one\n" }], [names.WRITE_FILE, { path: "new/dir/f.txt", content: "two ü\n" }], [names.WRITE_FILE, { path: "new/dir/f.txt", content: "x", overwrite: false }],
  [names.WRITE_FILE, { path: "new/g.txt", content: "g", overwrite: false }], [names.WRITE_FILE, { path: "src", content: "x" }], [names.WRITE_FILE, { path: "src", content: "x", overwrite: false }],
  [names.WRITE_FILE, { path: "../out", content: "x" }], [names.WRITE_FILE, { path: "empty.txt", content: "" }], [names.READ_FILE, { path: "new/dir/f.txt" }],
  [names.EDIT_FILE, { path: "src/app.ts", old_string: "needle two", new_string: "2\nlines" }], [names.EDIT_FILE, { path: "src/app.ts", old_string: "nothing", new_string: "x" }],
  [names.EDIT_FILE, { path: "long.txt", old_string: "line 1", new_string: "x" }], [names.EDIT_FILE, { path: "long.txt", old_string: "line 1", new_string: "L", replace_all: true }],
  [names.EDIT_FILE, { path: "none", old_string: "a", new_string: "b" }], [names.EDIT_FILE, { path: "src", old_string: "a", new_string: "b" }], [names.READ_FILE, { path: "src/app.ts" }], [names.READ_FILE, { path: "long.txt" }],
  [names.MKDIR, { path: "made/a/b" }], [names.MKDIR, { path: "made/a/b" }], [names.MKDIR, { path: "README.md" }], [names.MKDIR, { path: "no/parent", recursive: false }], [names.MKDIR, { path: "made/c", recursive: false }],
  [names.MKDIR, { path: "made/c", recursive: false }], [names.MKDIR, { path: "README.md/x" }], [names.MKDIR, { path: "../x" }],
  [names.DELETE, { path: "made/c" }], [names.DELETE, { path: "made" }], [names.DELETE, { path: "made", recursive: true }], [names.DELETE, { path: "made" }], [names.DELETE, { path: "new/g.txt" }], [names.DELETE, { path: "none" }],
  [names.DELETE, { path: "../x" }], [names.DELETE, { path: "link" }], [names.LIST_FILES, { maxDepth: 9, showHidden: true }],
];

for (const [kind, make] of [["a virtual workspace", virtual], ["a directory", async () => umbra.tasks.create({ goal: "test", workspace: await folder() })]]) {
  test(`Mastra: each workspace tool beside LocalFilesystem, on ${kind}`, async () => {
    const { ours, theirs } = await pair(await make());
    const tools = [];
    for (const filesystem of [ours, theirs]) tools.push(await createWorkspaceTools(new Workspace({ filesystem })));
    assert.deepEqual(Object.keys(tools[0]), Object.keys(tools[1]));
    for (const [name, input] of calls) {
      const [mine, other] = [await outcome(() => tools[0][name].execute(input, {})), await outcome(() => tools[1][name].execute(input, {}))];
      same(mine, other, `${name} ${JSON.stringify(input)}`);
    }
  });
}

test("Mastra: the file system's methods beside LocalFilesystem", async () => {
  const { dir, ours, theirs } = await pair(await virtual());
  const sorted = (list) => (Array.isArray(list) ? list.map((e) => JSON.stringify(e !== null && typeof e === "object" ? Object.entries(e).filter(([, v]) => v !== undefined).sort() : e)).sort() : list);
  const steps = [
    (f) => f.readFile("README.md", { encoding: "latin1" }), (f) => f.readFile("bin.dat").then((b) => [Buffer.isBuffer(b), b.toString("hex")]), (f) => f.readFile("src"),
    (f) => f.writeFile("p/q/r", "x", { recursive: false }), (f) => f.writeFile("README.md/r", "x", { recursive: false }), (f) => f.writeFile("src/r", Buffer.from([0, 255]), { recursive: false }), (f) => f.readFile("src/r", { encoding: "hex" }),
    (f) => f.writeFile("src/u", new Uint8Array([1]).subarray(0)), (f) => f.writeFile("src/u", "y", { overwrite: false }),
    (f) => f.writeFile("src/u", "y", { expectedMtime: new Date(0) }), async (f) => f.writeFile("src/u", "z", { expectedMtime: (await f.stat("src/u")).modifiedAt }), (f) => f.writeFile("src/v", "new", { expectedMtime: new Date(0) }),
    (f) => f.readFile("src/u", { encoding: "utf8" }), (f) => f.appendFile("src/u", "+"), (f) => f.appendFile("log/new", "1"), (f) => f.appendFile("log/none", ""), (f) => f.appendFile("src", "x"), (f) => f.readFile("src/u", { encoding: "utf8" }),
    (f) => f.readdir("."), (f) => f.readdir("src", { recursive: true }), (f) => f.readdir("src", { recursive: true, maxDepth: 1 }), (f) => f.readdir("src", { recursive: true, extension: ["ts", ".txt"] }), (f) => f.readdir("none"), (f) => f.readdir("README.md"),
    (f) => f.copyFile("README.md", "copy/of.md"), (f) => f.copyFile("README.md", "copy/of.md"), (f) => f.copyFile("README.md", "copy/of.md", { overwrite: false }), (f) => f.copyFile("none", "x"), (f) => f.copyFile("src", "x"),
    (f) => f.copyFile("src", "src2", { recursive: true }), (f) => f.writeFile("src/late", "l"), (f) => f.writeFile("src/u", "changed"), (f) => f.copyFile("src", "src2", { recursive: true, overwrite: false }), (f) => f.readFile("src2/u", { encoding: "utf8" }),
    (f) => f.readFile("src2/late", { encoding: "utf8" }), (f) => f.copyFile("src", "src2", { recursive: true }), (f) => f.readFile("src2/u", { encoding: "utf8" }), (f) => f.copyFile("README.md", "src"),
    (f) => f.moveFile("src2/u", "moved/u"), (f) => f.moveFile("src2/late", "moved/u"), (f) => f.moveFile("README.md", "moved/u", { overwrite: false }), (f) => f.moveFile("none", "x"), (f) => f.moveFile("src2", "src3"), (f) => f.readFile("moved/u", { encoding: "utf8" }),
    (f) => f.deleteFile("none"), (f) => f.deleteFile("none", { force: true }), (f) => f.deleteFile("src"), (f) => f.deleteFile("src/r"), (f) => f.rmdir("none"), (f) => f.rmdir("none", { force: true }), (f) => f.rmdir("README.md"), (f) => f.rmdir("src"),
    (f) => f.rmdir("src3", { recursive: true }), (f) => f.exists("src"), (f) => f.exists("none"), (f) => f.exists("link"), (f) => f.exists("../x"), (f) => f.mkdir("m/n", { recursive: false }), (f) => f.mkdir("m/n"),
    async (f) => { const { createdAt, modifiedAt, mimeType, ...s } = await f.stat("src/app.ts"); return [s, createdAt instanceof Date, modifiedAt instanceof Date]; }, async (f) => { const { createdAt, modifiedAt, mimeType, size, ...s } = await f.stat("src"); return s; },
    async (f) => { const { createdAt, modifiedAt, ...s } = await f.stat("img.png"); return s; }, (f) => f.readdir(".", { recursive: true }),
  ];
  await fs.unlink(join(dir, "dirlink")); // LocalFilesystem goes into it
  await ours.task.files.delete("dirlink");
  for (const step of steps) {
    const [mine, other] = [await outcome(() => step(ours)), await outcome(() => step(theirs))];
    same(sorted(mine), sorted(other), String(step));
  }
  assert.equal(ours.resolveAbsolutePath("a"), undefined);
});

test("Mastra: guards, a read-only file system, patterns, paths", async () => {
  const dir = await folder();
  const task = await umbra.tasks.create({ goal: "test", workspace: dir });
  const [a, b] = [new UmbraFilesystem({ task, subtask: "a" }), new UmbraFilesystem({ task, subtask: "b", id: "mine" })];
  await a.writeFile("/f", "1\n");
  await b.readFile("f");
  await a.writeFile("f", "2\n");
  await assert.rejects(b.writeFile("f", "3\n"), (e) => e instanceof StaleFileError && /changed by subtask a since you read it.*Read it again/.test(e.message) && e.actualMtime.getTime() > 0);
  await b.readFile("f");
  await b.writeFile("f", "3\n");
  // Copies and moves over a file are writes too; the adapter's own leave it free to write.
  await b.writeFile("g", "b\n");
  for (const over of [() => b.copyFile("g", "f"), () => b.moveFile("g", "f")]) {
    await b.readFile("f");
    await a.appendFile("f", "a\n");
    await assert.rejects(over(), (e) => e instanceof StaleFileError && /changed by subtask a/.test(e.message));
    assert.match(await fs.readFile(join(dir, "f"), "utf8"), /a\n$/);
    await b.readFile("f");
    await over();
    assert.equal(await fs.readFile(join(dir, "f"), "utf8"), "b\n");
    await b.writeFile("f", "3\n");
  }
  await a.deleteFile("f");
  await b.writeFile("g", "b\n");
  await assert.rejects(b.moveFile("g", "f"), StaleFileError);
  await b.moveFile("g", "h");
  await b.writeFile("h", "again\n");
  await b.moveFile("h", "f", { overwrite: false }).catch(() => b.copyFile("h", "f"));
  const free = new UmbraFilesystem({ task, guard: "none" });
  await free.readFile("f");
  await a.appendFile("f", "4\n");
  await free.writeFile("f", "5\n");
  assert.equal(await fs.readFile(join(dir, "f"), "utf8"), "5\n");
  assert.equal(a.resolveAbsolutePath("/x/../f"), join(await fs.realpath(dir), "f"));
  assert.equal(a.resolveAbsolutePath("../f"), undefined);
  assert.deepEqual([(await a.stat("/f")).path, (await a.stat("./f")).path, b.id, a.isTextFile("x.ts")], ["/f", "f", "mine", true]);
  const locked = new UmbraFilesystem({ task, readOnly: true });
  for (const refused of [() => locked.writeFile("f", "x"), () => locked.deleteFile("f"), () => locked.mkdir("d"), () => locked.moveFile("f", "g"), () => locked.copyFile("f", "g"), () => locked.rmdir("d"), () => locked.appendFile("f", "x")]) {
    await assert.rejects(async () => refused(), WorkspaceReadOnlyError);
  }
  assert.ok(!Object.keys(await createWorkspaceTools(new Workspace({ filesystem: locked }))).includes(names.WRITE_FILE));
  await assert.rejects(a.grep({ pattern: "(?<=a)b", path: ".", caseSensitive: true, includeHidden: false }), UnsupportedGrepPatternError);
  await assert.rejects(a.grep({ pattern: "\\A", path: ".", caseSensitive: true, includeHidden: false }), UnsupportedGrepPatternError);
  await a.writeFile("é/.h/x.txt", "😀 needle\nneedle\n");
  const found = (o) => a.grep({ pattern: "needle", path: "é", caseSensitive: true, includeHidden: true, ...o });
  assert.deepEqual(await found({ maxCountPerFile: 1 }), [{ path: ".h/x.txt", matches: [{ line: 1, column: 3, text: "😀 needle" }] }]);
  assert.deepEqual(await found({ includeHidden: false }), []);
  assert.equal((await found({ maxTotalMatches: 1 }))[0].matches.length, 1);
  await assert.rejects(a.readFile("/../x"), PermissionError);
  await assert.rejects(new UmbraFilesystem({ task, maxReadBytes: 1 }).readFile("f"), (e) => e.name === "FilesystemError" && e.code === "EFBIG");
  const away = new UmbraFilesystem({ task: new Umbra({ url: "http://127.0.0.1:1", retries: 0 }).task(task.id) });
  away.__setLogger({ warn() {}, error() {}, debug() {}, info() {} });
  await assert.rejects(away.readFile("f"), (e) => e.name === "FilesystemError" && /did not answer/.test(e.message));
});

test("Mastra: history and its filters", async () => {
  const task = await virtual();
  const f = new UmbraFilesystem({ task: task.as("ann"), subtask: "s" });
  await f.writeFile("a/x.txt", "1");
  const middle = new Date((await f.getHistory())[0].timestamp.getTime());
  await f.writeFile("a/x.txt", "2");
  await f.readFile("a/x.txt");
  await f.moveFile("a/x.txt", "b/y.txt");
  await f.mkdir("a2/empty");
  await f.rmdir("a2/empty");
  await f.copyFile("b/y.txt", "a/z.txt");
  await f.deleteFile("b/y.txt");
  const all = await f.getHistory();
  const shown = (list) => list.map((e) => [e.operation, e.path, e.targetPath].filter((x) => x !== undefined).join(" "));
  assert.deepEqual(shown(all), ["write /a/x.txt", "write /a/x.txt", "move /a/x.txt /b/y.txt", "mkdir /a2/empty", "rmdir /a2/empty", "write /a/z.txt", "delete /b/y.txt"]);
  assert.equal(await f.count(), all.length);
  assert.equal(await f.count({ operations: ["read"] }), 0);
  assert.equal(await f.count({ operations: ["move", "delete"] }), 2);
  assert.deepEqual(shown(await f.getHistory({ pathPrefix: "b" })), ["move a/x.txt b/y.txt", "delete b/y.txt"]);
  assert.deepEqual(shown(await f.getHistory({ pathPrefix: "/a", limit: 2, offset: 1 })), ["write /a/x.txt", "move /a/x.txt /b/y.txt"]);
  assert.equal(await f.count({ since: middle }), all.length);
  assert.equal(await f.count({ until: new Date(middle.getTime() - 1) }), 0);
  assert.equal(await f.count({ since: new Date(Date.now() + 60_000) }), 0);
  const { metadata, id, timestamp } = all[0];
  assert.deepEqual([metadata.subtask, metadata.actor, metadata.umbra.task_id, typeof metadata.commit, id], ["s", "ann", task.id, "string", "1"]);
  assert.ok(timestamp instanceof Date && new Set(all.map((e) => e.id)).size === all.length);
});

test("Mastra: two real agents on one workspace, one undone alone", async () => {
  const dir = await folder();
  const task = await umbra.tasks.create({ goal: "test", workspace: dir });
  await task.files.write("shared.txt", "top\n1\n2\n3\n4\n5\n6\nbottom\n");
  const workspace = new Workspace({ filesystem: UmbraFilesystem.resolver((context) => task.subtask(context.get("agent"))) });
  const run = async (name, turns) => {
    const agent = new Agent({ id: name, name, instructions: "work", model: scripted(turns), workspace });
    const requestContext = new RequestContext();
    requestContext.set("agent", name);
    return (await agent.generate("go", { requestContext, maxSteps: 10 })).text;
  };
  const edit = (from, to) => [[names.READ_FILE, { path: "shared.txt" }], [names.EDIT_FILE, { path: "shared.txt", old_string: from, new_string: to }]];
  const [one, two] = await Promise.all([
    run("alice", [[[names.WRITE_FILE, { path: "alice.txt", content: "alice\n" }]], ...edit("top", "ALICE").map((c) => [c]), "done"]),
    run("bob", [[[names.WRITE_FILE, { path: "bob.txt", content: "bob\n" }]], "done"]),
  ]);
  assert.deepEqual([one, two], ["done", "done"]);
  await run("bob", [...edit("bottom", "BOB").map((c) => [c]), "done"]);
  assert.equal(await fs.readFile(join(dir, "shared.txt"), "utf8"), "ALICE\n1\n2\n3\n4\n5\n6\nBOB\n");
  assert.deepEqual([...new Set((await collect(task.changes())).map((e) => e.subtask_id))].sort(), [null, "alice", "bob"].sort());
  await task.revert({ subtask: "alice" });
  assert.equal(await fs.readFile(join(dir, "shared.txt"), "utf8"), "top\n1\n2\n3\n4\n5\n6\nBOB\n");
  assert.deepEqual((await fs.readdir(dir)).sort(), ["bob.txt", "shared.txt"]);
});
