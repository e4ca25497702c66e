"""Tests against the server at UMBRA_TEST_URL."""

import asyncio
import http.server
import os
import random
import socket
import socketserver
import tempfile
import threading
import time
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import umbra

URL = os.environ["UMBRA_TEST_URL"]
client = umbra.Client(URL)


def new_task(c=client):
    return c.tasks.create("test", tempfile.mkdtemp(dir=os.environ["UMBRA_TEST_DIR"]))


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


def serve(test, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return f"http://127.0.0.1:{server.server_address[1]}"


def proxy(test, mischief):
    class Proxy(Quiet):
        def go(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            what = mischief(self)
            if what == "drop request":
                return self.drop()
            for _ in range(2 if what == "double" else 1):
                head = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "content-length")}
                req = urllib.request.Request(URL + self.path, data=body or None, headers=head, method=self.command)
                try:
                    res = urllib.request.urlopen(req)
                except urllib.error.HTTPError as err:
                    res = err
                data, status, headers = res.read(), res.status, res.headers
            if what == "drop answer":
                return self.drop()
            if what == "busy":
                status, headers, data = 503, {"Retry-After": "0"}, b"{}"
            self.send_response(status)
            for k, v in headers.items():
                if k.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(k, v)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if what == "cut answer":
                self.wfile.write(data[: len(data) // 2])
                return self.drop()
            self.wfile.write(data)

        def drop(self):
            self.close_connection = True
            self.connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = go

    return serve(test, Proxy)


class Files(unittest.TestCase):
    def test_files(self):
        k = new_task()
        made = k.files.write("d/a b.txt", "one\ntwo\n")
        self.assertEqual(made.operation, "create")
        self.assertEqual(k.files.read("d/a b.txt"), b"one\ntwo\n")
        self.assertEqual(k.files.read_text("d/a b.txt", offset=1), {"text": "two\n", "total_lines": 2, "next_offset": None, "etag": made.etag})
        self.assertEqual(k.files.edit("d/a b.txt", "two", "2").extra["occurrences"], 1)
        k.files.append("d/a b.txt", b"three\n")
        k.files.copy("d/a b.txt", "é%.txt")
        k.files.move("é%.txt", "b.txt")
        k.files.mkdir("empty")
        self.assertEqual([e.path for e in k.files.list(recursive=True, limit=2)], ["b.txt", "d", "d/a b.txt", "empty"])
        self.assertEqual(k.files.stat("b.txt").type, "file")
        self.assertEqual(len(k.files.search("three", literal=True)[0]), 2)
        self.assertEqual([e.path for e in k.files.glob("**/*.txt")[0]], ["b.txt", "d/a b.txt"])
        with self.assertRaises(umbra.UmbraError) as e:
            k.files.write("b.txt", "x", if_none_match="*")
        self.assertEqual((e.exception.code, e.exception.status), ("precondition_failed", 412))
        with self.assertRaises(umbra.UmbraError) as e:
            k.files.read("none")
        self.assertEqual((e.exception.code, e.exception.task_id), ("file_not_found", k.id))
        self.assertTrue(e.exception.request_id)
        with self.assertRaises(umbra.UmbraError) as e:
            k.files.read("b.txt", max_bytes=2)
        self.assertEqual(e.exception.code, "too_large")
        k.files.write("empty-file", b"")
        for change in (k.files.write, k.files.append):
            with self.assertRaises(TypeError):
                change("b.txt", None)
        self.assertNotEqual(k.files.read("b.txt"), b"")
        self.assertEqual(k.files.read("empty-file"), b"")

    def test_undo_one_subtask(self):
        k = new_task()
        k.subtask("a").as_actor("ann").files.write("a", "a")
        k.subtask("b").files.write("b", "b")
        plan = k.revert(subtask="a", dry_run=True)
        self.assertEqual(k.revert(subtask="a", plan=plan["plan"])["entries_reverted"], 1)
        self.assertEqual(k.summary().created, ["b"])
        self.assertIn("+b", k.diff())
        self.assertEqual([e.actor for e in k.changes(subtask_id="a")], ["ann"])

    def test_nothing_lost_nothing_twice(self):
        rand = random.Random(7)
        kinds = ["drop request", "drop answer", "double", "busy", "cut answer"]
        lock = threading.Lock()

        def mischief(_):
            with lock:
                return rand.choice(kinds) if rand.random() < 0.3 else "pass"

        k = new_task(umbra.Client(proxy(self, mischief), retries=12))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: k.files.append(f"log-{i % 4}", f"line {i}\n"), range(80)))
        direct = client.task(k.id)
        lines = []
        for e in direct.files.list():
            lines += direct.files.read(e.path).decode().splitlines()
        self.assertEqual(sorted(lines), sorted(f"line {i}" for i in range(80)))
        self.assertEqual(len(list(direct.changes())), 80)

    def test_a_download_goes_on(self):
        k = new_task()
        data = b"0123456789" * 50_000
        k.files.write("big", data)
        cuts = iter(range(3))

        def mischief(request):
            return "cut answer" if "/content" in request.path and next(cuts, None) is not None else "pass"

        self.assertEqual(umbra.Client(proxy(self, mischief)).task(k.id).files.read("big"), data)

    def test_events(self):
        k = new_task()
        seen = []
        reader = threading.Thread(target=lambda: seen.extend(k.events(after=0)))
        reader.start()
        for i in range(10):
            k.files.write(f"f{i}", "x")
        k.complete()
        reader.join(60)
        self.assertFalse(reader.is_alive())
        self.assertEqual([e["data"]["entries"][0]["path"] for e in seen if e["event"] == "change"], [f"f{i}" for i in range(10)])

    def test_toolset_and_session(self):
        root = tempfile.mkdtemp(dir=os.environ["UMBRA_TEST_DIR"])
        tools = client.toolsets.create([{"prefix": "/p", "scope": "READ_WRITE", "store": {"type": "physical", "root": root}}])
        self.assertEqual(tools.call("write_file", {"path": "/p/f", "content": "x"})["status"], "success")
        self.assertIn("/p [READ_WRITE]", tools.turn()["map"])
        session = client.sessions.create(root)
        self.assertEqual(session.fs("GET", "read", query={"path": "f"})["content"], "x")
        session.delete()
        tools.delete()


