package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// theSecret is what must not be found after a purge.
const theSecret = "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

type purgeReport struct {
	Refused bool     `json:"refused"`
	Blobs   []string `json:"blobs"`
	Kept    []struct {
		Path string
	}
	Names []struct {
		Path string `json:"path"`
	} `json:"names"`
	Commits int                           `json:"commits"`
	Touched int                           `json:"touched"`
	Files   []struct{ Path string }       `json:"files"`
	Held    []struct{ Kind, Name string } `json:"held"`
	Dropped []struct{ Kind, Name string } `json:"dropped"`
	Foreign []string                      `json:"foreign"`
	Clones  []struct {
		Who        *string
		From, What string
	} `json:"clones"`
	NotReached []string `json:"not_reached"`
}

// purge runs umbra purge and gives its report, and what it said.
func (p *project) purge(t *testing.T, status int, args ...string) (*purgeReport, string) {
	t.Helper()
	got, out, errOut := harness.Run(t, nil, append([]string{"purge", "--json", "--data-dir", p.DataDir}, args...)...)
	if got != status {
		t.Fatalf("purge %q: status %d, want %d\n%s\n%s", args, got, status, out, errOut)
	}
	r := &purgeReport{}
	if out != "" {
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return r, errOut
}

// clean holds the data directory against the secret, and git's own tools
// against the repository.
func (k *taskOf) clean(t *testing.T) {
	t.Helper()
	if found := k.p.Leaks(theSecret); len(found) > 0 {
		t.Errorf("the secret is still in %v", found)
	}
	k.fsck(t)
	for line := range strings.Lines(harness.Git(t, k.gitDir(), "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
		if id, kind, _ := strings.Cut(strings.TrimSpace(line), " "); kind == "blob" && strings.Contains(harness.Git(t, k.gitDir(), "cat-file", "blob", id), theSecret) {
			t.Errorf("blob %s has the secret", id)
		}
	}
	r := verify(t, 0, "--data-dir", k.p.DataDir)
	for _, w := range r.Workspaces {
		if len(w.Problems) > 0 {
			t.Errorf("verify: %v", w.Problems)
		}
	}
}

// leaked has the secret in commits of two tasks, under several names, in a batch,
// in a copy in a person's pack, under refs/foreign, and in the open journal.
type leaked struct {
	*project
	k, other *taskOf
	ws       string
	olds     []string // ids of commits of before
}

func newLeaked(t *testing.T) *leaked {
	t.Helper()
	p := newProject(t, map[string]string{"a": "1\n", "src/main.go": "package main\n"})
	l := &leaked{project: p, k: p.task(t), other: p.task(t)}
	l.ws = l.k.str("workspace_id")
	note := func(a *answer) {
		t.Helper()
		id := a.str(t, "commit")
		l.olds = append(l.olds, id)
	}
	note(l.k.put(t, "src/lib.go", "package lib\n").want(t, 201))
	note(l.k.put(t, "conf/app.env", theSecret+"\n").want(t, 201))
	note(l.other.put(t, "a", "2\n").want(t, 200))
	l.k.sync(t)
	note(p.post(t, l.k.url("/move"), map[string]any{"from": "conf/app.env", "to": "conf/prod.env"}).want(t, 200))
	note(p.post(t, l.other.url("/batch"), map[string]any{"operations": []map[string]any{
		{"op": "write", "path": "b", "content": "b\n"}, {"op": "rename", "path": "conf/prod.env", "new_path": "env/prod.env"},
		{"op": "write", "path": "env/prod.env", "content": "# older\n" + theSecret + "\n"}}}).want(t, 200))
	l.k.sync(t)
	harness.Git(t, l.k.gitDir(), "repack", "-adbq")
	harness.Git(t, l.k.gitDir(), "update-ref", "refs/foreign/7", l.olds[1])
	note(p.post(t, l.k.url("/move"), map[string]any{"from": "env/prod.env", "to": "env/live.env"}).want(t, 200))
	note(l.k.put(t, "env/live.env", "from-vault\n").want(t, 200))
	return l
}

func TestPurgeTakesASecretOutOfHistory(t *testing.T) {
	l := newLeaked(t)
	stale := l.post(t, l.k.url("/revert"), map[string]any{"dry_run": true}).want(t, 200).str(t, "plan")
	again := func() *answer {
		return l.k.put(t, "with-key", "k\n", "Idempotency-Key", "one")
	}
	first := again().want(t, 201).str(t, "commit")
	stream := l.Stream("/workspaces/" + l.ws + "/stream?after=0")
	l.k.sync(t) // all refs are moved
	heads := harness.Git(t, l.k.gitDir(), "for-each-ref")

	out, _ := l.purge(t, 0, l.ws, "env/live.env", "--dry-run")
	if len(out.Blobs) != 2 || out.Refused || len(out.Names) != 4 || len(out.Kept) != 1 || out.Kept[0].Path != "env/live.env" {
		t.Errorf("dry run: %+v", out)
	}
	if now := harness.Git(t, l.k.gitDir(), "for-each-ref"); now != heads {
		t.Errorf("a dry run moved refs:\n%s%s", heads, now)
	}
	if len(l.Leaks(theSecret)) == 0 {
		t.Fatal("the search does not find what is there")
	}
	out, _ = l.purge(t, 0, l.ws, "env/live.env")
	if len(out.Blobs) != 2 || len(out.Foreign) != 1 || !strings.HasPrefix(strings.Join(out.NotReached, " "), "scratch artifacts backups clones") {
		t.Errorf("reported: %+v", out)
	}
	l.k.clean(t)
	if l.read(t, "env/live.env") != "from-vault\n" {
		t.Error("the file on disk was touched")
	}

	// Old ids lead to the new ones.
	for i, old := range l.olds {
		a := l.call(t, "GET", "/workspaces/"+l.ws+"/commits/"+old, nil)
		if i == 0 {
			a.want(t, 200) // before the first that had it
			continue
		}
		now := fmt.Sprint(a.fails(t, 410, "history_rewritten")["moved_to"])
		has(t, l.call(t, "GET", "/workspaces/"+l.ws+"/commits/"+now, nil).want(t, 200).obj(t), map[string]any{"seq": i + 2})
		l.call(t, "GET", l.k.file("a")+"&at="+old, nil).fails(t, 410, "history_rewritten")
		l.call(t, "GET", l.k.url("/files/a/diff?to=head&from="+old), nil).fails(t, 410, "history_rewritten")
	}
	// The stream has them all, under ids that are there.
	for seq := 1; seq <= len(l.olds)+2; {
		e, ok := stream.Next()
		if !ok {
			t.Fatalf("the stream ended before %d", seq)
		}
		if e.ID != "" {
			if e.ID != fmt.Sprint(seq) {
				t.Fatalf("event %s, want %d", e.ID, seq)
			}
			seq++
		}
	}
	// A key of before: the same change, under its id of now.
	a := again().want(t, 201)
	if a.head("Idempotent-Replay") != "true" || a.str(t, "commit") == first {
		t.Errorf("a repeated request: %v %s", a.Header, a.Body)
	}
	l.call(t, "GET", "/workspaces/"+l.ws+"/commits/"+a.str(t, "commit"), nil).want(t, 200)

	// Tasks still replay, diff and revert.
	for _, k := range []*taskOf{l.k, l.other} {
		r := replay(t, 0, "--from", k.gitDir(), "--task", k.ID)
		if !r.OK || !r.Proven {
			t.Errorf("replay: %+v", r)
		}
		l.call(t, "GET", k.url("/diff"), nil).want(t, 200)
		l.call(t, "GET", k.url("/changes"), nil).want(t, 200)
	}
	if a := l.post(t, l.k.url("/revert"), map[string]any{"plan": stale}); a.Status != 200 {
		a.fails(t, 409, "plan_stale")
	}
	l.post(t, l.other.url("/revert"), map[string]any{"path": "b"}).want(t, 200)
	l.k.clean(t)
	l.restart()
	l.k.clean(t)
	l.call(t, "GET", "/workspaces/"+l.ws+"/commits/"+l.olds[3], nil).fails(t, 410, "history_rewritten")
}

func TestPurgedBytesAreNotBroughtBack(t *testing.T) {
	p := newProject(t, map[string]string{"conf": theSecret + "\n"})
	k := p.task(t)
	k.put(t, "conf", "harmless\n").want(t, 200)
	p.purge(t, 0, k.str("workspace_id"), "conf")
	p.post(t, k.url("/revert"), map[string]any{}).want(t, 200)
	if got := p.read(t, "conf"); got != "purged\n" {
		t.Errorf("the revert wrote %q", got)
	}
	k.clean(t)
	if a := p.call(t, "GET", k.url("/changes/1/before"), nil).want(t, 200); string(a.Body) != "purged\n" {
		t.Errorf("before is %q", a.Body)
	}
	if hash := k.changes(t, "")[1]["after_hash"]; hash != "purged" && !strings.HasPrefix(fmt.Sprint(hash), "sha256:") {
		t.Errorf("after_hash of what was brought back: %v", hash)
	}
	// It comes through us: taken in again, and purged again.
	k.put(t, "conf", theSecret+"\n").want(t, 200)
	k.put(t, "conf", "again\n").want(t, 200)
	p.purge(t, 0, k.str("workspace_id"), "conf")
	k.clean(t)
}

func TestPurgeRefuses(t *testing.T) {
	p := newProject(t, map[string]string{".gitignore": "*.bak\n", "conf": theSecret + "\n"})
	k := p.task(t)
	ws := k.str("workspace_id")
	first := k.put(t, "other", "x\n").want(t, 201).str(t, "commit")
	refused := func(want string, args ...string) {
		t.Helper()
		if _, said := p.purge(t, 1, append([]string{ws}, args...)...); !strings.Contains(said, want) {
			t.Errorf("purge %q says %q, want %q", args, said, want)
		}
	}
	refused("conf", "conf") // the only content is the one on disk
	refused("path_not_in_history", "never")
	refused("blob_not_found", "--blob", strings.Repeat("12", 20))
	blob := strings.TrimSpace(harness.GitInput(t, k.gitDir(), theSecret+"\n", "hash-object", "--stdin"))
	refused("file      conf", "--blob", blob)
	k.put(t, "conf", "clean\n").want(t, 200)
	p.fill(t, map[string]string{"copy.bak": theSecret + "\n"})
	refused("file      copy.bak", "conf")
	if r, _ := p.purge(t, 1, ws, "conf", "--dry-run"); !r.Refused || len(r.Files) != 1 {
		t.Errorf("dry run: %+v", r)
	}
	os.Remove(filepath.Join(p.dir, "copy.bak"))
	k.sync(t)
	harness.Git(t, k.gitDir(), "update-ref", "refs/heads/mine", first)
	refused("ref       refs/heads/mine", "conf")
	work := filepath.Join(t.TempDir(), "w")
	harness.Git(t, k.gitDir(), "update-ref", "-d", "refs/heads/mine")
	harness.Git(t, k.gitDir(), "worktree", "add", "-q", "--detach", work, first)
	refused("worktree  w", "conf")
	if got, _, _ := harness.Run(t, nil, "purge", "--data-dir", p.DataDir, ws); got != 2 {
		t.Errorf("without a path: status %d", got)
	}
	p.call(t, "POST", "/upkeep/purge", map[string]any{"workspace": ws, "path": "a", "blob": blob}).fails(t, 400, "invalid_field")
	if len(p.Leaks(theSecret)) == 0 {
		t.Error("a refused purge took something away")
	}
	r, _ := p.purge(t, 0, ws, "conf", "--force")
	if len(r.Dropped) == 0 {
		t.Errorf("reported: %+v", r)
	}
	k.clean(t)
}

func TestPurgeIgnore(t *testing.T) {
	p := newProject(t, map[string]string{"conf/[x] *.env": theSecret + "\n", "same": theSecret + "\n", "b": "b\n"})
	k := p.task(t)
	ws := k.str("workspace_id")
	k.put(t, "b", "c\n").want(t, 200)
	r, _ := p.purge(t, 0, ws, "conf/[x] *.env", "--ignore")
	if len(r.Files) != 2 {
		t.Errorf("reported: %+v", r)
	}
	if p.read(t, "conf/[x] *.env") != theSecret+"\n" || p.read(t, "same") != theSecret+"\n" {
		t.Error("a file on disk was touched")
	}
	k.clean(t)
	// It is not captured again by itself: not after a change, not by a start.
	p.fill(t, map[string]string{"same": theSecret + "\n# more\n"})
	k.sync(t)
	p.restart()
	k.sync(t)
	if found := p.Leaks(theSecret); len(found) > 0 {
		t.Errorf("captured again: %v", found)
	}
	if list := harness.Git(t, k.gitDir(), "ls-tree", "-r", "--name-only", "refs/heads/shadow"); list != "b" {
		t.Errorf("the tip has %q", list)
	}
	k.put(t, "same", "through us\n").want(t, 200)
	if list := harness.Git(t, k.gitDir(), "ls-tree", "-r", "--name-only", k.git(t, "rev-parse", "refs/heads/shadow")[:40]); !strings.Contains(list, "same") {
		t.Errorf("what came through us is not in %q", list)
	}
}

func TestPurgeVirtual(t *testing.T) {
	p := newProject(t, nil)
	r := p.post(t, "/tasks", map[string]any{"goal": "g", "kind": "virtual", "namespace": []string{"n"}}).want(t, 201)
	k := &taskOf{p: p, ID: r.str(t, "task_id"), At: r.obj(t)}
	ws := k.str("workspace_id")
	k.put(t, "a", "1\n").want(t, 201)
	k.put(t, "key", theSecret+"\n").want(t, 201)
	p.purge(t, 1, ws, "key")
	k.put(t, "key", "gone\n").want(t, 200)
	k.put(t, "twin", theSecret+"\n").want(t, 201)
	if _, said := p.purge(t, 1, ws, "key"); !strings.Contains(said, "twin") {
		t.Errorf("it says %q", said)
	}
	r2, _ := p.purge(t, 0, ws, "key", "--ignore")
	if len(r2.Files) != 2 {
		t.Errorf("reported: %+v", r2)
	}
	k.clean(t)
	for _, name := range []string{"key", "twin"} { // taken out of the tip: there is no disk
		p.call(t, "GET", k.file(name), nil).fails(t, 404, "file_not_found")
	}
	k.put(t, "key", "new\n").want(t, 201)
}

func TestPurgeReportsClones(t *testing.T) {
	p := newProject(t, map[string]string{"conf": theSecret + "\n"})
	k := p.task(t)
	k.put(t, "conf", "x\n").want(t, 200)
	to := filepath.Join(t.TempDir(), "clone")
	harness.Git(t, t.TempDir(), "clone", "-q", p.Address+"/git/"+k.str("workspace_id")+".git", to)
	p.call(t, "GET", k.url("/bundle"), nil).want(t, 200)
	r, _ := p.purge(t, 0, k.str("workspace_id"), "conf")
	kinds := map[string]bool{}
	for _, c := range r.Clones {
		kinds[c.What] = c.From != ""
	}
	if !kinds["fetch"] || !kinds["bundle"] || len(r.Clones) != 2 {
		t.Errorf("clones: %+v", r.Clones)
	}
}

// TestPurgeBesideWriters: nobody's write fails, or is lost.
func TestPurgeBesideWriters(t *testing.T) {
	l := newLeaked(t)
	const writers = 8
	var stop atomic.Bool
	var wg sync.WaitGroup
	var written [writers]int
	for i := range writers {
		k := l.k
		if i%2 == 1 {
			k = l.other
		}
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				r := l.Do("PUT", k.file(fmt.Sprintf("w%d/f%d", i, n)), fmt.Appendf(nil, "%d %d\n", i, n))
				if r.Status != 201 {
					t.Errorf("writer %d: %d %.300s", i, r.Status, r.Body)
					return
				}
				written[i] = n + 1
			}
		})
	}
	for range 3 {
		l.purge(t, 0, l.ws, "env/live.env")
		l.k.put(t, "env/live.env", theSecret+fmt.Sprint(time.Now().UnixNano())+"\n").want(t, 200)
		l.k.put(t, "env/live.env", "vault\n").want(t, 200)
	}
	l.purge(t, 0, l.ws, "env/live.env")
	stop.Store(true)
	wg.Wait()
	if t.Failed() {
		return
	}
	l.k.clean(t)
	for i, n := range written {
		for _, f := range []int{0, n - 1} {
			if got := l.read(t, fmt.Sprintf("w%d/f%d", i, f)); got != fmt.Sprintf("%d %d\n", i, f) {
				t.Errorf("w%d/f%d has %q", i, f, got)
			}
		}
	}
	if list := strings.Count(l.k.git(t, "ls-tree", "-r", "--name-only", "refs/heads/shadow"), "\n"); list < writers {
		t.Errorf("the tip has %d files", list)
	}
}

// TestPurgeKilled: whenever the server is killed, the next one has a whole
// history, and a purge that was begun again ends it.
func TestPurgeKilled(t *testing.T) {
	for i := range 6 {
		l := newLeaked(t)
		done := make(chan struct{})
		cmd := harness.Command(t, nil, "purge", "--data-dir", l.DataDir, l.ws, "env/live.env")
		need.NoError(t, cmd.Start())
		go func() {
			_ = cmd.Wait() // it fails: its server goes
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Duration(30+25*i) * time.Millisecond):
		}
		l.Kill()
		<-done
		l.Restart()
		l.k.fsck(t)
		status, _, said := harness.Run(t, nil, "purge", "--data-dir", l.DataDir, l.ws, "env/live.env")
		if status != 0 && !strings.Contains(said, "path_not_in_history") && !strings.Contains(said, "purge_only_on_disk") {
			t.Errorf("purging again: %d %s", status, said)
		}
		l.k.clean(t)
		l.Signal(syscall.SIGTERM)
		l.Wait()
	}
}
