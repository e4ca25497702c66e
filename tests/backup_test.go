package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type copied struct {
	Workspaces   int      `json:"workspaces"`
	Files        int      `json:"files"`
	Bytes        int64    `json:"bytes"`
	CopiedBytes  int64    `json:"copied_bytes"`
	ReusedBytes  int64    `json:"reused_bytes"`
	RemovedBytes int64    `json:"removed_bytes"`
	Warnings     []string `json:"warnings"`
}

// runJSON runs a verb that must end with a status, and reads what it prints.
func runJSON(t *testing.T, status int, dst any, args ...string) {
	t.Helper()
	got, out, errOut := harness.Run(t, nil, args...)
	if got != status {
		t.Fatalf("umbra %q: status %d, want %d\n%s\n%s", args, got, status, out, errOut)
	}
	if dst != nil {
		if err := json.Unmarshal([]byte(out), dst); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// backup makes a backup of a data directory, or renews it.
func backup(t *testing.T, data, dir string) copied {
	t.Helper()
	var c copied
	runJSON(t, 0, &c, "backup", dir, "--data-dir", data, "--json")
	if len(c.Warnings) > 0 || c.Bytes != c.CopiedBytes+c.ReusedBytes {
		t.Errorf("%+v", c)
	}
	return c
}

// restore restores a backup into a new directory.
func restore(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "restored")
	if status, _, errOut := harness.Run(t, nil, "restore", dir, "--data-dir", to, "--json"); status != 0 || strings.Contains(errOut, "umbra:") {
		t.Fatalf("umbra restore: status %d\n%s", status, errOut)
	}
	return to
}

// load is writers of pairs of files: each request writes the same number into
// both of its writer's.
type load struct {
	acked [8]atomic.Int64 // the newest number of each writer that was answered
	stop  chan struct{}
	wg    sync.WaitGroup
	fails atomic.Int64
}

func newLoad(k *taskOf) *load {
	l := &load{stop: make(chan struct{})}
	for w := range l.acked {
		l.wg.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				text := fmt.Sprintf("%d\n%s", n, strings.Repeat("x", int(n%4000)))
				body, _ := json.Marshal(map[string]any{"operations": []any{
					map[string]any{"op": "write", "path": fmt.Sprintf("w%d/a", w), "content": text},
					map[string]any{"op": "write", "path": fmt.Sprintf("w%d/deep/%d/b", w, n%7), "content": text}}})
				res, err := k.p.Client.Post(k.p.URL+k.url("/batch"), "application/json", bytes.NewReader(body))
				if err != nil {
					l.fails.Add(1)
					return
				}
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					l.fails.Add(1)
					return
				}
				l.acked[w].Store(n)
			}
		})
	}
	return l
}

// await waits until every writer was answered n times more.
func (l *load) await(t *testing.T, n int64) (seen [8]int64) {
	t.Helper()
	var from [8]int64
	for w := range l.acked {
		from[w] = l.acked[w].Load()
	}
	eventually(t, func() bool {
		for w := range l.acked {
			if seen[w] = l.acked[w].Load(); seen[w] < from[w]+n {
				return l.fails.Load() > 0
			}
		}
		return true
	})
	return seen
}

func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	if n := l.fails.Load(); n > 0 {
		t.Fatalf("%d writers failed", n)
	}
}

// pairs holds that no request is half in a tree, and gives each writer's number
// there.
func pairs(t *testing.T, gitDir, rev string) (at [8]int64) {
	t.Helper()
	for w := range at {
		a := harness.Git(t, gitDir, "cat-file", "blob", fmt.Sprintf("%s:w%d/a", rev, w))
		first, _, _ := strings.Cut(a, "\n")
		n, err := strconv.ParseInt(first, 10, 64)
		need.NoError(t, err)
		if b := harness.Git(t, gitDir, "cat-file", "blob", fmt.Sprintf("%s:w%d/deep/%d/b", rev, w, n%7)); b != a {
			t.Errorf("writer %d: half of change %d is in %s", w, n, rev)
		}
		at[w] = n
	}
	return at
}

