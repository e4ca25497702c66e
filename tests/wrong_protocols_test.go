package tests

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// pkt makes packets of git's protocol; an empty line is a flush.
func pkt(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		if l == "" {
			b.WriteString("0000")
			continue
		}
		fmt.Fprintf(&b, "%04x%s", len(l)+4, l)
	}
	return b.String()
}

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, z.Close())
	return b.Bytes()
}

// TestWrongGit sends git's routes each part of a request wrong, with git on the
// machine and without it. Each is refused, or answered in git's own way, without a path
// of the server, and changes nothing; a clone works afterwards.
func TestWrongGit(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"git": nil, "no git": {"PATH=/nonexistent"}} {
		t.Run(name, func(t *testing.T) {
			s := harness.Start(t, harness.Options{Env: env})
			task, root := newTask(t, s)
			s.Do("PUT", "/tasks/"+task+"/content?path=a.txt", "one\n").Expect(201)
			ws := s.Do("GET", "/tasks/"+task, nil).Expect(200).Text("workspace_id")
			head := s.Do("GET", "/workspaces/"+ws, nil).Expect(200).Text("head")
			wrong := func(method, target string, body any, headers ...string) *harness.Response {
				t.Helper()
				r := s.Do(method, target, body, headers...)
				if r.Status >= 500 && (env == nil || r.Status != 503) || foreign.Match(r.Body) || bytes.Contains(r.Body, []byte(root)) || bytes.Contains(r.Body, []byte(s.DataDir)) {
					t.Errorf("%s %s %.100q %q: %d %.300s", method, target, body, headers, r.Status, r.Body)
				}
				return r
			}
			repo := "/git/" + ws + ".git"
			for _, query := range []string{"", "?service", "?service=", "?service=git", "?service=git-upload-archive", "?service=git-receive-pack", "?service=git-upload-pack&service=git-upload-pack", "?service=%00", "?%zz"} {
				if r := wrong("GET", repo+"/info/refs"+query, nil); r.Status < 400 {
					t.Errorf("%q: %d", query, r.Status)
				}
			}
			for _, name := range []string{"none.git", ws + ".git.git", "%00.git", "..%2f.git", "%ff", strings.Repeat("x", 5000)} {
				for _, of := range []string{"GET /info/refs?service=git-upload-pack", "POST /git-upload-pack"} {
					method, rest, _ := strings.Cut(of, " ")
					if r := wrong(method, "/git/"+name+rest, []byte("0000"), "Content-Type: application/x-git-upload-pack-request"); r.Status != 404 && r.Status != 400 {
						t.Errorf("%s %s: %d", method, name, r.Status)
					}
				}
			}
			for _, p := range []string{"version=3", "version=-1", "version=2:x=y", "2", "version=2 ", strings.Repeat("version=2:", 50)} {
				wrong("GET", repo+"/info/refs?service=git-upload-pack", nil, "Git-Protocol: "+p)
			}
			zero, form := strings.Repeat("0", 40), "Content-Type: application/x-git-upload-pack-request"
			for _, body := range []string{
				"", "x", "zzzz", "0001", "0003", "0004", "ffff", "00ffshort", "0000", "00000000", pkt("want"), pkt("want "), pkt("want x\n", ""), pkt("want "+zero+"\n", "", "done\n"),
				pkt("want "+head+" no-such-capability\n", "", "done\n"), pkt("want "+head+" object-format=sha256\n", "", "done\n"), pkt("want "+head+"\n", "deepen x\n", ""),
				pkt("want "+head+"\n", "deepen -1\n", ""), pkt("want "+head+"\n", "shallow x\n", ""), pkt("want "+head+"\n", "filter nonsense\n", ""), pkt("want "+head+"\n", "", "have x\n", "done\n"),
				pkt("want "+head+"\n", ""), pkt("have "+head+"\n", "done\n"), pkt("command=ls-refs\n"), pkt("command=none\n", ""), pkt("command=\n", ""), pkt("agent=x\n", ""), pkt("command=ls-refs\n", "command=fetch\n", ""),
				pkt("command=fetch\n", "object-format=none\n", ""), pkt("command=fetch\n") + "0001" + pkt("want "+zero+"\n", "done\n", ""), pkt("command=fetch\n") + "0001" + pkt("want-ref none\n", "done\n", ""),
				pkt("command=fetch\n") + "0001" + pkt("nonsense\n", ""), pkt("command=ls-refs\n") + "0001" + pkt("nonsense\n", ""), pkt("command=object-info\n") + "0001" + pkt("size\n", "oid x\n", ""),
			} {
				for _, version := range []string{"0", "1", "2"} {
					wrong("POST", repo+"/git-upload-pack", []byte(body), form, "Git-Protocol: version="+version)
				}
			}
			whole := zipped(t, pkt("want "+head+"\n", "", "done\n"))
			for _, x := range []struct {
				status  int
				body    []byte
				headers []string
			}{
				{415, nil, nil}, {415, []byte("0000"), []string{"Content-Type: text/plain"}}, {415, []byte("0000"), []string{form, "Content-Encoding: br"}},
				{400, []byte("0000"), []string{form, "Content-Encoding: gzip"}}, {400, nil, []string{form, "Content-Encoding: gzip"}},
				{400, whole[:len(whole)/2], []string{form, "Content-Encoding: gzip"}}, {400, zipped(t, "zzzz"), []string{form, "Content-Encoding: gzip"}},
				{413, bytes.Repeat([]byte("0"), 16<<20+1), []string{form}}, {413, zipped(t, strings.Repeat(pkt("want "+head+"\n"), 70<<20/50)), []string{form, "Content-Encoding: gzip"}},
			} {
				if r := wrong("POST", repo+"/git-upload-pack", x.body, x.headers...); r.Status != x.status {
					t.Errorf("%d bytes, %q: %d %.200s, not %d", len(x.body), x.headers, r.Status, r.Body, x.status)
				}
			}
			for _, target := range []string{"bundle", "patches"} {
				for _, id := range []string{"none", "%00", "..", strings.Repeat("x", 200)} {
					wrong("GET", "/tasks/"+id+"/"+target, nil)
				}
				wrong("GET", "/tasks/"+task+"/"+target+"?since=1", nil)
			}
			for _, target := range []string{repo, repo + "/HEAD", repo + "/objects/info/packs", repo + "/config", repo + "/info/refs/", repo + "//git-upload-pack"} {
				if r := wrong("GET", target, nil); r.Status != 404 && r.Status != 405 {
					t.Errorf("GET %s: %d", target, r.Status)
				}
			}
			wrong("POST", repo+"/git-receive-pack", []byte(pkt(zero+" "+head+" refs/heads/x\x00report-status\n", "")), "Content-Type: application/x-git-receive-pack-request")
			if now := s.Do("GET", "/workspaces/"+ws, nil).Expect(200).Text("head"); now != head {
				t.Errorf("the head is %s, not %s", now, head)
			}
			dir := t.TempDir()
			harness.Git(t, dir, "clone", "-q", s.URL+repo, "c")
			if got := harness.Git(t, dir+"/c", "rev-parse", "HEAD"); got != head {
				t.Errorf("a clone has %s, not %s", got, head)
			}
		})
	}
}

