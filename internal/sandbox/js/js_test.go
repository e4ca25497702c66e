package js

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/need"
)

func TestPrograms(t *testing.T) {
	p := newPool(t, Options{Files: folder{
		"lib.ts":          "export const x: number = 41;\nexport function boom(): never {\n  throw new Error('lib');\n}\n",
		"sub/m.ts":        "export default import.meta.url + import.meta.main",
		"d.json":          `{"a":1}`,
		"import_map.json": `{"imports":{"lib":"./lib.ts","sub/":"./sub/","out":"../x.ts","/abs":"/etc/passwd","net":"https://example.org/x.ts"}}`,
	}})
	for _, x := range []struct{ code, out, err string }{
		{`console.log("hi", {a:1,b:[1,2,{c:{d:{e:1}}}]}, new Map([["k",1]]), new Set(['a']), null, undefined, -0, 1n)`,
			"hi { a: 1, b: [ 1, 2, { c: [Object] } ] } Map(1) { 'k' => 1 } Set(1) { 'a' } null undefined -0 1n\n", ""},
		{"import {x} from './lib.ts'; import d from './d.json'; const y: number = x + 1;\nconsole.log(y, d)", "42 { a: 1 }\n", ""},
		{"import {x} from 'lib'; import m from 'sub/m.ts'; console.log(x, m)", "41 file:///workspace/sub/m.tsfalse\n", ""},
		{"console.log((await import('./lib.ts')).x)", "41\n", ""},
		{"import {boom} from './lib';\ninterface A { a: string }\n\nfunction go(a: A) { boom() }\ngo({a: 'x'})", "", "lib.ts:3:"},
		{"const x: number = ;", "", "main.ts:1:19: "},
		{"\n\nimport './nope.ts'", "", `main.ts:3:8: Module "./nope.ts" was not found`},
		{"import 'out'", "", "outside of the workspace"},
		{"import '/abs'", "", "outside of the workspace"},
		{"import '../../etc/passwd'", "", "outside of the workspace"},
		{"import 'net'", "", "no network"},
		{"import 'npm:left-pad'", "", "no network"},
		{"Promise.reject(new TypeError('unhandled'))", "", "TypeError: unhandled"},
		{"(async () => { throw new RangeError('async') })()", "", "RangeError: async"},
		{"const p = Promise.reject(1); p.catch(() => {}); console.log('ok')", "ok\n", ""},
		{"await new Promise(r => setTimeout(r, 10)); console.log('later'); setTimeout(() => console.log('t'), 5)", "later\nt\n", ""},
		{"let n = 0; const i = setInterval(() => { if (++n === 3) { clearInterval(i); console.log(n) } }, 1)", "3\n", ""},
		{"setTimeout(() => { throw new Error('timer') }, 1)", "", "Error: timer"},
		{"import fs from 'node:fs/promises'; console.log(await fs.readFile('d.json', 'utf8'), await Deno.readTextFile('/workspace/d.json'))", "{\"a\":1} {\"a\":1}\n", ""},
		{"try { await Deno.readTextFile('nope') } catch (e) { console.log(e instanceof Deno.errors.NotFound) }", "true\n", ""},
		{"import fs from 'node:fs/promises'; try { await fs.readFile('nope') } catch (e) { console.log(e.code) }", "ENOENT\n", ""},
		{"await Deno.readTextFile('/etc/passwd')", "", "NotCapable"},
		{"await Deno.readTextFile('../../etc/passwd')", "", "NotCapable"},
		{"await Deno.writeTextFile('x', 'y')", "", "NotCapable"},
		{"console.log(typeof fetch, typeof std, typeof os, typeof file)", "undefined undefined undefined undefined\n", ""},
		{"console.log(new URL('../x?q=1#f', 'https://u:p@Example.com:8080/a/b/c').href, structuredClone({a: new Date(0)}), new TextDecoder().decode(new TextEncoder().encode('h\\u00e9\\u{1F600}')))",
			"https://u:p@example.com:8080/a/x?q=1#f { a: 1970-01-01T00:00:00.000Z } h\u00e9\U0001F600\n", ""},
		{"class A { #x = 1; get x() { return this.#x } static s = 2 } enum E { A, B } namespace N { export const q = 1 } console.log(new A().x, A.s, E.B, E[0], N.q); let v = <any>1 as unknown as number satisfies number; console.log(v)",
			"1 2 1 A 1\n1\n", ""},
		{"console.log(Deno.env.get('K'), process.env.K, Deno.args, process.argv.slice(2), Object.keys(process.env))", "v v [ 'one', 'two' ] [ 'one', 'two' ] [ 'K' ]\n", ""},
		{"throw {a: 1}", "", "Uncaught { a: 1 }"},
		{"throw undefined", "", "Uncaught undefined"},
		{"throw null", "", "Uncaught null"},
	} {
		out, err := p.Run(context.Background(), Job{Name: "main.ts", Code: x.code, Timeout: 10 * time.Second, Env: map[string]string{"K": "v"}, Args: []string{"one", "two"}})
		need.NoError(t, err)
		if string(out.Stdout) != x.out || (x.err == "") != (out.Failure == "") || !strings.Contains(string(out.Stderr), x.err) {
			t.Errorf("%s\n%d %q\nout %q, want %q\nerr %q, want %q", x.code, out.ExitCode, out.Failure, out.Stdout, x.out, out.Stderr, x.err)
		}
	}
}

