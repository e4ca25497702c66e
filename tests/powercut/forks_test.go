package powercut

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/internal/mounts"
	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestPowerCutForksExt4(t *testing.T) { cutForks(t, newDisk(t, "ext4")) }
func TestPowerCutForksXFS(t *testing.T)  { cutForks(t, newDisk(t, "xfs")) }

// TestKillForks is the same with a kill -9, which leaves the page cache.
func TestKillForks(t *testing.T) {
	cutForks(t, &disk{t: t, mount: t.TempDir(), killOnly: true})
}

func cutForks(t *testing.T, d *disk) {
	need.Long(t, "power cuts")
	def := 6
	if os.Getenv("UMBRA_SOAK") != "" {
		def = 100
	}
	for _, dir := range []string{"ws", "ws/out", "copies"} {
		need.NoError(t, os.Mkdir(d.path(dir), 0o755))
	}
	for name, text := range map[string]string{"a": "a\n", ".gitignore": "out/\n", "out/built": strings.Repeat("built\n", 5000)} {
		need.NoError(t, os.WriteFile(d.path("ws", name), []byte(text), 0o644))
	}
	d.run("sync", "-f", d.path("ws")) // what a user did not sync may be torn, also in a layer
	w := &forkWorld{t: t, d: d, forks: map[string]*cutFork{}}
	t.Cleanup(w.unmount)
	for i := range env("UMBRA_POWER_CUTS", def) {
		w.round(i)
		if t.Failed() {
			t.Fatalf("%s failed in round %d", t.Name(), i+1)
		}
	}
	t.Logf("%d forks, %d merges and %d deletions were answered; %d forks of requests without an answer were whole", w.made, w.merged, w.deleted, w.adopted)
}

// cutFork is a fork whose request was answered, or that was found after a cut.
type cutFork struct {
	mu       sync.Mutex // held by the one who works with it
	id       string
	task     string
	text     string   // of the file "own", as answered
	trying   []string // asked for since, and not answered or by an error of the disk: either may be there
	dropping bool
	gone     bool  // its deletion was answered
	value    int   // that x and y have in the parent by its newest merge
	next     []int // that a merge without an answer may have given them
}

// forkWorld makes forks of all kinds, writes in them, merges and deletes them.
type forkWorld struct {
	t  *testing.T
	d  *disk
	s  *harness.Server
	ws string

	down atomic.Bool // a request had no answer

	mu                             sync.Mutex
	forks                          map[string]*cutFork
	made, merged, deleted, adopted int
	n                              int
}

// ask sends a request whose answer may never come: status 0.
func (w *forkWorld) ask(ctx context.Context, method, target string, body any, into any) int {
	if w.down.Load() { // what is asked for now is not tried
		return 0
	}
	raw, ok := body.(string)
	if !ok && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			w.t.Error(err)
			return 0
		}
		raw = string(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.s.URL+target, strings.NewReader(raw))
	if err != nil {
		w.t.Error(err)
		return 0
	}
	if !ok {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.down.Store(true)
		return 0
	}
	defer res.Body.Close()
	var all bytes.Buffer
	if _, err := io.Copy(&all, res.Body); err != nil {
		w.down.Store(true)
		return 0
	}
	if into != nil && res.StatusCode < 300 {
		if err := json.Unmarshal(all.Bytes(), into); err != nil {
			w.t.Error(err)
		}
	}
	return res.StatusCode
}

// some returns a fork that is not in use, locked; nil if there is none.
func (w *forkWorld) some() *cutFork {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down.Load() {
		return nil
	}
	for _, f := range w.forks {
		if f.mu.TryLock() {
			if !f.gone && !f.dropping {
				return f
			}
			f.mu.Unlock()
		}
	}
	return nil
}

func (w *forkWorld) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	return w.n
}

func (w *forkWorld) fork(ctx context.Context) {
	n := w.count()
	body := map[string]any{"kind": "virtual", "count": 1 + rand.IntN(3)}
	switch rand.IntN(4) {
	case 0:
		body = map[string]any{"kind": "layer", "path": w.d.path("copies", fmt.Sprint("layer", n))}
	case 1:
		body = map[string]any{"kind": "copy", "path": w.d.path("copies", fmt.Sprint("copy", n))}
	case 2:
		body = map[string]any{"kind": "layer", "ignored": "copy"}
	}
	var made struct{ Forks []struct{ ID string } }
	if w.ask(ctx, "POST", "/workspaces/"+w.ws+"/forks", body, &made) != 201 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range made.Forks {
		w.forks[f.ID] = &cutFork{id: f.ID, text: "-"}
		w.made++
	}
}

