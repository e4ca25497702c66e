import { applyDiff } from "@openai/agents-core";
import type { ApplyPatchOperation, ApplyPatchResult, Editor } from "@openai/agents-core";
import { SubtaskOption, advice, defaultMaxReadBytes, legalSubtask, resolvePath } from "./adapter.js";
import { base64 } from "./bytes.js";
import { UmbraError } from "./errors.js";
import type { Task } from "./index.js";

type Operation<K extends ApplyPatchOperation["type"]> = Extract<ApplyPatchOperation, { type: K }>;

/** UmbraEditor is the editor of `applyPatchTool({editor})`: its patches are changes of a task. */
export class UmbraEditor implements Editor {
  readonly #task: Task;
  readonly #subtask: SubtaskOption<any>;
  readonly #max: number;

  constructor(o: { task: Task; subtask?: SubtaskOption<any>; maxReadBytes?: number }) {
    if (o?.task === undefined) throw new TypeError("UmbraEditor needs a task");
    this.#task = o.task;
    this.#subtask = o.subtask ?? "auto";
    this.#max = o.maxReadBytes ?? defaultMaxReadBytes;
  }

  /** #now returns the task as the agent that calls: no agent is named here, so "auto" is the task's own subtask. */
  #now(context: any): Task {
    const id = typeof this.#subtask === "function" ? this.#subtask(context) : this.#subtask === "auto" ? null : this.#subtask;
    return id === null ? this.#task : this.#task.subtask(legalSubtask(id));
  }

  async #try(path: string, fn: () => Promise<string>): Promise<ApplyPatchResult> {
    try {
      return { status: "completed", output: await fn() };
    } catch (err) {
      const exists = err instanceof UmbraError && err.status === 412;
      return { status: "failed", output: `Error: ${exists ? `File '${path}' already exists; update it instead` : advice(err, path)}` };
    }
  }

  createFile(op: Operation<"create_file">, context?: any): Promise<ApplyPatchResult> {
    return this.#try(op.path, async () => {
      await this.#now(context).files.write(resolvePath(op.path), applyDiff("", op.diff, "create"), { ifNoneMatch: "*" });
      return `Created ${op.path}`;
    });
  }

  updateFile(op: Operation<"update_file">, context?: any): Promise<ApplyPatchResult> {
    const moveTo: string | undefined = (op as any).moveTo;
    return this.#try(op.path, async () => {
      const task = this.#now(context);
      const path = resolvePath(op.path);
      for (let tries = 1; ; tries++) {
        const { data, etag } = await task.files.readWith(path, { maxBytes: this.#max });
        let old: string;
        try {
          old = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
        } catch {
          throw new Error(`File '${op.path}' is not text`);
        }
        const text = applyDiff(old, op.diff);
        try {
          if (moveTo === undefined || resolvePath(moveTo) === path) {
            await task.files.write(path, text, { ifMatch: etag });
            return `Updated ${op.path}`;
          }
          await task.files.batch([
            { op: "write", path, content: base64(new TextEncoder().encode(text)), encoding: "base64", if_match: etag },
            { op: "rename", path, new_path: resolvePath(moveTo) },
          ]);
          return `Updated ${op.path} and moved it to ${moveTo}`;
        } catch (err) {
          if (!(err instanceof UmbraError) || err.status !== 412) throw err;
          // It was changed in between: the diff is applied to what is there now.
          if (tries === 3) throw new Error(`File '${op.path}' keeps changing; read it again, then patch it`);
        }
      }
    });
  }

  deleteFile(op: Operation<"delete_file">, context?: any): Promise<ApplyPatchResult> {
    return this.#try(op.path, async () => {
      await this.#now(context).files.delete(resolvePath(op.path));
      return `Deleted ${op.path}`;
    });
  }
}
