package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestCodeSave(t *testing.T) {
	c := startCoder(t, harness.Options{})
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Fatal("the folder is there before the first save")
	}
	if got := c.Do("GET", "/workspace", nil).Expect(200).Field("result.files").([]any); len(got) != 0 {
		t.Errorf("files of nothing: %v", got)
	}
	const code = "const message = \"Hello, World!\";\nconsole.log(JSON.stringify({ message }));"
	r := c.save(t, "hello-world", code)
	at := filepath.Join(c.dir, "hello-world.ts")
	if r["filePath"] != at || r["size"] != float64(len(code)) || r["version"] != 1.0 || r["created"] != true || r["commit"] == nil || r["codeId"] != "hello-world" {
		t.Errorf("%v", r)
	}
	if data, err := os.ReadFile(at); err != nil || string(data) != code {
		t.Errorf("on disk: %q %v", data, err)
	}
	if r := c.save(t, "hello-world", code); r["version"] != 1.0 || r["commit"] != nil || r["created"] != false {
		t.Errorf("the same again: %v", r)
	}
	if r := c.save(t, "hello-world", "let b: number = 2"); r["version"] != 2.0 || r["commit"] == nil || r["created"] != false {
		t.Errorf("another: %v", r)
	}
	read := c.Do("GET", "/workspace/hello-world", nil).Expect(200)
	if read.Text("result.code") != "let b: number = 2" || read.Field("result.version") != 2.0 || read.Field("result.size") != 17.0 {
		t.Errorf("%s", read.Body)
	}
	if old := c.Do("GET", "/workspace/hello-world?version=1", nil).Expect(200); old.Text("result.code") != code {
		t.Errorf("%s", old.Body)
	}
	list := c.Do("GET", "/workspace/hello-world/versions", nil).Expect(200).Field("result.versions").([]any)
	if len(list) != 2 || list[0].(obj)["version"] != 1.0 || list[0].(obj)["size"] != float64(len(code)) {
		t.Errorf("%v", list)
	}

	// An external change is no version; a delete does not set the count back.
	c.put(t, "hello-world.ts", "external")
	if r := c.save(t, "hello-world", "third"); r["version"] != 3.0 {
		t.Errorf("after an external change: %v", r)
	}
	if r := c.Do("DELETE", "/workspace/hello-world", nil).Expect(200); r.Field("result.commit") == nil {
		t.Errorf("%s", r.Body)
	}
	c.refuse(t, "GET", "/workspace/hello-world", nil, 404, "FileNotFoundError", "Code file not found: hello-world")
	c.refuse(t, "DELETE", "/workspace/hello-world", nil, 404, "FileNotFoundError", "Code file not found: hello-world")
	if old := c.Do("GET", "/workspace/hello-world?version=3", nil).Expect(200); old.Text("result.code") != "third" {
		t.Errorf("%s", old.Body)
	}
	if r := c.save(t, "hello-world", "third"); r["version"] != 4.0 || r["created"] != true {
		t.Errorf("after a delete: %v", r)
	}
	c.refuse(t, "GET", "/workspace/hello-world?version=9", nil, 404, "FileNotFoundError", "")
	c.refuse(t, "GET", "/workspace/hello-world?version=0", nil, 400, "ValidationError", "")
	c.refuse(t, "GET", "/workspace/hello-world?version=x", nil, 400, "ValidationError", "")
	c.refuse(t, "GET", "/workspace/nope", nil, 404, "FileNotFoundError", "Code file not found: nope")
	c.refuse(t, "GET", "/workspace/nope/versions", nil, 404, "FileNotFoundError", "")
	c.refuse(t, "GET", "/workspace/no%20pe", nil, 400, "ValidationError", "codeId must contain only alphanumeric characters, hyphens, and underscores")
	c.refuse(t, "GET", "/workspace/..%2fpe", nil, 400, "ValidationError", "codeId must not contain path separators or parent directory references")

	for _, want := range []string{`level=INFO msg="Workspace save"`, `level=WARN msg="Workspace overwrite"`, "oldSize=74 newSize=74", "oldSize=74 newSize=17", "codeId=hello-world", "size=74 path=" + at} {
		if _, ok := c.Log.Await(func(text string) bool { return strings.Contains(text, want) }, 10*time.Second); !ok {
			t.Errorf("not in the log: %s", want)
		}
	}

	// The numbers follow from history alone.
	c.Stop()
	c.Restart()
	if list := c.Do("GET", "/workspace/hello-world/versions", nil).Expect(200).Field("result.versions").([]any); len(list) != 4 {
		t.Errorf("after a restart: %v", list)
	}
}

