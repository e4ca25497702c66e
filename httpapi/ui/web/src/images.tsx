// Versions of an image, side by side. The bytes reach the page as a data
// address, since a file's own address is never shown as a page.

import { ApiError, request } from "./api";
import { ErrorBox, Loading, useLoad } from "./bits";
import { bytes } from "./format";

/** largest is up to which size an image is shown, in bytes. */
const largest = 8 << 20;

const kinds: [string, number[]][] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46]],
  ["image/bmp", [0x42, 0x4d]],
];

export function isImage(path: string): boolean {
  return /\.(png|jpe?g|gif|webp|bmp)$/i.test(path);
}

interface Version {
  note: string;
  src?: string;
}

async function read(url: string | null, signal: AbortSignal): Promise<Version> {
  if (!url) return { note: "does not exist" };
  let res: Response;
  try {
    res = await request(url, { signal });
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) return { note: "does not exist" };
    throw e;
  }
  const size = Number(res.headers.get("Content-Length") ?? 0);
  if (size > largest) {
    await res.body?.cancel();
    return { note: `${bytes(size)}, too large to show` };
  }
  const data = new Uint8Array(await res.arrayBuffer());
  const kind = kinds.find(([, magic]) => magic.every((b, i) => data[i] === b))?.[0];
  if (!kind) return { note: `${bytes(data.length)}, not an image that can be shown` };
  let chars = "";
  for (let i = 0; i < data.length; i += 0x8000) chars += String.fromCharCode(...data.subarray(i, i + 0x8000));
  return { note: bytes(data.length), src: `data:${kind};base64,${btoa(chars)}` };
}

/** Sides are the addresses of an image before and after a change; null: there is none. */
export interface Sides {
  before: string | null;
  after: string | null;
}

/** sidesOf are the versions of a path at two points of a task; undefined: what is on disk. */
export function sidesOf(task: string, path: string, from: string, end: string | undefined): Sides {
  const of = `/tasks/${encodeURIComponent(task)}/content?path=${path}`;
  return { before: `${of}&at=${encodeURIComponent(from)}`, after: end === undefined ? of : `${of}&at=${encodeURIComponent(end)}` };
}

/** Images shows each version under its label. */
export function Images(p: { versions: [label: string, url: string | null][]; name: string }) {
  const loaded = useLoad(async (signal) => Promise.all(p.versions.map(([, url]) => read(url, signal))), [p.versions]);
  if (loaded.error) return <ErrorBox error={loaded.error} retry={loaded.reload} />;
  if (!loaded.data) return <Loading what="the images" />;
  return (
    <div class="images" tabIndex={0} role="group" aria-label={`Image: ${p.versions.map(([label]) => label).join(" and ")}`}>
      {loaded.data.map((v, i) => (
        <figure key={i}>
          <figcaption>
            {p.versions[i]![0]} <span class="dim">{v.note}</span>
          </figcaption>
          {v.src && <img src={v.src} alt={`${p.name}, ${p.versions[i]![0].toLowerCase()}`} />}
        </figure>
      ))}
    </div>
  );
}
