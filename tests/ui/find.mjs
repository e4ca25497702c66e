// Finding: a text in files and in history, a task's whole diff with its tree, the
// palette; all by keys alone. Then every view at three widths in two themes.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { accessible, api, dir, everywhere, main, open, put, quiet, server, shot } from "./kit.mjs";

const views = {
  home: ["", ".task-row"],
  task: ["tasks/find", ".timeline .entry"],
  change: ["tasks/find/changes/2", ".line"],
  files: ["tasks/find/files?path=src%2Fdeep%2Fone.ts", ".line"],
  diff: ["tasks/find/diff", ".line.file"],
  history: ["tasks/find/history?path=src%2Fdeep%2Fone.ts", ".versions li"],
  version: ["tasks/find/history?path=src%2Fdeep%2Fone.ts&view=file", ".blame a"],
  review: ["tasks/find/review", ".hunk-head"],
  compare: ["tasks/find/compare", ".line"],
  overview: ["tasks/find/overview", ".figures"],
  workspace: ["workspaces/WS", ".log .entry"],
  commit: ["workspaces/WS/commits/COMMIT", ".line"],
  search: ["search?text=needle", ".found li"],
  "nothing-found": ["search?text=nowhere", ".found, .state, .dim"],
  missing: ["tasks/none", ".error"],
  help: ["tasks/find", ".timeline .entry", (page) => page.keyboard.press("?")],
  palette: ["tasks/find", ".timeline .entry", (page) => page.keyboard.press("Control+k")],
  undo: ["tasks/find/changes/2", ".line", (page) => page.keyboard.press("r").then(() => page.getByRole("button", { name: /^Undo 1 change/ }).waitFor())],
};