// TestBackupUnderLoad backs up while eight writers write: what was answered
// before is in the restored history, nothing is half there, and a second backup
// copies what is new alone.
func TestBackupUnderLoad(t *testing.T) {
	p := newProject(t, map[string]string{"kept": strings.Repeat("kept\n", 1000)})
	k := p.task(t)
	p.call(t, "PUT", k.url("/scratch/notes.md"), []byte("notes")).want(t, 201)
	l := newLoad(k)
	l.await(t, 5)
	dir := filepath.Join(t.TempDir(), "backup")
	before := l.await(t, 5)
	backup(t, p.DataDir, dir)
	later := l.await(t, 5)
	backup(t, p.DataDir, dir)
	l.await(t, 2)
	l.end(t)

	data := restore(t, dir)
	// The folder is newer than the history by then.
	report := verify(t, 1, "--data-dir", data)
	if len(report.Workspaces) != 1 || len(report.Workspaces[0].Problems) > 0 || report.Workspaces[0].Disk != "differs" {
		t.Errorf("%+v", report)
	}
	gitDir := filepath.Join(data, "workspaces", k.str("workspace_id"), "repo.git")
	if out := harness.Git(t, gitDir, "fsck", "--strict", "--full", "--no-progress"); strings.TrimSpace(out) != "" {
		t.Errorf("git fsck says: %s", out)
	}
	for w, n := range pairs(t, gitDir, "refs/umbra/head") {
		if n < later[w] || n < before[w] {
			t.Errorf("writer %d: %d is in the backup, %d was answered before it began", w, n, later[w])
		}
	}
	if out := harness.Git(t, gitDir, "for-each-ref", "refs/foreign"); out != "" {
		t.Errorf("refs were taken for moved: %s", out)
	}
	if got, err := os.ReadFile(filepath.Join(data, "tasks", k.ID, "scratch", "notes.md")); err != nil || string(got) != "notes" {
		t.Errorf("scratch: %q %v", got, err)
	}
	// Once more it differs: looking recorded nothing.
	verify(t, 1, "--data-dir", data)

	p.Stop()
	again := harness.Start(t, harness.Options{DataDir: data})
	// Differences are external changes of no task.
	eventually(t, func() bool {
		return again.Do("GET", "/workspaces/"+k.str("workspace_id"), nil).Expect(200).Text("state") == "clean"
	})
	again.Do("POST", "/workspaces/"+k.str("workspace_id")+"/sync", map[string]any{}).Expect(200)
	if out := harness.Git(t, gitDir, "log", "-1", "--format=%(trailers:key=Source,valueonly)%(trailers:key=Task-Id,valueonly)", "refs/umbra/head"); strings.TrimSpace(out) != "external" {
		t.Errorf("the newest commit: %q", out)
	}
	again.Do("PUT", k.file("after"), []byte("after")).Expect(201)
	again.Stop()
	verify(t, 0, "--data-dir", data)
}

