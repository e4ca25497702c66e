// Several agents in one directory: who is at work now, on each page; agents shown
// apart by color; turns with the ids that real agents give; an undo that umbra
// redo finds; in both themes and on a phone.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { accessible, api, dir, fits, main, open, quiet, server, shot } from "./kit.mjs";

const write = (name, content) => writeFileSync(path.join(dir, name), content);

async function look(page, name) {
  await shot(page, name);
  await accessible(page, name);
  await fits(page, name);
}

const begin = (agent, session, turn, tool, more = {}) => api("POST", "/calls", { agent, agent_session: session, cwd: dir, tool, prompt_id: turn, ...more });
const end = (call) => api("POST", `/calls/${call.call_id}/end`, {});

const turn = "019abc12-6d2f-7a31-9c0d-4f1e2d3c4b5a";
const other = "019abc12-6d30-7b42-8d1e-5a6b7c8d9e0f";

/** color is how an agent's mark is painted. */
const color = (mark) => mark.evaluate((e) => getComputedStyle(e, "::before").backgroundColor);

await main(async (browser) => {
  mkdirSync(path.join(dir, "src"), { recursive: true });
  write("src/a.ts", "one\n");
  const codex = await begin("codex", "one", turn, "apply_patch", { paths: ["src/a.ts"], only_paths: true });
  write("src/a.ts", "one\ntwo\n");
  await end(codex);
  const sub = await begin("codex", "one", turn, "Bash", { subtask_id: "agent-7" });
  write("src/sub.ts", "by the sub-agent\n");
  await end(sub);
  for (const [agent, file] of [["opencode", "o"], ["claude-code", "c"], ["gemini-cli", "g"], ["qwen-code", "q"]]) {
    const c = await begin(agent, "s", other, "write", { paths: [`src/${file}.ts`], only_paths: true });
    write(`src/${file}.ts`, "new\n");
    await end(c);
  }
  write("src/mine.ts", "by hand\n");
  const ws = codex.workspace_id;
  await api("POST", `/workspaces/${ws}/sync`, {});

  const page = await open(browser);
  await page.goto(`${server}/#/workspaces/${ws}`);
  const strip = page.getByRole("region", { name: "At work now" });
  // Between two tools an agent is still there, but is not busy.
  await strip.getByText(" ago").first().waitFor();
  assert.equal(await strip.getByRole("listitem").count(), 5);
  assert.equal(await strip.locator(".busy").count(), 0);
  const shell = await begin("codex", "one", turn, "Bash");
  const second = await begin("codex", "two", other, "Bash");
  await strip.locator(".busy").nth(1).waitFor();
  // Two sessions of one agent are distinguished.
  for (const c of [shell, second]) await strip.locator(".busy", { hasText: c.task_id.slice(-4) }).getByText("Bash").waitFor();
  // Each agent has a color of its own, here and in the log.
  const colors = new Set();
  for (const agent of ["codex", "opencode", "claude-code", "gemini-cli", "qwen-code"]) {
    const here = await color(strip.locator(".agent", { hasText: agent }).first());
    const log = await color(page.getByRole("region", { name: "Log of the workspace" }).locator(".agent", { hasText: agent }).first());
    assert.equal(here, log, agent);
    colors.add(here);
  }
  assert.equal(colors.size, 5);
  await page.getByText("a user on disk").waitFor();
  await look(page, "at-work-workspace");

  // The strip leads to the agent's task, where the strip is too.
  await strip.locator(".busy", { hasText: shell.task_id.slice(-4) }).click();
  const timeline = page.getByRole("region", { name: "Timeline", exact: true });
  await timeline.getByText("…" + turn.slice(-8)).waitFor();
  await timeline.getByText("sub-agent agent-7").waitFor();
  await page.locator(".at-work [aria-current]", { hasText: "codex" }).waitFor();
  await look(page, "at-work-task");
  await end(shell);
  await end(second);
  await page.locator(".at-work .busy").first().waitFor({ state: "detached" });

  // An undo in the page is redone in a shell.
  await timeline.getByRole("button", { name: `Undo turn ${turn}` }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("heading", { name: "Undo turn …" + turn.slice(-8) }).waitFor();
  await dialog.getByRole("button", { name: /^Undo 1 change of turn/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  await page.keyboard.press("Escape");
  await timeline.getByText("undo", { exact: true }).waitFor();
  assert.equal(readFileSync(path.join(dir, "src/a.ts"), "utf8"), "one\n");
  execFileSync(process.env.UMBRA_BIN, ["redo", "--server", server], { cwd: dir });
  assert.equal(readFileSync(path.join(dir, "src/a.ts"), "utf8"), "one\ntwo\n");
  await timeline.getByRole("button", { name: `Undo turn ${turn}` }).waitFor();

  // And the other way round, also once the session has ended.
  await api("PATCH", `/tasks/${codex.task_id}`, { status: "completed" });
  execFileSync(process.env.UMBRA_BIN, ["undo", "--call", codex.call_id, "--yes", "--server", server], { cwd: dir });
  assert.equal(readFileSync(path.join(dir, "src/a.ts"), "utf8"), "one\n");
  await timeline.getByRole("button", { name: `Redo turn ${turn}` }).click();
  await dialog.getByRole("heading", { name: "Undo the revert" }).waitFor();
  await look(page, "redo-turn");
  await dialog.getByRole("button", { name: /^Undo 1 change of commit/ }).click();
  await dialog.getByRole("heading", { name: "Reverted" }).waitFor();
  await page.keyboard.press("Escape");
  assert.equal(readFileSync(path.join(dir, "src/a.ts"), "utf8"), "one\ntwo\n");
  await timeline.getByRole("button", { name: `Undo turn ${turn}` }).waitFor();

  // The first page names the directory, too.
  const last = await begin("opencode", "s", other, "bash");
  await page.goto(`${server}/#/`);
  await strip.locator(".busy", { hasText: "shop: bash" }).waitFor();
  await look(page, "at-work-home");
  await page.keyboard.press("d");
  await page.waitForTimeout(100);
  await look(page, "at-work-home-dark");
  await page.goto(`${server}/#/workspaces/${ws}`);
  await strip.locator(".busy").waitFor();
  await look(page, "at-work-workspace-dark");
  quiet(page);
  await page.context().close();

  const phone = await open(browser, { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  for (const [name, at] of [["home", "/"], ["workspace", `/workspaces/${ws}`], ["task", `/tasks/${codex.task_id}`]]) {
    await phone.goto(`${server}/#${at}`);
    await phone.getByRole("region", { name: "At work now" }).locator(".busy").waitFor();
    await look(phone, `phone-at-work-${name}`);
  }
  await end(last);
  quiet(phone);
});
