import assert from "node:assert/strict";
import * as http from "node:http";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { inspect } from "node:util";
import { after, before, test } from "node:test";
import { Umbra, UmbraError } from "../dist/index.js";

const url = process.env.UMBRA_TEST_URL;
const umbra = new Umbra({ url });
let root;
before(async () => { root = await mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-")); });

async function task(client = umbra) {
  return client.tasks.create({ goal: "test", workspace: await mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-")) });
}

const text = (bytes) => new TextDecoder().decode(bytes);
const collect = async (iterable) => { const out = []; for await (const x of iterable) out.push(x); return out; };

/** serve starts a server for one test and stops it with it. */
async function serve(t, handler) {
  const server = http.createServer(handler);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => { server.closeAllConnections(); server.close(); });
  return `http://127.0.0.1:${server.address().port}`;
}

/** random is a fixed sequence, so that a failure comes again. */
function random(seed) {
  return () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 32; };
}

/** proxy forwards to the server, and drops or doubles some requests and answers. */
async function proxy(t, mischief) {
  return serve(t, async (req, res) => {
    const chunks = [];
    for await (const c of req) chunks.push(c);
    const body = Buffer.concat(chunks);
    const send = () => new Promise((done, fail) => {
      const target = new URL(req.url, url);
      const headers = { ...req.headers, host: target.host };
      delete headers["transfer-encoding"];
      const out = http.request(target, { method: req.method, headers: { ...headers, ...(body.length ? { "content-length": body.length } : {}) } }, (got) => {
        const parts = [];
        got.on("data", (c) => parts.push(c)).on("end", () => done({ got, body: Buffer.concat(parts) })).on("error", fail);
      });
      out.on("error", fail);
      out.end(body);
    });
    const what = mischief(req);
    try {
      if (what === "drop request") return req.socket.destroy();
      if (what === "double") await send();
      const answer = await send();
      if (what === "drop answer") return req.socket.destroy();
      if (what === "busy") { res.writeHead(503, { "Retry-After": "0" }); return res.end("{}"); }
      res.writeHead(answer.got.statusCode, answer.got.headers);
      if (what === "cut answer") { res.write(answer.body.subarray(0, answer.body.length / 2)); return setImmediate(() => req.socket.destroy()); }
      res.end(answer.body);
    } catch {
      req.socket.destroy();
    }
  });
}

test("files", async () => {
  const k = await task();
  const made = await k.files.write("d/a b.txt", "one\ntwo\n");
  assert.equal(made.operation, "create");
  assert.equal(text(await k.files.read("d/a b.txt")), "one\ntwo\n");
  assert.deepEqual(await k.files.readText("d/a b.txt", { offset: 1, limit: 1 }), { text: "two\n", totalLines: 2, nextOffset: null, etag: made.etag });
  assert.equal((await k.files.edit("d/a b.txt", "two", "2")).occurrences, 1);
  await k.files.append("d/a b.txt", new TextEncoder().encode("three\n"));
  await k.files.copy("d/a b.txt", "é%.txt");
  await k.files.move("é%.txt", "b.txt");
  await k.files.mkdir("empty");
  await k.files.write("blob", new Blob(["blob"]));
  await k.files.write("stream", () => new Blob(["stream"]).stream());
  await k.files.write("once", new Blob(["once"]).stream());
  assert.deepEqual((await collect(k.files.list("", { recursive: true, limit: 2 }))).map((e) => e.path), ["b.txt", "blob", "d", "d/a b.txt", "empty", "once", "stream"]);
  assert.equal((await k.files.stat("b.txt")).type, "file");
  assert.equal((await k.files.search("three", { literal: true })).matches.length, 2);
  assert.deepEqual((await k.files.glob("**/*.txt")).entries.map((e) => e.path), ["b.txt", "d/a b.txt"]);
  await k.files.batch([{ op: "delete", path: "blob" }, { op: "write", path: "c", content: "x" }]);
  await assert.rejects(k.files.write("c", "y", { ifNoneMatch: "*" }), (e) => e instanceof UmbraError && e.code === "precondition_failed" && e.status === 412 && e.etag !== undefined);
  await assert.rejects(k.files.read("none"), (e) => e.code === "file_not_found" && e.status === 404 && e.requestId !== "" && e.taskId === k.id);
  await assert.rejects(k.files.read("d/a b.txt", { maxBytes: 3 }), (e) => e.code === "too_large");
  for (const missing of [undefined, null]) await assert.rejects(k.files.write("c", missing), TypeError);
  assert.notEqual((await k.files.read("c")).length, 0);
  await k.files.delete("c");
});

test("subtasks are values, and one is undone alone", async () => {
  const k = await task();
  const [a, b] = [k.subtask("a").as("ann"), k.subtask("b").as("bob")];
  await Promise.all([a.files.write("a", "a"), b.files.write("b", "b")]);
  const entries = await collect(k.changes());
  assert.deepEqual(entries.map((e) => `${e.path} ${e.subtask_id} ${e.actor}`).sort(), ["a a ann", "b b bob"]);
  const plan = await k.revert({ subtask: "a", dryRun: true });
  const done = await k.revert({ subtask: "a", plan: plan.plan });
  assert.equal(done.entries_reverted, 1);
  assert.deepEqual((await k.summary()).created, ["b"]);
  assert.match(await k.diff(), /\+b/);
  assert.throws(() => k.revert({ subtask: "a", path: "b" }), TypeError);
  for (const empty of [{ subtask: undefined }, { path: "" }, { call: null }]) assert.throws(() => k.revert(empty), TypeError);
  assert.deepEqual((await k.summary()).created, ["b"]);
});

test("a proxy that drops, doubles and cuts: no write lost, none done twice", async (t) => {
  const rand = random(7);
  const kinds = ["drop request", "drop answer", "double", "busy", "cut answer"];
  const through = await proxy(t, () => (rand() < 0.3 ? kinds[Math.floor(rand() * kinds.length)] : "pass"));
  const client = new Umbra({ url: through, retries: 12 });
  const k = await task(client);
  const n = Number(process.env.UMBRA_TEST_WRITES ?? 1000);
  let next = 0;
  await Promise.all(Array.from({ length: 32 }, async (_, worker) => {
    while (next < n) {
      const i = next++;
      await k.files.append(`log-${worker}`, `line ${i}\n`);
    }
  }));
  const lines = [];
  const direct = umbra.task(k.id);
  for await (const e of direct.files.list()) lines.push(...text(await direct.files.read(e.path)).trimEnd().split("\n"));
  assert.deepEqual(lines.sort(), Array.from({ length: n }, (_, i) => `line ${i}`).sort());
  assert.equal((await collect(direct.changes())).length, n);
});

test("a download goes on where it was cut", async (t) => {
  const k = await task();
  const data = "0123456789".repeat(50_000);
  await k.files.write("big", data);
  let cuts = 0;
  const through = await proxy(t, (req) => (req.url.includes("/content") && cuts++ < 3 ? "cut answer" : "pass"));
  const far = new Umbra({ url: through }).task(k.id);
  assert.equal(text(await far.files.read("big")), data);
  assert.ok(cuts > 3);
});

test("events: no gap and no repeat over cut connections", async (t) => {
  const k = await task();
  let open = 0;
  const through = await serve(t, (req, res) => {
    const out = http.request(new URL(req.url, url), { headers: { ...req.headers, host: new URL(url).host } }, (got) => {
      res.writeHead(got.statusCode, got.headers);
      const limit = req.url.includes("/stream") && open++ < 4 ? 1500 : Infinity;
      let size = 0;
      got.on("data", (c) => { size += c.length; res.write(c); if (size > limit) { req.socket.destroy(); got.destroy(); } });
      got.on("end", () => res.end()).on("error", () => res.destroy());
    });
    out.on("error", () => res.destroy());
    res.on("close", () => out.destroy());
    out.end();
  });
  const seen = collect(new Umbra({ url: through }).task(k.id).events({ after: 0 }));
  for (let i = 0; i < 20; i++) await k.files.write("f" + i, "x");
  await k.complete();
  const events = (await seen).filter((e) => e.event === "change");
  assert.deepEqual(events.map((e) => e.data.entries[0].path), Array.from({ length: 20 }, (_, i) => "f" + i));
});

test("events end with their signal, by its reason", async () => {
  const k = await task();
  const stop = new AbortController();
  const reading = collect(k.events({ signal: stop.signal }));
  const reason = new Error("enough");
  stop.abort(reason);
  await assert.rejects(reading, (e) => e === reason);
  await assert.rejects(k.files.read("x", { signal: AbortSignal.abort(reason) }), (e) => e === reason);
});

test("what a hostile server answers ends in typed errors", async (t) => {
  const answers = {
    "/tasks/html": (res) => { res.writeHead(200); res.end("<html>"); },
    "/tasks/error": (res) => { res.writeHead(418, { "Content-Type": "text/html" }); res.end("<html>"); },
    "/tasks/odd": (res) => { res.writeHead(400); res.end('{"error":{"type":"ValidationError","message":"no"}}'); },
    "/tasks/array": (res) => { res.writeHead(404); res.end("[1]"); },
    "/tasks/elsewhere": (res) => { res.writeHead(302, { Location: "http://127.0.0.1:1/" }); res.end(); },
    "/tasks/endless": (res) => { res.writeHead(500); const piece = Buffer.alloc(64 << 10, 120); const go = () => { while (!res.destroyed && res.write(piece)); if (!res.destroyed) res.once("drain", go); }; go(); },
    "/tasks/silent": () => {},
    "/tasks/trickle": (res) => { res.writeHead(200); res.write("{"); },
    "/api/sessions/x": (res) => { res.writeHead(404); res.end('{"error":"Session not found"}'); },
  };
  const bad = await serve(t, (req, res) => answers[req.url](res));
  const client = new Umbra({ url: bad, retries: 0, timeoutMs: 1000, token: "secret" });
  const code = async (path, want) => assert.rejects(client.request("GET", path), (e) => {
    assert.ok(e instanceof UmbraError, String(e));
    assert.equal(e.code, want);
    assert.ok(!String(e.message).includes("secret"));
    return true;
  });
  await code("/tasks/html", "bad_response");
  await code("/tasks/error", "bad_request");
  await code("/tasks/odd", "validation_error");
  await code("/tasks/array", "not_found");
  await code("/tasks/elsewhere", "network");
  await code("/tasks/endless", "internal_error");
  await code("/tasks/silent", "network");
  await code("/tasks/trickle", "network");
  await code("/api/sessions/x", "not_found");
  await assert.rejects(new Umbra({ url: "http://127.0.0.1:1", retries: 0 }).request("GET", "/health"), (e) => e.code === "network" && e.status === 0 && e.cause !== undefined);
});

test("a token by function, an actor, and retries by Retry-After", async (t) => {
  const seen = [];
  const server = await serve(t, (req, res) => {
    seen.push([req.headers.authorization, req.headers["x-actor"], req.headers["idempotency-key"]]);
    if (seen.length < 3) { res.writeHead(429, { "Retry-After": "0" }); return res.end('{"error":"rate_limited"}'); }
    res.writeHead(200); res.end('{"ok":true}');
  });
  let n = 0;
  const client = new Umbra({ url: server, token: async () => "t" + n++, actor: "me" });
  assert.deepEqual(await client.request("POST", "/tasks", { body: {} }), { ok: true });
  assert.deepEqual(seen.map((s) => s[0]), ["Bearer t0", "Bearer t1", "Bearer t2"]);
  assert.equal(new Set(seen.map((s) => s[2])).size, 1);
  assert.equal(seen[0][1], "me");
  // A stream that was begun is not sent again.
  const once = await serve(t, (req, res) => { res.writeHead(503); res.end(); });
  let tries = 0;
  const counting = new Umbra({ url: once, fetch: (...a) => { tries++; return fetch(...a); } });
  await assert.rejects(counting.task("x").files.write("f", new Blob(["x"]).stream()), (e) => e.status === 503);
  assert.equal(tries, 1);
});

test("a token that no header can carry is in no error", async (t) => {
  assert.throws(() => new Umbra({ url: "http://u:SECRET@127.0.0.1:1" }), (e) => e instanceof TypeError && !inspect(e).includes("SECRET"));
  const seen = [];
  const base = await serve(t, (req, res) => { seen.push(req.headers.authorization); res.end("{}"); });
  for (const token of ["sk-SEC\nRET", "sk-SECRET\u201c"]) {
    await assert.rejects(new Umbra({ url: base, token }).task("x").get(), (e) => e.code === "bad_token" && !inspect(e).includes("SEC"));
  }
  await new Umbra({ url: base, token: "sk-SECRET\n" }).task("x").get();
  assert.deepEqual(seen, ["Bearer sk-SECRET"]);
});

test("events: lagged again and again is no busy loop, and a gateway without its server is a break", async (t) => {
  let connections = 0;
  const lagging = await serve(t, (req, res) => { connections++; res.writeHead(200, { "Content-Type": "text/event-stream" }); res.end('event: lagged\ndata: {"after":5}\n\n'); });
  await collect(new Umbra({ url: lagging }).task("x").events({ after: 5, signal: AbortSignal.timeout(1000) })).catch(() => {});
  assert.ok(connections < 50, `${connections} connections in a second`);
  let asked = 0;
  const gateway = await serve(t, (req, res) => {
    if (++asked < 4) { res.writeHead(502, { "Retry-After": "0" }); return res.end(); }
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    res.write("id: 9\nevent: change\ndata: {}\n\n");
  });
  for await (const e of new Umbra({ url: gateway, retries: 1 }).task("x").events({ after: 5 })) { assert.equal(e.id, 9); break; }
});

test("a diff and a write that are not answered end with their time and their signal", async (t) => {
  const base = await serve(t, (req, res) => { if (req.method === "GET") { res.writeHead(200, { "Content-Type": "text/plain" }); res.write("x"); } });
  const k = new Umbra({ url: base, timeoutMs: 200, retries: 0 }).task("x");
  await assert.rejects(k.diff(), (e) => e.code === "network");
  await assert.rejects(new Umbra({ url: base }).task("x").diff({ signal: AbortSignal.timeout(200) }), (e) => e.name === "TimeoutError");
  await assert.rejects(k.files.write("a", new ArrayBuffer(4)), (e) => e.code === "network");
});

test("toolsets and sessions", async () => {
  const dir = await mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-"));
  await writeFile(join(dir, "f"), "hello");
  const set = await umbra.toolsets.create({ mounts: [{ prefix: "/p", scope: "READ_WRITE", store: { type: "physical", root: dir } }] });
  const turn = await set.turn({ format: "langchain" });
  assert.ok(turn.tools.some((x) => x.name === "read_file") && turn.map.includes("/p [READ_WRITE]"));
  assert.equal((await set.call("read_file", { path: "/p/f" })).content, "hello");
  const session = await umbra.sessions.create({ workspaceRoot: dir });
  assert.equal((await session.fs("GET", "read", { query: { path: "f" } })).content, "hello");
  await session.delete();
  await set.delete();
  assert.ok((await collect(umbra.workspaces.list())).length > 0);
  assert.ok((await collect(umbra.tasks.list({ limit: 2 }))).length > 2);
});

test("an abort is heeded while an answer is read, also after a garbage collection", async (t) => {
  let closed = 0;
  const slow = await serve(t, (req, res) => {
    res.writeHead(200, { "Content-Type": req.url.includes("/stream") ? "text/event-stream" : "application/json", ETag: '"x"' });
    res.write(req.url.includes("/content") ? "begun" : ": begun\n");
    res.on("close", () => closed++);
  });
  const client = new Umbra({ url: slow, timeoutMs: 60_000 });
  const reads = [(signal) => client.request("GET", "/tasks/x", { signal }), (signal) => client.task("x").files.read("f", { signal }), (signal) => collect(client.task("x").events({ after: 0, signal }))];
  for (const [i, read] of reads.entries()) {
    const stop = new AbortController();
    const going = read(stop.signal);
    going.catch(() => {});
    await new Promise((done) => setTimeout(done, 50));
    globalThis.gc?.();
    const reason = new Error("enough");
    stop.abort(reason);
    await assert.rejects(going, (e) => e === reason);
    while (closed <= i) await new Promise((done) => setTimeout(done, 10));
  }
});

test("a call brackets what is done on disk, and is undone alone", async () => {
  const dir = await mkdtemp(join(process.env.UMBRA_TEST_DIR, "ws-"));
  const owner = await umbra.tasks.create({ goal: "calls", workspace: dir });
  let id;
  const value = await owner.subtask("s1").call({ tool: "codegen" }, async (call) => {
    id = call.call_id;
    await writeFile(join(dir, "made.txt"), "made\n");
    return 7;
  });
  assert.equal(value, 7);
  const call = await umbra.calls.get(id);
  assert.equal(call.status, "ok");
  assert.equal(call.subtask_id, "s1");
  const [entry] = await collect(owner.changes());
  assert.deepEqual([entry.path, entry.subtask_id, entry.source, entry.call_id], ["made.txt", "s1", "call", id]);
  await assert.rejects(owner.call({ paths: ["x.txt"] }, async (c) => { id = c.call_id; throw new Error("mine"); }), /mine/);
  assert.equal((await umbra.calls.get(id)).status, "failed");
  const stop = new AbortController();
  await assert.rejects(owner.call({ signal: stop.signal }, async (c) => { id = c.call_id; stop.abort(new Error("stopped")); throw stop.signal.reason; }), /stopped/);
  assert.equal((await umbra.calls.get(id)).status, "cancelled");
  assert.equal((await collect(umbra.calls.list({ task_id: owner.id }))).length, 3);
  const begun = await umbra.calls.create({ agent: "x", agent_session: "y", workspace_id: call.workspace_id });
  await umbra.calls.touch(begun.call_id);
  assert.deepEqual((await collect(umbra.calls.list({ workspace_id: call.workspace_id, open: true }))).map((c) => c.call_id), [begun.call_id]);
  assert.equal((await umbra.calls.end(begun.call_id)).task_id, begun.task_id);
  await assert.rejects(umbra.calls.touch(begun.call_id), { code: "call_ended", status: 409 });
  assert.equal((await owner.revert({ call: call.call_id, dryRun: true })).entries_reverted, 1);
  assert.equal((await owner.revert({ call: call.call_id })).entries_reverted, 1);
  await assert.rejects(owner.files.read("made.txt"), { status: 404 });
});

test("a call that is aborted while it begins does not stay open", async () => {
  const stop = new AbortController();
  const umbra = new Umbra({
    url,
    fetch: async (input, init) => {
      const begins = init?.method === "POST" && String(input).endsWith("/calls");
      const res = await fetch(input, begins ? { ...init, signal: undefined } : init);
      if (begins) stop.abort(new Error("stopped"));
      init?.signal?.throwIfAborted();
      return res;
    },
  });
  const task = await umbra.tasks.create({ goal: "g", kind: "virtual" });
  await assert.rejects(task.call({ tool: "x", signal: stop.signal }, () => assert.fail("the function ran")), /stopped/);
  let calls = [];
  for (let i = 0; i < 100 && calls[0]?.status !== "cancelled"; i++) {
    calls = [];
    for await (const c of umbra.calls.list({ task_id: task.id })) calls.push(c);
  }
  assert.deepEqual(calls.map((c) => c.status), ["cancelled"]);
});

test("a call whose end is refused is not reported as failed", async (t) => {
  const ends = [];
  const base = await serve(t, async (req, res) => {
    const chunks = [];
    for await (const c of req) chunks.push(c);
    const json = (status, body) => { res.writeHead(status, { "Content-Type": "application/json" }); res.end(JSON.stringify(body)); };
    if (req.url !== "/calls/c1/end") return json(201, { call_id: "c1" });
    ends.push(JSON.parse(Buffer.concat(chunks).toString()).status);
    json(409, { error: "call_ended", detail: "the call has ended" });
  });
  const run = new Umbra({ url: base }).task("t").call({ workspace_id: "w" }, async () => 1);
  await assert.rejects(run, { code: "call_ended", status: 409 });
  assert.deepEqual(ends, ["ok"]);
});

test("hunks are accepted and rejected, lines have authors, checkpoints are restored", async () => {
  const k = await umbra.tasks.create({ goal: "review", kind: "virtual" });
  const lines = Array.from({ length: 30 }, (_, i) => `${i}\n`);
  await k.files.write("a.txt", lines.join(""));
  const w = await umbra.workspaces.get((await k.get()).workspace_id);
  const point = await w.checkpoint("before", { message: "as it was" });
  assert.deepEqual((await collect(w.checkpoints())).map((c) => [c.name, c.commit]), [["before", point.commit]]);
  const later = await umbra.tasks.create({ goal: "edit", workspace: "", task_id: `review-${process.pid}-${Date.now()}`, kind: "virtual", namespace: ["review", k.id] });
  await later.files.write("b.txt", lines.join(""));
  await later.complete();
  const next = await umbra.tasks.create({ goal: "edit", kind: "virtual", namespace: ["review", k.id] });
  await next.subtask("top").files.edit("b.txt", "0\n1\n2\n", "zero\n1\n2\n");
  await next.subtask("bottom").files.edit("b.txt", "28\n29\n", "28\nlast\n");
  const hunks = await collect(next.hunks({ path: "b.txt" }));
  assert.deepEqual(hunks.map((h) => [h.subtasks, h.status]), [[["top"], "open"], [["bottom"], "open"]]);
  const done = await next.review({ accept: [hunks[0].id], reject: [hunks[1].id] });
  assert.deepEqual([done.accepted, done.rejected].map((x) => (Array.isArray(x) ? x.length : x)), [1, 1]);
  assert.match(text(await next.files.read("b.txt")), /^zero\n[^]*\n29\n$/);
  await k.files.write("a.txt", "other\n");
  const { ranges } = await w.blame("a.txt");
  assert.deepEqual(ranges.map((r) => [r.start, r.end, r.task_id]), [[1, 1, k.id]]);
  const plan = await w.restore({ to: "before", dry_run: true });
  await w.restore({ to: "before", plan: plan.plan });
  assert.equal(text(await k.files.read("a.txt")), lines.join(""));
  await w.deleteCheckpoint("before");
  assert.deepEqual(await collect(w.checkpoints()), []);
});

test("a fork's work is merged into its parent", async () => {
  const owner = await umbra.tasks.create({ goal: "merge", kind: "virtual", namespace: ["merge-ts", String(process.pid)] });
  await owner.files.write("a.txt", "a");
  const parent = (await owner.get()).workspace_id;
  const { forks: [fork] } = await umbra.forks.create(parent, { name: "work" });
  const inside = await umbra.tasks.create({ goal: "in the fork", workspace: fork.id });
  await inside.files.write("b.txt", "b");
  await assert.rejects(umbra.forks.delete(fork.id), { code: "unmerged", status: 409 });
  const merged = await umbra.forks.merge(fork.id, { task_id: owner.id });
  assert.equal(merged.conflicts.length, 0);
  assert.equal(text(await owner.files.read("b.txt")), "b");
  await owner.files.write("c.txt", "c");
  await umbra.forks.rebase(fork.id);
  assert.equal(text(await inside.files.read("c.txt")), "c");
});

test("a server at a Unix socket, and how a server is found", async (t) => {
  const { findServer, socketFetch } = await import("../dist/node.js");
  const at = await mkdtemp(join(process.env.UMBRA_TEST_DIR, "sock-"));
  const path = join(at, "s");
  const data = "0123456789".repeat(20_000);
  const server = http.createServer(async (req, res) => {
    let body = "";
    for await (const c of req) body += c;
    res.writeHead(req.url.startsWith("/tasks/k/content") ? 200 : 404, { ETag: '"x"', "X-Request-Id": "r", ...(req.method === "GET" ? { "Content-Length": data.length } : {}) });
    res.end(req.method === "GET" ? data : JSON.stringify({ path: "f", bytes: body.length }));
  });
  await new Promise((done) => server.listen(path, done));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const k = new Umbra({ url: "http://localhost", fetch: socketFetch(`unix:${path}`), retries: 0 }).task("k");
  assert.equal((await k.files.write("f", data)).bytes, data.length);
  assert.equal(text(await k.files.read("f")), data);
  await assert.rejects(new Umbra({ url: "http://localhost", fetch: socketFetch(join(at, "none")), retries: 0 }).task("k").get(), (e) => e.code === "network");
  const before = { ...process.env };
  t.after(() => { for (const name of ["UMBRA_SERVER", "UMBRA_TOKEN", "UMBRA_DATA_DIR"]) if (before[name] === undefined) delete process.env[name]; else process.env[name] = before[name]; });
  Object.assign(process.env, { UMBRA_SERVER: `unix:${path}`, UMBRA_TOKEN: "t" });
  const found = await findServer();
  assert.deepEqual([found.url, found.token, typeof found.fetch], ["http://localhost", "t", "function"]);
  delete process.env.UMBRA_SERVER;
  delete process.env.UMBRA_TOKEN;
  process.env.UMBRA_DATA_DIR = at;
  assert.deepEqual(await findServer(), { url: "http://127.0.0.1:8080" });
  await writeFile(join(at, "lock"), JSON.stringify({ pid: process.pid, address: "127.0.0.1:4711" }));
  assert.deepEqual(await findServer(), { url: "http://127.0.0.1:4711" });
  await writeFile(join(at, "lock"), JSON.stringify({ pid: 2 ** 22 + 1, address: "127.0.0.1:4711" }));
  assert.deepEqual(await findServer(), { url: "http://127.0.0.1:8080" });
});

test("reads from a follower carry the newest number seen of the workspace", async (t) => {
  const seen = [];
  const server = await serve(t, (req, res) => {
    if (req.method === "GET") seen.push([req.url, req.headers["umbra-min-seq"]]);
    const seq = new URL(req.url, "http://x").searchParams.get("path") ?? (req.url.includes("/toolsets/") ? "99" : undefined);
    res.writeHead(200, seq === undefined ? {} : { "Umbra-Seq": seq });
    const [, task] = /^\/tasks\/(\w+)$/.exec(req.url) ?? [];
    res.end(JSON.stringify(task === undefined ? {} : { task_id: task, workspace_id: task === "far" ? "w2" : "w1" }));
  });
  const client = new Umbra({ url: server, followerReads: true });
  const [a, b, far] = ["a", "b", "far"].map((id) => client.task(id));
  for (const k of [a, b, far]) await k.get();
  await a.files.write("9007199254740993", "x");
  await a.files.write("7", "x");
  await b.get();
  await far.get();
  await client.request("GET", "/workspaces/w1");
  await client.request("POST", "/toolsets/t/call", { body: {} }); // of a workspace that is not known
  await b.get();
  await new Umbra({ url: server }).task("a").get();
  const n = "9007199254740993";
  assert.deepEqual(seen.slice(3), [["/tasks/b", n], ["/tasks/far", undefined], ["/workspaces/w1", n], ["/tasks/b", undefined], ["/tasks/a", undefined]]);
});

test("forks are made, listed, compared and deleted", async () => {
  const owner = await umbra.tasks.create({ goal: "forks", kind: "virtual", namespace: ["forks-ts"] });
  await owner.files.write("a.txt", "a");
  const parent = (await owner.get()).workspace_id;
  const { forks: [fork] } = await umbra.forks.create(parent, { name: "try" });
  assert.deepEqual((await collect(umbra.forks.list(parent))).map((f) => f.id), [fork.id]);
  assert.equal((await umbra.forks.get(fork.id)).fork_of, parent);
  assert.equal(typeof await umbra.forks.compare(fork.id), "object");
  await umbra.forks.delete(fork.id);
  await assert.rejects(umbra.forks.get(fork.id), { status: 404 });
});
