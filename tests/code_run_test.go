package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestExecute(t *testing.T) {
	c := startCoder(t, harness.Options{})
	// Programs may be there before the first save makes the folder a workspace.
	c.put(t, "early.ts", "console.log(1 as number)")
	if r := c.execute(t, obj{"codeId": "early"}); r.Result != 1.0 {
		t.Errorf("%+v", r)
	}
	c.save(t, "hello", "const message: string = 'Hello';\nconsole.log(JSON.stringify({ message }));")
	if r := c.execute(t, obj{"codeId": "hello", "timeout": 5000}); r.status != 200 || !reflect.DeepEqual(r.Result, obj{"message": "Hello"}) || r.Stdout != "{\"message\":\"Hello\"}\n" {
		t.Errorf("%+v", r)
	}
	for code, want := range map[string]any{
		"console.log('  text ')":         "text",
		"":                               nil,
		"1":                              nil,
		"console.log('[1,')":             "[1,",
		"console.log(1); console.log(2)": "1\n2",
		"console.log('null')":            nil,
		"console.error('only'); process.stdout.write('7')":  7.0,
		"console.log(Deno.args.join(), process.argv[2])":    "a,b a",
		"console.log(Deno.env.get('A_1'), process.env.A_1)": "x x",
		"```ts\nconsole.log(1)\n```":                        1.0,
	} {
		if code == "" {
			continue
		}
		if r := c.run(t, code, obj{"args": []string{"a", "b"}, "env": obj{"A_1": "x"}}); r.status != 200 || !reflect.DeepEqual(r.Result, want) {
			t.Errorf("%s: %+v", code, r)
		}
	}
	if r := c.run(t, "console.log(12345678901234567890)", nil); r.status != 200 {
		t.Errorf("%+v", r)
	}

	r := c.run(t, "interface A { a: number }\n\nfunction boom(): never {\n  throw new Error('bad');\n}\nconsole.log('before');\nboom();", nil)
	if r.status != 500 || r.Error.Type != "ExecutionError" || r.Error.Message != "Process exited with code 1" || r.Error.Details["exitCode"] != 1.0 ||
		r.Error.Details["stdout"] != "before\n" || !strings.Contains(fmt.Sprint(r.Error.Details["stderr"]), "Error: bad\n    at boom (main.ts:4:") {
		t.Errorf("%+v", r)
	}
	if r := c.run(t, "console.error('bye'); Deno.exit(7)", nil); r.status != 500 || r.Error.Message != "Process exited with code 7" || r.Error.Details["stderr"] != "bye\n" {
		t.Errorf("%+v", r)
	}
	if r := c.run(t, "console.log(3); process.exit(0)", nil); r.status != 200 || r.Result != 3.0 {
		t.Errorf("%+v", r)
	}
	for _, code := range []string{"while(true){}", "await new Promise(() => {})"} {
		r := c.run(t, code, obj{"timeout": 300})
		if r.status != 408 || r.Error.Type != "TimeoutError" || r.Error.Message != "Code execution timed out after 300ms" || r.Error.Details["timeout"] != 300.0 {
			t.Errorf("%+v", r)
		}
	}
	c.save(t, "broken", "\nconst a = ;")
	if r := c.execute(t, obj{"codeId": "broken"}); r.status != 500 || r.Error.Type != "ExecutionError" || !strings.Contains(r.Error.Message, "broken.ts:2:11") {
		t.Errorf("%+v", r)
	}
	c.save(t, "lost", "\nimport { a } from './nowhere.ts';\nconsole.log(a)")
	if r := c.execute(t, obj{"codeId": "lost"}); r.status != 500 || !strings.Contains(r.Error.Message, "lost.ts:2:19") {
		t.Errorf("%+v", r)
	}
	c.refuse(t, "POST", "/execute", obj{"codeId": "nowhere"}, 404, "FileNotFoundError", "Code file not found: nowhere")
	if r := c.run(t, "for (;;) console.log('x'.repeat(9999))", obj{"timeout": 60000}); r.status != 500 || !strings.Contains(r.Error.Message, "Output limit") {
		t.Errorf("%d %s", r.status, r.Error.Message)
	}
	if r := c.run(t, "const a = []; for (;;) a.push(new Uint8Array(1e6))", obj{"timeout": 60000}); r.status != 500 || !strings.Contains(r.Error.Message, "Memory limit") {
		t.Errorf("%d %s", r.status, r.Error.Message)
	}

	long := strings.Repeat("x", 1001)
	many, wide := obj{}, obj{}
	for i := range 51 {
		many[fmt.Sprintf("K%d", i)] = ""
	}
	for i := range 11 {
		wide[fmt.Sprintf("K%d", i)] = strings.Repeat("x", 1000)
	}
	for _, body := range []any{
		obj{}, obj{"code": "1", "codeId": "a"}, obj{"code": "1", "timeout": 0}, obj{"code": "1", "timeout": 300001}, obj{"code": "1", "timeout": "5"},
		obj{"code": "1", "timeout": 1.5}, obj{"code": 1}, obj{"codeId": 1}, obj{"codeId": "../x"}, obj{"code": " "},
		obj{"code": "1", "env": 1}, obj{"code": "1", "env": obj{"a": "x"}}, obj{"code": "1", "env": obj{"A": 1}}, obj{"code": "1", "env": obj{"A": long}},
		obj{"code": "1", "env": obj{"PATH": "x"}}, obj{"code": "1", "env": obj{"DENO_X": "x"}}, obj{"code": "1", "env": obj{"NODE_OPTIONS": "x"}},
		obj{"code": "1", "env": obj{"UMBRA_X": "x"}}, obj{"code": "1", "env": many}, obj{"code": "1", "env": wide},
		obj{"code": "1", "args": "x"}, obj{"code": "1", "args": []any{1}},
	} {
		c.refuse(t, "POST", "/execute", body, 400, "ValidationError", "")
	}
	c.refuse(t, "POST", "/execute", "{", 400, "ValidationError", "Invalid JSON in request body", "Content-Type: application/json")
	if n := c.Do("GET", "/health", nil).Expect(200).Field("activeProcesses"); n != 0.0 {
		t.Errorf("%v programs still run", n)
	}
}

