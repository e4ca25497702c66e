import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { BetaLocalFilesystemMemoryTool, betaMemoryTool } from "@anthropic-ai/sdk/tools/memory/node";
import { applyPatchTool } from "@openai/agents-core";
import { createBashTool } from "bash-tool";
import { Bash, InMemoryFs } from "just-bash";
import { umbraMemory } from "../dist/anthropic-memory.js";
import { Umbra } from "../dist/index.js";
import { UmbraFs } from "../dist/just-bash.js";
import { UmbraEditor } from "../dist/openai-agents.js";

const umbra = new Umbra({ url: process.env.UMBRA_TEST_URL });
const text = (bytes) => new TextDecoder().decode(bytes);
const virtual = () => umbra.tasks.create({ goal: "test", kind: "virtual" });

test("OpenAI Agents: an editor for applyPatchTool", async () => {
  const task = await virtual();
  const editor = new UmbraEditor({ task, subtask: "patcher" });
  assert.equal(applyPatchTool({ editor }).type, "apply_patch");
  assert.equal((await editor.createFile({ type: "create_file", path: "a.txt", diff: "+one\n+two\n" })).status, "completed");
  assert.match((await editor.createFile({ type: "create_file", path: "a.txt", diff: "+x\n" })).output, /already exists/);
  assert.equal((await editor.updateFile({ type: "update_file", path: "/a.txt", diff: "@@\n one\n-two\n+2\n" })).status, "completed");
  assert.equal(text(await task.files.read("a.txt")).trimEnd(), "one\n2");
  const changes = async () => { const out = []; for await (const e of task.changes()) out.push(e); return out; };
  const before = (await changes()).length;
  assert.equal((await editor.updateFile({ type: "update_file", path: "a.txt", diff: "@@\n-one\n+1\n 2\n", moveTo: "b/c.txt" })).status, "completed");
  assert.equal(new Set((await changes()).slice(before).map((e) => e.commit)).size, 1);
  assert.equal(text(await task.files.read("b/c.txt")).trimEnd(), "1\n2");
  assert.equal((await editor.updateFile({ type: "update_file", path: "b/c.txt", diff: "@@\n-nothing\n+1\n" })).status, "failed");
  assert.match((await editor.updateFile({ type: "update_file", path: "none", diff: "@@\n-a\n+b\n" })).output, /not found/);
  assert.equal((await editor.deleteFile({ type: "delete_file", path: "b/c.txt" })).status, "completed");
  assert.equal((await editor.deleteFile({ type: "delete_file", path: "b/c.txt" })).status, "failed");
  assert.ok((await changes()).every((e) => e.subtask_id === "patcher"));
});

test("Anthropic: every text and error as the SDK's own memory tool", async () => {
  const theirs = await BetaLocalFilesystemMemoryTool.init(await mkdtemp(join(process.env.UMBRA_TEST_DIR, "memory-")));
  const ours = await umbraMemory({ task: await virtual() });
  assert.equal(betaMemoryTool(ours).name, "memory");
  const commands = [
    { command: "view", path: "/memories" },
    { command: "create", path: "/memories/a.txt", file_text: "one\ntwo\nthree\nfour\nfive\nsix\n" },
    { command: "create", path: "/memories/a.txt", file_text: "x" },
    { command: "create", path: "/memories/d/e/f.md", file_text: "deep" },
    { command: "create", path: "/memories/.hidden", file_text: "h" },
    { command: "create", path: "/memories/node_modules/x", file_text: "h" },
    { command: "view", path: "/memories/a.txt" },
    { command: "view", path: "/memories/a.txt", view_range: [2, 3] },
    { command: "view", path: "/memories/a.txt", view_range: [5, -1] },
    { command: "view", path: "/memories/none" },
    { command: "view", path: "/elsewhere" },
    { command: "view", path: "/memories/../x" },
    { command: "str_replace", path: "/memories/a.txt", old_str: "three", new_str: "$& 3" },
    { command: "str_replace", path: "/memories/a.txt", old_str: "nothing", new_str: "3" },
    { command: "str_replace", path: "/memories/a.txt", old_str: "o", new_str: "3" },
    { command: "str_replace", path: "/memories/d", old_str: "o", new_str: "3" },
    { command: "str_replace", path: "/memories/none", old_str: "o", new_str: "3" },
    { command: "insert", path: "/memories/a.txt", insert_line: 0, insert_text: "zero\n" },
    { command: "insert", path: "/memories/a.txt", insert_line: 99, insert_text: "zero" },
    { command: "insert", path: "/memories/none", insert_line: 0, insert_text: "zero" },
    { command: "view", path: "/memories/a.txt" },
    { command: "rename", old_path: "/memories/a.txt", new_path: "/memories/n/b.txt" },
    { command: "rename", old_path: "/memories/a.txt", new_path: "/memories/c.txt" },
    { command: "rename", old_path: "/memories/d", new_path: "/memories/n/b.txt" },
    { command: "rename", old_path: "/memories", new_path: "/memories/x" },
    { command: "delete", path: "/memories/d" },
    { command: "delete", path: "/memories/d" },
    { command: "delete", path: "/memories" },
  ];
  for (const c of commands) {
    const run = async (tool) => { try { return await tool[c.command](c); } catch (err) { return `throws ${err.message}`; } };
    assert.equal(await run(ours), await run(theirs), JSON.stringify(c));
  }
  const view = async (tool) => (await tool.view({ command: "view", path: "/memories" })).split("\n").map((line) => line.replace(/^[0-9.]+[BKMG]\t(.*\/|\/memories)$/, "dir\t$1"));
  assert.deepEqual(await view(ours), await view(theirs));
});