// hostile is a program that means harm, and how it must end.
type hostile struct {
	name, code string
	failure    Failure // "": any end but the server's
	exit       int
}

var hostiles = []hostile{
	{"loop", "while (true) {}", FailedTime, 0},
	{"never", "await new Promise(() => {})", FailedTime, 0},
	{"interval", "setInterval(() => {}, 1)", FailedTime, 0},
	// Each promise waits for the next: memory or time, whichever ends first.
	{"microtasks", "const f = () => Promise.resolve().then(f); f()", "", 0},
	{"regex", "/^(a+)+$/.test('a'.repeat(40) + 'b')", "", 0},
	{"caught loop", "for (;;) { try { for (;;) {} } catch {} finally { continue } }", FailedTime, 0},
	{"recursion", "function f() { return f() + 1 } f()", FailedExit, 1},
	{"caught recursion", "function f() { try { f() } finally { f() } } f()", "", 0},
	{"arrays", "const a = []; for (;;) a.push(new Array(1000).fill(1))", FailedMemory, 1},
	{"caught memory", "const a = []; for (;;) { try { a.push(new Array(1000).fill(1)) } catch {} }", FailedMemory, 1},
	{"objects", "let a = {}; for (;;) a = { a }", FailedMemory, 1},
	{"buffers", "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))", FailedMemory, 1},
	{"one buffer", "new Uint8Array(2 ** 30)", FailedMemory, 1},
	{"promises", "const a = []; for (;;) a.push(new Promise(() => {}))", FailedMemory, 1},
	{"promise storm", "const f = async () => { await Promise.all([f(), f()]) }; await f()", "", 0},
	{"strings", "const a = []; for (let i = 0;; i++) a.push('x'.repeat(1e5) + i)", FailedMemory, 1},
	{"one string", "let s = 'x'; for (;;) s += s", FailedExit, 1},
	{"output", "for (;;) console.log('x'.repeat(1000))", FailedOutput, 1},
	{"errors", "for (;;) console.error('x'.repeat(1000))", FailedOutput, 1},
	{"small output", "for (;;) process.stdout.write('')", FailedTime, 0},
	{"prototype", "Object.prototype.then = 1; Array.prototype.push = null; Promise.prototype.then = null; Reflect.apply = null; JSON.parse = null; Map.prototype.get = null; String.prototype.split = null; console.log(1)", "", 0},
	{"evil getters", "throw new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 }, ownKeys() { throw 3 } })", FailedExit, 1},
	{"evil stack", "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { for (;;) {} } }); throw e", FailedTime, 0},
	{"frozen", "Object.freeze(globalThis); Object.freeze(Object.prototype); Promise.reject(new Error('x'))", FailedExit, 1},
	{"exit in finally", "try { Deno.exit(4) } finally { for (;;) {} }", FailedExit, 4},
	{"constructor", "const F = console.log.constructor; console.log(F('return typeof __write + typeof process.binding')())", "", 0},
	{"nested text", "console.log(" + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + ")", "", 0},
	{"deep expression", "let x = " + strings.Repeat("1+", 100_000) + "1; console.log(x)", "", 0},
	{"sort", "[3,2,1].sort(() => { for (;;) {} })", FailedTime, 0},
	{"json", "JSON.stringify({ toJSON() { for (;;) {} } })", FailedTime, 0},
	{"wait", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", "", 0},
	{"builtin without polls", "new Array(2 ** 27).fill(0).join('xxxxxxxx').length", "", 0},
	{"bigint", "let n = 3n; for (;;) n = n * n", "", 0},
}

func TestHostilePrograms(t *testing.T) {
	p := newPool(t, Options{Files: folder{}, Memory: 64 << 20, Command: plainChild(t)})
	const timeout = 500 * time.Millisecond
	var all sync.WaitGroup
	slots := make(chan struct{}, 2)
	for _, h := range hostiles {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			limit := timeout
			if h.failure == FailedMemory || h.failure == FailedOutput || h.failure == FailedExit {
				limit = 20 * time.Second
			}
			start := time.Now()
			out, err := p.Run(context.Background(), Job{Name: "main.ts", Code: h.code, Timeout: limit})
			if err != nil {
				t.Errorf("%s: %v", h.name, err)
				return
			}
			if took := time.Since(start); took > limit+time.Minute {
				t.Errorf("%s: took %v", h.name, took)
			}
			if h.failure != "" && (out.Failure != h.failure || out.ExitCode != h.exit) {
				t.Errorf("%s: %q %d, want %q %d\n%.300s\n%.300s", h.name, out.Failure, out.ExitCode, h.failure, h.exit, out.Stdout, out.Stderr)
			}
			if strings.Contains(string(out.Stderr), "unexpectedly") {
				t.Errorf("%s: %q %.2000s", h.name, out.Failure, out.Stderr)
			}
		})
	}
	all.Wait()
	if n := p.Active(); n != 0 {
		t.Errorf("%d still run", n)
	}
	if out := run(t, p, "console.log('fine')"); string(out.Stdout) != "fine\n" {
		t.Errorf("afterwards: %q %q", out.Stdout, out.Stderr)
	}
}