// A program reads inside the workspace and nowhere else, by whatever way.
func TestExecuteStaysInside(t *testing.T) {
	c := startCoder(t, harness.Options{})
	secret := filepath.Join(t.TempDir(), "secret.ts")
	if err := os.WriteFile(secret, []byte("export const s = 'SECRET'; console.log('SECRET')"), 0o666); err != nil {
		t.Fatal(err)
	}
	c.save(t, "lib", "export const x: number = 41")
	c.put(t, "data/d.json", `{"a":1}`)
	c.put(t, "import_map.json", `{"imports":{"lib":"./lib.ts","out":"../secret.ts","abs":"`+secret+`","url":"file://`+secret+`","dir/":"./data/","up/":"./data/../../","linked":"./link.ts"}}`)
	for link, target := range map[string]string{"link.ts": secret, "passwd": "/etc/passwd", "up": "..", "inside.ts": "lib.ts"} {
		need.NoError(t, os.Symlink(target, filepath.Join(c.dir, link)))
	}
	for _, x := range []struct{ code, want string }{
		{"import { x } from './lib.ts'; console.log(x)", "41"},
		{"import { x } from './lib'; console.log(x)", "41"},
		{"import { x } from 'lib'; console.log(x)", "41"},
		{"import { x } from './inside.ts'; console.log(x)", "41"},
		{"import d from 'dir/d.json'; console.log(d.a)", "1"},
		{"console.log(JSON.parse(await Deno.readTextFile('data/d.json')).a)", "1"},
		{"console.log(JSON.parse(await Deno.readTextFile('" + c.dir + "/data/d.json')).a)", "1"},
		{"import { readFile } from 'node:fs/promises'; console.log((await readFile('./data/d.json', 'utf8')).length)", "7"},
	} {
		if r := c.run(t, x.code, nil); r.status != 200 || strings.TrimSpace(r.Stdout) != x.want {
			t.Errorf("%s: %+v", x.code, r)
		}
	}
	for _, code := range []string{
		"import './link.ts'", "import '" + secret + "'", "import 'file://" + secret + "'", "import '../secret.ts'", "import 'out'", "import 'abs'", "import 'url'",
		"import 'up/secret.ts'", "import 'linked'", "import './up/secret.ts'", "await import('./li' + 'nk.ts')",
		"console.log(await Deno.readTextFile('/etc/passwd'))", "console.log(await Deno.readTextFile('passwd'))", "console.log(await Deno.readTextFile('up/../../etc/passwd'))",
		"console.log(await Deno.readTextFile('" + secret + "'))", "console.log(await Deno.readTextFile('link.ts'))", "console.log(Deno.readTextFileSync('/proc/self/environ'))",
		"import fs from 'node:fs'; console.log(fs.readFileSync('/etc/passwd', 'utf8'))", "import 'node:child_process'", "import 'node:net'", "await fetch('http://127.0.0.1')",
		"new Deno.Command('sh')", "await Deno.writeTextFile('x', 'y')", "import fs from 'node:fs/promises'; await fs.writeFile('x', 'y')", "import 'https://example.org/x.ts'",
		"console.log(await Deno.readTextFile('.git/config'))",
	} {
		r := c.run(t, code, nil)
		text := fmt.Sprintf("%+v", r)
		if r.status != 500 || r.Error.Type != "ExecutionError" || strings.Contains(text, "SECRET'") || strings.Contains(text, "root:") {
			t.Errorf("%s: %s", code, text)
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "x")); !os.IsNotExist(err) {
		t.Error("a program wrote a file")
	}
}

