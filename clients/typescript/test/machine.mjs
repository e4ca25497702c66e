import { readFile, readdir } from "node:fs/promises";

/** unique is a number of seconds that only this process asks for. */
export const unique = (seconds) => `${seconds}.${process.pid}`;

/** running waits until a process with this argument exists, or none does. */
export async function running(argument, wanted) {
  for (;;) {
    const lines = await Promise.all((await readdir("/proc")).filter((n) => /^\d+$/.test(n)).map((n) => readFile(`/proc/${n}/cmdline`, "utf8").catch(() => "")));
    if (lines.some((l) => l.split("\0").includes(argument)) === wanted) return;
    await new Promise((done) => setTimeout(done, 20));
  }
}
