// A task's life by a client that is generated from the document: what tsc
// accepts here is what the document promises.
//
//   node client.js URL FOLDER
//
// It prints what it saw, as JSON.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
type Entry = components["schemas"]["TaskEntry"];

const [url = "", folder = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url });

function must<T>(what: string, answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${what}: ${answer.response.status} ${JSON.stringify(answer.error)}`);
  }
  return answer.data;
}

const task = must("task", await client.POST("/tasks", { body: { goal: "try the client", workspace: folder } }));
const id = task.task_id;

const written = must("write", await client.PUT("/tasks/{id}/content", {
  params: { path: { id }, query: { path: "src/app.ts" }, header: { "X-Subtask-Id": "s1", "If-None-Match": "*" } },
  body: "one\n",
  bodySerializer: (text) => text,
  headers: { "Content-Type": "application/octet-stream" },
}));

const taken = await client.PUT("/tasks/{id}/content", {
  params: { path: { id }, query: { path: "src/app.ts" }, header: { "If-None-Match": "*" } },
  body: "two\n",
  bodySerializer: (text) => text,
  headers: { "Content-Type": "application/octet-stream" },
});
// The error is typed: a code and a sentence.
const refused = taken.error === undefined ? null : { status: taken.response.status, code: taken.error.error };

const batch = must("batch", await client.POST("/tasks/{id}/batch", {
  params: { path: { id } },
  body: { subtask_id: "s2", operations: [{ op: "write", path: "b.txt", content: "b\n" }, { op: "rename", path: "b.txt", new_path: "docs/b.txt" }] },
}));
const operations: Entry["operation"][] = batch.entries.map((entry) => entry.operation);

const summary = must("files", await client.GET("/tasks/{id}/files", { params: { path: { id } } }));
const diff = must("diff", await client.GET("/tasks/{id}/files/{path}/diff", {
  params: { path: { id, path: "src/app.ts" } },
  headers: { Accept: "application/json" },
}));
const patch = must("patch", await client.GET("/tasks/{id}/diff", {
  params: { path: { id } },
  headers: { Accept: "text/x-diff" },
  parseAs: "text",
}));
const text = must("content", await client.GET("/tasks/{id}/content", {
  params: { path: { id }, query: { path: "src/app.ts" } },
  parseAs: "text",
}));

const subtask = { path: { id, sid: "s1" } };
const planned = must("preview", await client.POST("/tasks/{id}/subtasks/{sid}/revert", { params: subtask, body: { dry_run: true } }));
const reverted = must("revert", await client.POST("/tasks/{id}/subtasks/{sid}/revert", { params: subtask, body: { plan: planned.plan } }));

const missing = await client.GET("/tasks/{id}", { params: { path: { id: "no-such-task" } } });
const ended = must("end", await client.PATCH("/tasks/{id}", { params: { path: { id } }, body: { status: "completed" } }));
const session = await client.POST("/api/sessions", { body: { workspaceRoot: `${folder}/not-there` } });

console.log(JSON.stringify({
  commit: written.commit,
  refused,
  operations,
  files: summary.files.map((file) => `${file.status} ${file.path}`),
  additions: typeof diff === "string" ? null : diff.additions,
  patch,
  text,
  planned: planned.files.map((file) => `${file.action} ${file.path}`),
  undone: reverted.entries_reverted,
  missing: missing.error?.error ?? null,
  status: ended.status,
  // Another dialect, another shape.
  session: session.error === undefined ? null : typeof session.error.error,
}));
