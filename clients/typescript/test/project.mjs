import * as fs from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const dir = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "");

/** project makes a user's project that has the frameworks, and this package. */
export async function project() {
  const to = await fs.mkdtemp(join(process.env.UMBRA_TEST_DIR, "user-"));
  await fs.mkdir(join(to, "node_modules"));
  for (const name of await fs.readdir(join(dir, "node_modules"))) {
    if (!name.startsWith(".")) await fs.symlink(join(dir, "node_modules", name), join(to, "node_modules", name));
  }
  await fs.symlink(dir, join(to, "node_modules/umbra-client"));
  await fs.writeFile(join(to, "package.json"), '{"type":"module"}');
  return to;
}