// plainChild is the program's own binary where this one is built with the race
// detector, under which neither limits nor times are what they are.
func plainChild(t *testing.T) []string {
	t.Helper()
	if !raced {
		return nil
	}
	if bin := os.Getenv("UMBRA_BIN"); bin != "" {
		return []string{bin, Verb}
	}
	bin := filepath.Join(t.TempDir(), "umbra")
	cmd := exec.Command("go", "build", "-tags", "nomsgpack", "-o", bin, "umbra/cmd/umbra")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return []string{bin, Verb}
}

func TestSave(t *testing.T) {
	p := newPool(t, Options{})
	var got []string
	save := func(_ context.Context, name string, content []byte) (string, error) {
		if name == "bad" {
			return "", errors.New("filename cannot be bad")
		}
		got = append(got, name+"="+fmt.Sprintf("%x", content))
		return "/out/" + name, nil
	}
	out, err := p.Run(context.Background(), Job{Name: "main.ts", Timeout: 10 * time.Second, Save: save,
		Code: `console.log(file.save("a.txt", "hé"), file.save("b", new Uint8Array([0, 255]))); try { file.save("bad", "") } catch (e) { console.log(e instanceof Error, e.message) } try { file.save("x", 5 as any) } catch (e) { console.log(e.message) }`})
	need.NoError(t, err)
	if want := "/out/a.txt /out/b\ntrue filename cannot be bad\ncontent must be a string\n"; string(out.Stdout) != want {
		t.Errorf("%q %q", out.Stdout, out.Stderr)
	}
	if want := "[a.txt=68c3a9 b=00ff]"; fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
}