// work writes in a fork, merges it, or deletes it.
func (w *forkWorld) work(ctx context.Context) {
	f := w.some()
	if f == nil {
		return
	}
	defer f.mu.Unlock()
	switch rand.IntN(4) {
	case 0:
		if f.task != "" && w.ask(ctx, "PATCH", "/tasks/"+f.task, map[string]any{"status": "completed"}, nil) == 0 {
			return
		}
		f.task, f.dropping = "", true
		if w.ask(ctx, "DELETE", "/workspaces/"+f.id+"?force=true", nil, nil) == 204 {
			f.gone = true
			w.mu.Lock()
			w.deleted++
			w.mu.Unlock()
		}
		return
	case 1:
		w.merge(ctx, f)
		return
	}
	if w.begin(ctx, f) && !w.down.Load() {
		text := fmt.Sprint("text ", w.count())
		switch st := w.ask(ctx, "PUT", "/tasks/"+f.task+"/content?path=own", text, nil); {
		case st == 200 || st == 201:
			f.text, f.trying = text, nil
		case unknown(st):
			f.trying = append(f.trying, text)
		}
	}
}

// unknown reports whether a request with this status may have been carried out: it had
// no answer, or the disk failed in the middle of it.
func unknown(status int) bool { return status == 0 || status >= 500 }

func (w *forkWorld) begin(ctx context.Context, f *cutFork) bool {
	var made struct {
		Task_ID string
	}
	if f.task == "" && w.ask(ctx, "POST", "/tasks", map[string]any{"goal": "try", "workspace": f.id}, &made) == 201 {
		f.task = made.Task_ID
	}
	return f.task != ""
}

// merge gives two files of the fork's own one value each, by several commits, and merges
// them: the parent has both or none.
func (w *forkWorld) merge(ctx context.Context, f *cutFork) {
	if !w.begin(ctx, f) {
		return
	}
	n := w.count()
	for _, name := range []string{"x-", "y-"} {
		if st := w.ask(ctx, "PUT", "/tasks/"+f.task+"/content?path="+name+f.id, fmt.Sprint(n), nil); st != 200 && st != 201 {
			return
		}
	}
	if w.down.Load() {
		return
	}
	switch st := w.ask(ctx, "POST", "/workspaces/"+f.id+"/merge", map[string]any{"paths": []string{"x-" + f.id, "y-" + f.id}}, nil); {
	case st == 200:
		f.value, f.next = n, nil
		w.mu.Lock()
		w.merged++
		w.mu.Unlock()
	case unknown(st):
		f.next = append(f.next, n)
	}
}

func (w *forkWorld) round(i int) {
	w.down.Store(false)
	w.s = harness.Start(w.t, harness.Options{DataDir: w.d.path("data"), Config: "limits: {free_bytes: 1}\n"})
	if i == 0 {
		w.ws = w.s.Do("POST", "/tasks", map[string]string{"goal": "g", "workspace": w.d.path("ws")}).Expect(201).Text("workspace_id")
	} else if w.check(); w.t.Failed() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, job := range []func(context.Context){w.fork, w.work, w.work, w.work} {
		wg.Go(func() {
			for ctx.Err() == nil {
				job(ctx)
			}
		})
	}
	cut := time.NewTimer(time.Duration(200+rand.IntN(1500)) * time.Millisecond)
	<-cut.C
	if !w.d.killOnly {
		w.d.cut()
	}
	w.s.Kill()
	cancel()
	wg.Wait()
	if !w.d.killOnly { // no mount outlives the machine
		w.unmount()
	}
	w.d.reattach()
}

func (w *forkWorld) unmount() { unmountWithin(w.t, w.d.path("copies")) }

// unmountWithin ends the mounts of layers in a directory.
func unmountWithin(t testing.TB, dir string) {
	table, err := mounts.Read() // a disk without power lists nothing
	if err != nil {
		t.Error(err)
	}
	for i := range table {
		if mounts.Within(table[i].Point, dir) {
			_ = exec.Command("umount", "-l", table[i].Point).Run()
		}
	}
}

