// Stored cross-site scripting: hostile texts wherever an agent can leave one. A
// canary in the page, dialogs, navigations and requests tell if any of it runs.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";

import { api, dir, figure, main, open, put, quiet, server } from "./kit.mjs";

// Each calls canary() or goes to /canary if it is ever taken for more than text.
const vectors = [
  `<script>canary(1)</script>`,
  `<img src=x onerror=canary(2)>`,
  `<svg onload=canary(3)>`,
  `<svg><script>canary(4)</script></svg>`,
  `"><script>canary(5)</script>`,
  `'><img src=x onerror=canary(6)>`,
  `</title><script>canary(7)</script>`,
  `</textarea><script>canary(8)</script>`,
  `</style><script>canary(9)</script>`,
  `--><script>canary(10)</script>`,
  `]]><script>canary(11)</script>`,
  `<iframe srcdoc="<script>parent.canary(12)</script>">`,
  `<iframe src="javascript:parent.canary(13)">`,
  `<a href="javascript:canary(14)">click</a>`,
  `javascript:canary(15)`,
  `data:text/html,<script>canary(16)</script>`,
  `<object data="/canary17">`,
  `<embed src="/canary18">`,
  `<link rel=stylesheet href=/canary19>`,
  `<style>@import '/canary20';*{background:url(/canary20)}</style>`,
  `<meta http-equiv=refresh content="0;url=/canary21">`,
  `<base href="//canary22.invalid/">`,
  `<form action=/canary23><button autofocus onfocus=canary(23)>`,
  `<input autofocus onfocus=canary(24)>`,
  `<details open ontoggle=canary(25)>`,
  `<video src=x onerror=canary(26)>`,
  `<body onload=canary(27)>`,
  `<math><mtext></p><style><img src=x onerror=canary(28)></style>`,
  `<noscript><p title="</noscript><img src=x onerror=canary(29)>">`,
  `<template><script>canary(30)</script></template>`,
  `\${canary(31)}`,
  `{{constructor.constructor('canary(32)')()}}`,
  `" autofocus onfocus="canary(33)" x="`,
  `' style='background:url(/canary34)' onmouseover='canary(34)`,
  `<x onclick=canary(35) style=position:fixed;inset:0>x</x>`,
  `\u202e<script>canary(36)</script>`,
  `<scr\u0000ipt>canary(37)</scr\u0000ipt>`,
  `&lt;script&gt;canary(38)&lt;/script&gt;`,
  `\u003cscript\u003ecanary(39)\u003c/script\u003e`,
  `<span class="hljs-keyword" onmouseenter=canary(40)>let</span>`,
  `[x](javascript:canary(41)) ![x](/canary41)`,
  `__proto__`,
];

const asName = (v, i) => `n${i} ${v.replaceAll("/", "\u2215").replaceAll("\0", "")}.html`.slice(0, 200);
const asActor = (v) => v.replaceAll(/[<>\0]/g, "").replaceAll(/[^\x20-\x7e]/g, "").slice(0, 120) || "x";

