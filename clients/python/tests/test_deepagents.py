"""Tests of the Deep Agents backend against the server at UMBRA_TEST_URL."""

import asyncio
import os
import tempfile
import unittest

import umbra
from umbra.deepagents import UmbraBackend, UmbraSandbox, subagent_of

client = umbra.Client(os.environ["UMBRA_TEST_URL"])


class Backend(unittest.TestCase):
    def setUp(self):
        self.task = client.tasks.create("test", kind="virtual")
        self.b = UmbraBackend(self.task)

    def test_methods(self):
        b = self.b
        self.assertIsNone(b.write("/a dir/ü.txt", "one\ntwo\nthree\n").error)
        b.write("/.hidden", "needle (x)\n")
        self.assertEqual([(e["path"], e["is_dir"]) for e in b.ls("/").entries], [("/.hidden", False), ("/a dir/", True)])
        self.assertEqual(b.ls("/none").entries, [])
        self.assertIn("not a directory", b.ls("/.hidden").error)
        r = b.read("/a dir/ü.txt", 1, 1)
        self.assertEqual((r.file_data, r.total_lines, r.start_line, r.end_line, r.next_offset), ({"content": "two\n", "encoding": "utf-8"}, 3, 2, 2, 2))
        self.assertEqual(b.read("/a dir/ü.txt", 9).file_data["content"], "")
        self.assertEqual(b.read("/none").error, "File '/none' not found")
        self.assertIn("Invalid path", b.read("/../x").error)
        self.assertEqual(b.edit("/a dir/ü.txt", "two", "2").occurrences, 1)
        self.assertIn("String not found in file", b.edit("/a dir/ü.txt", "nothing", "2").error)
        self.assertIn("appears multiple times (3)", b.edit("/a dir/ü.txt", "e", "x").error)
        self.assertEqual(b.edit("/a dir/ü.txt", "e", "x", True).occurrences, 3)
        self.assertEqual(b.grep("needle (x)").matches, [{"path": "/.hidden", "line": 1, "text": "needle (x)"}])
        self.assertEqual(b.grep("nowhere").matches, [])
        b.write("/src/a.ts", "x\nx\n")
        self.assertTrue(b.grep("x", "/src", "*.ts", max_count=1).truncated)
        self.assertEqual([m["path"] for m in b.glob("**/*.ts").matches], ["src/a.ts"])
        self.assertEqual([u.error for u in b.upload_files([("/u1", b"\x01\xff"), ("/../bad", b""), ("/src", b""), ("/u2", b"u2")])], [None, "invalid_path", "is_directory", None])
        self.assertEqual([d.error for d in b.download_files(["/u1", "/none", "/src", "/../x"])], [None, "file_not_found", "is_directory", "invalid_path"])
        self.assertEqual(b.read("/u1").file_data, {"content": "Af8=", "encoding": "base64"})
        self.assertEqual(b.delete("/src").path, "/src")
        self.assertEqual(b.delete("/src").error, "File '/src' not found")
        self.assertIn("too large", UmbraBackend(self.task, max_read_bytes=1).read("/u2").error)
        self.assertEqual(asyncio.run(b.aread("/u2")).file_data["content"], "u2")

    def test_stale_overwrite(self):
        a, b = UmbraBackend(self.task, subtask="a"), UmbraBackend(self.task, subtask="b")
        a.write("/f", "1\n")
        b.read("/f")
        a.write("/f", "2\n")
        self.assertIn("changed by subtask a", b.write("/f", "3\n").error)
        b.read("/f")
        b.upload_files([("/f", b"up\n")])  # renews what was read, as a write does
        self.assertIsNone(b.write("/f", "2\n").error)
        b.upload_files([("/f", b"up\n")])
        self.task.subtask("a").files.write("f", "2\n")
        self.assertIn("changed by subtask a", b.write("/f", "3\n").error)
        self.assertEqual(self.task.files.read("f"), b"2\n")
        self.assertEqual(b.edit("/f", "2", "4").occurrences, 1)
        self.assertIn("changed", b.write("/f", "5\n").error)
        b.read("/f")
        self.assertIsNone(b.write("/f", "5\n").error)
        self.assertIsNone(b.write("/f", "6\n").error)

    def test_sandbox(self):
        root = os.path.realpath(tempfile.mkdtemp(dir=os.environ["UMBRA_TEST_DIR"]))
        s = UmbraSandbox.create(client, workspace=root, initial_files={root + "/a.txt": "a\n"})
        self.assertEqual(s.read(root + "/a.txt").file_data["content"], "a\n")
        self.assertIn("Invalid path", s.read("/etc/passwd").error)
        self.assertEqual([m["path"] for m in s.grep("a").matches], [root + "/a.txt"])
        task = s.id
        s.close()
        self.assertFalse(s.is_running)
        self.assertEqual(client.task(task).get().status, "completed")

    def test_commands(self):
        root = os.path.realpath(tempfile.mkdtemp(dir=os.environ["UMBRA_TEST_DIR"]))
        for top, options in ((root, {"workspace": root}), ("", {"virtual": True})):
            s = UmbraSandbox.create(client, subtask="sh", **options)
            s.write(top + "/a.txt", "one\n")
            done = s.execute("cat a.txt; echo err >&2; echo two > a.txt; exit 3")
            self.assertEqual((sorted(done.output.split()), done.exit_code, done.truncated), (["err", "one"], 3, False))
            self.assertEqual([(e.operation, e.subtask_id) for e in s.task.changes()], [("create", "sh"), ("modify", "sh")])
            self.assertIsNone(s.write(top + "/a.txt", "three\n").error)
            self.assertIsNone(s.execute("sleep 60", timeout=1).exit_code)
            much = s.execute("yes | head -c 3000000")
            self.assertEqual((len(much.output), much.truncated), (1 << 20, True))
            self.assertEqual(asyncio.run(s.aexecute("true")).exit_code, 0)
            s.close()

    def test_whose_a_call_is(self):
        config = {"configurable": {"ls_agent_type": "subagent", "checkpoint_ns": "tools:0123ABCD-ef01|model:ffffffff"}, "metadata": {"lc_agent_name": "a b"}}
        self.assertEqual(subagent_of(config), "a-b.0123abcd")
        self.assertIsNone(subagent_of({"configurable": {}}))


if __name__ == "__main__":
    unittest.main()
