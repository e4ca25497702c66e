// A small project and an agent's work on it: what the tour walks through.

import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";

import { api, dir, put } from "./kit.mjs";

export const files = {
  "src/cart.ts": `import { round } from "./money";

// A cart holds lines until they are ordered.
export class Cart {
  lines = [];

  add(item, amount) {
    this.lines.push({ item, amount });
  }

  total() {
    let sum = 0;
    for (const line of this.lines) {
      sum += line.item.price * line.amount;
    }
    return round(sum);
  }

  clear() {
    this.lines = [];
  }
}
`,
  "src/money.ts": `export function round(value) {
  return Math.round(value * 100) / 100;
}

export function format(value, currency) {
  return value.toFixed(2) + " " + currency;
}
`,
  "src/index.ts": `export { Cart } from "./cart";
export { format } from "./money";
`,
  "README.md": `# Shop

A cart, and the money in it.
`,
  "legacy/prices.csv": "item,price\npen,1.20\nbook,14.00\n",
};

export const typedCart = files["src/cart.ts"]
  .replace("lines = [];", "private lines: Line[] = [];")
  .replace("add(item, amount) {", "add(item: Item, amount: number): void {")
  .replace("total() {", "total(): number {")
  .replace("// A cart holds", "interface Item {\n  name: string;\n  price: number;\n}\n\ninterface Line {\n  item: Item;\n  amount: number;\n}\n\n// A cart holds");

export const typedMoney = files["src/money.ts"].replace("round(value)", "round(value: number): number").replace("format(value, currency)", "format(value: number, currency: string): string");

/** project writes the files as a person has them. */
export function project() {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(path.join(dir, path.dirname(name)), { recursive: true });
    writeFileSync(path.join(dir, name), content);
  }
}

/** work is what the agent does; the task's id comes back. */
export async function work() {
  const task = await api("POST", "/tasks", { goal: "Give the shop types, and tests for the cart", workspace: dir, task_id: "shop-types" });
  const id = task.task_id;
  const as = (subtask) => ({ "X-Subtask-Id": subtask });
  await put(id, "src/cart.ts", files["src/cart.ts"].replace("lines = [];", "lines: Line[] = [];"), as("add-types"));
  await put(id, "src/cart.ts", typedCart, as("add-types"));
  await put(id, "src/money.ts", typedMoney, as("add-types"));
  await put(id, "src/types.ts", "export type Currency = \"EUR\" | \"USD\";\n", as("add-types"));
  await put(id, "test/cart.test.ts", "import { Cart } from \"../src\";\n\ntest(\"an empty cart costs nothing\", () => {\n  expect(new Cart().total()).toBe(0);\n});\n", as("write-tests"));
  await api("POST", `/tasks/${id}/batch`, {
    subtask_id: "write-tests",
    message: "tests for money, and their data",
    operations: [
      { op: "write", path: "test/money.test.ts", content: "import { format } from \"../src\";\n\ntest(\"two digits\", () => {\n  expect(format(1, \"EUR\")).toBe(\"1.00 EUR\");\n});\n" },
      { op: "write", path: "test/data/prices.json", content: "{\n  \"pen\": 1.2,\n  \"book\": 14\n}\n" },
    ],
  }, { "X-Actor": "claude" });
  await api("POST", `/tasks/${id}/move`, { from: "legacy/prices.csv", to: "data/prices.csv" }, { ...as("tidy-up"), "X-Actor": "claude" });
  await put(id, "README.md", files["README.md"].replace("and the money in it.", "and the money in it, with types.\n\nRun the tests with `npm test`."), as("tidy-up"));
  return task;
}
