package tests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// How long the mixed load goes on: an hour in make soak, a moment in make test.
const (
	soakLong  = time.Hour
	soakShort = 20 * time.Second
)

// What may grow, since it is kept by contract: of every task a record, of every
// dropped commit its id, of every idempotency key the answer for a day.
const (
	memoryOfTask = 600     // bytes of the server's memory
	keptOfTask   = 6 << 10 // with a file in its scratch
	keptOfKey    = 2 << 10
	keptOfCommit = 32
)

// TestSoak keeps up a load of all dialects, of a person and of the owner. The
// first quarter warms up: pools, caches, the sandboxes' processes. What the
// server holds in the last quarter (descriptors, goroutines, live and resident
// memory) and what it takes on disk after umbra gc is then held against the
// second, to which all that is bounded has grown by then in the long form.
//
// UMBRA_SOAK_SAMPLES names a file that gets every look.
func TestSoak(t *testing.T) {
	// Superseded packs stay open for a grace of minutes, and caches fill: within a
	// moment they only grow.
	length, packs, fill := soakShort, int64(600), int64(48<<20)
	if how := os.Getenv("UMBRA_SOAK"); how != "" {
		length, packs = soakLong, 128
		if d, err := time.ParseDuration(how); err == nil { // as long as one likes
			length = d
		}
		if length >= soakLong {
			fill = 8 << 20
		}
	}
	k := newSoak(t, min(length/10, 2*time.Minute))
	stop := make(chan struct{})
	k.load(t, stop)
	var quarters [4]held
	for i := range quarters {
		quarters[i] = k.observe(t, length/4)
		t.Logf("quarter %d: %+v", i+1, quarters[i])
	}
	close(stop)
	k.workers.Wait()
	if k.failed.Load() > 0 {
		k.fmu.Lock()
		t.Errorf("%d calls failed; of these:\n%s", k.failed.Load(), strings.Join(k.failures, "\n"))
		k.fmu.Unlock()
	}
	if k.calls.Load() < 200 {
		t.Errorf("only %d calls were made", k.calls.Load())
	}
	first, last := quarters[1], quarters[3]
	tasks, keys, commits := last.tasks-first.tasks, last.keys-first.keys, last.commits-first.commits
	flat := func(what string, first, last, slack int64) {
		t.Helper()
		if last > first+first/8+slack {
			t.Errorf("%s grow: %d in the second quarter, %d in the last", what, first, last)
		}
	}
	flat("descriptors", first.descriptors, last.descriptors, packs)
	flat("goroutines", first.goroutines, last.goroutines, 24)
	flat("bytes of live memory", first.heap, last.heap, fill+tasks*memoryOfTask)
	flat("resident bytes of its own", first.resident, last.resident, 2*fill+2*tasks*memoryOfTask)
	flat("bytes on disk", first.disk, last.disk, 4<<20)
	flat("bytes kept for good", first.kept, last.kept, 1<<20+tasks*keptOfTask+keys*keptOfKey+commits*keptOfCommit)
	flat("bytes of the backup", first.backup, last.backup, 16<<20+tasks*keptOfTask+keys*keptOfKey+commits*keptOfCommit)
	if err := k.verb(t, "verify"); err != nil {
		t.Error(err)
	}
	if out := harness.Git(t, k.gitDir, "fsck", "--strict", "--full", "--no-dangling", "--no-progress"); out != "" {
		t.Errorf("git fsck says: %s", out)
	}
}

// held is the least of what the server held at several looks, since peaks are the
// load's and what never goes is a leak; and, as of the end, what stands on disk
// and how much was done.
type held struct {
	descriptors, goroutines, heap, resident int64
	disk, kept, backup                      int64
	calls, tasks, keys, commits             int64
}

// soak is the server and what the workers share.
type soak struct {
	*project
	id                 string // the workspace's
	gitDir, backup     string
	workers            sync.WaitGroup
	gate               sync.RWMutex // held by who wants the workers to stand still
	calls, tasks, keys atomic.Int64
	seeds              atomic.Int64
	began              time.Time
	samples            io.Writer // of an os.File, or nothing: several may write

	failed   atomic.Int64
	fmu      sync.Mutex
	failures []string // the first ones
}

// tooMany is how many failures end the test at once.
const tooMany = 100

func (k *soak) fail(err error) {
	k.failed.Add(1)
	k.fmu.Lock()
	defer k.fmu.Unlock()
	if len(k.failures) < 20 {
		text := fmt.Sprintf("%s: %v", time.Since(k.began).Round(time.Second), err)
		k.failures = append(k.failures, text)
		fmt.Fprintf(k.samples, "failed: %s\n", text)
	}
}

