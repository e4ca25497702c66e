// Two agents that edit with their own tools: their turns and calls in the
// timeline, what is shared, the undo of a call and of a turn, and the redo.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { accessible, api, dir, fits, main, open, quiet, server, shot } from "./kit.mjs";

const disk = (name) => readFileSync(path.join(dir, name), "utf8");
const write = (name, content) => writeFileSync(path.join(dir, name), content);

async function look(page, name) {
  await shot(page, name);
  await accessible(page, name);
  await fits(page, name);
}

async function begin(agent, turn, tool, more = {}) {
  return api("POST", "/calls", { agent, agent_session: `${agent}-session`, cwd: dir, tool, prompt_id: turn, model: "m-1", ...more });
}

const end = (call) => api("POST", `/calls/${call.call_id}/end`, {});

async function call(agent, turn, tool, edit, more) {
  const c = await begin(agent, turn, tool, more);
  edit();
  await end(c);
  return c;
}

/** applied applies a plan and closes the report. */
async function apply(page) {
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: /^Undo \d/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
}

await main(async (browser) => {
  mkdirSync(path.join(dir, "src"), { recursive: true });
  write("src/a.ts", "one\n");
  write("src/b.ts", "one\n");
  write("README.md", "# Shop\n");
  const first = await call("codex", "turn-1", "apply_patch", () => write("src/a.ts", "one\ntwo\n"), { paths: ["src/a.ts"], only_paths: true });
  await call("codex", "turn-2", "shell", () => {
    write("src/b.ts", "one\nby codex\n");
    write("src/c.ts", "new\n");
  });
  await call("codex", "turn-2", "write", () => write("src/d.ts", "new too\n"), { paths: ["src/d.ts"], only_paths: true });
  const one = await begin("codex", "turn-3", "shell");
  const two = await begin("opencode", "ask-1", "bash");
  write("README.md", "# Shop\n\nby one of two\n");
  await end(two);
  await end(one);
  const id = first.task_id;

  const page = await open(browser);
  await page.goto(`${server}/#/tasks/${id}`);
  const timeline = page.getByRole("region", { name: "Timeline", exact: true });
  await timeline.getByText("turn-2").waitFor();
  await timeline.getByText("shared by 2").waitFor();
  await timeline.getByText("turn-3").waitFor();
  assert.equal(await timeline.locator(".group.call").count(), 4);
  assert.equal(await timeline.getByText("window", { exact: true }).count(), 2);
  assert.equal(await timeline.getByText("declared", { exact: true }).count(), 2);
  await timeline.locator(".group.call .name", { hasText: "apply_patch" }).waitFor();
  await timeline.locator(".agent", { hasText: "codex" }).first().waitFor();
  await look(page, "calls");

  // What a filter leaves can be undone alone, where one revert is just that.
  await timeline.getByRole("searchbox").fill("src/c.ts");
  await timeline.getByRole("button", { name: "Undo the 1 change shown …" }).waitFor();
  await timeline.getByRole("searchbox").fill("shell turn-2");
  await timeline.getByRole("button", { name: "Undo the 2 changes shown …" }).waitFor();
  await timeline.getByRole("searchbox").fill("");

  // A call is undone by keys alone: the plan first, with its result.
  const dialog = page.getByRole("dialog");
  await timeline.getByRole("button", { name: "Undo call shell" }).focus();
  await page.keyboard.press("Enter");
  await dialog.getByText("This will happen:").waitFor();
  await dialog.getByRole("button", { name: "Undo 2 changes of call shell" }).waitFor();
  await dialog.getByRole("button", { name: "Show the result in src/b.ts" }).focus();
  await page.keyboard.press("Enter");
  await dialog.locator(".line.del", { hasText: "by codex" }).waitFor();
  assert.equal(disk("src/b.ts"), "one\nby codex\n");
  await look(page, "call-undo");
  await apply(page);
  assert.equal(disk("src/b.ts"), "one\n");
  assert.ok(!existsSync(path.join(dir, "src/c.ts")) && existsSync(path.join(dir, "src/d.ts")));

  // And comes back.
  await timeline.getByRole("button", { name: "Redo call shell" }).click();
  await dialog.getByText("This will happen:").waitFor();
  await apply(page);
  assert.equal(disk("src/b.ts"), "one\nby codex\n");

  // A turn; what two agents may have made is left, and is said to be.
  await timeline.getByRole("button", { name: "Undo turn turn-2" }).click();
  await dialog.getByRole("button", { name: "Undo 3 changes of turn turn-2" }).waitFor();
  await apply(page);
  assert.ok(!existsSync(path.join(dir, "src/c.ts")) && !existsSync(path.join(dir, "src/d.ts")));
  assert.equal(disk("src/a.ts"), "one\ntwo\n");
  await timeline.getByRole("button", { name: "Redo turn turn-2" }).waitFor();
  await page.getByRole("button", { name: "Revert task …" }).click();
  const shared = dialog.getByRole("checkbox", { name: /Also undo 1 shared change/ });
  await shared.waitFor();
  assert.equal(await shared.isChecked(), false);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(disk("README.md"), "# Shop\n\nby one of two\n");

  // A call that begins now is in the timeline at once.
  await call("codex", "turn-4", "edit", () => write("src/e.ts", "late\n"), { paths: ["src/e.ts"], only_paths: true });
  await timeline.evaluate((el) => (el.scrollTop = 0)); // newer rows do not move what is looked at
  await timeline.getByText("turn-4").waitFor();
  await timeline.getByText("e.ts").waitFor();
  quiet(page);
  await page.context().close();

  const phone = await open(browser, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  await phone.goto(`${server}/#/tasks/${id}`);
  await phone.getByRole("region", { name: "Timeline", exact: true }).getByText("turn-4").waitFor();
  await look(phone, "phone-calls");
  quiet(phone);
});
