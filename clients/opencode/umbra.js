// The opencode plugin of umbra: each tool that may change files is bracketed by
// a call, so that what a session or a sub-agent changes is recorded as its own
// and can be undone alone. It has no dependency, and without a server opencode
// works as it does without the plugin.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, realpath } from "node:fs/promises";
import * as http from "node:http";
import * as https from "node:https";
import { homedir } from "node:os";
import { basename, dirname, isAbsolute, join, resolve, sep } from "node:path";

// What begins and ends calls; null: the plugin itself, over HTTP. `umbra init`
// writes its command here, which can also start a server.
const command = null;

// Tools that change no file, or that start agents whose own tools have hooks.
const readers = new Set(["read", "glob", "grep", "list", "webfetch", "websearch", "todowrite", "todoread", "task", "question", "skill", "lsp",
  "umbra_undo", "umbra_changes"]);

const BEGIN_MS = 2_000; // a tool waits no longer for its call's begin
const END_MS = 10_000;
const UNDO_MS = 60_000;
const FORK_MS = 300_000; // the files of a fork are copied
const AGAIN_MS = 10_000; // after a server that could not be reached
const KEPT_ENDS = 100; // ends that the server did not get and that are sent again
const MAX_ANSWER = 8 << 20;

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const wait = (ms) => new Promise((_, reject) => setTimeout(reject, ms, new Error("timed out")).unref?.());

// plain returns a name without control characters, so that it cannot add lines
// to what the model reads.
const plain = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));

function alive(pid) {
  if (typeof pid !== "number") return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (err) {
    return err.code === "EPERM";
  }
}

// find returns the server's address and token as `umbra hook` finds them.
async function find() {
  const token = process.env.UMBRA_TOKEN ?? "";
  if (process.env.UMBRA_SERVER) return { address: process.env.UMBRA_SERVER, token };
  const flag = command?.find((word) => word.startsWith("--data-dir="))?.slice("--data-dir=".length);
  const data = flag || process.env.UMBRA_DATA_DIR || join(process.env.XDG_DATA_HOME || join(homedir(), ".local", "share"), "umbra");
  try {
    const holder = JSON.parse(await readFile(join(data, "lock"), "utf8"));
    if (typeof holder.address === "string" && holder.address !== "" && alive(holder.pid)) {
      const own = await readFile(join(data, "owner"), "utf8").catch(() => token);
      return { address: holder.address, token: own.trim() };
    }
  } catch {
    // No server has used the data directory.
  }
  return { address: "http://127.0.0.1:8080", token };
}

// hook runs the command with one document. It answers within 2 s, and with null
// if there is no server.
const hook = (body) =>
  new Promise((done) => {
    try {
      const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "ignore"] });
      let out = "";
      child.stdout.on("data", (data) => { out += data; });
      child.on("error", () => done(null));
      child.on("close", () => {
        try {
          done(JSON.parse(out));
        } catch {
          done(null);
        }
      });
      child.stdin.on("error", () => {});
      child.stdin.end(JSON.stringify(body));
    } catch {
      done(null);
    }
  });

// send returns the answer's status and JSON. It rejects where no answer came.
function send({ address, token }, method, path, body, ms, headers = {}) {
  return new Promise((done, fail) => {
    const socket = address.startsWith("unix:") ? address.slice("unix:".length) : undefined;
    const url = new URL(path, socket !== undefined ? "http://localhost" : /^https?:/.test(address) ? address : "http://" + address);
    const data = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const all = { ...headers };
    if (data !== undefined) {
      all["Content-Type"] = "application/json";
      all["Content-Length"] = data.length;
    }
    if (token) all.Authorization = "Bearer " + token;
    const req = (url.protocol === "https:" ? https : http).request(url, { method, headers: all, agent: false, ...(socket === undefined ? {} : { socketPath: socket }) });
    const late = setTimeout(() => req.destroy(new Error("no answer in time")), ms);
    req.on("error", (err) => { clearTimeout(late); fail(err); });
    req.on("response", (res) => {
      const chunks = [];
      let size = 0;
      res.on("data", (c) => { if ((size += c.length) > MAX_ANSWER) req.destroy(new Error("the answer is too large")); else chunks.push(c); });
      res.on("error", (err) => { clearTimeout(late); fail(err); });
      res.on("end", () => {
        clearTimeout(late);
        let json = null;
        try {
          json = JSON.parse(Buffer.concat(chunks).toString("utf8"));
        } catch {
          // The status says enough.
        }
        done({ status: res.statusCode, json });
      });
    });
    req.end(data);
  });
}

