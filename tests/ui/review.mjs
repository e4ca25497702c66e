// The review: a task of 300 files by keys alone, 10,000 hunks in one list, and
// what is rejected is taken back after its preview.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { api, dir, figure, look, main, nodes, open, put, quiet, scroll, server } from "./kit.mjs";

const disk = (name) => readFileSync(path.join(dir, name), "utf8");
const name = (i) => `src/part${String(i).padStart(3, "0")}.ts`;
const old = (i) => `// Part ${i}.\nexport const value = ${i};\nexport const name = "part ${i}";\n`;
const now = (i) => old(i).replace(`value = ${i}`, `value: number = ${i}`);

/** left waits until so many hunks are open. */
async function left(page, n) {
  await page.locator(".review .open", { hasText: new RegExp(`^${n} open`) }).waitFor();
}

await main(async (browser) => {
  mkdirSync(path.join(dir, "src"), { recursive: true });
  for (let i = 0; i < 300; i++) writeFileSync(path.join(dir, name(i)), old(i));
  const long = (edit) => Array.from({ length: 100_000 }, (_, i) => (i % 10 === 5 ? edit(i) : `line ${i}`)).join("\n") + "\n";
  writeFileSync(path.join(dir, "long.txt"), long((i) => `line ${i}`));
  const task = await api("POST", "/tasks", { goal: "Types for all parts", workspace: dir, task_id: "parts" });
  const operations = (from, to) => Array.from({ length: to - from }, (_, k) => ({ op: "write", path: name(from + k), content: now(from + k) }));
  await api("POST", "/tasks/parts/batch", { subtask_id: "first-half", operations: operations(0, 150) }, { "X-Actor": "claude" });
  await api("POST", "/tasks/parts/batch", { subtask_id: "second-half", operations: operations(150, 300) }, { "X-Actor": "gpt" });

  // By keys alone: the first hundred and fifty are accepted, every tenth of the rest is not.
  const page = await open(browser);
  await page.goto(`${server}/#/tasks/parts`);
  await page.getByRole("heading", { name: "Types for all parts" }).waitFor();
  await page.keyboard.press("e");
  await left(page, 300);
  await page.waitForFunction(() => document.querySelector(".review .hljs-keyword") && document.querySelector(".review .mark"));
  const hunks = page.getByRole("region", { name: "Hunks", exact: true });
  await hunks.locator(".agent", { hasText: "claude" }).first().waitFor();
  await hunks.getByText("first-half").first().waitFor();
  await page.keyboard.press("j");
  await page.locator(".hunk-head.current").waitFor();
  await look(page, "review");
  for (let i = 0; i < 300; i++) await page.keyboard.press(i >= 150 && i % 10 === 0 ? "x" : "a");
  await page.locator(".review .open", { hasText: "0 open, 300 decided" }).waitFor();
  assert.equal(disk(name(150)), now(150), "a mark changed a file");
  await page.keyboard.press("c");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Accept 285 and reject 15 hunks" }).waitFor();
  await page.waitForFunction(() => !document.querySelector("dialog .primary").disabled);
  await look(page, "review-apply");
  await dialog.getByRole("button", { name: "Accept 285 and reject 15 hunks" }).focus();
  await page.keyboard.press("Enter");
  await dialog.getByRole("heading", { name: "Reviewed" }).waitFor();
  for (let i = 140; i < 300; i++) assert.equal(disk(name(i)), i >= 150 && i % 10 === 0 ? old(i) : now(i));
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await hunks.getByText("No hunk is open. All is reviewed.").waitFor();

  // The decisions are in the history: by state, by agent, by subtask, by path.
  await page.getByRole("combobox", { name: "State" }).selectOption("accepted");
  await hunks.getByText("accepted", { exact: true }).first().waitFor();
  await page.getByRole("combobox", { name: "Agent" }).selectOption("gpt");
  await page.waitForFunction(() => document.querySelector(".files .path")?.textContent === "src/part151.ts");
  await page.getByRole("combobox", { name: "Turn or subtask" }).selectOption("first-half");
  await hunks.getByText("No hunk fits.").waitFor();
  await page.getByRole("combobox", { name: "Agent" }).selectOption("");
  await page.getByRole("searchbox", { name: "Filter the hunks by path" }).fill("part007");
  await page.waitForFunction(() => document.querySelectorAll(".files .file").length === 1);

  // A hunk by mouse; a new file is shown whole; a hunk that changes meanwhile is not rejected.
  await put("parts", name(7), now(7).replace("part 7", "part seven"), { "X-Subtask-Id": "later" });
  await put("parts", "src/new.ts", "export const fresh = true;\n", { "X-Subtask-Id": "later" });
  await page.getByRole("combobox", { name: "Turn or subtask" }).selectOption("");
  await page.getByRole("combobox", { name: "State" }).selectOption("open");
  await page.getByRole("searchbox", { name: "Filter the hunks by path" }).fill("");
  await hunks.getByText("fresh").waitFor();
  await page.getByRole("button", { name: /^Hide the lines of src\/new.ts/ }).click();
  await hunks.getByText("fresh").waitFor({ state: "detached" });
  await page.getByRole("button", { name: /^Reject src\/new.ts/ }).click();
  await page.getByRole("button", { name: /^Apply 1/ }).click();
  await dialog.getByRole("button", { name: "Reject 1 hunk" }).click();
  await dialog.getByRole("heading", { name: "Reviewed" }).waitFor();
  assert.ok(!existsSync(path.join(dir, "src/new.ts")));
  await dialog.getByRole("button", { name: "Undo this …" }).click();
  await dialog.getByRole("button", { name: /^Undo 1 change/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  assert.ok(existsSync(path.join(dir, "src/new.ts")));
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  quiet(page);
  await page.context().close();

  // Ten thousand hunks: only what is in view is in the document.
  await api("PATCH", `/tasks/${task.task_id}`, { status: "completed" });
  await api("POST", "/tasks", { goal: "Every tenth line", workspace: dir, task_id: "lines" });
  await put("lines", "long.txt", long((i) => `changed ${i}`));
  const large = await open(browser);
  const began = Date.now();
  await large.goto(`${server}/#/tasks/lines/review`);
  await large.locator(".hunk-head").first().waitFor();
  figure("first hunks of 10,000", `${Date.now() - began} ms`);
  await left(large, "10,000");
  const list = large.getByRole("region", { name: "Hunks", exact: true });
  for (const part of [0.5, 1]) {
    await list.evaluate((el, p) => (el.scrollTop = p * el.scrollHeight), part);
    const line = part === 1 ? "changed 99995" : /^changed 5\d\d\d5$|^changed 4\d\d\d5$/;
    await list.locator(".line.add .code").getByText(line).first().waitFor();
    const n = await nodes(large);
    assert.ok(n < 4000, `${n} elements`);
  }
  await list.evaluate((el) => (el.scrollTop = 0));
  const moved = await scroll(large, ".diff.scroll", 120);
  figure("10,000 hunks scrolled: most elements, 95th of two frames in ms", `${moved.most}, ${Math.round(moved.p95)}`);
  assert.ok(moved.most < 4000 && moved.blank === 0, JSON.stringify(moved));
  // A key goes to the next hunk, and marks it, in a moment.
  await list.evaluate((el) => (el.scrollTop = 0));
  await large.locator(".hunk-head").first().waitFor();
  const keyed = Date.now();
  for (let i = 0; i < 20; i++) await large.keyboard.press("a");
  await left(large, "9,980");
  figure("a key among 10,000 hunks, ms", Math.round((Date.now() - keyed) / 20));
  await look(large, "review-large");
  quiet(large);
  await large.context().close();

  // On a phone: the same list fits and scrolls, a touch decides, and the decision is applied.
  const phone = await open(browser, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  await phone.goto(`${server}/#/tasks/parts/review`);
  await phone.locator(".hunk-head").first().waitFor();
  await look(phone, "phone-review");
  await phone.goto(`${server}/#/tasks/lines/review`);
  await left(phone, "10,000");
  const touched = await scroll(phone, ".diff.scroll", 60);
  figure("10,000 hunks scrolled on a phone: most elements, 95th of two frames in ms", `${touched.most}, ${Math.round(touched.p95)}`);
  assert.ok(touched.most < 4000 && touched.blank === 0, JSON.stringify(touched));
  await phone.locator(".diff.scroll .line.add .code").getByText("changed 99995").first().waitFor();
  await look(phone, "phone-review-large");
  await phone.getByRole("button", { name: /^Reject long.txt/ }).last().tap();
  await left(phone, "9,999");
  await phone.getByRole("button", { name: /^Apply 1/ }).tap();
  const sheet = phone.getByRole("dialog");
  await phone.waitForFunction(() => !document.querySelector("dialog .primary").disabled);
  await look(phone, "phone-review-apply");
  await sheet.getByRole("button", { name: "Reject 1 hunk" }).tap();
  await sheet.getByRole("heading", { name: "Reviewed" }).waitFor();
  assert.ok(disk("long.txt").endsWith("changed 99985\nline 99986\nline 99987\nline 99988\nline 99989\nline 99990\nline 99991\nline 99992\nline 99993\nline 99994\nline 99995\nline 99996\nline 99997\nline 99998\nline 99999\n"));
  quiet(phone);
});
