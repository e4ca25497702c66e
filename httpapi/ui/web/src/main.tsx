// The page: what is always there, and which part of it the address names.

import { render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useState } from "preact/hooks";

import { Gone } from "./gone";
import { ErrorBox, Icon, useKeys } from "./bits";
import { ForkComparePage, ForksPage } from "./forks";
import { Help } from "./help";
import { Home } from "./home";
import { MergePage } from "./merge";
import { Palette } from "./palette";
import { go, useRoute, to } from "./route";
import { SignIn } from "./signin";
import { TaskPage } from "./task";
import { CommitPage, SearchPage, WorkspacePage } from "./workspace";

const themeKey = "umbra.theme";

function isDark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function Page() {
  const route = useRoute();
  const [first, second, third, fourth] = route.parts;
  if (!first) return <Home />;
  if (first === "tasks" && second) return <TaskPage key={second} id={second} route={route} />;
  if (first === "workspaces" && second && third === "commits" && fourth) return <CommitPage key={fourth} workspace={second} commit={fourth} route={route} />;
  if (first === "workspaces" && second && third === "forks") return <ForksPage key={second} id={second} />;
  if (first === "workspaces" && second && third === "compare") return <ForkComparePage key={second} id={second} route={route} />;
  if (first === "workspaces" && second && (third === "merge" || third === "rebase")) return <MergePage key={`${second} ${third}`} id={second} verb={third} route={route} />;
  if (first === "workspaces" && second) return <WorkspacePage key={second} id={second} />;
  if (first === "search") return <SearchPage route={route} />;
  return <ErrorBox error="Page not found." />;
}

function App() {
  const [help, setHelp] = useState(false);
  const [palette, setPalette] = useState(false);
  const route = useRoute();
  const [dark, setDark] = useState(isDark());
  const toggle = useCallback(() => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(themeKey, theme);
    setDark(theme === "dark");
  }, []);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setDark(isDark());
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  useLayoutEffect(() => {
    // Also in a field; but not over another dialog.
    const down = (e: KeyboardEvent) => {
      if (!(e.ctrlKey || e.metaKey) || e.altKey || e.key.toLowerCase() !== "k" || document.querySelector("dialog[open]:not(.palette)")) return;
      e.preventDefault();
      setPalette((open) => !open);
    };
    addEventListener("keydown", down);
    return () => removeEventListener("keydown", down);
  }, []);
  useKeys({
    "?": () => setHelp(true),
    d: toggle,
    "/": () => {
      const field = document.querySelector<HTMLInputElement>("main [data-search]");
      if (field) field.focus();
      else go(to(["search"]));
    },
  });
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <a class="logo" href="#/" aria-label="umbra, all tasks">
          <svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
            <circle cx="12" cy="12" r="10" class="disc" />
            <circle cx="15.5" cy="9.5" r="8" class="shade" />
          </svg>
          <span>umbra</span>
        </a>
        <nav aria-label="Pages">
          <a href={to(["search"])}>
            <Icon name="search" /> <span>Search</span>
          </a>
          <a href="/docs">API</a>
        </nav>
        <span class="space" />
        <button type="button" class="plain keyed" onClick={() => setPalette(true)} aria-label="Ctrl K, go to" title="Go to a page, task or file (Ctrl-K)">
          <kbd aria-hidden="true">Ctrl K</kbd>
        </button>
        <button type="button" class="plain" onClick={toggle} aria-label={dark ? "Light theme" : "Dark theme"} title={dark ? "Light theme (d)" : "Dark theme (d)"}>
          <Icon name={dark ? "sun" : "moon"} />
        </button>
        <button type="button" class="plain" onClick={() => setHelp(true)} aria-label="Keys" title="Keys (?)">
          <b aria-hidden="true">?</b>
        </button>
      </header>
      <Gone />
      <main id="main" tabIndex={-1}>
        <Page />
      </main>
      {palette && (
        <Palette
          task={route.parts[0] === "tasks" ? (route.parts[1] ?? "") : ""}
          commands={[
            { name: "Tasks and workspaces", hint: "page", run: () => go(to([])) },
            { name: "Search", hint: "page", run: () => go(to(["search"])) },
            { name: "API", hint: "page", run: () => location.assign("/docs") },
            { name: dark ? "Light theme" : "Dark theme", hint: "d", run: toggle },
            { name: "Keys", hint: "?", run: () => setHelp(true) },
          ]}
          onClose={() => setPalette(false)}
        />
      )}
      {help && <Help onClose={() => setHelp(false)} />}
      <SignIn />
    </>
  );
}

render(<App />, document.getElementById("app")!);