await main(async (browser) => {
  mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(dir, "start.txt"), "start\n");
  const tasks = [];
  for (const [k, v] of vectors.entries()) {
    if (k % 6 !== 0) continue;
    const goal = `${v.replaceAll("\0", "")} ${vectors[k + 1]?.replaceAll("\0", "") ?? ""}`;
    tasks.push(await api("POST", "/tasks", { goal, workspace: dir, task_id: `canary.${k}`, metadata: { note: v } }));
  }
  const id = tasks[0].task_id;
  for (const t of tasks.slice(1)) await api("PATCH", `/tasks/${t.task_id}`, { status: "completed" });
  const names = [];
  for (const [i, v] of vectors.entries()) {
    const name = asName(v, i);
    names.push(name);
    const headers = { "X-Subtask-Id": `constructor-${i % 3}`, "X-Actor": asActor(v) };
    await put(id, name, `${v}\nline\n`, headers);
    await put(id, name, `${v} ${vectors[(i + 1) % vectors.length]}\nline\n`, headers);
    await put(id, `code/${i}.${["html", "js", "md", "svg", "css", "ts", "json", "py"][i % 8]}`, vectors.join("\n").replaceAll("\0", ""), headers);
  }
  for (const [i, v] of vectors.entries()) {
    await api("POST", `/tasks/${id}/batch`, { subtask_id: "__proto__".replaceAll("_", "x"), message: v.replaceAll(/[\0\n]/g, ""), operations: [{ op: "write", path: `m${i}`, content: v }] });
  }
  await api("POST", `/tasks/${id}/move`, { from: names[0], to: `moved ${names[1]}` });
  writeFileSync(path.join(dir, "out <img src=x onerror=canary(99)>"), "<script>canary(99)</script>");
  await api("POST", `/workspaces/${tasks[0].workspace_id}/sync`, {});

  const page = await open(browser);
  const ran = [];
  await page.context().exposeFunction("canary", (n) => void ran.push(n));
  page.on("request", (r) => {
    if (/canary\d/.test(new URL(r.url()).pathname)) ran.push(r.url());
  });
  page.on("framenavigated", (f) => {
    if (f !== page.mainFrame() || !f.url().startsWith(`${server}/`)) ran.push(`navigated to ${f.url()}`);
  });
  const opened = [];
  page.context().on("page", (p) => opened.push(p.url()));

  const visit = async (hash, see) => {
    await page.goto(`${server}/#/${hash}`);
    await see;
  };
  const text = (s) => page.getByText(s).first().waitFor();
  await visit("");
  await page.locator(".chip").first().waitFor();
  assert.ok((await page.getByText("<script>canary(1)</script>").count()) > 0, "the goal is not shown as text");
  await visit(`tasks/${id}`);
  await text("Take it along");
  await page.getByRole("button", { name: "Group" }).click();
  const last = (await api("GET", `/tasks/${id}`)).changes;
  let seen = 0;
  for (let n = 1; n <= last; n += 3) {
    await visit(`tasks/${id}/changes/${n}`);
    await page.getByRole("region", { name: `Change ${n}`, exact: true }).locator(".line, .empty, .notice").first().waitFor();
    seen++;
  }
  const files = (await api("GET", `/tasks/${id}/files`)).files;
  for (const f of files.filter((_, i) => i % 4 === 0)) {
    const q = new URLSearchParams({ path: f.path });
    await visit(`tasks/${id}/files?${q}`);
    await page.locator(".detail .line").first().waitFor();
    q.set("view", "file");
    await visit(`tasks/${id}/history?${q}`);
    await page.locator(".versions a").first().waitFor();
    await page.locator(".detail .line, .detail .notice").first().waitFor();
    seen++;
  }
  // The highlighted ones, with all vectors in one file.
  for (let i = 0; i < 8; i++) {
    await visit(`tasks/${id}/files?path=${encodeURIComponent(files.find((f) => f.path.startsWith(`code/${i}.`)).path)}`);
    await page.locator(".detail .line").nth(10).waitFor();
  }
  await page.locator(".detail [class^=hljs]").first().waitFor();
  // Dialogs.
  await visit(`tasks/${id}`);
  await page.getByRole("button", { name: "Revert task …" }).click();
  await text("This will happen:");
  await page.keyboard.press("Escape");
  const log = (await api("GET", `/workspaces/${tasks[0].workspace_id}/log?limit=200`)).entries;
  for (const e of log.filter((_, i) => i % 9 === 0)) {
    await visit(`workspaces/${tasks[0].workspace_id}/commits/${e.commit}`);
    await page.locator(".line, .empty").first().waitFor();
    seen++;
  }
  await visit(`workspaces/${tasks[0].workspace_id}`);
  await page.locator(".log .entry").first().waitFor();
  await visit(`search?${new URLSearchParams({ path: vectors[0], actor: vectors[33] })}`);
  await text(/of \d+ changes/);
  for (const v of vectors) await visit(v.replaceAll("\0", ""));
  await visit(`tasks/${encodeURIComponent(vectors[0])}`);
  await page.getByRole("alert").waitFor();
  page.faults = page.faults.filter((f) => !/status of 4\d\d/.test(f));

  quiet(page);

  // What the page's own policy must stop, tried from within.
  const stopped = await page.evaluate(() => {
    const said = [];
    const attempt = (name, fn) => {
      try {
        fn();
        said.push(`${name} was let`);
      } catch (e) {
        if (!(e instanceof TypeError || e instanceof EvalError)) said.push(`${name}: ${e}`);
      }
    };
    attempt("innerHTML", () => (document.createElement("div").innerHTML = "<b>x</b>"));
    attempt("a script's source", () => (document.createElement("script").src = "/ui/x.js"));
    attempt("another worker", () => new Worker("/tasks/x/content?path=a.js"));
    return said;
  });
  assert.deepEqual(stopped, []);

  // The raw bytes, opened as a page: a download, or text that runs nothing.
  const raw = await page.context().newPage();
  for (const [i] of vectors.entries()) {
    const file = files.find((f) => f.path.startsWith(`code/${i}.`));
    if (!file || i % 4 !== 0) continue;
    const target = `${server}/tasks/${id}/content?path=${encodeURIComponent(file.path)}`;
    const download = raw.waitForEvent("download");
    await raw.goto(target).catch((e) => assert.match(String(e), /Download is starting|ERR_ABORTED/));
    await download;
    seen++;
  }
  for (const target of [`/tasks/${id}/diff`, `/tasks/${id}`, `/tasks/${id}/changes`, `/${encodeURIComponent(vectors[0])}`]) {
    await raw.goto(server + target).catch(() => {});
    seen++;
  }
  assert.deepEqual(ran, []);
  assert.deepEqual(opened.filter((u) => u !== "about:blank"), []);
  figure("hostile texts", vectors.length);
  figure("pages looked at", seen);
});
