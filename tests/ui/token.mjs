// A server with tokens: the page asks, keeps it for the tab, and sends it with
// everything, the stream and downloads too.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { everywhere, main, open, put, quiet, server } from "./kit.mjs";
import { project, work } from "./shop.mjs";

await main(async (browser) => {
  project();
  const { task_id: id } = await work();
  // The browser itself notes a 401 on the console.
  const page = await open(browser, { allow: [/401 \(Unauthorized\)/] });
  await page.goto(`${server}/#/tasks/${id}`);
  const dialog = page.getByRole("dialog");
  await dialog.getByText("This server requires a token.").waitFor();
  await everywhere(page, "token");
  await dialog.getByRole("textbox", { name: "Token" }).fill("wrong");
  await dialog.getByRole("button", { name: "Sign in" }).click();
  await dialog.getByText("The server does not accept this token.").waitFor();
  await dialog.getByRole("textbox", { name: "Token" }).fill("open sesame");
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  await page.getByText("live", { exact: true }).waitFor();
  await put(id, "src/late.ts", "export {};\n");
  await page.getByText("late.ts").first().waitFor();
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Patches (git am)" }).click()]);
  assert.ok(readFileSync(await saved.path(), "utf8").startsWith("From "));

  // It is gone with the tab, and never in an address or in what stays.
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("sesame") || location.href.includes("sesame") || document.cookie !== ""), false);
  await page.reload();
  await page.getByText("late.ts").first().waitFor();
  const other = await page.context().newPage();
  await other.goto(`${server}/#/tasks/${id}`);
  await other.getByText("This server requires a token.").waitFor();
  quiet(page);
});
