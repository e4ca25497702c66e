package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// rig is a service on real folders.
type rig struct {
	*Service
	t       *testing.T
	dir     string
	records *workspaces.MemRecords
	db      *state.DB
	manager *workspaces.Manager
	files   vfs.FS
	tasks   *task.Service
	extra   []Extra
	shared  bool // the records are of several servers
}

func newRig(t *testing.T, extra ...Extra) *rig {
	t.Helper()
	g := &rig{t: t, dir: t.TempDir(), records: &workspaces.MemRecords{}, extra: extra}
	g.open()
	t.Cleanup(g.shut)
	return g
}

func newSharedRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, dir: t.TempDir(), records: &workspaces.MemRecords{}, shared: true}
	g.open()
	t.Cleanup(g.shut)
	return g
}

func (g *rig) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) open() {
	g.t.Helper()
	var err error
	if g.shared {
		g.db = state.NewShared()
	} else {
		g.db, err = state.Open(filepath.Join(g.dir, "state.db"))
	}
	g.check(err)
	g.manager, err = workspaces.NewManager(workspaces.Options{DataDir: g.dir, Records: g.records})
	g.check(err)
	dir := filepath.Join(g.dir, "tasks")
	g.check(os.MkdirAll(dir, 0o700))
	g.files, err = vfs.OS(dir)
	g.check(err)
	g.tasks, err = task.New(context.Background(), task.Options{Workspaces: g.manager, State: g.db, FS: g.files, Dir: dir})
	g.check(err)
	g.Service, err = New(context.Background(), Options{State: g.db, Tasks: g.tasks, Workspaces: g.manager, History: history.NewCache(), Extra: g.extra})
	g.check(err)
}

func (g *rig) shut() {
	g.Service.Close()
	g.tasks.Close()
	if err := errors.Join(g.manager.Close(context.Background()), g.files.Close(), g.db.Close()); err != nil {
		g.t.Error(err)
	}
}

// kept are the records that are kept.
func (g *rig) kept() map[string]Record {
	g.t.Helper()
	all, err := state.Map[Record](g.db, bucket)
	g.check(err)
	return all
}

func (g *rig) status(id string) string {
	ref, err := g.tasks.Get(context.Background(), id, nil)
	if err != nil {
		return errs.CodeOf(err)
	}
	defer ref.Release()
	return ref.Task.Info.Status
}

func virtualSpec(prefix, scope string, namespace ...string) Spec {
	return Spec{Prefix: prefix, Scope: scope, Type: "virtual", Namespace: namespace}
}