func TestQueue(t *testing.T) {
	p := newPool(t, Options{Parallel: 1, Queue: 1})
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errs.New(errs.Unavailable, "stopping", "")
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if _, err := p.Run(ctx, Job{Name: "main.ts", Code: "for(;;);", Timeout: time.Minute}); !errors.Is(err, stopped) {
				t.Errorf("%v", err)
			}
		})
	}
	for {
		p.mu.Lock()
		full := p.active == 1 && p.waiting == 1
		p.mu.Unlock()
		if full {
			break
		}
	}
	if _, err := p.Run(ctx, Job{Name: "main.ts", Code: "1", Timeout: time.Minute}); errs.CodeOf(err) != "queue_full" {
		t.Errorf("%v", err)
	}
	cancel(stopped)
	all.Wait()
	p.Close()
	if _, err := p.Run(context.Background(), Job{Name: "main.ts", Code: "1", Timeout: time.Minute}); errs.CodeOf(err) != "stopping" {
		t.Errorf("%v", err)
	}
}

func TestCheck(t *testing.T) {
	p := newPool(t, Options{Files: folder{"lib.ts": "syntax error here"}})
	for _, x := range []struct{ code, want string }{
		{"const a: number = 1;", ""},
		{"const a: number = ;", "main.ts:1:19"},
		{"import { x } from './lib.ts'; console.log(x)", ""},
		{"import './nope'", "main.ts:1:8"},
		{"const é = 1;\nif (x === NaN) {}", "main.ts:2:7"},
		{"const a = 1; a = 2", "main.ts:1:14"},
	} {
		got, err := p.Check(context.Background(), Job{Name: "main.ts", Code: x.code, Timeout: 10 * time.Second})
		need.NoError(t, err)
		text := ""
		for _, d := range got {
			text += d.String() + "\n"
		}
		if x.want == "" && text != "" || !strings.Contains(text, x.want) {
			t.Errorf("%s\n%q, want %q", x.code, text, x.want)
		}
	}
}

// Many runs leave no process, file or goroutine behind.
func TestNothingIsLeft(t *testing.T) {
	p := NewPool(Options{Warm: 2})
	run(t, p, "1")
	before := descriptors(t)
	for i := range 30 {
		if out := run(t, p, "console.log(1)"); out.Failure != "" {
			t.Fatalf("run %d: %q %q", i, out.Failure, out.Stderr)
		}
	}
	p.Close()
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	need.NoError(t, err)
	return len(list)
}

func FuzzSourceMap(f *testing.F) {
	f.Add(`{"sources":["ws:a.ts"],"mappings":"AAAA;AACA,IAAI"}`, "    at f (umbra-program.js:2:3)", 2, 3)
	f.Add(`{}`, "", 0, 0)
	f.Fuzz(func(t *testing.T, raw, stack string, line, col int) {
		m := &sourceMap{raw: []byte(raw)}
		if _, l, c, ok := m.place(line, col); ok && l == 0 && c == 0 {
			t.Log("a place before the first")
		}
		m.stack(stack)
	})
}

func FuzzImportMap(f *testing.F) {
	f.Add(`{"imports":{"a/":"./b/","x":"../y"},"scopes":{"./s/":{"a/":"./c/"}}}`, "s/m.ts", "a/b.ts")
	f.Fuzz(func(t *testing.T, raw, importer, specifier string) {
		m, err := parseImportMap([]byte(raw))
		if err != nil {
			return
		}
		_, _, _ = m.resolve(importer, specifier)
	})
}