func TestCodeValidation(t *testing.T) {
	c := startCoder(t, harness.Options{})
	const (
		sep   = "codeId must not contain path separators or parent directory references"
		chars = "codeId must contain only alphanumeric characters, hyphens, and underscores"
		long  = "codeId must not exceed 255 characters"
	)
	for _, x := range []struct{ body, message, field string }{
		{`{`, "Invalid JSON in request body", "body"},
		{`{"codeId":"a","code":"b"} x`, "Invalid JSON in request body", "body"},
		{`{"codeId":"a","codeId":"a","code":"b"}`, "Invalid JSON in request body", "body"},
		{`[]`, "Invalid JSON in request body", "body"},
		{`"x"`, "Invalid JSON in request body", "body"},
		{``, "Invalid JSON in request body", "body"},
		{`{}`, "codeId is required", "codeId"},
		{`{"codeId":null,"code":5}`, "codeId is required", "codeId"},
		{`{"codeId":"","code":"x"}`, "codeId is required", "codeId"},
		{`{"codeId":42,"code":""}`, "codeId must be a string", "codeId"},
		{`{"codeId":["a"],"code":""}`, "codeId must be a string", "codeId"},
		{`{"codeId":"../malicious","code":"x"}`, sep, "codeId"},
		{`{"codeId":"a/b","code":"x"}`, sep, "codeId"},
		{`{"codeId":"a\\b","code":"x"}`, sep, "codeId"},
		{`{"codeId":"a..b","code":"x"}`, sep, "codeId"},
		{`{"codeId":".bashrc","code":"x"}`, chars, "codeId"},
		{`{"codeId":"a b","code":"x"}`, chars, "codeId"},
		{`{"codeId":"é","code":"x"}`, chars, "codeId"},
		{`{"codeId":"a\u0000","code":"x"}`, chars, "codeId"},
		{`{"codeId":"` + strings.Repeat("a", 256) + `","code":"x"}`, long, "codeId"},
		{`{"codeId":"` + strings.Repeat("a", 253) + `","code":"x"}`, long, "codeId"},
		{`{"codeId":"a"}`, "code is required", "code"},
		{`{"codeId":"a","code":null}`, "code is required", "code"},
		{`{"codeId":"a","code":7}`, "code must be a string", "code"},
		{`{"codeId":"a","code":""}`, "code must not be empty", "code"},
		{`{"codeId":"a","code":" \n\t"}`, "code must not be empty", "code"},
		{`{"codeId":"a","code":"x","validate":"yes"}`, "validate must be a boolean", "validate"},
		{`{"codeId":"a","code":"x","metadata":3}`, "metadata must be an object", "metadata"},
		{`{"codeId":"a","code":"x","metadata":{"author":3}}`, "metadata.author must be a string", "metadata.author"},
	} {
		details := c.refuse(t, "PUT", "/workspace", x.body, 400, "ValidationError", x.message, "Content-Type: application/json")
		if _, ok := details["value"]; !ok || details["field"] != x.field || details["reason"] == nil {
			t.Errorf("%s: details %v", x.body, details)
		}
	}
	if v := c.refuse(t, "PUT", "/workspace", obj{"codeId": strings.Repeat("é", 200), "code": "x"}, 400, "ValidationError", chars)["value"]; v != strings.Repeat("é", 100) {
		t.Errorf("the value is not cut to 100 characters: %v", v)
	}
	c.save(t, strings.Repeat("a", 252), "x")
	c.refuse(t, "PUT", "/workspace", `{"codeId":"a","code":"x"}`, 415, "ValidationError", "", "Content-Type: text/plain")
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "x"}, 400, "ValidationError", "", "X-Task-Id: ../x")
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "x"}, 404, "TaskNotFoundError", "", "X-Task-Id: nobody")

	big := strings.Repeat("é", 5<<20)
	c.save(t, "big", big)
	details := c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": big + "x"}, 413, "ValidationError", "Code size exceeds maximum allowed size")
	if details["maxSize"] != 10485760.0 || details["actualSize"] != 10485761.0 {
		t.Errorf("%v", details)
	}
	// The size is that of what would be saved.
	c.save(t, "fenced", "```ts\n"+big+"\n```")
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": strings.Repeat("x", 65<<20)}, 413, "ValidationError", "Code size exceeds maximum allowed size")

	details = c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "let x: number = ;", "validate": true}, 400, "ValidationError", "")
	if list, ok := details["diagnostics"].([]any); !ok || len(list) == 0 {
		t.Errorf("%v", details)
	}
	c.Do("PUT", "/workspace", obj{"codeId": "good", "code": "let x: number = 1", "validate": true}).Expect(200)
	for _, want := range []string{`msg="Workspace validation failed"`, "level=ERROR", `value=../malicious`} {
		if _, ok := c.Log.Await(func(text string) bool { return strings.Contains(text, want) }, 10*time.Second); !ok {
			t.Errorf("not in the log: %s", want)
		}
	}
}

