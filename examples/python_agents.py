"""Python: two agents in threads, with the backend for Deep Agents.

Deep Agents takes the backend as it is: create_deep_agent(backend=UmbraBackend(task)).
Here the agents' calls are made by hand, so that the example needs no package.
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import umbra
from umbra.deepagents import UmbraBackend

EDITS = {"alice": ("title: draft", "title: by alice"), "bob": ("footer: draft", "footer: by bob")}


def show(project: str) -> str:
    with open(os.path.join(project, "page.txt"), encoding="utf-8") as f:
        lines = [line for line in f.read().splitlines() if line]
    return "\n".join("  " + line for line in [*lines, "files: " + " ".join(sorted(os.listdir(project)))])


def main() -> None:
    project = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="umbra-example-")
    page = os.path.join(project, "page.txt")
    with open(page, "w", encoding="utf-8") as f:
        f.write("title: draft\n\nbody: draft\n\nfooter: draft\n")
    client = umbra.Client()
    task = client.tasks.create("two agents in Python", project)

    def agent(name: str) -> None:
        backend = UmbraBackend(task, subtask=name)
        old, now = EDITS[name]
        for done in (backend.edit("/page.txt", old, now), backend.write(f"/{name}.txt", "notes\n")):
            if done.error:
                raise RuntimeError(done.error)

    with ThreadPoolExecutor() as pool:
        list(pool.map(agent, EDITS))

    # A person edits the same file on disk.
    with open(page, encoding="utf-8") as f:
        text = f.read()
    with open(page, "w", encoding="utf-8") as f:
        f.write(text.replace("body: draft", "body: by a person"))

    print("Before:\n" + show(project))
    preview = task.revert(subtask="alice", dry_run=True)
    task.revert(subtask="alice", plan=preview["plan"])
    print("After alice was undone:\n" + show(project))
    task.complete()


if __name__ == "__main__":
    main()