func newSoak(t *testing.T, age time.Duration) *soak {
	t.Helper()
	config := fmt.Sprintf("log: {level: error}\nretention: {bytes: 2MiB, age: %s, interval: 5s}\nworkspaces: {watch_idle: 1m}\n", age)
	p := &project{Server: harness.Start(t, harness.Options{Config: config, Args: []string{"--output-dir", filepath.Join(t.TempDir(), "out"), "--workspace-dir", filepath.Join(t.TempDir(), "code")}}), dir: t.TempDir()}
	p.fill(t, map[string]string{"README.md": "soak\n", ".gitignore": "*.log\n"})
	task := p.task(t)
	p.call(t, "PATCH", task.url(""), map[string]any{"status": "completed"}).want(t, 200)
	k := &soak{project: p, id: task.str("workspace_id"), gitDir: task.gitDir(), backup: filepath.Join(t.TempDir(), "backup"), began: time.Now(), samples: io.Discard}
	if name := os.Getenv("UMBRA_SOAK_SAMPLES"); name != "" {
		f, err := os.Create(name)
		need.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		k.samples = f
	}
	return k
}

func (k *soak) wait(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		if k.failed.Load() > tooMany {
			k.fmu.Lock()
			defer k.fmu.Unlock()
			t.Fatalf("calls fail:\n%s", strings.Join(k.failures, "\n"))
		}
		<-time.After(min(100*time.Millisecond, time.Until(end)))
	}
}

// observe looks at the server for a while, then has the room freed.
func (k *soak) observe(t *testing.T, d time.Duration) (least held) {
	t.Helper()
	looks := max(10, int(d/(5*time.Second)))
	for i := range looks {
		k.wait(t, d/time.Duration(looks))
		h := k.see(t)
		if i == 0 {
			least = h
		}
		least.descriptors = min(least.descriptors, h.descriptors)
		least.goroutines = min(least.goroutines, h.goroutines)
		least.heap = min(least.heap, h.heap)
		least.resident = min(least.resident, h.resident)
		least.commits = h.commits
		fmt.Fprintf(k.samples, "%.0f calls=%d failed=%d fds=%d goroutines=%d heap=%d rss=%d commits=%d disk=%d kept=%d\n", time.Since(k.began).Seconds(), k.calls.Load(), k.failed.Load(),
			h.descriptors, h.goroutines, h.heap, h.resident, h.commits, h.disk, h.kept)
	}
	// No task is under way then, whose base would hold history.
	k.gate.Lock()
	defer k.gate.Unlock()
	for _, args := range [][]string{{"gc", "--now"}, {"backup", k.backup}} {
		need.NoError(t, k.verb(t, args...))
	}
	least.disk, least.kept = diskOf(t, k.DataDir)
	least.backup, _ = diskOf(t, k.backup)
	least.calls, least.tasks, least.keys = k.calls.Load(), k.tasks.Load(), k.keys.Load()
	return least
}

// resident is a line of proc_pid_status(5), in KiB: memory of the process's own.
// What it has mapped of files is the system's to take back, and grows with
// state.db, which has a bound of its own (held.kept).
var resident = regexp.MustCompile(`(?m)^RssAnon:\s+(\d+) kB`)

// metric makes what finds a metric without labels.
func metric(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^` + name + ` ([0-9.e+]+)$`)
}

// see looks at the running server once.
func (k *soak) see(t *testing.T) (h held) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", k.PID())
	fds, err := os.ReadDir(proc + "/fd")
	need.NoError(t, err)
	status, err := os.ReadFile(proc + "/status")
	need.NoError(t, err)
	res, err := k.Client.Get(k.URL + "/metrics")
	need.NoError(t, err)
	defer res.Body.Close()
	metrics, err := io.ReadAll(res.Body)
	need.NoError(t, err)
	number := func(re *regexp.Regexp, text []byte) int64 {
		m := re.FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s is nowhere in %.300s", re, text)
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		need.NoError(t, err)
		return int64(n)
	}
	h = held{descriptors: int64(len(fds)), resident: number(resident, status) << 10,
		goroutines: number(metric("go_goroutines"), metrics), heap: number(metric("go_memstats_heap_alloc_bytes"), metrics),
		commits: number(metric("umbra_commits_total"), metrics)}
	h.disk, h.kept = diskOf(t, k.DataDir)
	return h
}

// diskOf adds up what the files below a folder take, each name once. Apart from
// them stands what is meant to stay: records and answers, scratch and artifacts,
// ids of dropped commits, the maps of purges.
func diskOf(t *testing.T, dir string) (n, kept int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		size := info.Size()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			size = st.Blocks * 512
		}
		rel, _ := filepath.Rel(dir, name)
		if strings.HasPrefix(e.Name(), "state.db") || e.Name() == "dropped" || filepath.Base(filepath.Dir(name)) == "moved" || strings.HasPrefix(rel, "tasks/") {
			kept += size
		} else {
			n += size
		}
		return nil
	})
	need.NoError(t, err)
	return n, kept
}
