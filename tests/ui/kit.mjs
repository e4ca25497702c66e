// What the browser tests share: the machine's Chromium, requests to the server,
// screenshots, axe, and the rule that a page says nothing on its console.

import assert from "node:assert/strict";
import { readFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { chromium } from "playwright-core";

export const server = process.env.UMBRA_URL;
export const dir = process.env.UMBRA_DIR;
const shots = process.env.UMBRA_SHOTS;
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** launch starts the browser, as quiet as it can be. One that crashes while it starts, before a test has it, is started again. */
export async function launch(again = 2) {
  try {
    return await chromium.launch({
      executablePath: process.env.CHROMIUM,
      headless: true,
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"],
    });
  } catch (error) {
    if (again === 0 || !/signal=SIG/.test(error.message)) throw error;
    console.error("the browser crashed while it started", error.message);
    return launch(again - 1);
  }
}

/** open gives a page that fails the test for whatever it says on its console, throws, or asks of others. */
export async function open(browser, options = {}) {
  const { allow = [], ...rest } = options;
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, colorScheme: "light", ...rest });
  const page = await context.newPage();
  page.faults = [];
  page.on("console", (m) => {
    if ((m.type() === "error" || m.type() === "warning") && !allow.some((a) => a.test(m.text()))) page.faults.push(`console ${m.type()}: ${m.text()}`);
  });
  page.on("pageerror", (e) => page.faults.push(`error: ${e.stack ?? e}`));
  page.on("dialog", (d) => {
    page.faults.push(`dialog: ${d.message()}`);
    void d.dismiss();
  });
  page.on("request", (r) => {
    const url = new URL(r.url());
    if (url.origin !== new URL(server).origin && url.protocol !== "data:" && url.protocol !== "blob:") page.faults.push(`request: ${r.url()}`);
  });
  page.setDefaultTimeout(30_000);
  return page;
}

export function quiet(page) {
  assert.deepEqual(page.faults, []);
}

/** shot keeps a picture of the page. */
export async function shot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: path.join(shots, `${name}.png`), animations: "disabled" });
}

/** accessible fails for whatever axe finds. */
export async function accessible(page, where) {
  await page.evaluate(axeSource);
  const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const bad = result.violations
    .map((v) => `${v.impact}: ${v.id}: ${v.help}\n  ${v.nodes.slice(0, 4).map((n) => `${n.html.slice(0, 200)} ${n.any.map((a) => a.message).join("; ").slice(0, 200)}`).join("\n  ")}`);
  assert.deepEqual(bad, [], `axe on ${where}`);
}

/** api sends a request; a text or bytes go as they are, anything else as JSON. */
export async function api(method, target, body, headers = {}) {
  const init = { method, headers: { ...headers } };
  if (process.env.UMBRA_TOKEN) init.headers.Authorization = `Bearer ${process.env.UMBRA_TOKEN}`;
  if (typeof body === "string" || body instanceof Uint8Array) init.body = body;
  else if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["Content-Type"] = "application/json";
  }
  const res = await fetch(server + target, init);
  const text = await res.text();
  assert.ok(res.ok, `${method} ${target}: ${res.status} ${text.slice(0, 400)}`);
  return res.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text) : text;
}

export function put(task, file, content, headers = {}) {
  return api("PUT", `/tasks/${task}/content?path=${encodeURIComponent(file)}`, content, { "X-Actor": "claude", ...headers });
}

/** figure reports a measurement to the test's log. */
export function figure(name, value) {
  console.log(`figure: ${name}: ${value}`);
}

/** nodes counts the page's elements. */
export function nodes(page) {
  return page.evaluate(() => document.querySelectorAll("*").length);
}

/** look keeps a picture, asks axe, and fails for what is wider than the page. */
export async function look(page, name) {
  await shot(page, name);
  await accessible(page, name);
  await fits(page, name);
}

/** scroll goes through a list in steps, and tells the largest document and the longest gap between two frames. */
export async function scroll(page, selector, steps) {
  const result = await page.evaluate(
    async ([sel, n]) => {
      const el = document.querySelector(sel);
      const frame = () => new Promise(requestAnimationFrame);
      let most = 0;
      const gaps = [];
      let blank = 0;
      let before = performance.now();
      for (let i = 0; i <= n; i++) {
        el.scrollTop = ((el.scrollHeight - el.clientHeight) * i) / n;
        await frame();
        await frame();
        const now = performance.now();
        gaps.push(now - before);
        before = now;
        most = Math.max(most, document.querySelectorAll("*").length);
        const box = el.getBoundingClientRect();
        const at = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        if (!at || at === el || at.classList.contains("virtual")) blank++;
      }
      gaps.sort((a, b) => a - b);
      return { most, blank, p95: gaps[Math.floor(gaps.length * 0.95)], height: el.scrollHeight };
    },
    [selector, steps],
  );
  return result;
}

/** wide tells what sticks out to the right of the page. */
export async function fits(page, where) {
  const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(inner <= outer, `${where} is ${inner} wide in ${outer}`);
}

/** everywhere looks at a page at three widths in two themes, as it is, and leaves it wide and light. */
export async function everywhere(page, name) {
  for (const [width, height] of [
    [360, 740],
    [900, 800],
    [1360, 860],
  ]) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["dark", "light"]) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      await look(page, `${name}-${width}-${colorScheme}`);
    }
  }
}

/** main runs a scenario and ends the browser. */
export async function main(scenario) {
  const browser = await launch();
  try {
    await scenario(browser);
  } finally {
    await browser.close();
  }
}