// TestBackupSecondTime measures what is copied.
func TestBackupSecondTime(t *testing.T) {
	p := newProject(t, map[string]string{})
	k := p.task(t)
	big := make([]byte, 6<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	k.put(t, "big", string(big)).want(t, 201)
	k.sync(t)
	dir := filepath.Join(t.TempDir(), "a", "backup")
	first := backup(t, p.DataDir, dir)
	if first.CopiedBytes < 1<<20 || first.Workspaces != 1 {
		t.Errorf("%+v", first)
	}
	quiet := backup(t, p.DataDir, dir)
	if quiet.CopiedBytes > 64<<10 || quiet.Bytes < first.Bytes/2 {
		t.Errorf("nothing was written since, and %d of %d bytes were copied", quiet.CopiedBytes, quiet.Bytes)
	}
	k.put(t, "small", "small\n").want(t, 201)
	second := backup(t, p.DataDir, dir)
	if second.CopiedBytes == 0 || second.CopiedBytes > 512<<10 {
		t.Errorf("%+v", second)
	}
	// Clean against the folder as it was then, with the server stopped or not.
	data := restore(t, dir)
	verify(t, 0, "--data-dir", data)
	mirror := filepath.Join(t.TempDir(), "mirror.git")
	harness.Git(t, t.TempDir(), "clone", "--quiet", "--mirror", k.gitDir(), mirror)
	if a, b := harness.Git(t, mirror, "for-each-ref"), harness.Git(t, filepath.Join(data, "workspaces", k.str("workspace_id"), "repo.git"), "for-each-ref"); a != b {
		t.Errorf("a mirror has\n%s\nthe backup\n%s", a, b)
	}
	p.Stop()
	if c := backup(t, p.DataDir, dir); c.Workspaces != 1 {
		t.Errorf("without a server: %+v", c)
	}
}

// TestBackupOfNothing: a server that was never used.
func TestBackupOfNothing(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir := filepath.Join(t.TempDir(), "backup")
	if c := backup(t, s.DataDir, dir); c.Workspaces != 0 || c.Files == 0 {
		t.Errorf("%+v", c)
	}
	data := restore(t, dir)
	verify(t, 0, "--data-dir", data)
	harness.Start(t, harness.Options{DataDir: data}).Do("GET", "/readyz", nil).Expect(200)
}

// TestBackupRefuses holds what neither verb does.
func TestBackupRefuses(t *testing.T) {
	p := newProject(t, map[string]string{"a": "a"})
	k := p.task(t)
	k.put(t, "b", "b").want(t, 201)
	other := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(other, "mine"), []byte("mine"), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	need.NoError(t, os.Symlink(p.dir, link))
	for _, dir := range []string{filepath.Join(p.DataDir, "backup"), p.DataDir, filepath.Join(p.dir, "sub", "backup"), filepath.Join(link, "x"), other} {
		status, _, errOut := harness.Run(t, nil, "backup", dir, "--data-dir", p.DataDir)
		if status != 1 || errOut == "" {
			t.Errorf("%s: status %d, %s", dir, status, errOut)
		}
	}
	if _, err := os.Lstat(filepath.Join(p.dir, "sub")); err == nil {
		t.Error("a refused backup made a folder")
	}
	for _, args := range [][]string{{"backup"}, {"backup", "a", "b"}, {"backup", "rel", "--server", p.URL}, {"restore"}, {"restore", other, "--server", p.URL}} {
		if status, _, _ := harness.Run(t, nil, args...); status != 2 {
			t.Errorf("%q: status %d", args, status)
		}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	runJSON(t, 0, &copied{}, "backup", dir, "--server", p.URL, "--json")

	empty := t.TempDir()
	for name, c := range map[string]struct{ from, to string }{
		"no backup":     {other, filepath.Join(empty, "x")},
		"nothing there": {filepath.Join(other, "none"), filepath.Join(empty, "x")},
		"not empty":     {dir, other},
		"a live one":    {dir, p.DataDir},
		"a file":        {dir, filepath.Join(other, "mine")},
	} {
		if status, _, errOut := harness.Run(t, nil, "restore", c.from, "--data-dir", c.to); status != 1 || errOut == "" {
			t.Errorf("%s: status %d, %s", name, status, errOut)
		}
	}
	if list, err := os.ReadDir(empty); err != nil || len(list) > 0 {
		t.Errorf("a refused restore left %v %v", list, err)
	}
	if list, err := os.ReadDir(other); err != nil || len(list) != 1 {
		t.Errorf("a refused restore touched %v %v", list, err)
	}
	// An empty folder that is there is taken, whatever its mode.
	need.NoError(t, os.Chmod(empty, 0o755))
	runJSON(t, 0, &copied{}, "restore", dir, "--data-dir", empty, "--json")
	if st, err := os.Stat(empty); err != nil || st.Mode().Perm() != 0o700 {
		t.Error(st.Mode(), err)
	}
	verify(t, 0, "--data-dir", empty)
	k.put(t, "c", "c").want(t, 201) // the server goes on
}

// TestRestoreDamaged changes a byte of each piece in turn: the restore says so and
// leaves nothing.
func TestRestoreDamaged(t *testing.T) {
	p := newProject(t, map[string]string{"a": "a"})
	k := p.task(t)
	k.put(t, "b", "b").want(t, 201)
	dir := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, dir)
	p.Stop()
	pieces, err := filepath.Glob(filepath.Join(dir, "objects", "*", "*"))
	if err != nil || len(pieces) < 3 {
		t.Fatal(pieces, err)
	}
	for i, name := range append(pieces[:min(len(pieces), 4)], filepath.Join(dir, "manifest")) {
		good, err := os.ReadFile(name)
		need.NoError(t, err)
		change := flipped
		if i == 1 {
			change = func(b []byte) []byte { return b[:len(b)-1] }
		}
		overwrite(t, name, change)
		to := filepath.Join(t.TempDir(), "new", "data")
		status, _, errOut := harness.Run(t, nil, "restore", dir, "--data-dir", to)
		if status != 1 || !strings.Contains(errOut, "damaged") {
			t.Errorf("%s: status %d, %s", name, status, errOut)
		}
		if _, err := os.Lstat(filepath.Dir(to)); !os.IsNotExist(err) {
			t.Errorf("%s: something was left: %v", name, err)
		}
		need.NoError(t, os.WriteFile(name, good, 0o600))
	}
	verify(t, 0, "--data-dir", restore(t, dir))
}

// eventually asks until it is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if so() {
			return
		}
	}
	t.Fatal("it never was so")
}