test("Anthropic: an edit of a file that is not UTF-8 changes nothing", async () => {
  const task = await virtual();
  const latin1 = new Uint8Array([0x63, 0x61, 0x66, 0xe9, 10, 0x78, 10]);
  const memory = await umbraMemory({ task });
  await task.files.write("memories/a.txt", latin1);
  await assert.rejects(memory.str_replace({ path: "/memories/a.txt", old_str: "x", new_str: "y" }), /not UTF-8/);
  assert.deepEqual(await task.files.read("memories/a.txt"), latin1);
});

test("just-bash: an append does not let a stale overwrite through", async () => {
  const task = await virtual();
  await task.files.write("a", "one\n");
  const fs = await UmbraFs.create({ task, subtask: "shell" });
  await fs.readFile("/a");
  await fs.appendFile("/a", "two\n");
  await fs.writeFile("/a", "mine\n");
  await task.subtask("other").files.write("a", "theirs\n");
  await fs.appendFile("/a", "three\n");
  await assert.rejects(fs.writeFile("/a", "stale\n"), /was changed by/);
  assert.equal(text(await task.files.read("a")), "theirs\nthree\n");
});

test("just-bash: the same output and tree as InMemoryFs", async () => {
  const task = await virtual();
  const [ours, theirs] = [await UmbraFs.create({ task }), new InMemoryFs()];
  const bash = [new Bash({ fs: ours, cwd: "/" }), new Bash({ fs: theirs, cwd: "/" })];
  const lines = [
    "mkdir -p w/a/b && cd w && echo one > a/1 && printf 'x\\ny\\n' > a/b/2 && cat a/1 a/b/2", "cd w && ls", "cd w && ls a a/b", "cat w/none", "cat w/a", "mkdir w", "mkdir w/x/y", "rmdir w/a",
    "cd w && cp a/1 a/3 && cat a/3", "cd w && cp -r a c && find c | sort", "cd w && mv c e && ls e", "cd w && echo more >> a/1 && wc -l a/1", "cd w && grep -rn x a | sort", "cd w && rm a/3 && ls a",
    "rm w/none", "rm -f w/none; echo $?", "rm w/a", "cd w && rm -r e && ls", "cd w && sed -i s/one/two/ a/1 && cat a/1", "cd w && ln -s a/1 l && cat l && readlink l", "cd w && test -L l; echo $?",
    "cd w && chmod +x a/1 && test -x a/1; echo $?", "cd w && touch t && test -f t; echo $?", "cd w && echo '' > t; wc -c < w/t", "cd w && for i in 1 2 3; do echo $i > n$i; done; cat n*", "cd w && ls -a",
    "cd w && echo a b c | tr ' ' '\\n' | sort -r > s && cat s", "cd w && head -1 s && tail -1 s", "cd w && find . -name 'n*' | sort", "cd w && mkdir -p z && mv n1 z && ls z", "cd w && rm -rf z n2 n3 && ls", "echo ü > 'w/ü b'; cat 'w/ü b'",
    "cd w && cat < none", "cd w && echo x > a", "ls w/none", "cd w && cp a q", "cd w && cp s n1 && cp n1 s && cat s", "cd w && cp s s", "cd w && ln -s s same && cp s same; rm same", "cd w && echo o > o && cp s o && mv s o && cat o && mv o s", "cd w && mv s s", "cd w && test -d a && echo dir", "cd w && du -a a > /dev/null; echo $?", "cd w && diff s s && echo same", "cd w && awk '{print $1}' s",
  ];
  for (const [i, name] of ["a", "b c", "d.txt", "é", "-x", "deep/er"].entries()) {
    const at = `'k${i}/./${name}'`;
    lines.push(
      `mkdir -p k${i}/deep; echo ${i} > ${at} && cat ${at}`, `echo more >> ${at}; wc -c < ${at}`, `ls k${i}`, `ls -a k${i} | sort`, `cp ${at} k${i}/copy && cmp ${at} k${i}/copy; echo $?`, `mv k${i}/copy k${i}/moved; ls k${i}`,
      `test -s ${at} && echo big`, `grep -c ${i} ${at}`, `sed -i 's/${i}/n/' ${at}; cat ${at}`, `head -c 2 ${at}`, `tail -n 1 ${at}`, `sort ${at}`, `rm ${at} && ls k${i}`, `cat ${at}`, `rm ${at}`, `rmdir k${i}/deep`, `rmdir k${i}`, `find k${i} | sort`,
      `chmod -x k${i}/moved; test -x k${i}/moved; echo $?`, `chmod 755 k${i}/moved; test -x k${i}/moved; echo $?`, `ln -s moved k${i}/l; cat k${i}/l; test -h k${i}/l && echo link`, `ln k${i}/moved k${i}/hard; cat k${i}/hard`, `ln -s nowhere k${i}/dangling; cat k${i}/dangling`,
      `rm k${i}/l k${i}/dangling; ls k${i}`, `cp -r k${i} k${i}c; find k${i}c | sort`, `mv k${i}c k${i}d; ls k${i}d`, `rm -rf k${i}d; ls k${i}d`, `for f in k${i}/*; do echo "$f"; done`, `printf 'a\\0b' > k${i}/z; wc -c < k${i}/z`, `echo x > k${i}`,
    );
  }
  assert.ok(lines.length >= 200, `${lines.length}`);
  for (const line of lines) {
    const [mine, other] = [await bash[0].exec(line), await bash[1].exec(line)];
    assert.deepEqual({ line, out: mine.stdout, err: mine.stderr, code: mine.exitCode }, { line, out: other.stdout, err: other.stderr, code: other.exitCode });
  }
  const tree = (b) => b.exec("find w k* | sort && cat w/a/1 w/s w/t k*/moved").then((r) => r.stdout);
  assert.equal(await tree(bash[0]), await tree(bash[1]));
  assert.deepEqual(ours.getAllPaths().filter((p) => p.startsWith("/w")), (await UmbraFs.create({ task })).getAllPaths().filter((p) => p.startsWith("/w")));
});