func TestCodeMetadataAndBatch(t *testing.T) {
	c := startCoder(t, harness.Options{})
	c.Do("PUT", "/workspace", obj{"codeId": "m", "code": "1", "metadata": obj{"author": "Ann\nTask-Id: x", "description": "why"}}).Expect(200)
	v := c.Do("GET", "/workspace/m/versions", nil).Expect(200).Field("result.versions").([]any)[0].(obj)
	if v["description"] != "why" || !strings.HasPrefix(v["author"].(string), "Ann") || v["timestamp"] == nil {
		t.Errorf("%v", v)
	}
	r := c.Do("POST", "/workspace/batch", obj{"files": []obj{{"codeId": "a", "code": "1"}, {"codeId": "b", "code": "```ts\n2\n```"}}}).Expect(200)
	files := r.Field("result.files").([]any)
	if len(files) != 2 || files[0].(obj)["commit"] != files[1].(obj)["commit"] || files[1].(obj)["size"] != 1.0 {
		t.Errorf("%s", r.Body)
	}
	many := []obj{}
	for i := range 101 {
		many = append(many, obj{"codeId": fmt.Sprintf("n%d", i), "code": "x"})
	}
	c.refuse(t, "POST", "/workspace/batch", obj{"files": many}, 400, "ValidationError", "")
	c.Do("POST", "/workspace/batch", obj{"files": many[:100]}).Expect(200)
	c.refuse(t, "POST", "/workspace/batch", obj{"files": []obj{{"codeId": "x", "code": "1"}, {"codeId": "x", "code": "2"}}}, 400, "ValidationError", "")
	c.refuse(t, "POST", "/workspace/batch", obj{"files": []obj{{"codeId": "y", "code": "1"}, {"codeId": "../y", "code": "2"}}}, 400, "ValidationError",
		"codeId must not contain path separators or parent directory references")
	c.refuse(t, "GET", "/workspace/y", nil, 404, "FileNotFoundError", "")
	for _, body := range []obj{{}, {"files": nil}, {"files": 1}, {"files": []any{}}, {"files": []any{1}}} {
		c.refuse(t, "POST", "/workspace/batch", body, 400, "ValidationError", "")
	}
	list := c.Do("GET", "/workspace", nil).Expect(200).Field("result.files").([]any)
	if len(list) != 103 {
		t.Errorf("%d files", len(list))
	}
}