func TestExecuteSavesFiles(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	c := startCoder(t, harness.Options{Args: []string{"--output-dir", out}})
	r := c.Do("POST", "/execute", obj{"code": "console.log(file.save('a/b.txt', 'hello')); try { file.save('../x', '') } catch (e) { console.error(e instanceof Error, e.message) }"}).Expect(200)
	files := r.Field("files_written").([]any)
	if len(files) != 1 || files[0].(obj)["name"] != "a/b.txt" || files[0].(obj)["bytes"] != 5.0 || files[0].(obj)["commit"] == nil || r.Text("result") != filepath.Join(out, "a/b.txt") {
		t.Errorf("%s", r.Body)
	}
	if !strings.Contains(r.Text("stderr"), "true filename cannot contain '..' path traversal") {
		t.Errorf("%s", r.Body)
	}
	bad := c.run(t, "file.save('c', '1'); throw 1", nil)
	if list, ok := bad.Error.Details["files_written"].([]any); !ok || len(list) != 1 {
		t.Errorf("%+v", bad)
	}
}

func TestExecuteTwentyAtOnce(t *testing.T) {
	c := startCoder(t, harness.Options{})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			code := fmt.Sprintf("await new Promise(r => setTimeout(r, 200)); console.log(%d)", i)
			if i%5 == 4 {
				code = "for (;;) {}"
			}
			status, body := c.post(t, obj{"code": code, "timeout": 4000})
			if i%5 == 4 && status != 408 || i%5 != 4 && (status != 200 || !strings.Contains(body, fmt.Sprintf(`"result":%d,`, i))) {
				t.Errorf("%d: %d %s", i, status, body)
			}
		})
	}
	all.Wait()
	c.idle(t)
}

// post runs a program outside of the document's check, from any goroutine.
func (c *coder) post(t *testing.T, body obj) (int, string) {
	raw, err := json.Marshal(body)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	res, err := c.Client.Post(c.URL+"/execute", "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(data)
}

// idle holds that no program runs any more.
func (c *coder) idle(t *testing.T) {
	t.Helper()
	if n := c.Do("GET", "/health", nil).Expect(200).Field("activeProcesses"); n != 0.0 {
		t.Errorf("%v programs still run", n)
	}
}

// A hundred (in a soak a thousand) programs in a row leave nothing behind.
func TestExecuteManyInARow(t *testing.T) {
	c := startCoder(t, harness.Options{})
	n := 100
	if soaking() {
		n = 1000
	}
	round := func(count int) {
		for i := range count {
			code := "console.log('Hello')"
			if i%25 == 24 {
				code = "throw new Error('x')"
			}
			if status, body := c.post(t, obj{"code": code}); status != 200 && i%25 != 24 {
				t.Fatalf("%d: %d %s", i, status, body)
			}
		}
	}
	round(20)
	files, memory := c.files(t), c.memory(t)
	start := time.Now()
	round(n)
	t.Logf("%d programs, %v each", n, time.Since(start)/time.Duration(n))
	c.idle(t)
	// The children that wait are at most four, and one may be ending.
	until := time.Now().Add(10 * time.Second)
	for len(c.children(t)) > 5 && time.Now().Before(until) {
		c.Do("GET", "/healthz", nil)
	}
	if left := c.children(t); len(left) > 5 {
		t.Errorf("processes: %v", left)
	}
	// A leak grows with the number of programs; a few pipes of children that
	// wait, and what is being closed, do not.
	slack := 8 + n/4
	for c.files(t) > files+slack && time.Now().Before(until) {
		c.Do("GET", "/healthz", nil)
	}
	if after := c.files(t); after > files+slack {
		t.Errorf("%d files are open, %d were", after, files)
	}
	if after := c.memory(t); after > memory+64<<20 {
		t.Errorf("%d bytes, %d were", after, memory)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "*")); len(left) != 0 {
		t.Errorf("files: %v", left)
	}
}