test("just-bash: devices are no files, the guard, and a tool of bash-tool", async () => {
  const task = await virtual();
  const shell = async (o) => new Bash({ fs: await UmbraFs.create({ task, ...o }), cwd: "/" });
  const sh = await shell({ subtask: "a" });
  const run = async (line, b = sh) => { const r = await b.exec(line); return [r.stdout, r.exitCode]; };
  assert.deepEqual(await run("echo x > /dev/null; cat /dev/null; echo y 2>/dev/null; test -e /dev/null && echo there; ls; cp /dev/null empty; wc -c < empty"), ["y\nthere\n0\n", 0]);
  assert.deepEqual((await umbra.task(task.id).summary()).created, ["empty"]);
  const other = await shell({ subtask: "b" });
  await run("echo one > f");
  await run("cat f", other);
  await run("echo two > f");
  await assert.rejects(other.exec("echo three > f"), /changed by subtask a since you read it/);
  assert.deepEqual(await run("cat f; echo three > f; cat f", other), ["two\nthree\n", 0]);
  for (const over of ["cp g f", "mv g f"]) {
    await run("echo copied > g; cat f", other);
    await run("cat f; echo two > f");
    const refused = await other.exec(over);
    assert.deepEqual([refused.exitCode, /changed by subtask a since you read it/.test(refused.stderr)], [1, true], refused.stderr);
    assert.deepEqual(await run(`cat f; ${over}; cat f; echo three > f; cat f`, other), ["two\ncopied\nthree\n", 0]);
  }
  const small = await (await shell({ maxReadBytes: 2 })).exec("cat f");
  assert.ok(small.exitCode !== 0);
  const { tools } = await createBashTool({ sandbox: sh, destination: "/" });
  assert.equal((await tools.bash.execute({ command: "cat f && ls" }, {})).stdout, "three\nempty\nf\n");
  await tools.writeFile.execute({ path: "/g/h", content: "by the tool" }, {});
  assert.equal((await tools.readFile.execute({ path: "/g/h" }, {})).content, "by the tool");
  await task.revert({ subtask: "b" });
  assert.equal(text(await task.files.read("f")), "two\n");
});
