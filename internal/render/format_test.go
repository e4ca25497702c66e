package render

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/client"
	"umbra/internal/need"
	"umbra/internal/term"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden holds what a verb prints, plain and colored, against testdata.
func golden(t *testing.T, name string, write func(o *term.Output)) {
	t.Helper()
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	var got bytes.Buffer
	for _, c := range []term.Color{term.Never, term.Always} {
		o := term.Open(&got, term.Options{Color: c})
		write(o)
		need.NoError(t, o.Close())
		got.WriteString("----\n")
	}
	text := strings.ReplaceAll(got.String(), "\x1b", "<ESC>")
	file := filepath.Join("testdata", name+".golden")
	if *update {
		need.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		return
	}
	want, err := os.ReadFile(file)
	need.NoError(t, err)
	if text != string(want) {
		t.Errorf("%s (-update writes it anew):\n%s\nwant:\n%s", file, text, want)
	}
}

// read reads what a server would send.
func read[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	need.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

func TestWriteLog(t *testing.T) {
	entries := read[[]client.Entry](t, `[
		{"id":5,"seq":9,"task_id":"t1","subtask_id":null,"timestamp":"2026-01-02T03:04:05Z","operation":"modify","path":"a.txt","new_path":null,
		 "commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","actor":"me","reverts":[1,3],"source":"revert"},
		{"id":4,"seq":8,"task_id":"t1","subtask_id":"s-1","timestamp":"2026-01-02T03:04:04.5Z","operation":"rename","path":"old%FF","path_encoding":"percent","new_path":"new%25",
		 "commit":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","actor":"evil\u001b[2J","reverts":null,"source":"api"},
		{"id":3,"seq":8,"task_id":"t1","subtask_id":"s-1","timestamp":"2026-01-02T03:04:04.5Z","operation":"mkdir","path":"dir/","new_path":null,
		 "commit":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","actor":"evil\u001b[2J","reverts":null,"source":"api"},
		{"id":null,"seq":7,"task_id":null,"subtask_id":null,"timestamp":"2026-01-01T00:00:00Z","operation":"delete","path":"a\nb","new_path":null,
		 "commit":"cccccccccccccccccccccccccccccccccccccccc","actor":"","reverts":null,"source":"external"}]`)
	golden(t, "log", func(o *term.Output) {
		err := Log(o, func(yield func(client.Item[client.Entry], error) bool) {
			for _, e := range entries {
				if !yield(client.Item[client.Entry]{Value: e}, nil) {
					return
				}
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestWriteCommit(t *testing.T) {
	c := read[client.Commit](t, `{"commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","parent":null,"seq":9,"timestamp":"2026-01-02T03:04:05Z",
		"subject":"revert subtask s-1 (2 files)","task_id":"t1","subtask_id":null,"actor":"me","source":"revert","request_id":"r-1",
		"reverts":["bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"],"entries":[
		{"id":5,"operation":"create","path":"a","new_path":null,"timestamp":"2026-01-02T03:04:05Z","reverts":[1]}]}`)
	golden(t, "commit", func(o *term.Output) {
		Commit(o, &c)
		if err := o.Diff(strings.NewReader("diff --git a/a b/a\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/a\n@@ -0,0 +1,2 @@\n+--- no head\n+x\n\\ No newline at end of file\n")); err != nil {
			t.Error(err)
		}
	})
}

func TestWriteSummary(t *testing.T) {
	sum := read[client.Summary](t, `{"files":[
		{"path":"a.txt","status":"modified","additions":12,"deletions":3,"binary":false,"mixed":true,"subtasks":["s-1","s-2"]},
		{"path":"b.bin","status":"created","additions":0,"deletions":0,"binary":true,"mixed":false,"subtasks":[]},
		{"path":"c","status":"deleted","additions":0,"deletions":7,"binary":false,"mixed":false,"subtasks":[]},
		{"path":"é2","from":"é%FF","from_encoding":"percent","status":"renamed","additions":0,"deletions":0,"binary":false,"mixed":false,"subtasks":["s-1"]}]}`)
	golden(t, "summary", func(o *term.Output) {
		Summary(o, sum.Files)
		Summary(o, Under(sum.Files, "b.bin"))
		Summary(o, Under(sum.Files, "nothing"))
	})
}

func TestWriteReverted(t *testing.T) {
	conflict := `{"path":"d","reason":"overlapping","entry":3,"changed_by":{"commit":"cccccccccccccccccccccccccccccccccccccccc","task_id":"t2","subtask_id":"polish","actor":"bob"}}`
	answers := []string{
		`{"commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","entries_reverted":4,"files":[{"path":"a","action":"restored","source":"api"},
		  {"path":"b","action":"deleted","source":"external"},{"path":"c%FF","path_encoding":"percent","action":"merged","source":"api"},
		  {"path":"e","action":"renamed","source":"api"},{"path":"f","action":"unchanged","source":"api"}],"conflicts":[` + conflict + `],"dry_run":false,"plan":null}`,
		`{"commit":null,"entries_reverted":1,"files":[{"path":"a","action":"restored","source":"api"}],"conflicts":[],"dry_run":true,"plan":"n.0123"}`,
		`{"commit":null,"entries_reverted":0,"files":[],"conflicts":[{"path":"d","reason":"deleted","entry":3,"changed_by":{"commit":"cccccccccccccccccccccccccccccccccccccccc","task_id":null,"subtask_id":null,"actor":null}}],"dry_run":false,"plan":null}`,
		`{"commit":null,"entries_reverted":0,"files":[],"conflicts":[{"path":"d","reason":"deleted","entry":3,"changed_by":{}}],"dry_run":true,"plan":null}`,
		`{"commit":null,"entries_reverted":0,"files":[],"conflicts":[],"dry_run":true,"plan":null}`,
		`{"commit":null,"entries_reverted":0,"files":[],"conflicts":[],"dry_run":false,"plan":null}`,
	}
	golden(t, "revert", func(o *term.Output) {
		for _, text := range answers {
			r := read[client.Reverted](t, text)
			Reverted(o, &r)
			o.Printf("\n")
		}
	})
}

func TestWriteTables(t *testing.T) {
	root := "/home/me/a b"
	head := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	golden(t, "tables", func(o *term.Output) {
		Tasks(o, nil)
		Tasks(o, []client.Task{
			{ID: "t1", Status: "executing", Changes: 12, Updated: time.Unix(0, 0), WorkspaceID: "p-1", Goal: "  two\nlines\x1b[31m and é"},
			{ID: "a-longer-name", Status: "paused", Updated: time.Unix(1e9, 0), WorkspaceID: "project-12", Goal: strings.Repeat("long ", 40)},
		})
		Workspaces(o, nil)
		Workspaces(o, []client.Workspace{
			{ID: "p-1", Root: &root, Kind: "physical", State: "clean", Head: &head, Tasks: 2},
			{ID: "virtual-1", Kind: "virtual", State: "reconciling", Warnings: []string{"a ref was\nmoved"}},
		})
	})
}

func TestWriteVerified(t *testing.T) {
	answers := []string{
		`{"workspace":"p-1","objects":10,"commits":1,"hashes":2,"problems":[],"disk":"same","differs":[]}`,
		`{"workspace":"v","objects":1,"commits":2,"hashes":1,"problems":[],"disk":"none","differs":[]}`,
		`{"workspace":"gone","objects":1,"commits":2,"hashes":1,"problems":[],"disk":"missing","differs":[]}`,
		`{"workspace":"p-2","objects":10,"commits":2,"hashes":2,"problems":["blob 1234 has other bytes"],"disk":"differs","differs":[
		  {"path":"a","reason":"modified"},{"path":"b%FF","path_encoding":"percent","reason":"unrecorded"}]}`,
	}
	golden(t, "verify", func(o *term.Output) {
		for _, text := range answers {
			v := read[client.Verified](t, text)
			Verified(o, &v)
		}
	})
}

func TestNarrow(t *testing.T) {
	raw := `{"task_id":"t","created":["d/a","b"],"modified":[],"deleted":["d/gone"],"renamed":[{"from":"x","to":"d/y","modified":false},{"from":"p","to":"q","modified":true}],
		"files":[{"path":"d/a","status":"created","extra":1},{"path":"b","status":"created"},{"path":"d/gone","status":"deleted"},{"path":"d/y","from":"x","status":"renamed"},{"path":"q","from":"p","status":"renamed"}]}`
	got, err := Narrow([]byte(raw), "d")
	need.NoError(t, err)
	want := `{"created":["d/a"],"deleted":["d/gone"],"files":[{"path":"d/a","status":"created","extra":1},{"path":"d/gone","status":"deleted"},{"path":"d/y","from":"x","status":"renamed"}],"modified":[],"renamed":[{"from":"x","to":"d/y","modified":false}],"task_id":"t"}`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
