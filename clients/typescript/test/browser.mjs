// The client in a page of another origin, with a token, in the machine's Chromium.
import assert from "node:assert/strict";
import * as http from "node:http";
import { createRequire } from "node:module";
import { build } from "esbuild";
import { dir } from "./project.mjs";

const { chromium } = createRequire(process.env.UMBRA_TEST_PLAYWRIGHT)("playwright-core");
const { outputFiles } = await build({ entryPoints: [`${dir}/dist/index.js`], bundle: true, format: "esm", platform: "browser", write: false });

// The page's own origin is the one that the server's configuration lists.
const site = http.createServer((req, res) => {
  if (req.url === "/client.js") return res.writeHead(200, { "Content-Type": "text/javascript" }).end(outputFiles[0].text);
  res.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>page</title>");
});
await new Promise((done) => site.listen(Number(new URL(process.env.UMBRA_TEST_ORIGIN).port), "127.0.0.1", done));

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
try {
  const page = await browser.newPage();
  await page.goto(process.env.UMBRA_TEST_ORIGIN);
  const result = await page.evaluate(async ({ url, token, workspace }) => {
    const { Umbra, UmbraError } = await import("/client.js");
    const umbra = new Umbra({ url, token: async () => token, actor: "page" });
    const task = await umbra.tasks.create({ goal: "page", workspace });
    const alice = task.subtask("alice");
    const made = await alice.files.write("a b/ü.txt", "one\ntwo\n", { ifNoneMatch: "*" });
    await alice.files.write("blob", new Blob(["blob"]));
    const text = "0123456789\n".repeat(50_000);
    await task.files.write("big.txt", text);
    const big = new TextDecoder().decode(await task.files.read("big.txt"));
    const lines = await task.files.readText("a b/ü.txt", { offset: 1 });
    const failure = await task.files.write("a b/ü.txt", "x", { ifNoneMatch: "*" }).catch((e) => [e instanceof UmbraError, e.code, e.status, e.etag === made.etag, e.requestId !== ""]);
    const stop = new AbortController();
    const events = [];
    const reading = (async () => { for await (const e of task.events({ after: 0, signal: stop.signal })) if (events.push(e.event) >= 3) stop.abort(new Error("enough")); })().catch((e) => e.message);
    const stopped = await reading;
    await task.revert({ subtask: "alice" });
    const left = [];
    for await (const e of task.files.list("", { recursive: true })) left.push(e.path);
    const refused = await new Umbra({ url, token: "wrong", retries: 0 }).task(task.id).get().catch((e) => e.status);
    const gone = await new Umbra({ url: "http://127.0.0.1:1", retries: 0 }).task(task.id).get().catch((e) => e.code);
    return { big: big === text, lines, failure, events, stopped, left, refused, gone };
  }, { url: process.env.UMBRA_TEST_URL, token: process.env.UMBRA_TEST_TOKEN, workspace: process.env.UMBRA_TEST_DIR });
  const { lines, ...rest } = result;
  assert.deepEqual([lines.text, lines.totalLines, lines.nextOffset, lines.etag !== ""], ["two\n", 2, null, true]);
  assert.deepEqual(rest, { big: true, failure: [true, "precondition_failed", 412, true, true], events: ["change", "change", "change"], stopped: "enough", left: ["big.txt"], refused: 401, gone: "network" });
} finally {
  await browser.close();
  site.close();
}
