// What the keys do.

import { Dialog } from "./dialog";

const keys: [string[], string][] = [
  [["j", "↓"], "next change or file"],
  [["k", "↑"], "the one before it"],
  [["Ctrl-K"], "go to any page, task, workspace or file"],
  [["t"], "timeline of the task"],
  [["f"], "files of the task"],
  [["w"], "whole diff of the task, with a file tree"],
  [["o"], "overview of the task"],
  [["e"], "review of the task, hunk by hunk"],
  [["a", "x"], "review: accept, reject the hunk; with Shift, the file"],
  [["z", "v"], "review: clear the mark; show or hide a whole file"],
  [["s"], "review: split the hunk into its changes, or join them"],
  [["]", "["], "review: next file, the one before it"],
  [["c"], "review: apply the decisions, after a preview"],
  [["x", "c"], "forks: select, compare what is selected"],
  [["m", "n"], "forks: merge the fork, make one"],
  [["s"], "elsewhere: side by side or inline"],
  [["g"], "group by subtask, or in order of time"],
  [["b"], "who wrote each line of a whole file"],
  [["h"], "history of the shown file"],
  [["r"], "revert the shown change or file, after a preview"],
  [["/"], "search, or filter what is shown"],
  [["u"], "back to the list above"],
  [["d"], "dark or light"],
  [["?"], "this list"],
  [["Esc"], "close a dialog, leave a field"],
];

export function Help(p: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={p.onClose} class="narrow" reads>
      <dl class="keys" tabIndex={0} aria-label="Keys">
        {keys.map(([names, what]) => (
          <div key={what}>
            <dt>
              {names.map((k, i) => (
                <>
                  {i > 0 && " "}
                  <kbd>{k}</kbd>
                </>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
