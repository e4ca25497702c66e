package tests

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestScriptsOnceOverAKill: a script or program that a killed server had begun is not run
// again when its request is sent again, on each route that runs one.
func TestScriptsOnceOverAKill(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "x\n"})
	s := startScripter(t, harness.Options{Config: "mcp: {mounts: [{prefix: /project, scope: READ_WRITE, root: " + dir + "}]}\n"})
	made := s.Do("POST", "/toolsets", obj{"mounts": []any{obj{"prefix": "/p", "scope": "READ_WRITE", "store": obj{"type": "physical", "root": dir}}}}).Expect(201)
	saves := func(name string) string { return `file.save("` + name + `", "1") while true do end` }
	args := func(name string) obj { return obj{"script": saves(name), "timeout_ms": 300000} }
	for _, x := range []struct {
		name, target string
		body         obj
		headers      []string
	}{
		{"scripts", "/scripts/execute", args("scripts"), nil},
		{"toolset", "/toolsets/" + made.Text("id") + "/call", obj{"name": "execute_script", "arguments": args("toolset")}, nil},
		{"mcp", "/mcp", obj{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": obj{"name": "execute_script", "arguments": args("mcp"),
			"_meta": obj{"io.modelcontextprotocol/protocolVersion": newest, "io.modelcontextprotocol/clientInfo": obj{"name": "c", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": obj{}}}},
			append(slices.Clone(mcpHeaders[:2]), "Mcp-Method: tools/call", "Mcp-Name: execute_script")},
		{"program", "/execute", obj{"code": `file.save("program", "1"); while (true) {}`, "timeout": 300000}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			headers := append([]string{"Idempotency-Key: once-" + x.name}, x.headers...)
			done := make(chan error, 1)
			raw, err := json.Marshal(x.body)
			need.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+x.target, bytes.NewReader(raw))
			need.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				req.Header.Set(name, value)
			}
			go func() {
				res, err := http.DefaultClient.Do(req)
				if err == nil {
					res.Body.Close()
				}
				done <- err
			}()
			eventually(t, func() bool { _, err := os.Stat(filepath.Join(s.dir, x.name)); return err == nil })
			s.Kill()
			<-done
			s.Restart()
			need.NoError(t, os.WriteFile(filepath.Join(s.dir, x.name), []byte("kept"), 0o644))
			for range 2 {
				r := s.Do("POST", x.target, x.body, headers...).Expect(http.StatusConflict)
				if r.Header.Get("Idempotent-Replay") != "true" || !strings.Contains(string(r.Body), "is not run again") {
					t.Errorf("%v %s", r.Header, r.Body)
				}
			}
			if got := s.content(t, x.name); got != "kept" {
				t.Errorf("it has run again: %q", got)
			}
			x.body["other"] = "x"
			s.Do("POST", x.target, x.body, headers...).Expect(422)
		})
	}
}

// TestScriptThatFailsRunsAgain: only answers of success are kept, so a script that failed,
// and whose client was sent that, runs again under the same key.
func TestScriptThatFailsRunsAgain(t *testing.T) {
	s := startScripter(t, harness.Options{})
	for _, x := range []struct {
		target string
		body   obj
		status int
	}{
		{"/scripts/execute", obj{"script": `file.save("f", "1") error("no")`}, 422},
		{"/execute", obj{"code": `file.save("g", "1"); throw new Error("no")`}, 500},
	} {
		for range 2 {
			s.Do("POST", x.target, x.body, "Idempotency-Key: fails "+x.target).Expect(x.status)
		}
	}
}
