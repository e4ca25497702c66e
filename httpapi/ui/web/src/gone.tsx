// A bar for as long as the server cannot be reached, and the way back.

import { useEffect, useState } from "preact/hooks";

import { announce } from "./bits";
import { onReach, reachable } from "./reach";

export function Gone() {
  const [gone, setGone] = useState(!reachable());
  useEffect(
    () =>
      onReach((ok) => {
        setGone(!ok);
        announce(ok ? "The server is back." : "The server cannot be reached.");
      }),
    [],
  );
  if (!gone) return null;
  return (
    <p class="gone" role="alert">
      The server cannot be reached. The page continues when it is back. Start it with <code>umbra serve</code>.
    </p>
  );
}