await main(async (browser) => {
  mkdirSync(path.join(dir, "src/deep"), { recursive: true });
  writeFileSync(path.join(dir, "src/deep/one.ts"), "export const one = 1;\n");
  writeFileSync(path.join(dir, "readme.txt"), "the needle of the start\n");
  const task = await api("POST", "/tasks", { goal: "Find things", workspace: dir, task_id: "find" });
  const ws = task.workspace_id;
  await put("find", "src/deep/one.ts", "export const one = 1;\nexport const needle = 2;\n", { "X-Subtask-Id": "a" });
  await put("find", "src/deep/one.ts", "export const one = 1;\nexport const thread = 2;\n", { "X-Subtask-Id": "b", "X-Actor": "gpt" });
  await put("find", "src/two.ts", Array.from({ length: 300 }, (_, i) => `export const n${i} = ${i};\n`).join(""), { "X-Subtask-Id": "a" });
  await put("find", "top.ts", "export {};\n", { "X-Subtask-Id": "a" });
  const commit = (await api("GET", "/tasks/find/changes")).entries[1].commit;

  const page = await open(browser);
  await page.goto(server);
  await page.getByRole("link", { name: /Find things/ }).waitFor();
  const [filters, rows] = await page.evaluate(() => [".home .tools > :last-child", ".task-row a"].map((s) => document.querySelector(s).getBoundingClientRect().right));
  assert.equal(filters, rows, "the filters end where the tasks end");

  // The palette, by keys: a text, then a task, then a view of it, then a file.
  const palette = page.getByRole("dialog", { name: "Go to" });
  const type = async (text) => {
    await page.keyboard.press("Control+k");
    await page.keyboard.type(text); // at once: nothing typed is lost
  };
  await type("needle");
  await palette.getByRole("option", { name: /Search for “needle”/, selected: true }).waitFor();
  await shot(page, "palette");
  await accessible(page, "palette");
  await page.keyboard.press("Enter");
  const inFiles = page.getByRole("region", { name: "Found in files" });
  await inFiles.getByText("the needle of the start").waitFor();
  assert.equal(await inFiles.locator("li").count(), 1);
  const past = page.getByRole("region", { name: "Found in history" });
  await past.getByText("2 changes of 4 changes").waitFor();
  assert.equal(await past.locator(".line.add").count(), 1);
  assert.equal(await past.locator(".line.del").count(), 1);
  assert.equal(await past.locator("mark").first().textContent(), "needle");
  await past.locator(".hljs-keyword").first().waitFor();

  await type("find things");
  await palette.getByRole("option", { name: /Find things/ }).first().waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "Timeline", exact: true }).waitFor();
  await type("whole diff");
  await page.keyboard.press("Enter");

  // The whole diff: the tree leads to each file in it.
  const tree = page.getByRole("region", { name: "Files of the diff" });
  await tree.getByRole("button", { name: "src" }).waitFor();
  await page.locator(".line.file", { hasText: "src/deep/one.ts" }).waitFor();
  assert.deepEqual(await tree.locator(".file .base").allTextContents(), ["one.ts", "two.ts", "top.ts"]);
  await tree.getByRole("link", { name: /top\.ts/ }).click();
  await page.waitForFunction(() => {
    const box = document.querySelector(".diff.scroll").getBoundingClientRect();
    const rows = [...document.querySelectorAll(".line.file")].filter((l) => l.textContent.includes("top.ts"));
    return rows.some((l) => l.getBoundingClientRect().top >= box.top - 2 && l.getBoundingClientRect().bottom <= box.bottom + 2);
  });
  await page.keyboard.press("k");
  await page.waitForFunction(() => location.hash.includes("two.ts"));
  await tree.getByRole("button", { name: "src" }).click();
  assert.deepEqual(await tree.locator(".file .base").allTextContents(), ["top.ts"]);
  const one = palette.getByRole("option", { name: /src\/deep\/one\.ts/, selected: true });
  await type("one.ts");
  // The page may still load the task's files: the palette is opened again then.
  await one.waitFor({ timeout: 5_000 }).catch(async () => {
    await page.keyboard.press("Escape");
    await type("one.ts");
    await one.waitFor();
  });
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "File one.ts" }).waitFor();

  // A version of a file is taken back from its history, by keys.
  await page.keyboard.press("h");
  await page.getByRole("heading", { name: /History of/ }).waitFor();
  await page.getByRole("button", { name: "Revert this change …" }).waitFor();
  await page.keyboard.press("r");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: /^Undo 1 change/ }).waitFor();
  assert.match(readFileSync(path.join(dir, "src/deep/one.ts"), "utf8"), /thread/);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // Tab reaches every control of a page, and nothing keeps it.
  await page.goto(`${server}/#/tasks/find/diff`);
  await page.locator(".line.file").first().waitFor();
  const missed = await page.evaluate(() => {
    const focusable = [...document.querySelectorAll("a[href], button, input, select")].filter((e) => e.getClientRects().length > 0 && !e.disabled);
    return focusable.filter((e) => e.tabIndex < 0).map((e) => e.outerHTML.slice(0, 100));
  });
  assert.deepEqual(missed, []);
  const seen = new Set();
  await page.evaluate(() => document.body.focus());
  for (let i = 0; i < 200; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const all = [...document.querySelectorAll("*")];
      return all.indexOf(document.activeElement);
    });
    if (seen.has(at)) break;
    seen.add(at);
  }
  assert.ok(seen.size > 12 && seen.size < 200, `Tab reached ${seen.size} elements`);
  quiet(page);
  await page.context().close();

  const all = await open(browser, { allow: [/404 \(Not Found\)/] });
  for (const [name, [hash, there, act]] of Object.entries(views)) {
    await all.goto("about:blank");
    await all.goto(`${server}/#/${hash.replace("WS", ws).replace("COMMIT", commit)}`);
    await all.locator(there).first().waitFor({ state: "attached" });
    if (act) {
      await act(all);
      await all.locator("dialog[open]").waitFor();
    }
    await everywhere(all, name);
  }
  quiet(all);
});
