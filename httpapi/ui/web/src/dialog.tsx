// Dialogs are the browser's own: it keeps the focus in them and gives it back.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { Icon } from "./bits";

export function Dialog(p: { title: string; onClose: () => void; children: ComponentChildren; footer?: ComponentChildren; class?: string; firm?: boolean; reads?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  const close = useRef(p.onClose);
  close.current = p.onClose;
  // Before the first paint: a key that comes with it would close the dialog without a word to its owner.
  useLayoutEffect(() => {
    const dialog = ref.current!;
    const cancel = (e: Event) => {
      e.preventDefault();
      close.current();
    };
    const outside = (e: MouseEvent) => {
      if (e.target === dialog && !p.firm) close.current();
    };
    dialog.addEventListener("cancel", cancel);
    dialog.addEventListener("mousedown", outside);
    return () => {
      dialog.removeEventListener("cancel", cancel);
      dialog.removeEventListener("mousedown", outside);
    };
  }, [p.firm]);
  useLayoutEffect(() => {
    const dialog = ref.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    if (!dialog.contains(document.activeElement) || document.activeElement === dialog) heading.current?.focus();
    return () => {
      if (dialog.open) dialog.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={ref} class={p.class} aria-labelledby="dialog-title">
      <div class="sheet">
        <header>
          <h2 id="dialog-title" tabIndex={-1} ref={heading}>
            {p.title}
          </h2>
          <button type="button" class="plain" onClick={p.onClose} aria-label="Close">
            <Icon name="close" />
          </button>
        </header>
        {/* What is only read is scrolled by keys, too. */}
        <div class="body" {...(p.reads ? { tabIndex: 0 } : {})}>{p.children}</div>
        {p.footer && <footer>{p.footer}</footer>}
      </div>
    </dialog>
  );
}