// A tag of a task elsewhere is recorded under a child here, made once, which
// ends with its parent.
func TestCodeTags(t *testing.T) {
	c := startCoder(t, harness.Options{})
	root := t.TempDir()
	id := c.Do("POST", "/tasks", obj{"goal": "g", "workspace": root}).Expect(201).Text("task_id")
	one := c.save(t, "a", "1", "X-Task-Id: "+id, "X-Subtask-Id: s", "X-Actor: Ann")
	two := c.save(t, "a", "2", "X-Task-Id: "+id)
	child, _ := one["task_id"].(string)
	if child == "" || child == id || two["task_id"] != child {
		t.Fatalf("%v %v", one, two)
	}
	task := c.Do("GET", "/tasks/"+child, nil).Expect(200)
	if task.Text("metadata.parent_task") != id || task.Field("changes") != 2.0 {
		t.Errorf("%s", task.Body)
	}
	if r := c.save(t, "untagged", "1"); r["task_id"] != nil {
		t.Errorf("without a tag: %v", r)
	}
	if r := c.save(t, "mine", "1", "X-Task-Id: "+child); r["task_id"] != child {
		t.Errorf("with the child's own tag: %v", r)
	}
	c.Do("PATCH", "/tasks/"+id, obj{"status": "paused"}).Expect(200)
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "3"}, 409, "ConflictError", "", "X-Task-Id: "+id)
	c.Do("PATCH", "/tasks/"+id, obj{"status": "executing"}).Expect(200)
	c.save(t, "a", "4", "X-Task-Id: "+id)
	c.Do("PATCH", "/tasks/"+id, obj{"status": "completed"}).Expect(200)
	if s := c.Do("GET", "/tasks/"+child, nil).Expect(200).Text("status"); s != "completed" {
		t.Errorf("the child is %s", s)
	}
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "5"}, 409, "ConflictError", "", "X-Task-Id: "+id)
	first := c.Do("PUT", "/workspace", obj{"codeId": "k", "code": "1"}, "Idempotency-Key: k1").Expect(200)
	again := c.Do("PUT", "/workspace", obj{"codeId": "k", "code": "1"}, "Idempotency-Key: k1").Expect(200)
	if !bytes.Equal(first.Body, again.Body) || again.Header.Get("Idempotent-Replay") != "true" {
		t.Errorf("%s %s", first.Body, again.Body)
	}
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "k", "code": "2"}, 422, "ConflictError", "", "Idempotency-Key: k1")
}

// The code workspace may lie inside a user's workspace, which leaves it out.
func TestCodeInsideAWorkspace(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "own", "code")
	s := harness.Start(t, harness.Options{Args: []string{"--workspace-dir", dir}})
	c := &coder{Server: s, dir: dir}
	id := c.Do("POST", "/tasks", obj{"goal": "g", "workspace": root}).Expect(201).Text("task_id")
	c.save(t, "a", "1")
	ws := c.Do("GET", "/tasks/"+id, nil).Expect(200).Text("workspace_id")
	if r := c.Do("POST", "/workspaces/"+ws+"/sync", nil).Expect(200); r.Field("commit") != nil {
		t.Errorf("what is saved is recorded twice: %s", r.Body)
	}
	other := c.Do("POST", "/tasks", obj{"goal": "g", "workspace": root}).Expect(201)
	if other.Text("workspace_id") != ws {
		t.Error("another workspace")
	}
}

func TestCodeFolderGone(t *testing.T) {
	c := startCoder(t, harness.Options{})
	c.save(t, "a", "1")
	need.NoError(t, os.Rename(c.dir, c.dir+".away"))
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "2"}, 409, "ConflictError", "")
	c.put(t, "a.ts", "a stranger's")
	c.refuse(t, "PUT", "/workspace", obj{"codeId": "a", "code": "2"}, 409, "ConflictError", "")
	c.refuse(t, "GET", "/workspace/a", nil, 409, "ConflictError", "")
	c.refuse(t, "GET", "/workspace", nil, 409, "ConflictError", "")
	need.NoError(t, os.RemoveAll(c.dir))
	need.NoError(t, os.Rename(c.dir+".away", c.dir))
	c.save(t, "a", "2")
}

// A hundred writers of one file and readers of it: whole texts only, all 200,
// and history has each.
func TestCodeConcurrentSaves(t *testing.T) {
	c := startCoder(t, harness.Options{})
	text := func(i int) string { return strings.Repeat(fmt.Sprintf("line %03d\n", i), 2000) }
	c.save(t, "one", text(0))
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				data, err := os.ReadFile(filepath.Join(c.dir, "one.ts"))
				if err != nil || len(data) != len(text(0)) || strings.Repeat(string(data[:9]), 2000) != string(data) {
					t.Errorf("a reader saw %d bytes: %v", len(data), err)
					return
				}
			}
		})
	}
	for i := range 100 {
		writers.Go(func() {
			body, err := json.Marshal(obj{"codeId": "one", "code": text(i + 1)})
			if err != nil {
				t.Error(err)
				return
			}
			req, err := http.NewRequest("PUT", c.URL+"/workspace", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := c.Client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if answer, _ := io.ReadAll(res.Body); res.StatusCode != 200 {
				t.Errorf("%d %s", res.StatusCode, answer)
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	list := c.Do("GET", "/workspace/one/versions", nil).Expect(200).Field("result.versions").([]any)
	if len(list) != 101 {
		t.Errorf("%d versions", len(list))
	}
	left, err := filepath.Glob(filepath.Join(c.dir, ".umbra-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