// layered returns a shell's command in the layer of its call, so that what it
// changes is known exactly; `umbra init --isolate` writes the flag. A command of
// umbra itself is left alone. The shell that runs it is asked for its name.
function layered(line, call) {
  if (!command?.includes("--isolate") || /^\s*(\S*\/)?umbra(\s|$)|umbra exec /.test(line)) return line;
  const quoted = (word) => (/^[\w/.\-:,@%+=]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
  const flags = command.filter((word) => /^--(data-dir|server)=/.test(word));
  // A login shell may have another PATH than this process.
  const program = (process.env.PATH ?? "").split(":").map((dir) => join(dir, command[0])).find((name) => !command[0].includes("/") && existsSync(name)) ?? command[0];
  return [program, "exec", ...flags, "--call=" + call, "--"].map(quoted).join(" ") + ' "${BASH:-${ZSH_NAME:-sh}}" -c ' + "'" + line.replaceAll("'", "'\\''") + "'";
}

// declared returns the paths of an editing tool; undefined: any file may change.
function declared(tool, args, directory) {
  const at = (p) => (isAbsolute(p) ? p : resolve(directory, p));
  switch (tool) {
    case "write":
      if (typeof args?.filePath !== "string") return undefined;
      return [typeof args.content === "string" ? { path: at(args.filePath), sha256: sha256(args.content) } : at(args.filePath)];
    case "edit":
    case "multiedit":
      return typeof args?.filePath === "string" ? [at(args.filePath)] : undefined;
    case "patch":
    case "apply_patch": {
      const text = [args?.patchText, args?.patch, args?.input].find((v) => typeof v === "string");
      if (text === undefined) return undefined;
      const found = [...text.matchAll(/^\*\*\* (?:Add File|Update File|Delete File|Move to): (.*?)\r?$/gm)].map((m) => at(m[1].trim()));
      return found.length > 0 ? [...new Set(found)] : undefined;
    }
  }
  return undefined;
}

function who(c) {
  if (c.task_id) return "task " + plain(c.task_id) + (c.subtask_id ? ", subtask " + plain(c.subtask_id) : "");
  return plain(c.actor || (c.source === "external" ? "a change outside umbra" : c.source || "unknown"));
}

// advice is what the model reads behind a tool's output; empty: nothing.
function advice(others, overwrote, undo) {
  if (process.env.UMBRA_HOOKS_CONTEXT === "off") return "";
  const lines = [];
  if (others?.length > 0) {
    lines.push("umbra: others changed these files since your last tool call; read them again before you edit them:");
    for (const c of others) lines.push(`- ${plain(c.path)}${c.lines ? " lines " + plain(c.lines) : ""} (${plain(c.operation || "changed")} by ${who(c)})`);
  }
  if (overwrote?.length > 0) {
    lines.push("umbra: your last tool call deleted or replaced content of others that no commit of the project has:");
    for (const c of overwrote) lines.push(`- ${plain(c.path)} (last written by ${who(c)})`);
    if (undo) lines.push("If that was not intended, run: " + plain(undo));
  }
  return lines.join("\n");
}

export const Umbra = async ({ client, directory, project, experimental_workspace: workspaces }) => {
  const parents = new Map(); // session → its parent's, or null
  const turns = new Map(); // session → the user's message
  const models = new Map(); // session → model
  const tasks = new Map(); // topmost session → task
  const open = new Map(); // session, call → the call that was begun
  const unsent = []; // ends that the server did not get
  let downUntil = 0;

  const key = (session, call) => session + "\0" + call;

  const log = (message) => {
    // The plugin's work does not wait for opencode's log.
    Promise.resolve(client?.app?.log?.({ body: { service: "umbra", level: "warn", message } })).catch(() => {});
  };

  // request returns the JSON of a success, null otherwise; it never throws.
  async function request(method, path, body, ms, o = {}) {
    const found = await find();
    try {
      const { status, json } = await send(found, method, path, body, ms, o.headers);
      if (status < 300) return json ?? {};
      if (o.refused) return o.refused(status, json);
      log(`${method} ${path.split("?")[0]}: ${status} ${json?.error ?? ""} ${json?.detail ?? ""}`.trim());
      return null;
    } catch (err) {
      if (Date.now() >= downUntil) log(`no server at ${found.address} (${err.code ?? err.message}); next attempt in 10 s`);
      downUntil = Date.now() + AGAIN_MS;
      o.lost?.();
      return null;
    }
  }

  // parentOf asks opencode for a session that was made before this process.
  async function parentOf(session) {
    if (!parents.has(session)) {
      let parent = null;
      try {
        const found = await Promise.race([client.session.get({ path: { id: session } }), wait(1_000)]);
        parent = found?.data?.parentID ?? null;
      } catch {
        // It counts as a session of its own.
      }
      if (!parents.has(session)) parents.set(session, parent);
    }
    return parents.get(session);
  }

  async function topmost(session) {
    for (let depth = 0; depth < 32; depth++) {
      const parent = await parentOf(session);
      if (!parent) break;
      session = parent;
    }
    return session;
  }

  async function flush() {
    while (unsent.length > 0 && Date.now() >= downUntil) {
      const end = unsent.shift();
      let lost = false;
      if (command !== null) lost = (await hookEnd(end)) === null && (end.tries = (end.tries ?? 0) + 1) < 3;
      else await request("POST", `/calls/${end.id}/end`, { status: end.status }, BEGIN_MS, { lost: () => { lost = true; }, refused: () => null });
      if (lost) {
        unsent.unshift(end);
        return;
      }
    }
  }

  const hookEnd = (end) => hook({ phase: "end", agent: "opencode", agent_session: end.root, call_id: end.own, status: end.status });

  async function begin(tool, session, callID, args) {
    if (Date.now() < downUntil) return;
    await flush();
    if (Date.now() < downUntil) return;
    const root = await topmost(session);
    const own = "opencode-" + sha256(root + "\0" + session + "\0" + callID).slice(0, 32);
    const call = { id: own, own, session, root };
    const body = { agent: "opencode", agent_session: root, cwd: directory, call_id: call.id, tool: plain(tool).slice(0, 256) };
    if (root !== session) body.subtask_id = session;
    else if (turns.has(session)) body.prompt_id = turns.get(session);
    if (models.has(session)) body.model = models.get(session);
    const paths = declared(tool, args, directory);
    if (paths !== undefined) Object.assign(body, { paths, only_paths: true });
    if (tool === "bash" && typeof args?.command === "string") body.command_sha256 = sha256(args.command);
    // A request without an answer may have begun the call all the same.
    let lost = false;
    const made = command !== null ? await hook({ phase: "begin", ...body })
      : await request("POST", "/calls", body, BEGIN_MS, { lost: () => { lost = true; } });
    if (lost) {
      keep({ ...call, status: "cancelled" });
      return;
    }
    if (made === null) return;
    call.id = made.call_id ?? own; // the command makes the ID unique
    call.task = made.task_id;
    call.subtask = made.subtask_id;
    call.others = made.others;
    tasks.set(root, made.task_id);
    open.set(key(session, callID), call);
  }

  function keep(end) {
    unsent.push(end);
    if (unsent.length > KEPT_ENDS) unsent.shift();
  }

  async function end(k, status) {
    const call = open.get(k);
    if (call === undefined) return "";
    open.delete(k);
    let ended;
    if (command === null) ended = await request("POST", `/calls/${call.id}/end`, { status }, END_MS, { lost: () => keep({ ...call, status }) });
    else if ((ended = await hookEnd({ ...call, status })) === null) keep({ ...call, status });
    return advice(call.others, ended?.overwrote, ended?.undo);
  }

  const endAll = (status, session) =>
    Promise.all([...open].filter(([, c]) => session === undefined || c.session === session).map(([k]) => end(k, status)));

  // undo takes back the newest turn of the session that has something to take back.
  async function undo(session) {
    const task = tasks.get(await topmost(session));
    if (task === undefined) return "umbra: nothing of this session is recorded.";
    const mark = { "X-Subtask-Id": "umbra-undo-" + (BigInt(Date.now()) * 1_000_000n).toString(36) };
    // A turn that changed no file is no subtask.
    const conflict = (status, json) => (json?.error === "revert_conflict" ? json : json?.error === "subtask_not_found" ? {} : null);
    const seen = new Set();
    let page = { calls: [], next: "" };
    for (;;) {
      const c = page.calls?.shift();
      if (c === undefined) {
        if (typeof page.next !== "string") break;
        page = await request("GET", `/calls?task_id=${encodeURIComponent(task)}&after=${encodeURIComponent(page.next)}`, undefined, UNDO_MS);
        if (page === null) return "umbra: the server could not be asked; nothing was undone.";
        continue;
      }
      if (!c.subtask_id || seen.has(c.subtask_id)) continue;
      seen.add(c.subtask_id);
      const path = `/tasks/${encodeURIComponent(task)}/subtasks/${encodeURIComponent(c.subtask_id)}/revert`;
      const look = await request("POST", path, { dry_run: true }, UNDO_MS, { headers: mark, refused: conflict });
      if (look === null) return "umbra: the undo could not be prepared; nothing was undone.";
      if (!look.entries_reverted && !look.conflicts?.length) continue;
      const done = await request("POST", path, {}, UNDO_MS, { headers: mark, refused: conflict });
      if (done === null) return "umbra: the undo failed; ask the user to run: umbra turns";
      if (done.conflicts?.length > 0) {
        return ["umbra: nothing was undone; later changes of others depend on it:", ...done.conflicts.map((x) => "- " + plain(x.path))].join("\n");
      }
      const files = (done.files ?? []).map((f) => `- ${plain(f.path)} (${plain(f.action ?? "reverted")})`);
      return [`umbra: undid turn ${plain(c.subtask_id)}; umbra redo brings it back:`, ...files].join("\n");
    }
    return "umbra: there is nothing to undo.";
  }

  async function changes(session) {
    const task = tasks.get(await topmost(session));
    if (task === undefined) return "umbra: nothing of this session is recorded.";
    const summary = await request("GET", `/tasks/${encodeURIComponent(task)}/files`, undefined, UNDO_MS);
    if (summary === null) return "umbra: the server could not be asked.";
    const files = summary.files ?? [];
    if (files.length === 0) return "umbra: this session changed no file.";
    return [`umbra: files that this session changed (task ${plain(task)}):`, ...files.map((f) => `- ${plain(f.path)} (${plain(f.status ?? f.operation ?? "changed")}${f.shared ? ", shared" : ""})`)].join("\n");
  }

  // forked returns a request's answer, and throws what opencode shows of a failure.
  async function forked(method, path, body) {
    const done = await request(method, path, body, FORK_MS, { refused: (status, json) => ({ failed: json?.detail ?? `status ${status}` }) });
    if (done === null) throw new Error("umbra: there is no server");
    if (done.failed !== undefined) throw new Error("umbra: " + plain(done.failed));
    return done;
  }

  const known = async () => (await forked("GET", "/workspaces")).workspaces ?? [];
  // The server names directories without links. One that is not there is itself.
  const real = (dir) => realpath(dir).catch(() => dir);
  // around returns the innermost workspace that contains a directory.
  const around = async (dir) => {
    const at = (await real(dir)) + sep;
    const inside = (root) => typeof root === "string" && at.startsWith(root.endsWith(sep) ? root : root + sep);
    return (await known()).filter((w) => inside(w.root)).sort((a, b) => b.root.length - a.root.length)[0];
  };
  const named = (config) => {
    if (typeof config.directory !== "string" || !isAbsolute(config.directory)) throw new Error("umbra: the workspace has no absolute directory");
    return config.directory;
  };

  // opencode's workspaces are forks: it names the directory, and then has it made.
  workspaces?.register?.("umbra", {
    name: "umbra fork",
    description: "A copy of the project that shares its history; umbra merge brings the work back, whole or in parts",
    configure: (config) => {
      const name = String(config.name || config.id).replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^[-_]+|-+$/g, "").slice(0, 64) || "workspace";
      return { ...config, name, directory: config.directory ?? join(dirname(directory), basename(directory) + "-" + name) };
    },
    create: async (config, _env, from) => {
      const path = named(config);
      const parent = await around(from?.directory ?? directory);
      if (parent === undefined) throw new Error("umbra: the project is no workspace yet; let a tool change a file in it first");
      await forked("POST", `/workspaces/${encodeURIComponent(parent.id)}/forks`, { kind: "copy", name: config.name, path });
    },
    // opencode forgets a workspace also when removing it fails, such as a fork with work that
    // was never merged. Its list of workspaces asks for those that it does not have.
    list: async () => {
      const parent = await around(directory);
      if (parent === undefined) return [];
      const family = new Set([parent.id, parent.fork_of]); // of a fork those next to it too
      const copies = (await known()).filter((w) => w.kind === "copy" && w.fork_of && family.has(w.fork_of));
      return copies.map((w) => ({ type: "umbra", name: w.name || w.id, branch: null, directory: w.root, extra: null, projectID: project?.id }));
    },
    remove: async (config) => {
      const root = await real(named(config));
      const fork = (await known()).find((w) => w.fork_of && w.root === root);
      if (fork === undefined) throw new Error("umbra: the directory is not a fork's");
      // A fork with work that was never merged is kept: the server refuses.
      await forked("DELETE", `/workspaces/${encodeURIComponent(fork.id)}`);
    },
    target: (config) => ({ type: "local", directory: config.directory }),
  });

  return {
    "chat.message": async (input, output) => {
      const id = output?.message?.id ?? input.messageID;
      if (typeof id === "string") turns.set(input.sessionID, id);
      const model = input.model?.modelID;
      if (typeof model === "string" && model !== "") models.set(input.sessionID, plain(model).slice(0, 256));
      await endAll("cancelled", input.sessionID); // tools of an earlier turn that were interrupted
    },
    "tool.execute.before": async (input, output) => {
      if (readers.has(input.tool)) return;
      try {
        await begin(input.tool, input.sessionID, input.callID, output?.args);
        const call = open.get(key(input.sessionID, input.callID));
        if (call !== undefined && input.tool === "bash" && typeof output?.args?.command === "string") output.args.command = layered(output.args.command, call.id);
      } catch (err) {
        log("call not begun: " + err.message);
      }
    },
    "tool.execute.after": async (input, output) => {
      const text = await end(key(input.sessionID, input.callID), "ok");
      if (text !== "" && output) output.output = (output.output ?? "") + "\n\n" + text;
    },
    "shell.env": async (input, output) => {
      const call = open.get(key(input.sessionID, input.callID));
      if (call === undefined) return;
      output.env.UMBRA_CALL = call.id;
      output.env.UMBRA_TASK = call.task;
      if (call.subtask) output.env.UMBRA_SUBTASK = call.subtask;
      output.env.UMBRA_SERVER = (await find()).address;
    },
    event: async ({ event }) => {
      const p = event.properties ?? {};
      switch (event.type) {
        case "session.created":
          if (p.info?.id) parents.set(p.info.id, p.info.parentID ?? null);
          break;
        case "message.part.updated":
          // A tool that failed has no tool.execute.after.
          if (p.part?.type === "tool" && p.part.state?.status === "error") await end(key(p.part.sessionID, p.part.callID), "failed");
          break;
        case "session.idle":
          await endAll("cancelled", p.sessionID);
          break;
        case "session.deleted":
          if (p.info?.id) for (const m of [parents, turns, models, tasks]) m.delete(p.info.id);
          break;
      }
    },
    dispose: async () => {
      await endAll("cancelled");
      await flush();
    },
    tool: {
      umbra_undo: {
        description: "Take back the file changes of this session's last turn that changed files. Later changes of others stay. Use it only when the user asks for an undo.",
        args: {},
        execute: async (_, context) => undo(context.sessionID),
      },
      umbra_changes: {
        description: "List the files that this session has changed.",
        args: {},
        execute: async (_, context) => changes(context.sessionID),
      },
    },
  };
};
