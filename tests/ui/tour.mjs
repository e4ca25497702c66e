// The tour by clicks: see the work, live; its diffs; take a piece of it back
// after the preview; undo the undo; a conflict, three ways.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { accessible, api, dir, fits, main, open, put, quiet, server, shot } from "./kit.mjs";
import { files, project, typedCart, typedMoney, work } from "./shop.mjs";

const disk = (name) => readFileSync(path.join(dir, name), "utf8");
const there = (name) => existsSync(path.join(dir, name));

async function look(page, name) {
  await shot(page, name);
  await accessible(page, name);
  await fits(page, name);
}

/** applied clicks a dialog's own revert button and waits for its report. */
async function apply(page) {
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: /^Undo \d/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  return dialog;
}

/** pick chooses the oldest entry that a filter leaves: the list draws only what is in view. */
async function pick(page, words) {
  const timeline = page.getByRole("region", { name: "Timeline", exact: true });
  const filter = timeline.getByRole("searchbox");
  await filter.fill(words);
  await page.waitForFunction(() => /^\d+ of /.test(document.querySelector(".timeline .state")?.textContent ?? ""));
  await timeline.getByRole("link").last().click();
  await filter.fill("");
  await filter.press("Escape");
}

await main(async (browser) => {
  project();
  const task = await work();
  const id = task.task_id;
  // The browser itself notes the refused plan on its console.
  const page = await open(browser, { allow: [/409 \(Conflict\)/] });

  // The list, and the task in it.
  await page.goto(server);
  await page.getByRole("link", { name: /Give the shop types/ }).waitFor();
  await page.getByText("by claude").waitFor();
  await look(page, "home");
  await page.getByRole("searchbox", { name: "Filter the tasks" }).fill("nothing like it");
  await page.getByText("No task fits.").waitFor();
  await page.getByRole("searchbox", { name: "Filter the tasks" }).fill("");
  await page.getByRole("link", { name: /Give the shop types/ }).click();

  // The timeline, grouped; what comes is there at once.
  const timeline = page.getByRole("region", { name: "Timeline", exact: true });
  await timeline.getByText("write-tests").first().waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  await look(page, "task");
  await put(id, "src/late.ts", "export const late = true;\n", { "X-Subtask-Id": "tidy-up", "X-Actor": "claude" });
  await timeline.getByText("late.ts").waitFor();
  await page.waitForFunction(() => document.getElementById("live").textContent.includes("1 new change"));
  writeFileSync(path.join(dir, "NOTES"), "by hand\n");
  await api("POST", `/workspaces/${task.workspace_id}/sync`, {});
  await timeline.getByText("NOTES").waitFor();
  await timeline.getByText("outside", { exact: true }).waitFor();

  // A change's diff, inline and side by side, by mouse and by keys.
  await pick(page, "src/money.ts");
  const change = page.getByRole("region", { name: /^Change \d/ });
  await change.getByText("value: number").first().waitFor();
  await page.waitForFunction(() => document.querySelector(".hljs-keyword") && document.querySelector(".mark"));
  await look(page, "change-inline");
  await page.keyboard.press("s");
  await page.locator(".line.split").first().waitFor();
  await look(page, "change-split");
  const before = page.url();
  await page.keyboard.press("j");
  await page.waitForFunction((was) => location.href !== was, before);
  await page.keyboard.press("k");
  await page.waitForFunction((was) => location.href === was, before);
  await timeline.getByRole("searchbox").fill("cart");
  await page.getByText(/^3 of 1[01]/).waitFor();
  await timeline.getByRole("searchbox").fill("");

  // The files, one of them, its history, its versions.
  await page.getByRole("link", { name: /^Files/ }).click();
  const list = page.getByRole("region", { name: "Changed files" }).first();
  await list.getByRole("link", { name: /cart\.ts/ }).first().click();
  const file = page.getByRole("region", { name: "File cart.ts" });
  await file.getByText("interface Item").first().waitFor();
  await look(page, "file-split");
  await file.getByRole("combobox", { name: "Lines around each change" }).selectOption("100000");
  await file.getByText("clear()").first().waitFor();
  await file.getByRole("link", { name: "History" }).click();
  const history = page.getByRole("region", { name: "History of cart.ts" });
  await history.getByRole("list", { name: "Versions" }).getByRole("link").nth(1).click();
  await page.waitForFunction(() => location.hash.includes("at="));
  await look(page, "history");
  await history.getByRole("link", { name: "This version" }).click();
  await history.getByText("lines: Line[]").waitFor();
  await history.getByRole("link", { name: "Changes since" }).click();
  await history.getByText("interface Item").first().waitFor();

  // Downloads.
  await page.getByRole("link", { name: "Timeline", exact: true }).first().click();
  await page.getByRole("region", { name: "Overview" }).getByText("Take it along").waitFor();
  await look(page, "overview");
  for (const [name, begins] of [["Patches (git am)", "From "], ["Diff (git apply)", "diff --git "], ["Bundle (git clone)", "# v2 git bundle"]]) {
    const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name }).click()]);
    assert.ok(readFileSync(await saved.path(), "latin1").startsWith(begins), name);
  }

  // A subtask goes back: first the plan, then the plan alone.
  await timeline.getByRole("button", { name: "Revert subtask write-tests" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("This will happen:").waitFor();
  assert.equal(await dialog.getByRole("listitem").count(), 3);
  assert.ok(there("test/cart.test.ts"), "the preview changed something");
  await look(page, "revert-plan");
  await apply(page);
  assert.ok(!there("test/cart.test.ts") && !there("test/data"), "the subtask's files are there");
  assert.equal(disk("src/cart.ts"), typedCart);
  await look(page, "reverted");

  // And comes back: the undo of the undo.
  await dialog.getByRole("button", { name: "Undo this …" }).click();
  await dialog.getByText("This will happen:").waitFor();
  await apply(page);
  assert.ok(there("test/cart.test.ts") && there("test/money.test.ts") && there("test/data/prices.json"));
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await dialog.waitFor({ state: "detached" });

  // One change: the revert stands in the timeline, and goes back from there.
  await pick(page, "src/money.ts");
  await change.getByRole("button", { name: "Revert this change …" }).click();
  await dialog.getByText("This will happen:").waitFor();
  await apply(page);
  assert.equal(disk("src/money.ts"), files["src/money.ts"]);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await timeline.getByRole("link", { name: /revert, .*money\.ts/ }).first().click();
  await change.getByRole("button", { name: "Undo this revert …" }).click();
  await dialog.getByText("This will happen:").waitFor();
  await apply(page);
  assert.equal(disk("src/money.ts"), typedMoney);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // A conflict: another task changed the same line since.
  await api("PATCH", `/tasks/${id}`, { status: "paused" });
  const other = await api("POST", "/tasks", { goal: "Discounts", workspace: dir, task_id: "discounts" });
  const discounted = typedCart.replace("total(): number {", "total(discount: number): number {").replace("round(sum)", "round(sum * (1 - discount))");
  await put(other.task_id, "src/cart.ts", discounted, { "X-Actor": "gpt", "X-Subtask-Id": "sale" });
  await api("PATCH", `/tasks/${id}`, { status: "executing" });
  await page.getByRole("link", { name: /^Files/ }).click();
  await list.getByRole("link", { name: /cart\.ts/ }).first().click();
  await file.getByRole("button", { name: "Revert file …" }).click();
  await dialog.getByText("was changed since in the same lines").waitFor();
  await dialog.getByText("gpt, in task discounts, subtask sale").waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Undo", exact: true }).or(dialog.getByRole("button", { name: /^Undo \d/ })).last().isDisabled());
  await dialog.getByRole("button", { name: "Compare three ways" }).click();
  await dialog.getByText("total(discount: number): number {").waitFor();
  await look(page, "conflict");
  await dialog.getByRole("radio", { name: /Leave it/ }).check();
  await dialog.getByText("Nothing is left to undo.").waitFor();
  await dialog.getByRole("radio", { name: /Take the state from before/ }).check();
  await dialog.getByText("This will happen:").waitFor();
  assert.equal(disk("src/cart.ts"), discounted);
  await apply(page);
  assert.equal(disk("src/cart.ts"), files["src/cart.ts"]);
  await dialog.getByRole("button", { name: "Close" }).last().click();

  // A plan that is no longer true is not carried out.
  await page.getByRole("button", { name: "Revert task …" }).click();
  await dialog.getByText("This will happen:").waitFor();
  await put(id, "src/types.ts", "export type Currency = string;\n", { "X-Actor": "claude" });
  await dialog.getByRole("button", { name: /^Undo \d/ }).click();
  await dialog.getByText("Something changed meanwhile.").waitFor();
  assert.ok(there("src/types.ts"));
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Revert task …");

  // A task that has ended: what is reverted of it is still told.
  await api("PATCH", `/tasks/${id}`, { status: "completed" });
  await page.locator(".task-head .chip.completed").waitFor();
  const types = (await api("GET", `/tasks/${id}/changes?path=src/types.ts`)).entries.at(-1);
  await page.getByRole("link", { name: "Timeline", exact: true }).first().click();
  const reverts = await timeline.getByRole("link", { name: /revert, .*types\.ts/ }).count();
  await api("POST", `/tasks/${id}/changes/${types.id}/revert`, {});
  await timeline.getByRole("link", { name: /revert, .*types\.ts/ }).nth(reverts).waitFor();

  // Workspace, commit, search.
  await page.locator(".task-head .meta a").click();
  await page.getByRole("region", { name: "Changes of the workspace" }).last().getByText("cart.ts").first().waitFor();
  await page.getByText(/tracked,/).waitFor();
  await look(page, "workspace");
  await page.getByRole("link", { name: /NOTES/ }).first().click();
  await change.getByText("by hand").first().waitFor();
  await change.locator(".detail-head a").click();
  await page.getByRole("heading", { name: /external change/ }).waitFor();
  await page.getByText("by hand").first().waitFor();
  await look(page, "commit");
  // A user's change, of no task or of one: what would be undone is said on the button.
  await page.getByRole("button", { name: "Revert commit …" }).click();
  await dialog.getByText("This will happen:").waitFor();
  await dialog.getByRole("button", { name: /^Undo \d+ changes? of commit [0-9a-f]+$/ }).waitFor();
  await look(page, "revert-commit");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("link", { name: "Search" }).click();
  await page.getByRole("searchbox", { name: "Path" }).fill("cart");
  await page.getByRole("searchbox", { name: "Actor" }).fill("gpt");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText(/^1 of \d+ changes/).waitFor();
  await look(page, "search");

  // The keys.
  await page.getByRole("heading", { name: "Search" }).click();
  await page.keyboard.press("?");
  await dialog.getByText("next change or file").waitFor();
  await look(page, "keys");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // Escape in the moment in which a dialog opens: it is gone for its owner too, and opens again.
  await page.evaluate(() => {
    const seen = new MutationObserver(() => {
      const open = document.querySelector("dialog[open]");
      if (!open) return;
      seen.disconnect();
      if (open.dispatchEvent(new Event("cancel", { cancelable: true }))) open.close();
    });
    seen.observe(document.body, { subtree: true, childList: true, attributes: true });
  });
  await page.keyboard.press("?");
  await page.locator("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("?");
  await dialog.getByText("next change or file").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // Dark, by the button, and kept.
  await page.getByRole("button", { name: "Dark theme" }).click();
  await page.goto(`${server}/#/tasks/${id}/files?path=src%2Fmoney.ts`);
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".mark") && document.querySelector(".hljs-keyword"));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await look(page, "dark-file");
  await page.goto(`${server}/#/tasks/${id}`);
  await timeline.getByText("tidy-up").first().waitFor();
  await look(page, "dark-task");
  await page.goto(`${server}/#/`);
  await page.getByRole("link", { name: /Give the shop types/ }).waitFor();
  await look(page, "dark-home");
  quiet(page);
  await page.context().close();

  // A phone.
  const phone = await open(browser, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  await phone.goto(server);
  await phone.getByRole("link", { name: /Give the shop types/ }).waitFor();
  await look(phone, "phone-home");
  await phone.getByRole("link", { name: /Give the shop types/ }).tap();
  await phone.locator(".timeline .entry").first().waitFor();
  await look(phone, "phone-task");
  await phone.getByRole("link", { name: "Overview" }).tap();
  await phone.getByText("Take it along").waitFor();
  await look(phone, "phone-overview");
  await phone.getByRole("link", { name: "Timeline" }).tap();
  await phone.getByRole("region", { name: "Timeline", exact: true }).getByRole("searchbox").fill("src/money.ts");
  await phone.getByText(/^\d+ of \d+/).waitFor();
  await phone.getByRole("region", { name: "Timeline", exact: true }).getByRole("link").last().tap();
  await phone.getByText("value: number").first().waitFor();
  await look(phone, "phone-change");
  await phone.getByRole("button", { name: /Undone already|Revert this change|Undo this revert/ }).waitFor();
  await phone.getByRole("link", { name: "Timeline" }).tap();
  await phone.getByRole("button", { name: "Revert task …" }).tap();
  await phone.getByText("This will happen:").waitFor();
  await look(phone, "phone-revert");
  quiet(phone);
});