class Hostile(unittest.TestCase):
    def test_answers(self):
        class Bad(Quiet):
            def do_GET(self):
                status, body = {"/tasks/html": (200, b"<html>"), "/tasks/error": (418, b"<html>"), "/tasks/odd": (400, b'{"error":{"type":"ValidationError","message":"no"}}'),
                                "/tasks/array": (404, b"[1]"), "/api/sessions/x": (404, b'{"error":"Session not found"}')}[self.path]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        bad = umbra.Client(serve(self, Bad), retries=0, token="secret")
        for path, code in (("/tasks/html", "bad_response"), ("/tasks/error", "bad_request"), ("/tasks/odd", "validation_error"), ("/tasks/array", "not_found"), ("/api/sessions/x", "not_found")):
            with self.assertRaises(umbra.UmbraError) as e:
                bad.request("GET", path)
            self.assertEqual(e.exception.code, code)
            self.assertNotIn("secret", str(e.exception))
        with self.assertRaises(umbra.UmbraError) as e:
            umbra.Client("http://127.0.0.1:1", retries=0).request("GET", "/health")
        self.assertEqual((e.exception.code, e.exception.status), ("network", 0))


    def test_endless_and_slow_bodies(self):
        class Bad(Quiet):
            def do_GET(self):
                self.send_response(500 if self.path == "/tasks/endless" else 200)
                if self.path == "/tasks/large":
                    self.send_header("Content-Length", str(1 << 40))
                self.end_headers()
                try:
                    if self.path == "/tasks/slow":
                        self.wfile.write(b"{")
                        self.connection.recv(1)
                    while self.path != "/tasks/slow":
                        self.wfile.write(b"x" * (1 << 16))
                except OSError:
                    pass
                self.close_connection = True

        bad = umbra.Client(serve(self, Bad), retries=0, timeout=2)
        for path, code in (("/tasks/endless", "internal_error"), ("/tasks/slow", "network")):
            with self.assertRaises(umbra.UmbraError) as e:
                bad.request("GET", path)
            self.assertEqual(e.exception.code, code)
        with self.assertRaises(umbra.UmbraError) as e:
            bad.request("GET", "/tasks/large")
        self.assertIn(e.exception.code, ("network", "response_too_large"))

    def test_a_token_that_no_header_can_carry_is_in_no_error(self):
        for token in ("sk-SEC\nRET", "sk-SECRET\u201c"):
            with self.assertRaises(umbra.UmbraError) as caught:
                umbra.Client("http://127.0.0.1:1", token, retries=0).task("x").get()
            self.assertEqual(caught.exception.code, "bad_token")
            self.assertNotIn("SEC", str(caught.exception))

    def test_a_file_without_a_length_is_read_whole(self):
        class Chunked(Quiet):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"5\r\nhello\r\n0\r\n\r\n")

        self.assertEqual(umbra.Client(serve(self, Chunked)).task("x").files.read("a"), b"hello")

    def test_odd_headers_and_deep_bodies_are_typed_errors(self):
        class Odd(Quiet):
            def do_GET(self):
                body = b"[" * 200_000
                self.send_response(int(self.path.rpartition("/")[2]))
                self.send_header("Retry-After", "\u00b2")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        c = umbra.Client(serve(self, Odd), retries=0)
        for status, code in ((200, "bad_response"), (400, "bad_request"), (503, "unavailable")):
            with self.assertRaises(umbra.UmbraError) as caught:
                c.request("GET", f"/{status}")
            self.assertEqual(caught.exception.code, code)

    def test_connections_are_kept_and_all_dropped_after_a_restart(self):
        sockets, together = [], threading.Barrier(8)

        class Kept(Quiet):
            def setup(self):
                sockets.append(self.request)
                super().setup()

            def do_GET(self):
                if self.path == "/together":
                    together.wait(30)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        c = umbra.Client(serve(self, Kept))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: c.request("GET", "/together"), range(8)))
        for _ in range(5):
            c.request("GET", "/x")
        self.assertEqual(len(sockets), 8)
        for s in sockets:
            s.shutdown(socket.SHUT_RDWR)
        self.assertEqual(c.request("GET", "/x"), {})  # more of them were stale than there are retries

    def test_a_unix_socket_and_the_newest_number(self):
        seen = []

        class Local(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def go(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                seen.append((self.command, self.path, self.headers.get("Umbra-Min-Seq")))
                body = b'{"task_id":"a","workspace_id":"w","entries":[]}' if self.path == "/tasks/a" else b"{}"
                self.send_response(200)
                if self.command == "PUT":
                    self.send_header("Umbra-Seq", "42")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = go

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

            def get_request(self):
                return super().get_request()[0], ("local", 0)

        with tempfile.TemporaryDirectory() as at:
            server = Server(os.path.join(at, "s"), Local)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
            with umbra.Client(f"unix:{at}/s", follower_reads=True) as c:
                c.request("GET", "/tasks/a")
                c.task("a").files.write("f", "x")
                c.request("GET", "/workspaces/w/log")
                c.request("GET", "/tasks/b")
        self.assertEqual(seen, [("GET", "/tasks/a", None), ("PUT", "/tasks/a/content?path=f", None), ("GET", "/workspaces/w/log", "42"), ("GET", "/tasks/b", None)])


class Async(unittest.TestCase):
    def test_same_objects(self):
        async def main():
            async with umbra.AsyncClient(URL) as c:
                k = await c.tasks.create("test", kind="virtual")
                await asyncio.gather(*(k.subtask(f"s{i}").files.write(f"f{i}", "x") for i in range(8)))
                self.assertEqual([e.path async for e in k.files.list()], [f"f{i}" for i in range(8)])
                with self.assertRaises(umbra.UmbraError):
                    await k.files.read("none")

        asyncio.run(main())

    def test_cancelled_events_end_their_thread(self):
        asked, closed = [], threading.Event()

        class Events(Quiet):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b"id: 9\nevent: change\ndata: {}\n\n")
                self.wfile.flush()
                self.connection.recv(1)
                closed.set()

        async def main():
            c = umbra.AsyncClient(serve(self, Events))
            first = asyncio.Event()

            async def follow():
                async for _ in c.task("x").events(after=5):
                    first.set()

            following = asyncio.create_task(follow())
            await first.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        asyncio.run(main())  # waits for the threads
        self.assertTrue(closed.wait(30))
        self.assertEqual(len(asked), 1)

    def test_a_cancelled_call_closes_its_connection(self):
        arrived, closed = threading.Event(), threading.Event()

        class Slow(Quiet):
            def do_GET(self):
                arrived.set()
                if self.connection.recv(1) == b"":
                    closed.set()
                self.close_connection = True

        url = serve(self, Slow)

        async def main():
            call = asyncio.ensure_future(umbra.AsyncClient(url).request("GET", "/health"))
            await asyncio.get_running_loop().run_in_executor(None, arrived.wait, 30)
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call

        asyncio.run(main())
        self.assertTrue(closed.wait(30))


class Commands(unittest.TestCase):
    def test_a_command(self):
        k = new_task()
        done = k.subtask("sh").exec("cat; echo x > made; exit 4", stdin="in")
        self.assertEqual((done["exit_code"], done["stdout"], [e["path"] for e in done["entries"]]), (4, "in", ["made"]))
        events = list(k.exec_stream(["sh", "-c", "echo out; echo err >&2"]))
        self.assertEqual(sorted((e["event"], e.get("text")) for e in events[:-1]), [("stderr", "err\n"), ("stdout", "out\n")])
        self.assertEqual((events[-1]["event"], events[-1]["result"]["exit_code"]), ("end", 0))

    def test_a_cancelled_command_ends(self):
        mark = os.path.join(tempfile.mkdtemp(dir=os.environ["UMBRA_TEST_DIR"]), "pid")

        async def main():
            async with umbra.AsyncClient(URL) as c:
                k = await c.tasks.create("test", kind="virtual")

                async def run():
                    async for e in k.exec_stream(f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 7301.5"):
                        pass

                call = asyncio.ensure_future(run())
                while not os.path.exists(mark):
                    await asyncio.sleep(0.02)
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call

        asyncio.run(main())
        with open(mark, encoding="utf-8") as f:
            pid = int(f.read())
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.02)


class ReviewTest(unittest.TestCase):
    def test_hunks_blame_and_checkpoints(self):
        k = client.tasks.create("review", kind="virtual")
        k.subtask("s").files.write("a.txt", "one\n")
        w = client.workspaces.get(k.get().workspace_id)
        w.checkpoint("before", "as it was")
        self.assertEqual([c["name"] for c in w.checkpoints()], ["before"])
        (hunk,) = k.hunks(path="a.txt")
        self.assertEqual((hunk["subtasks"], hunk["status"]), (["s"], "open"))
        k.review(reject=[hunk["id"]])
        self.assertEqual([e.path for e in k.files.list()], [])
        w.restore("before", plan=w.restore("before", dry_run=True)["plan"])
        self.assertEqual(k.files.read("a.txt"), b"one\n")
        self.assertEqual([(r["start"], r["end"]) for r in w.blame("a.txt")["ranges"]], [(1, 1)])
        w.delete_checkpoint("before")


class ForksTest(unittest.TestCase):
    def test_forks_are_made_listed_compared_and_deleted(self):
        owner = client.tasks.create("forks", kind="virtual", namespace=["forks-py"])
        owner.files.write("a.txt", "a")
        parent = owner.get().workspace_id
        fork = client.forks.create(parent, name="try")["forks"][0]
        self.assertEqual([f["id"] for f in client.forks.list(parent)], [fork["id"]])
        self.assertEqual(client.forks.get(fork["id"])["fork_of"], parent)
        self.assertIsInstance(client.forks.compare(fork["id"]), dict)
        client.forks.delete(fork["id"])
        with self.assertRaises(umbra.UmbraError) as gone:
            client.forks.get(fork["id"])
        self.assertEqual(gone.exception.status, 404)


class CallsTest(unittest.TestCase):
    def test_a_call_brackets_what_is_done_on_disk(self):
        root = tempfile.mkdtemp(dir=os.environ["UMBRA_TEST_DIR"])
        task = client.tasks.create("calls", root)
        with task.subtask("s1").call(tool="codegen") as call:
            with open(os.path.join(root, "made.txt"), "w") as f:
                f.write("made\n")
        self.assertEqual(client.calls.get(call["call_id"])["status"], "ok")
        entry = next(iter(task.changes()))
        self.assertEqual((entry.path, entry.subtask_id, entry.source, entry.call_id), ("made.txt", "s1", "call", call["call_id"]))
        with self.assertRaisesRegex(ValueError, "mine"):
            with task.call(paths=["x.txt"]) as failed:
                raise ValueError("mine")
        self.assertEqual(client.calls.get(failed["call_id"])["status"], "failed")
        self.assertEqual(len(list(client.calls.list(task_id=task.id))), 2)
        begun = client.calls.create(agent="x", agent_session="y", workspace_id=task.get().workspace_id)
        client.calls.touch(begun["call_id"])
        self.assertEqual([c["call_id"] for c in client.calls.list(workspace_id=task.get().workspace_id, open=True)], [begun["call_id"]])
        self.assertEqual(client.calls.end(begun["call_id"])["task_id"], begun["task_id"])
        with self.assertRaises(umbra.UmbraError) as caught:
            client.calls.touch(begun["call_id"])
        self.assertEqual((caught.exception.code, caught.exception.status), ("call_ended", 409))
        for empty in ({"subtask": None}, {"path": ""}, {"change": None}):
            with self.assertRaises(TypeError):
                task.revert(**empty)
        self.assertEqual(task.revert(call=call["call_id"])["entries_reverted"], 1)
        self.assertFalse(os.path.exists(os.path.join(root, "made.txt")))


if __name__ == "__main__":
    unittest.main()
