// What a review is made of: parts of a hunk, rejections that wait for an agent at
// work, changes against the policy, new files, images; in both themes and on a phone.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { api, dir, look, main, open, quiet, server } from "./kit.mjs";

const disk = (name) => readFileSync(path.join(dir, name), "utf8");
const write = (name, content) => writeFileSync(path.join(dir, name), content);
const lines = Array.from({ length: 30 }, (_, i) => `export const v${i + 1} = ${i + 1};\n`);
const edited = (...ns) => lines.map((l, i) => (ns.includes(i + 1) ? `export const v${i + 1} = "changed ${i + 1}";\n` : l)).join("");
const red = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", "base64");
const blue = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==", "base64");

async function begin(turn) {
  return api("POST", "/calls", { task_id: "pieces", agent: "claude", agent_session: "s", cwd: dir, tool: "Bash", prompt_id: turn });
}

await main(async (browser) => {
  mkdirSync(path.join(dir, "ci"), { recursive: true });
  write("a.ts", edited());
  write("dot.png", red);
  write("ci/build.yaml", "steps: 1\n");
  await api("POST", "/tasks", { goal: "Pieces", workspace: dir, task_id: "pieces", hold: true });
  const first = await begin("turn-1");
  write("a.ts", edited(5, 8, 11, 25));
  write("dot.png", blue);
  write("ci/build.yaml", "steps: 2\n");
  write("new.ts", "export function fresh(): number {\n  return 1;\n}\n");
  await api("POST", `/calls/${first.call_id}/end`, {});

  const page = await open(browser);
  await page.goto(`${server}/#/tasks/pieces`);

  // What a command did against the policy is marked wherever it is shown.
  const against = "against policy: protected";
  await page.locator(".entry", { hasText: "build.yaml" }).getByText(against).waitFor();
  await look(page, "policy-timeline");
  await page.locator(".entry a", { hasText: "build.yaml" }).click();
  await page.locator(".detail-head").getByText(against).waitFor();
  await page.keyboard.press("e");
  await page.getByText("5 open").waitFor();
  const hunks = page.getByRole("region", { name: "Hunks", exact: true });
  await hunks.getByText(against).waitFor();

  await look(page, "pieces");
  await page.getByRole("button", { name: "new.ts 1 open" }).click();
  // New files and images are shown where they are.
  await hunks.getByText("fresh").waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll(".images img")].filter((i) => i.complete && i.naturalWidth === 1).length === 2);
  await look(page, "pieces-files");

  // A hunk in parts, by keys: the middle change is rejected, the others are kept.
  await page.getByRole("button", { name: "a.ts 2 open" }).click();
  await page.locator(".hunk-head.current").getByRole("button", { name: "Split a.ts" }).waitFor();
  await page.keyboard.press("s");
  await hunks.getByText("part 1 of 3").waitFor();
  await page.getByText("7 open").waitFor();
  await look(page, "pieces-split");
  await page.keyboard.press("a");
  await page.keyboard.press("x");
  await page.keyboard.press("a");
  await page.getByText("4 open, 3 decided").waitFor();
  // Joined, they are one hunk again, and undecided.
  await page.keyboard.press("k");
  await page.keyboard.press("s");
  await page.getByText("5 open").waitFor();
  await page.keyboard.press("s");
  await page.keyboard.press("a");
  await page.keyboard.press("x");
  await page.keyboard.press("a");
  await page.keyboard.press("c");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Accept 2 and reject 1 hunks" }).click();
  await dialog.getByRole("heading", { name: "Reviewed" }).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(disk("a.ts"), edited(5, 11, 25));

  // While a call is open a rejection waits, which is said, and can be taken back.
  await page.getByText("4 open").waitFor();
  const second = await begin("turn-2");
  await page.getByRole("button", { name: /^Reject new.ts/ }).click();
  await page.getByRole("button", { name: /^Reject a.ts/ }).click();
  await page.keyboard.press("c");
  await dialog.getByRole("button", { name: "Reject 2 hunks" }).click();
  await dialog.getByText("2 rejections wait until the agent's calls have ended").waitFor();
  await look(page, "review-held-dialog");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByText("2 open, 2 held").waitFor();
  await hunks.getByText("rejection held").first().waitFor();
  assert.equal(disk("a.ts"), edited(5, 11, 25));
  await look(page, "review-held");
  await page.getByRole("combobox", { name: "State" }).selectOption("held");
  await page.waitForFunction(() => document.querySelectorAll(".hunk-head").length === 2);
  await page.getByRole("combobox", { name: "State" }).selectOption("open");
  await page.getByRole("button", { name: /^Accept new.ts/ }).click();
  await page.keyboard.press("c");
  await dialog.getByRole("button", { name: "Accept 1 hunk" }).click();
  await dialog.getByRole("heading", { name: "Reviewed" }).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByText("2 open, 1 held").waitFor();

  const dark = await open(browser, { colorScheme: "dark" });
  await dark.goto(`${server}/#/tasks/pieces/review`);
  await dark.getByText("rejection held").waitFor();
  await look(dark, "review-held-dark");
  quiet(dark);
  await dark.context().close();
  for (const colorScheme of ["light", "dark"]) {
    const phone = await open(browser, { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true, colorScheme });
    await phone.goto(`${server}/#/tasks/pieces/review`);
    await phone.getByText("rejection held").waitFor();
    await look(phone, `phone-review-held-${colorScheme}`);
    quiet(phone);
    await phone.context().close();
  }

  // When the call ends the page shows what became of it, by itself.
  await api("POST", `/calls/${second.call_id}/end`, {});
  await page.getByText("held").first().waitFor({ state: "detached" });
  assert.equal(disk("a.ts"), edited(5, 11));
  assert.match(disk("new.ts"), /fresh/);
  await page.getByRole("button", { name: "Reject dot.png Content replaced" }).waitFor();
  quiet(page);
});
