// What comes at the wrong moment: keys with the first paint, buttons and forms twice,
// answers that another one has overtaken, and pages of a list that fail.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";

import { api, dir, main, open, put, quiet, server, shot } from "./kit.mjs";

/** onFirst sends a key as soon as an element is in the page, before it is painted. */
function onFirst(page, selector, key, init = {}) {
  return page.evaluate(
    ([sel, name, more]) => {
      const seen = new MutationObserver(() => {
        if (!document.querySelector(sel)) return;
        seen.disconnect();
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
      });
      seen.observe(document, { subtree: true, childList: true });
    },
    [selector, key, init],
  );
}

/** frames waits until what has changed is drawn. */
const frames = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** refuse answers one request that fits with 503. */
async function refuse(page, url) {
  await page.route(url, (route) => route.fulfill({ status: 503, contentType: "application/json", body: JSON.stringify({ error: "busy", detail: "The server is busy." }) }), { times: 1 });
}

await main(async (browser) => {
  mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(dir, "a.ts"), "export const one = 1;\n");
  const task = await api("POST", "/tasks", { goal: "Races", workspace: dir, task_id: "races" });
  const ws = `/workspaces/${task.workspace_id}`;
  for (let i = 0; i < 3; i++) {
    const operations = Array.from({ length: 800 }, (_, k) => ({ op: "write", path: `many/${i}/${k}.txt`, content: `needle ${i} ${k}\n` }));
    await api("POST", "/tasks/races/batch", { operations }, { "X-Actor": "claude" });
  }

  const page = await open(browser, { allow: [/503|Failed to load resource/] });
  // A key with the first paint of a page that was gone to.
  await page.goto(server);
  await page.locator("[data-task=races]").waitFor();
  await onFirst(page, "main .loading, main .task", "f");
  await page.locator("[data-task=races]").click();
  await page.waitForURL(/#\/tasks\/races\/files$/, { timeout: 5000 });

  // A page of the timeline that fails: what is read stays, and the rest is read on request.
  await refuse(page, /\/tasks\/races\/changes\?after=0/);
  await page.goto("about:blank");
  await page.goto(`${server}/#/tasks/races`);
  await page.getByText(", The server is busy.").waitFor();
  await page.locator(".timeline .entry").first().waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText(", The server is busy.").waitFor({ state: "detached" });
  await page.locator(".timeline .state", { hasText: /^2,400 changes$/ }).waitFor();

  // The same of a workspace's log, and of a search in history.
  await refuse(page, /\/log\?limit=1000&after=/);
  await page.goto(`${server}/#${ws}`);
  const log = page.getByRole("region", { name: "Changes of the workspace", exact: true });
  await log.locator(".entry").first().waitFor();
  await log.locator(".scroll").evaluate((list) => (list.scrollTop = list.scrollHeight));
  await log.getByText("The server is busy.").waitFor();
  await log.locator(".state", { hasText: /^1,000 changes/ }).waitFor();
  await log.getByRole("button", { name: "Try again" }).click();
  await log.getByText("The server is busy.").waitFor({ state: "detached" });
  await log.locator(".state", { hasText: /reading|more below|2,400/ }).waitFor();
  await refuse(page, /\/log\/search\?/);
  await page.goto(`${server}/#/search?text=needle`);
  const past = page.getByRole("region", { name: "Found in history" });
  await past.getByText("The server is busy.").waitFor();
  await past.getByRole("button", { name: "Try again" }).click();
  await past.locator("li").first().waitFor();

  // A form that is sent twice makes one checkpoint; a button that is pressed twice reads the disk once.
  await page.goto(`${server}/#${ws}`);
  const sent = [];
  const held = [];
  const hold = async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    sent.push(new URL(route.request().url()).pathname.split("/").pop());
    await new Promise((go) => held.push(go));
    await route.continue();
  };
  await page.route(/\/(checkpoints|sync)$/, hold);
  const name = page.getByRole("searchbox", { name: "Name of a new checkpoint" });
  await name.fill("once");
  await name.press("Enter");
  await frames(page);
  await name.press("Enter");
  await page.getByRole("button", { name: "Sync with the disk" }).dblclick({ force: true, delay: 20 });
  await frames(page);
  const letGo = setInterval(() => held.splice(0).forEach((go) => go()), 50);
  await page.getByRole("link", { name: "once", exact: true }).waitFor();
  await page.getByText("Nothing had changed.").waitFor();
  clearInterval(letGo);
  assert.deepEqual(sent.sort(), ["checkpoints", "sync"]);
  assert.equal(await page.locator(".about .error").count(), 0);
  await page.unroute(/\/(checkpoints|sync)$/, hold);

  // An answer that a later one has overtaken is not shown.
  await page.goto(`${server}/#/`);
  await page.locator("[data-task=races]").waitFor();
  let release;
  const stale = new Promise((go) => (release = go));
  let caught;
  const first = new Promise((go) => (caught = go));
  await page.route(/\/tasks\?/, async (route) => {
    const response = await route.fetch();
    caught();
    await stale;
    await route.fulfill({ response });
  }, { times: 1 });
  const again = () => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await again();
  await first;
  await api("POST", "/tasks", { goal: "A later one", workspace: dir, task_id: "later" });
  await again();
  await page.locator("[data-task=later]").waitFor();
  const overtaken = page.waitForEvent("requestfinished", (r) => /\/tasks\?/.test(r.url()));
  release();
  await overtaken;
  await frames(page);
  assert.equal(await page.locator("[data-task=later]").count(), 1, "an older answer took the place of a newer one");

  // Ctrl-K with the first paint of all.
  const early = await open(browser);
  await early.addInitScript(() => {
    const seen = new MutationObserver(() => {
      if (!document.querySelector("header.top")) return;
      seen.disconnect();
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true, cancelable: true }));
    });
    seen.observe(document, { subtree: true, childList: true });
  });
  await early.goto(server);
  await early.getByRole("combobox", { name: "Go to a page, task, workspace or file" }).waitFor({ timeout: 5000 });
  quiet(early);

  // Line numbers of any length have room, also on a phone and side by side.
  const long = Array.from({ length: 120_000 }, (_, k) => `line ${k + 1}\n`);
  writeFileSync(path.join(dir, "long.txt"), long.join(""));
  await api("POST", `${ws}/sync`, {});
  long[118_999] = "changed\n";
  await api("PUT", "/tasks/races/content?path=long.txt", long.join(""), { "X-Actor": "claude" });
  const phone = await open(browser, { viewport: { width: 360, height: 740 } });
  await phone.goto(`${server}/#/tasks/races/files?path=long.txt`);
  for (const mode of ["Inline", "Side by side"]) {
    await phone.getByRole("button", { name: mode }).click();
    await phone.locator(".num", { hasText: "119000" }).first().waitFor();
    const wide = await phone.evaluate(() =>
      [...document.querySelectorAll(".num")].filter((n) => {
        const text = document.createRange();
        text.selectNodeContents(n);
        return text.getBoundingClientRect().width > n.clientWidth - parseFloat(getComputedStyle(n).paddingRight) + 0.5;
      }).length,
    );
    assert.equal(wide, 0, `${mode}: line numbers are wider than their column`);
    await shot(phone, `phone-long-${mode === "Inline" ? "inline" : "split"}`);
  }

  // Names as long as they may be stay within what they are on.
  const wordy = "w".repeat(128);
  await api("POST", "/tasks", { goal: "Goal ".repeat(60) + "x".repeat(200), workspace: dir, task_id: wordy });
  await put(wordy, `${"d".repeat(60)}/${"long-name-".repeat(12)}.ts`, "x\n", { "X-Actor": `actor-${"z".repeat(110)}`, "X-Subtask-Id": "s".repeat(128) });
  for (const [address, what] of [["/", ".task-row a"], [`/tasks/${wordy}`, ".entry a"], [ws, ".subtasks li, .entry a"]]) {
    await phone.goto(`${server}/#${address}`);
    await phone.locator(what).first().waitFor();
    await phone.getByText(/z{110}|x{200}/).first().waitFor();
    await frames(phone);
    const over = await phone.evaluate((sel) => [...document.querySelectorAll(sel)].filter((e) => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().height > 320).map((e) => e.outerHTML.slice(0, 120)), what);
    assert.deepEqual(over, [], `${address}: wider or higher than its place`);
    await shot(phone, `phone-long-names-${address === "/" ? "home" : address === ws ? "workspace" : "task"}`);
  }
  quiet(phone);
  quiet(page);
});