// check holds what is left against what was answered.
func (w *forkWorld) check() {
	t := w.t
	t.Helper()
	var list struct {
		Workspaces []struct {
			ID, Kind, Git_Dir string
			Root              *string
		}
	}
	w.s.Do("GET", "/workspaces", nil).Expect(200).JSON(&list)
	var left struct{ Tasks []struct{ Task_ID string } }
	w.s.Do("GET", "/tasks?status=executing&limit=1000", nil).Expect(200).JSON(&left)
	for _, x := range left.Tasks {
		if strings.HasPrefix(x.Task_ID, "merge-") {
			t.Errorf("the task of a merge that was cut off is at work: %s", x.Task_ID)
		}
	}
	there, roots := map[string]bool{}, map[string]bool{}
	for _, x := range list.Workspaces {
		there[x.ID] = true
		if x.Root != nil {
			roots[*x.Root] = true
		}
	}
	for id, f := range w.forks {
		switch {
		case f.gone && there[id]:
			t.Errorf("%s was deleted and is there", id)
		case !there[id] && !f.dropping:
			t.Errorf("%s is lost", id)
		case there[id]:
			w.inside(f)
			f.dropping = false
		default:
			f.gone = true
		}
		w.both(f)
		if f.gone || !there[id] {
			delete(w.forks, id)
		}
	}
	// Nothing half made or half deleted stays.
	for dir, known := range map[string]func(string) bool{
		w.d.path("data", "workspaces"): func(name string) bool { return there[name] },
		w.d.path("copies"):             func(name string) bool { return roots[w.d.path("copies", name)] },
	} {
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range names {
			if !known(e.Name()) {
				out, _ := exec.Command("find", filepath.Join(dir, e.Name()), "-ls").CombinedOutput()
				t.Errorf("%s was left behind:\n%.2000s", filepath.Join(dir, e.Name()), out)
			}
		}
	}
	for _, x := range list.Workspaces {
		if x.Root != nil {
			if _, err := os.Stat(*x.Root); err != nil {
				t.Errorf("%s: %v", x.ID, err)
			}
		}
		if _, known := w.forks[x.ID]; !known && x.ID != w.ws { // its answer never came, and it is whole
			f := &cutFork{id: x.ID, text: "-"}
			w.inside(f)
			w.forks[x.ID] = f
			w.adopted++
		}
		if x.Kind == "layer" && x.Root == nil { // with all the ignored files that it was to have
			files := filepath.Join(filepath.Dir(x.Git_Dir), "layer", "files", "out", "built")
			if raw, err := os.ReadFile(files); err != nil || len(raw) != 6*5000 {
				t.Errorf("%s has %d bytes of ignored files, %v", x.ID, len(raw), err)
			}
		}
		if out := harness.Git(t, x.Git_Dir, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
			t.Errorf("fsck of %s: %s", x.ID, out)
		}
	}
	// Few are kept, so that a round is short.
	ids := slices.Sorted(maps.Keys(w.forks))
	for _, id := range ids[:max(0, len(ids)-12)] {
		f := w.forks[id]
		if f.task != "" {
			w.s.Do("PATCH", "/tasks/"+f.task, map[string]string{"status": "completed"}).Expect(200)
		}
		if r := w.s.Do("DELETE", "/workspaces/"+id+"?force=true", nil); r.Status == 204 {
			delete(w.forks, id)
		}
	}
}

func (w *forkWorld) inside(f *cutFork) {
	w.t.Helper()
	if got := w.get(f.id, "own"); got != f.text && !slices.Contains(f.trying, got) {
		w.t.Errorf("%s has %q, not %q or one of %q", f.id, got, f.text, f.trying)
	} else {
		f.text, f.trying = got, nil
	}
	if got := w.get(f.id, "a"); got != "a\n" {
		w.t.Errorf("%s has %q of its parent", f.id, got)
	}
}

// both checks that a merge was carried out whole or not at all.
func (w *forkWorld) both(f *cutFork) {
	w.t.Helper()
	x, y := w.get(w.ws, "x-"+f.id), w.get(w.ws, "y-"+f.id)
	got := 0 // no merge yet
	if _, err := fmt.Sscan(x, &got); err != nil && x != "-" {
		w.t.Errorf("of %s the parent has %s", f.id, x)
	}
	if x != y || got != f.value && !slices.Contains(f.next, got) {
		w.t.Errorf("of %s the parent has %s and %s, not %d or one of %d", f.id, x, y, f.value, f.next)
	}
	f.value, f.next = got, nil
}

// get returns a file of a workspace; "-": there is none.
func (w *forkWorld) get(ws, name string) string {
	w.t.Helper()
	r := w.s.Do("POST", "/tasks", map[string]string{"goal": "look", "workspace": ws}).Expect(201)
	id := r.Text("task_id")
	got := w.s.Do("GET", "/tasks/"+id+"/content?path="+url.QueryEscape(name), nil)
	w.s.Do("PATCH", "/tasks/"+id, map[string]string{"status": "completed"}).Expect(200)
	if got.Status == 404 {
		return "-"
	}
	return string(got.Expect(200).Body)
}