// TestBackupServerKilled kills the server while it copies, and a restore while it
// writes: both are gone on with.
func TestBackupServerKilled(t *testing.T) {
	p := newProject(t, map[string]string{})
	k := p.task(t)
	for i := range 6 {
		k.put(t, fmt.Sprintf("big%d", i), noise(8<<20, int64(i))).want(t, 201)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	there := func(name string, size int64) func() bool {
		return func() bool {
			st, err := os.Lstat(name)
			return err == nil && st.Size() >= size
		}
	}
	verb := harness.Command(t, nil, "backup", dir, "--data-dir", p.DataDir)
	need.NoError(t, verb.Start())
	eventually(t, there(filepath.Join(dir, "partial"), 800))
	p.Kill()
	cut := verb.Wait() != nil
	p.Restart()
	if _, err := os.Stat(filepath.Join(dir, "manifest")); cut && err == nil {
		t.Error("a backup that was cut off has a manifest")
	}
	c := backup(t, p.DataDir, dir)
	t.Logf("cut off: %v; then %d bytes copied, %d there", cut, c.CopiedBytes, c.ReusedBytes)
	if cut && c.ReusedBytes == 0 {
		t.Error("all was copied once more")
	}

	to := filepath.Join(t.TempDir(), "new")
	verb = harness.Command(t, nil, "restore", dir, "--data-dir", to)
	need.NoError(t, verb.Start())
	eventually(t, there(filepath.Join(to, ".umbra-restoring", "format"), 1))
	need.NoError(t, verb.Process.Kill())
	if verb.Wait() != nil {
		status, _, errOut := harness.Run(t, nil, "serve", "--data-dir", to, "--listen", "127.0.0.1:0")
		if status != 1 || !strings.Contains(errOut, "restore") {
			t.Errorf("a server on half a restore: status %d, %s", status, errOut)
		}
		runJSON(t, 0, &copied{}, "restore", dir, "--data-dir", to, "--json")
	}
	verify(t, 0, "--data-dir", to)
}

// TestBackupCutHistory backs up a history of which the oldest was dropped, and
// from which something was purged.
func TestBackupCutHistory(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "retention: {bytes: 100KiB}\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "a\n"})
	var k *taskOf
	for i := range 6 {
		k = p.task(t)
		for n := range 5 {
			k.put(t, fmt.Sprintf("f%d", n), noise(10<<10, int64(10*i+n)))
		}
		k.put(t, "secret", fmt.Sprintf("secret %d", i)).want(t, 200+min(1, max(0, 1-i)))
		p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, dir)
	full := verify(t, 0, "--data-dir", restore(t, dir))
	runJSON(t, 0, nil, "gc", "--now", "--data-dir", p.DataDir)
	k.put(t, "x", "x") // ended: refused
	c := backup(t, p.DataDir, dir)
	if c.RemovedBytes == 0 {
		t.Errorf("nothing went from the backup: %+v", c)
	}
	data := restore(t, dir)
	cut := verify(t, 0, "--data-dir", data)
	if full.Workspaces[0].Head != cut.Workspaces[0].Head {
		t.Errorf("%s, then %s", full.Workspaces[0].Head, cut.Workspaces[0].Head)
	}
	gitDir := filepath.Join(data, "workspaces", k.str("workspace_id"), "repo.git")
	if out := harness.Git(t, gitDir, "fsck", "--strict", "--full", "--no-progress"); strings.TrimSpace(out) != "" {
		t.Errorf("git fsck says: %s", out)
	}
	if n := harness.Git(t, gitDir, "rev-list", "--count", "refs/umbra/head"); n == "37" {
		t.Error("no history was dropped")
	}
	runJSON(t, 0, nil, "purge", k.str("workspace_id"), "secret", "--data-dir", p.DataDir)
	backup(t, p.DataDir, dir)
	data = restore(t, dir)
	purged := verify(t, 0, "--data-dir", data)
	if purged.Workspaces[0].Head == cut.Workspaces[0].Head {
		t.Error("the purge changed no id")
	}
}

// What a backup has in open journals is seen by stock git once it is restored.
func TestRestorePublishes(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir := folder(t, map[string]string{"a": "x"})
	made := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": dir}).Expect(201)
	repo := filepath.Join(s.DataDir, "workspaces", made.Text("workspace_id"), "repo.git")
	s.Do("POST", "/workspaces/"+made.Text("workspace_id")+"/sync", map[string]any{}).Expect(200)
	// Somebody holds the ref's lock: the newest stays in the journal.
	lock := filepath.Join(repo, "refs", "heads", "shadow.lock")
	need.NoError(t, os.WriteFile(lock, nil, 0o644))
	newest := s.Do("PUT", "/tasks/"+made.Text("task_id")+"/content?path=b", []byte("newest")).Expect(201).Text("commit")
	to := filepath.Join(t.TempDir(), "backup")
	backup(t, s.DataDir, to)
	need.NoError(t, os.Remove(lock))
	restored := restore(t, to)
	if got := strings.TrimSpace(harness.Git(t, filepath.Join(restored, "workspaces", made.Text("workspace_id"), "repo.git"), "rev-parse", "refs/umbra/head")); got != newest {
		t.Errorf("stock git sees %s, and the newest is %s", got, newest)
	}
	harness.Git(t, filepath.Join(restored, "workspaces", made.Text("workspace_id"), "repo.git"), "fsck", "--strict", "--full")
}

// A restore publishes forks, and forks of forks, which continue another's history.
func TestRestorePublishesForks(t *testing.T) {
	p := newProject(t, map[string]string{"a": "x"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	newest, locks := map[string]string{}, []string{}
	write := func(fork string) {
		dir := filepath.Join(p.DataDir, "workspaces", fork, "repo.git")
		p.post(t, "/workspaces/"+fork+"/sync", map[string]any{}).want(t, 200)
		// With the ref's lock held, the newest commit is in the journal alone.
		locks = append(locks, filepath.Join(dir, "refs", "heads", "shadow.lock"))
		need.NoError(t, os.WriteFile(locks[len(locks)-1], nil, 0o644))
		task := p.post(t, "/tasks", map[string]any{"workspace": fork, "goal": "try"}).want(t, 201).str(t, "task_id")
		newest[fork] = p.call(t, "PUT", "/tasks/"+task+"/content?path=b", []byte("of "+fork)).want(t, 201).str(t, "commit")
	}
	fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	deep := p.forks(t, "/workspaces/"+fork, nil)[0]["id"].(string)
	dir := p.forks(t, ws, map[string]any{"kind": "copy", "path": filepath.Join(t.TempDir(), "copy")})[0]["id"].(string)
	unused := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	for _, id := range []string{fork, deep, dir} {
		write(id)
	}
	to := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, to)
	for _, lock := range locks {
		need.NoError(t, os.Remove(lock))
	}
	restored := restore(t, to)
	for id, commit := range newest {
		dir := filepath.Join(restored, "workspaces", id, "repo.git")
		if got := strings.TrimSpace(harness.Git(t, dir, "rev-parse", "refs/umbra/head")); got != commit {
			t.Errorf("stock git sees %s in %s, and the newest is %s", got, id, commit)
		}
		harness.Git(t, dir, "fsck", "--strict", "--full", "--no-dangling")
	}
	// Verify, which needs no server, leaves a fork that was never used readable by git.
	for _, data := range []string{restored, p.DataDir} {
		if data == p.DataDir {
			p.Stop()
		}
		verify(t, 0, "--data-dir", data)
		harness.Git(t, filepath.Join(data, "workspaces", unused, "repo.git"), "fsck", "--strict", "--full", "--no-dangling")
	}
}
