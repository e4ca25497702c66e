// Forks: made, judged and compared side by side, merged by subtask, file and hunk, a
// conflict with whose lines it is, the undo of a merge, deletion; checkpoints on the
// timeline; by clicks and by keys alone, at three widths in two themes.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { accessible, api, dir, everywhere, fits, main, open, put, quiet, server, shot } from "./kit.mjs";

async function look(page, name) {
  await shot(page, name);
  await accessible(page, name);
  await fits(page, name);
}

const read = (name) => readFileSync(path.join(dir, name), "utf8");
const lines = (...changed) => Array.from({ length: 30 }, (_, i) => `line ${i + 1}${changed.includes(i + 1) ? " changed" : ""}\n`).join("");

await main(async (browser) => {
  mkdirSync(path.join(dir, "src"), { recursive: true });
  writeFileSync(path.join(dir, "src/app.ts"), "export const app = 1;\n");
  writeFileSync(path.join(dir, "notes.md"), "# Notes\n");
  writeFileSync(path.join(dir, "long.txt"), lines());
  const task = await api("POST", "/tasks", { goal: "Make it fast", workspace: dir, task_id: "fast" });
  const ws = task.workspace_id;
  await put("fast", "src/app.ts", "export const app = 2;\n", { "X-Subtask-Id": "first" });
  await api("POST", `/workspaces/${ws}/checkpoints`, { name: "before-forks" });
  await put("fast", "notes.md", "# Notes\n\nOn the way.\n", { "X-Subtask-Id": "first" });

  // The checkpoint is on the timeline at the newest change that it has, and in the log.
  // 404: of a fork that is being deleted the page may still ask for the difference.
  const page = await open(browser, { allow: [/status of 40[49]/] });
  await page.goto(`${server}/#/tasks/fast`);
  await page.locator(".timeline .entry", { hasText: "src/app.ts" }).getByText("before-forks").waitFor();
  assert.equal(await page.locator(".timeline .flag").count(), 1);
  await look(page, "checkpoint-timeline");
  await page.goto(`${server}/#/workspaces/${ws}`);
  await page.locator(".log .entry", { hasText: "src/app.ts" }).getByText("before-forks").waitFor();
  assert.equal(await page.locator(".log .flag").count(), 1);
  // One that is made here shows at once.
  await page.getByRole("searchbox", { name: "Name of a new checkpoint" }).fill("now");
  await page.keyboard.press("Enter");
  await page.locator(".log .entry", { hasText: "notes.md" }).locator(".flag", { hasText: "now" }).waitFor();

  // Forks are made by keys alone.
  await page.getByRole("link", { name: "Forks", exact: true }).click();
  await page.getByText("No fork yet.").waitFor();
  await look(page, "forks-none");
  await page.keyboard.press("n");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("searchbox", { name: "Name" }).fill("try");
  await dialog.getByRole("combobox", { name: "Kind" }).selectOption("virtual");
  await dialog.getByRole("searchbox", { name: "How many" }).fill("3");
  await look(page, "fork-make");
  await page.keyboard.press("Enter");
  await page.getByText("3 forks", { exact: true }).waitFor();
  await dialog.waitFor({ state: "detached" });
  const forks = (await api("GET", `/workspaces/${ws}/forks`)).forks;
  const [one, two, three] = forks.map((f) => f.id);
  assert.equal(await page.getByText("no change").count(), 3);

  // Two agents work in two of them; both change the same line of the app.
  for (const [fork, actor, own] of [[one, "ann", "cache"], [two, "bob", "index"]]) {
    await api("POST", "/tasks", { goal: `Fast, by ${actor}`, workspace: fork, task_id: `fast-${actor}` });
    await put(`fast-${actor}`, "src/app.ts", `export const app = "${actor}";\n`, { "X-Actor": actor, "X-Subtask-Id": "app" });
    await put(`fast-${actor}`, `src/${own}.ts`, `export const ${own} = true;\n`, { "X-Actor": actor, "X-Subtask-Id": own });
  }
  await put("fast-bob", "long.txt", lines(2, 28), { "X-Actor": "bob", "X-Subtask-Id": "long" });
  await api("PATCH", `/workspaces/${one}`, { judged: { passed: true, score: 41, exit_code: 0, seconds: 12.34, command: "make bench" } });
  await api("PATCH", `/workspaces/${two}`, { judged: { passed: true, score: 57.5, exit_code: 0, seconds: 9, command: "make bench" } });
  await api("PATCH", `/workspaces/${three}`, { judged: { passed: false, exit_code: 2, seconds: 1, command: "make bench" } });

  // Side by side, the best first.
  const row = (name) => page.locator(".fork-row", { has: page.getByRole("link", { name, exact: true }) });
  await row("try-2").getByText("57.5").waitFor();
  await row("try-2").getByText("best", { exact: true }).waitFor();
  await row("try-2").getByText("3 files").waitFor();
  await row("try-1").getByText("2 files").waitFor();
  await row("try-3").getByText("failed").waitFor();
  assert.deepEqual(await page.locator(".fork-row .name").allTextContents(), ["try-2", "try-1", "try-3"]);
  await look(page, "forks");

  // Compared with each other, by keys.
  await page.keyboard.press("j");
  await page.waitForFunction(() => document.activeElement?.textContent === "try-2");
  await page.keyboard.press("x");
  await page.keyboard.press("j");
  await page.waitForFunction(() => document.activeElement?.textContent === "try-1");
  await page.keyboard.press("x");
  await page.getByText("3 forks, 2 selected").waitFor();
  await page.keyboard.press("c");
  const compared = page.getByRole("region", { name: "Changes from try-1 to try-2" }).or(page.getByRole("table", { name: "Changes from try-1 to try-2" }));
  await compared.getByText('app = "bob"').waitFor();
  await compared.getByText('app = "ann"').waitFor();
  await page.getByText("only there").waitFor();
  await look(page, "forks-compared");
  await page.keyboard.press("j");
  await page.waitForFunction(() => location.hash.includes("path=long.txt"));
  await compared.getByText("line 28 changed").waitFor();
  assert.equal(await compared.getByText('app = "bob"').count(), 0);
  await page.keyboard.press("u");
  await row("try-2").waitFor();

  // One is merged by subtask: the rest stays in it.
  await row("try-1").getByRole("link", { name: "Merge … try-1" }).click();
  const plan = page.getByRole("region", { name: "Plan of the merge" });
  await plan.getByText(/2 files from 2 commits/).waitFor();
  await page.getByRole("button", { name: "By subtask" }).click();
  await plan.getByText("Choose what to merge.").waitFor();
  await page.getByRole("checkbox", { name: /cache/ }).check();
  await plan.getByText(/1 file from 1 commit/).waitFor();
  await look(page, "merge-subtask");
  await page.getByRole("button", { name: "Merge 1 file" }).click();
  await page.getByText("1 file merged in 1 commit").waitFor();
  assert.equal(read("src/cache.ts"), "export const cache = true;\n");
  assert.equal(read("src/app.ts"), "export const app = 2;\n");
  await look(page, "merged");

  // The rest of it; then the other one has one real conflict, with whose lines it is.
  await page.getByRole("button", { name: "Merge more" }).click();
  await page.getByRole("button", { name: "Everything" }).click();
  await page.getByRole("button", { name: "Merge 1 file" }).click();
  await page.getByText("1 file merged in 1 commit").waitFor();
  assert.equal(read("src/app.ts"), 'export const app = "ann";\n');
  await page.goto(`${server}/#/workspaces/${two}/merge`);
  const conflicts = plan.getByRole("list", { name: "Conflicts" });
  await conflicts.getByText("both changed the same lines").waitFor();
  const sides = await conflicts.locator(".side").allTextContents();
  assert.match(sides[0], /here.*ann, task merge-.*, subtask app/);
  assert.match(sides[1], /there, try-2: bob, task fast-bob, subtask app/);
  assert.ok(await page.getByRole("button", { name: /^Merge 2 files$/ }).isDisabled());
  await conflicts.getByRole("button", { name: /Show lines/ }).click();
  await conflicts.locator(".line.del", { hasText: "ann" }).waitFor();
  await conflicts.locator(".line.add", { hasText: "bob" }).waitFor();
  const [height, lineHeight] = await conflicts.locator(".line.add .code").first().evaluate((e) => [e.clientHeight, parseFloat(getComputedStyle(e).lineHeight)]);
  assert.ok(height < 2 * lineHeight, "a short line takes one row");
  await look(page, "merge-conflict");

  // By hunk, with the keyboard alone: the second hunk of the long file.
  await page.getByRole("button", { name: "By hunk" }).focus();
  await page.keyboard.press("Enter");
  const second = page.locator(".part", { hasText: "line 28 changed" }).getByRole("checkbox");
  await second.waitFor();
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 10 && !(await second.evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press("j");
  await page.keyboard.press("Space");
  await plan.getByText(/1 file from 1 commit/).waitFor();
  await look(page, "merge-hunk");
  await page.getByRole("button", { name: "Merge 1 file" }).focus();
  await page.keyboard.press("Enter");
  await page.getByText("1 file merged in 1 commit").waitFor();
  assert.equal(read("long.txt"), lines(28));

  // All but the conflict; the undo takes the whole merge back.
  await page.getByRole("button", { name: "Merge more" }).click();
  await page.getByRole("button", { name: "Everything" }).click();
  await plan.getByRole("radio", { name: /Leave such files out/ }).check();
  await page.getByRole("button", { name: "Merge 2 files" }).click();
  await page.getByText("1 file left out").waitFor();
  assert.equal(read("long.txt"), lines(2, 28));
  assert.equal(read("src/app.ts"), 'export const app = "ann";\n');
  await page.getByRole("button", { name: "Undo this …" }).click();
  await dialog.getByRole("button", { name: /^Undo 2 changes/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  assert.equal(read("long.txt"), lines(28));
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // What was taken back is merged again only when that is asked for, and undone as before.
  await page.getByRole("button", { name: "Merge more" }).click();
  const again = plan.getByRole("checkbox", { name: /a revert took back/ });
  await again.waitFor();
  assert.ok(!(await again.isChecked()));
  assert.ok(await page.getByRole("button", { name: "Merge", exact: true }).isDisabled());
  await look(page, "merge-reverted");
  await again.focus();
  await page.keyboard.press("Space");
  await page.getByRole("button", { name: "Merge 2 files" }).click();
  await page.getByText("2 files merged").waitFor();
  assert.equal(read("long.txt"), lines(2, 28));
  await page.getByRole("button", { name: "Undo this …" }).click();
  await dialog.getByRole("button", { name: /^Undo 2 changes/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  assert.equal(read("long.txt"), lines(28));
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // The parent's news come into a fork that has none of its own.
  await page.goto(`${server}/#/workspaces/${three}`);
  await page.getByRole("link", { name: "Bring news …" }).click();
  await page.getByRole("button", { name: /^Merge 3 files$/ }).click();
  await page.getByText(/3 files merged/).waitFor();
  await page.goto(`${server}/#/workspaces/${three}/merge`);
  await plan.getByText("Nothing is left to merge.").waitFor();

  // A fork with work that was never merged is asked about once more.
  await page.goto(`${server}/#/workspaces/${ws}/forks`);
  await row("try-2").getByRole("button", { name: "Delete … try-2" }).click();
  await dialog.getByRole("button", { name: "Delete", exact: true }).click();
  await dialog.getByText("never merged").waitFor();
  await look(page, "fork-delete");
  // Not while an agent is at work in it, which the dialog says.
  await dialog.getByRole("button", { name: "Delete it with all that" }).click();
  await dialog.getByText(/executing or paused/).waitFor();
  await api("PATCH", "/tasks/fast-bob", { status: "completed" });
  await dialog.getByRole("button", { name: "Delete it with all that" }).click();
  await page.getByText("2 forks", { exact: true }).waitFor();
  await row("try-3").getByRole("button", { name: "Delete … try-3" }).click();
  await dialog.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("1 fork", { exact: true }).waitFor();
  assert.deepEqual((await api("GET", `/workspaces/${ws}/forks`)).forks.map((f) => f.id), [one]);
  assert.equal(read("src/app.ts"), 'export const app = "ann";\n');
  quiet(page);
  await page.context().close();

  // A thousand forks: only those that are seen are in the document, and none is opened.
  await api("POST", `/workspaces/${ws}/forks`, { kind: "virtual", name: "many", count: 1000 });
  await put("fast-ann", "src/app.ts", 'export const app = "ann, again";\n', { "X-Actor": "ann", "X-Subtask-Id": "app" });
  await put("fast", "src/app.ts", "export const app = 3;\n");
  await api("POST", "/tasks/fast-ann/move", { from: "notes.md", to: "there.md" });
  await api("POST", "/tasks/fast/move", { from: "notes.md", to: "here.md" });
  const all = await open(browser);
  for (const [name, hash, there] of [
    ["forks", `workspaces/${ws}/forks`, ".fork-row .judged"],
    ["fork", `workspaces/${one}`, ".log .entry"],
    ["forks-compared", `workspaces/${one}/compare`, ".line"],
    ["merge", `workspaces/${one}/merge`, ".conflicts .side"],
  ]) {
    await all.goto(`${server}/#/${hash}`);
    await all.locator(there).first().waitFor({ state: "attached" });
    await everywhere(all, name);
    if (name === "merge") {
      const renamed = all.locator(".conflicts li", { hasText: "there.md" });
      assert.match(await renamed.locator(".conflict-head").textContent(), /both gave it another name; here it is here\.md/);
      await all.getByRole("button", { name: "By hunk" }).click();
      await all.locator(".part .line.add").first().waitFor({ state: "attached" });
      await all.getByText("New file", { exact: true }).waitFor();
      await everywhere(all, "merge-hunks");
    }
    if (name === "forks") assert.ok((await all.locator(".fork-row").count()) < 60);
  }
  quiet(all);
});