func (c *coder) children(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.PID()))
	need.NoError(t, err)
	var out []string
	for _, file := range tasks {
		if data, err := os.ReadFile(file); err == nil {
			out = append(out, strings.Fields(string(data))...)
		}
	}
	return out
}

func (c *coder) files(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.PID()))
	need.NoError(t, err)
	return len(list)
}

func (c *coder) memory(t *testing.T) int {
	t.Helper()
	return int(c.Do("GET", "/health", nil).Expect(200).Field("memoryUsage.heapUsed").(float64))
}

// A stop ends what runs after eight seconds, and answers it 503; a client that
// goes away ends its program.
func TestExecuteEnds(t *testing.T) {
	c := startCoder(t, harness.Options{})
	req, err := http.NewRequest("POST", c.URL+"/execute", strings.NewReader(`{"code":"for(;;);","timeout":60000}`))
	need.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: 500 * time.Millisecond}
	if res, err := client.Do(req); err == nil {
		res.Body.Close()
		t.Errorf("an answer: %s", res.Status)
	}
	until := time.Now().Add(10 * time.Second)
	for c.Do("GET", "/health", nil).Field("activeProcesses") != 0.0 {
		if time.Now().After(until) {
			t.Fatal("the program of a client that is gone still runs")
		}
	}
	answered := make(chan int, 1)
	go func() {
		status, _ := c.post(t, obj{"code": "for(;;);", "timeout": 60000})
		answered <- status
	}()
	for c.Do("GET", "/health", nil).Field("activeProcesses") != 1.0 {
	}
	kids := c.children(t)
	c.Stop()
	if status := <-answered; status != 503 {
		t.Errorf("status %d", status)
	}
	for _, pid := range kids {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is left", pid)
		}
	}
}

func TestLint(t *testing.T) {
	c := startCoder(t, harness.Options{})
	c.save(t, "good", "const a: number = 1;\nconsole.log(a);")
	r := c.Do("POST", "/lint", obj{"codeId": "good"}).Expect(200)
	if len(r.Field("result.diagnostics").([]any)) != 0 || r.Field("result.version") != 1.0 || !reflect.DeepEqual(r.Field("result.checkedFiles"), []any{"good.ts"}) {
		t.Errorf("%s", r.Body)
	}
	r = c.Do("POST", "/lint", obj{"code": "const a = 1;\nlet b: string = ;"}).Expect(200)
	list := r.Field("result.diagnostics").([]any)
	if len(list) != 1 {
		t.Fatalf("%s", r.Body)
	}
	d := list[0].(obj)
	if d["severity"] != "error" || d["filename"] != "main.ts" || d["code"] == "" || !reflect.DeepEqual(d["range"].(obj)["start"], obj{"line": 2.0, "col": 16.0}) {
		t.Errorf("%v", d)
	}
	r = c.Do("POST", "/lint", obj{"code": "if (Math.random() === NaN) {}"}).Expect(200)
	if list := r.Field("result.diagnostics").([]any); len(list) != 1 || list[0].(obj)["severity"] != "warning" {
		t.Errorf("%s", r.Body)
	}
	c.refuse(t, "POST", "/lint", obj{}, 400, "ValidationError", "")
	c.refuse(t, "POST", "/lint", obj{"code": "1", "codeId": "a"}, 400, "ValidationError", "")
	c.refuse(t, "POST", "/lint", obj{"codeId": "nope"}, 404, "FileNotFoundError", "Code file not found: nope")
	// What is nested beyond measure ends its own process alone.
	c.Do("POST", "/lint", obj{"code": strings.Repeat("[", 1<<20), "timeout": 20000}).Expect(200)
	c.idle(t)
}

func TestCodeRateLimits(t *testing.T) {
	c := startCoder(t, harness.Options{Config: "limits:\n  rate:\n    per_code_id: 3\n"})
	for i := range 3 {
		c.save(t, "a", fmt.Sprint(i))
	}
	r := c.Do("PUT", "/workspace", obj{"codeId": "a", "code": "4"})
	if r.Status != 429 || r.Text("error.type") != "RateLimitError" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	c.save(t, "b", "1")
}
