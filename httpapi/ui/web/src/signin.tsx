// Asks for a token when the server requires one.

import { useEffect, useState } from "preact/hooks";

import { onUnauthorized } from "./api";
import { Field } from "./bits";
import { Dialog } from "./dialog";

export function SignIn() {
  const [asked, set] = useState<{ refused: boolean; answer: (token: string | null) => void } | null>(null);
  const [value, setValue] = useState("");
  useEffect(() => {
    onUnauthorized(
      (refused) =>
        new Promise((answer) => {
          setValue("");
          set({ refused, answer });
        }),
    );
  }, []);
  if (!asked) return null;
  const finish = (token: string | null) => {
    set(null);
    asked.answer(token);
  };
  return (
    <Dialog title="Token" class="narrow" firm onClose={() => finish(null)}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (value.trim()) finish(value.trim());
        }}
      >
        <p>{asked.refused ? "The server does not accept this token." : "This server requires a token."} It is kept until the tab is closed.</p>
        <Field label="Token">
          <input type="password" autofocus autocomplete="off" spellcheck={false} value={value} onInput={(e) => setValue(e.currentTarget.value)} />
        </Field>
        <p class="actions">
          <button type="submit" class="primary" disabled={!value.trim()}>
            Sign in
          </button>
        </p>
      </form>
    </Dialog>
  );
}