// A stop in between leaves no task that nobody ever completes, and no toolset
// that nobody was told of.
func TestSettle(t *testing.T) {
	g := newRig(t)
	made, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/a", "READ_WRITE", "a"), virtualSpec("/b", "READ_WRITE", "b")}})
	g.check(err)
	a, b := made.Tasks["/a"], made.Tasks["/b"]
	// As if it had been killed while new mounts were being made: one task is
	// there, of one nothing; and while another toolset was.
	var loose []string
	r, err := g.update(made.ID, func(r *Record) error {
		loose = r.plan(2, time.Now())
		return nil
	})
	g.check(err)
	ref, err := g.tasks.Create(t.Context(), task.CreateOptions{ID: loose[0], Goal: "g", Virtual: true, Namespace: []string{"c"}, MadeBy: "toolset " + r.ID})
	g.check(err)
	ref.Release()
	ref, err = g.tasks.Create(t.Context(), task.CreateOptions{ID: "toolset-gone-1", Goal: "g", Virtual: true, Namespace: []string{"c"}, MadeBy: "toolset gone"})
	g.check(err)
	ref.Release()
	g.check(g.insert(Record{ID: "gone", Hidden: true, Loose: []string{"toolset-gone-1", "toolset-gone-2"}}))
	if _, err := g.Get("gone", nil); errs.CodeOf(err) != "toolset_not_found" {
		t.Errorf("a toolset in the making is shown: %v", err)
	}
	g.shut()
	g.open()
	for id, want := range map[string]string{a: "executing", b: "executing", loose[0]: "completed", loose[1]: "task_not_found", "toolset-gone-1": "completed"} {
		if got := g.status(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if all := g.kept(); len(all) != 1 || len(all[made.ID].Loose) != 0 {
		t.Errorf("%+v", all)
	}
	// What is mounted no more is completed, what stays keeps its task.
	now, err := g.SetMounts(t.Context(), made.ID, []Spec{virtualSpec("/x", "READ_ONLY", "b")}, Who{})
	g.check(err)
	if now.Tasks["/x"] != b || g.status(a) != "completed" || g.status(b) != "executing" {
		t.Errorf("%v, %s, %s", now.Tasks, g.status(a), g.status(b))
	}
	// Mounted again, there is another task: an ended one stays ended.
	now, err = g.SetMounts(t.Context(), made.ID, []Spec{virtualSpec("/x", "READ_WRITE", "a")}, Who{})
	g.check(err)
	if again := now.Tasks["/x"]; again == a || g.status(again) != "executing" || g.status(b) != "completed" {
		t.Errorf("%v", now.Tasks)
	}
	g.check(g.Delete(t.Context(), made.ID, Who{}))
	if got := g.status(now.Tasks["/x"]); got != "completed" {
		t.Errorf("after the end: %s", got)
	}
}

// Calls and changes of mounts beside each other: each call sees one table.
func TestConcurrentMounts(t *testing.T) {
	g := newRig(t)
	made, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/p", "READ_WRITE", "a")}})
	g.check(err)
	var seen sync.Map
	defer g.Watch(func(id string) { seen.Store(id, true) })()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				args, _ := json.Marshal(map[string]string{"path": "/p/f", "content": fmt.Sprint(w, i)})
				a, err := g.Call(context.Background(), made.ID, Call{Name: tool.WriteFile, Args: args})
				if err != nil || a.Failed && a.Text != "Error: Operation 'write' is not permitted: /p/f is READ_ONLY" && a.Text != "Error: Tool 'write_file' is not available" {
					t.Errorf("%+v, %v", a, err)
				}
			}
		})
	}
	for i := range 10 {
		scope := []string{"READ_ONLY", "READ_WRITE"}[i%2]
		_, err := g.SetMounts(t.Context(), made.ID, []Spec{virtualSpec("/p", scope, "a")}, Who{})
		g.check(err)
	}
	wg.Wait()
	if _, ok := seen.Load(made.ID); !ok {
		t.Error("nobody was told")
	}
}

// A tool that is carried out elsewhere is offered and called as the others are.
func TestExtra(t *testing.T) {
	echo := Extra{Tool: tool.Tool{Name: "echo", Title: "Echo", Description: "Say it again.", Scopes: []mount.Scope{mount.ReadWrite},
		Params: []tool.Param{{Name: "text", Type: tool.String, Required: true}}},
		Run: func(_ context.Context, c Call, a tool.Args) (string, bool, error) {
			return a.Str("text") + " by " + c.SubtaskID, a.Str("text") == "fail", nil
		}}
	g := newRig(t, echo)
	made, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/p", "READ_WRITE", "a")}})
	g.check(err)
	if names := tool.Names(made.Tools); !slices.Contains(names, "echo") {
		t.Errorf("%v", names)
	}
	for args, want := range map[string]Answer{
		`{"text":"hi"}`:   {Text: "hi by s"},
		`{"text":"fail"}`: {Text: "fail by s", Failed: true},
		`{}`:              {Text: "Error: Invalid arguments: text is required", Failed: true},
	} {
		if a, err := g.Call(t.Context(), made.ID, Call{Name: "echo", Args: json.RawMessage(args), SubtaskID: "s"}); err != nil || a != want {
			t.Errorf("%s: %+v, %v", args, a, err)
		}
	}
	_, err = g.SetMounts(t.Context(), made.ID, []Spec{virtualSpec("/p", "READ_ONLY", "a")}, Who{})
	g.check(err)
	if a, _ := g.Call(t.Context(), made.ID, Call{Name: "echo", Args: json.RawMessage(`{"text":"x"}`)}); a.Text != "Error: Tool 'echo' is not available" {
		t.Errorf("%+v", a)
	}
}