// wrongValues returns copies of a JSON value, each with one value in it of another type
// or left out, by the path of that value.
func wrongValues(v any) map[string]any {
	out := map[string]any{}
	for name, bad := range map[string]any{"null": nil, "number": 7.0, "text": "nonsense", "true": true, "list": []any{}, "object": map[string]any{"a": 1.0}} {
		if fmt.Sprintf("%T", bad) != fmt.Sprintf("%T", v) {
			out[" "+name] = bad
		}
	}
	m, ok := v.(map[string]any)
	if !ok {
		return out
	}
	for name := range m {
		without := maps.Clone(m)
		delete(without, name)
		out["."+name+" left out"] = without
		for at, bad := range wrongValues(m[name]) {
			with := maps.Clone(m)
			with[name] = bad
			out["."+name+at] = with
		}
	}
	return out
}

// TestWrongMCP sends messages of the Model Context Protocol with each value of another
// type or left out, by both ways of the protocol. Each is refused in words, without a
// path of the server, and changes nothing; a right one is answered afterwards.
func TestWrongMCP(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	dir := folder(t, map[string]string{"a.txt": "one\n"})
	a := newAgent(t, s, physical("/p", "READ_WRITE", dir))
	if status, text := a.call("write_file", "path", "/p/b.txt", "content", "two\n"); status != "success" {
		t.Fatal(text)
	}
	state := func() string {
		var now struct {
			Workspaces []struct{ ID, Head string }
			Tasks      []struct {
				TaskID  string `json:"task_id"`
				Changes int
			}
		}
		s.Do("GET", "/workspaces", nil).Expect(200).JSON(&now)
		s.Do("GET", "/tasks", nil).Expect(200).JSON(&now)
		return fmt.Sprint(now) + string(s.Do("GET", "/toolsets/"+a.id, nil).Expect(200).Body)
	}
	info := map[string]any{"name": "t", "version": "1"}
	initialize := map[string]any{"jsonrpc": "2.0", "id": 1.0, "method": "initialize", "params": map[string]any{"protocolVersion": before, "capabilities": map[string]any{}, "clientInfo": info}}
	plain := []string{"Accept: application/json, text/event-stream", "Content-Type: application/json"}
	session := "Mcp-Session-Id: " + s.Do("POST", "/mcp/"+a.id, initialize, plain...).Expect(200).Header.Get("Mcp-Session-Id")
	started := state()
	send := func(revision string, message any, headers ...string) *harness.Response {
		t.Helper()
		h := append(slices.Clone(plain), "Mcp-Protocol-Version: "+revision)
		if revision == before {
			h = append(h, session)
		} else if m, ok := message.(map[string]any); ok {
			h = append(h, fmt.Sprintf("Mcp-Method: %v", m["method"]))
			if p, ok := m["params"].(map[string]any); ok && (p["name"] != nil || p["uri"] != nil) {
				name := p["name"]
				if name == nil {
					name = p["uri"]
				}
				h = append(h, fmt.Sprintf("Mcp-Name: %v", name))
			}
		}
		body, raw := message.([]byte)
		if !raw {
			var err error
			if body, err = json.Marshal(message); err != nil {
				t.Fatal(err)
			}
		}
		r := s.Do("POST", "/mcp/"+a.id, body, append(h, headers...)...)
		if r.Status >= 500 || bytes.Contains(r.Body, []byte("into Go ")) || bytes.Contains(r.Body, []byte("unmarshal")) || bytes.Contains(r.Body, []byte("goroutine ")) || bytes.Contains(r.Body, []byte(dir)) || bytes.Contains(r.Body, []byte(s.DataDir)) || bytes.Contains(r.Body, []byte("-32603")) {
			t.Errorf("%s %s: %d %.400s", revision, body, r.Status, r.Body)
		}
		return r
	}
	changed := func(what string) {
		t.Helper()
		if now := state(); now != started {
			t.Fatalf("%s changed\n%s\nto\n%s", what, started, now)
		}
	}
	var tools struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema struct {
					Required   []string
					Properties map[string]struct{ Type any }
				}
			}
		}
	}
	message := func(revision, method string, params map[string]any) map[string]any {
		if revision == newest {
			params = maps.Clone(params)
			params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientInfo": info, "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
		}
		return map[string]any{"jsonrpc": "2.0", "id": 7.0, "method": method, "params": params}
	}
	if err := json.Unmarshal(answered(t, send(before, message(before, "tools/list", map[string]any{}))), &tools); err != nil || len(tools.Result.Tools) < 10 {
		t.Fatalf("%d tools, %v", len(tools.Result.Tools), err)
	}
	for _, revision := range []string{before, newest} {
		for _, raw := range []string{"", "nonsense", "null", "[]", "7", `"x"`, "{}", "[{}]", "{\"a\":\"\xff\"}", `{"jsonrpc":"2.0","jsonrpc":"2.0"}`, strings.Repeat("[", 1<<16)} {
			send(revision, []byte(raw))
		}
		for _, m := range []map[string]any{initialize, message(revision, "ping", map[string]any{}), message(revision, "tools/list", map[string]any{"cursor": "c"}),
			message(revision, "tools/call", map[string]any{"name": "read_file", "arguments": map[string]any{"path": "/p/a.txt"}}), message(revision, "resources/list", map[string]any{"cursor": "c"}),
			message(revision, "resources/templates/list", map[string]any{"cursor": "c"}), message(revision, "resources/read", map[string]any{"uri": "umbra:///p/a.txt"}),
			message(revision, "resources/subscribe", map[string]any{"uri": "umbra:///p/a.txt"}), message(revision, "resources/unsubscribe", map[string]any{"uri": "umbra:///p/a.txt"}),
			message(revision, "prompts/get", map[string]any{"name": "p"}), message(revision, "completion/complete", map[string]any{"ref": map[string]any{"type": "ref/prompt", "name": "p"}, "argument": map[string]any{"name": "a", "value": "v"}}),
			message(revision, "logging/setLevel", map[string]any{"level": "debug"}), message(revision, "server/discover", map[string]any{})} {
			for _, bad := range wrongValues(m) {
				send(revision, bad)
			}
		}
		changed(revision)
		for _, tool := range tools.Result.Tools {
			right := map[string]any{}
			for name, p := range tool.InputSchema.Properties {
				right[name] = map[string]any{"string": "/p/a.txt", "integer": 1.0, "boolean": false, "array": []any{}}[fmt.Sprint(p.Type)]
			}
			for name, p := range tool.InputSchema.Properties {
				for at, bad := range wrongValues(right[name]) {
					if at == " null" && !slices.Contains(tool.InputSchema.Required, name) {
						continue // as if it were left out
					}
					args := map[string]any{}
					for _, other := range tool.InputSchema.Required {
						args[other] = right[other]
					}
					args[name] = bad
					if r := send(revision, message(revision, "tools/call", map[string]any{"name": tool.Name, "arguments": args})); !bytes.Contains(r.Body, []byte(`"isError":true`)) {
						t.Errorf("%s %s %s%s (%v): %d %.300s", revision, tool.Name, name, at, p.Type, r.Status, r.Body)
					}
				}
			}
			send(revision, message(revision, "tools/call", map[string]any{"name": tool.Name, "arguments": map[string]any{"nonsense": 1.0}}))
			changed(revision + " " + tool.Name)
		}
		for _, h := range []string{"Mcp-Protocol-Version: 1999-01-01", "Mcp-Session-Id: none", "Content-Type: text/plain", "Accept: text/html", "Mcp-Method: nonsense", "Mcp-Name: nonsense", "Last-Event-ID: x", "X-Subtask-Id: a b", "X-Task-Id: none"} {
			name, _, _ := strings.Cut(h, ":")
			send(revision, message(revision, "tools/call", map[string]any{"name": "read_file", "arguments": map[string]any{"path": "/p/a.txt"}}), h)
			s.Do("GET", "/mcp/"+a.id+"?nonsense=1", nil, "Accept: text/html", h)
			if name != "Mcp-Session-Id" {
				s.Do("DELETE", "/mcp/"+a.id, nil, h)
			}
		}
		changed(revision + " headers")
		r := send(revision, message(revision, "tools/call", map[string]any{"name": "read_file", "arguments": map[string]any{"path": "/p/a.txt"}}))
		if r.Status != http.StatusOK || !bytes.Contains(r.Body, []byte(`one\n`)) {
			t.Errorf("afterwards: %d %s", r.Status, r.Body)
		}
	}
}

// answered returns the message in an answer, of one event or of JSON.
func answered(t *testing.T, r *harness.Response) []byte {
	t.Helper()
	for _, line := range strings.Split(string(r.Body), "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "" {
			return []byte(data)
		}
	}
	return r.Body
}
