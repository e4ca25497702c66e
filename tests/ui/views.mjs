// The views around a task: the empty page, messages, blame, images, any two
// points compared, checkpoints, and a server that cannot be reached for a while.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { api, dir, everywhere, look, main, open, put, quiet, server } from "./kit.mjs";

// Two images of one pixel each.
const red = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", "base64");
const blue = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==", "base64");

await main(async (browser) => {
  // The browser itself notes each request that fails.
  const page = await open(browser, { allow: [/ERR_INTERNET_DISCONNECTED|Failed to load resource/] });
  await page.goto(server);
  await page.getByText("umbra init").waitFor();
  await page.getByText("umbra demo").waitFor();
  await page.getByText(`claude mcp add --transport http umbra ${server.replace(/\/$/, "")}/mcp`).waitFor();
  await everywhere(page, "empty");

  // The API's page: a search over all routes.
  await page.goto(`${server}/docs`);
  await page.getByRole("searchbox", { name: "Search" }).fill("checkpoint name");
  await page.locator("#found", { hasText: /^\d+ of \d+ routes$/ }).waitFor();
  await page.locator("summary", { hasText: "/workspaces/{ws}/checkpoints" }).first().waitFor();
  assert.equal(await page.locator("summary:visible", { hasText: "/calls/{call}/touch" }).count(), 0);
  await everywhere(page, "docs");

  mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(dir, "a.ts"), "export const one = 1;\nexport const two = 2;\nexport const three = 3;\n");
  writeFileSync(path.join(dir, "dot.png"), red);
  const task = await api("POST", "/tasks", { goal: "Views", workspace: dir, task_id: "views" });
  const ws = `/workspaces/${task.workspace_id}`;
  await put("views", "a.ts", "export const one = 1;\nexport const two = 22;\nexport const three = 3;\n", { "X-Message": "Two is more than it was", "X-Subtask-Id": "numbers" });
  await api("POST", `${ws}/checkpoints`, { name: "half-way" });
  await put("views", "a.ts", "export const one = 1;\nexport const two = 22;\nexport const three = 33;\n", { "X-Actor": "gpt", "X-Subtask-Id": "numbers" });
  await put("views", "dot.png", blue, { "X-Subtask-Id": "pictures" });
  await put("views", "b.ts", "export {};\n", { "X-Subtask-Id": "pictures" });

  // What the agent said of a change.
  await page.goto(`${server}/#/tasks/views`);
  await page.getByText("Two is more than it was").waitFor();

  // Blame: each line by its writer, and away by a key.
  await page.goto(`${server}/#/tasks/views/history?path=a.ts&view=file`);
  const gutter = page.locator(".blame a");
  await gutter.getByText("gpt", { exact: true }).waitFor();
  await gutter.getByText("claude", { exact: true }).waitFor();
  assert.equal(await gutter.count(), 3);
  await look(page, "blame");
  await page.keyboard.press("b");
  await page.locator(".blame").first().waitFor({ state: "detached" });
  await page.keyboard.press("b");
  await gutter.first().waitFor();

  // An image, before and after.
  await page.goto(`${server}/#/tasks/views/files?path=dot.png`);
  await page.waitForFunction(() => [...document.querySelectorAll(".images img")].filter((i) => i.complete && i.naturalWidth === 1).length === 2);
  await look(page, "images");

  // Two points: a checkpoint, and now.
  await page.goto(`${server}/#/tasks/views/compare`);
  await page.getByRole("searchbox", { name: "From" }).or(page.getByRole("combobox", { name: "From" })).fill("half-way");
  await page.keyboard.press("Enter");
  const compared = page.getByRole("region", { name: "Changes from half-way to head" });
  await compared.getByText("three = 33").first().waitFor();
  assert.equal(await compared.getByText("two = 2;").count(), 0);
  await look(page, "compare");

  // Back to a checkpoint: its plan, with whose work it replaces.
  await page.goto(`${server}/#/workspaces/${task.workspace_id}`);
  await page.getByRole("button", { name: "Restore … half-way" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("by gpt in views").waitFor();
  const restore = dialog.getByRole("button", { name: "Restore 3 files to half-way" });
  await restore.waitFor();
  await look(page, "restore");
  assert.ok(existsSync(path.join(dir, "b.ts")));
  await restore.click();
  await dialog.getByRole("heading", { name: "Restored" }).waitFor();
  assert.ok(!existsSync(path.join(dir, "b.ts")));
  assert.match(readFileSync(path.join(dir, "a.ts"), "utf8"), /two = 22;\n.*three = 3;/);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // No server: a bar says so, and a page opened meanwhile is there when it is back.
  await page.context().setOffline(true);
  await page.evaluate(() => (location.hash = "#/tasks/views/files"));
  await page.getByText(/The server cannot be reached\. The page continues/).waitFor();
  await everywhere(page, "gone");
  await page.context().setOffline(false);
  await page.getByRole("link", { name: /a\.ts/ }).first().waitFor();
  await page.locator(".gone").waitFor({ state: "detached" });
  await put("views", "late.ts", "export {};\n");
  await page.getByRole("link", { name: /late\.ts/ }).first().waitFor();

  // A change that is made while a workspace's stream is not connected: it is there again
  // once the stream is, before any event was known.
  let lost;
  const passed = new Promise((done) => (lost = done));
  let connections = 0;
  await page.route(`**${ws}/stream`, async (route) => {
    if (++connections > 1) return route.continue();
    await passed;
    await route.fulfill({ contentType: "text/event-stream", body: ":\n\n" });
  });
  await page.goto(`${server}/#/workspaces/${task.workspace_id}`);
  const log = page.getByRole("region", { name: "Log of the workspace" });
  await log.getByText("late.ts").first().waitFor();
  await put("views", "unseen.ts", "export {};\n");
  lost();
  await log.getByText("unseen.ts").first().waitFor();
  quiet(page);
  await page.context().close();

  const phone = await open(browser, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  for (const [name, hash, there] of [
    ["blame", "tasks/views/history?path=a.ts&view=file", ".blame a"],
    ["compare", "tasks/views/compare", ".line"],
    ["checkpoints", `workspaces/${task.workspace_id}`, ".checkpoint"],
  ]) {
    await phone.goto(`${server}/#/${hash}`);
    await phone.locator(there).first().waitFor();
    await look(phone, `phone-${name}`);
  }
  quiet(phone);
});
