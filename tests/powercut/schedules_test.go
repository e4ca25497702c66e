//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A schedule is a random order of kills, power failures, full disks, jumps of the
// clock and operations on files and directories, of two agents and of a user whose
// process keeps files open and writes to them after they were replaced, renamed or
// deleted, and creates files in directories meanwhile. Afterwards each byte that was answered or synced is on disk or in
// history, and each commit has only its owner's.
//
// UMBRA_SCHEDULES says how many: 6, and 2,000 in make soak. UMBRA_SEED repeats one;
// how the processes interleave is not repeated.
func TestSchedules(t *testing.T) {
	need.Root(t)
	n, seed := 6, uint64(time.Now().UnixNano())
	if os.Getenv("UMBRA_SOAK") != "" {
		n = 2000
	}
	n = env("UMBRA_SCHEDULES", n)
	if v := os.Getenv("UMBRA_SEED"); v != "" {
		n = 1
		if _, err := fmt.Sscan(v, &seed); err != nil {
			t.Fatal(err)
		}
	}
	var disks [2]*disk
	for i, kind := range []string{"ext4", "xfs"} {
		disks[i] = newDisk(t, kind)
	}
	count := make(map[string]int)
	for i := range n {
		x := &schedule{seed: seed + uint64(i), disks: disks, count: count}
		if !t.Run(fmt.Sprint(x.seed), x.run) {
			t.Fatalf("repeat with UMBRA_SEED=%d", x.seed)
		}
	}
	t.Logf("%d schedules: %v", n, count)
}

// schedule is one of them.
type schedule struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand
	disks [2]*disk
	count map[string]int

	loops    []*disk // on which it is; a power failure stops them
	data, ws string
	filler   string // a file that fills the data directory's disk
	opts     harness.Options

	srv     *harness.Server // nil: stopped
	clock   *harness.WallClock
	shift   time.Duration
	full    bool
	cut     bool     // the power failed, and the workspace was not opened since
	carried []string // directories that a request may have moved whose answer never came, until the workspace is opened
	agents  []*agent
	wsID    string
	gitDir  string

	mu      sync.Mutex
	said    []string
	written []*written
	known   map[string]known
	held    []*heldFile
	dirs    []*os.File // as a process's working directory, whatever becomes of their names
}

// agent is one with a task of its own.
type agent struct{ name, task string }

const steps = 30

func (x *schedule) run(t *testing.T) {
	x.t, x.r, x.known = t, rand.New(rand.NewPCG(x.seed, 17)), make(map[string]known)
	x.place()
	defer func() {
		x.closeAll()
		if t.Failed() {
			t.Logf("%s\n%s", x.data, strings.Join(x.said, "\n"))
			return
		}
		for _, dir := range []string{x.data, x.ws} {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 4 {
		x.userSave()
	}
	x.start()
	for range steps {
		if x.step(); t.Failed() {
			return
		}
	}
	x.end()
}

// place chooses the disks: one for all, one for history and one for the files, or
// a small one in memory for history.
func (x *schedule) place() {
	name := fmt.Sprint("s", x.seed)
	a := x.disks[x.r.IntN(2)]
	data, ws := a.path(name), a.path(name)
	switch x.r.IntN(4) {
	case 0:
		b := x.disks[0]
		if a == b {
			b = x.disks[1]
		}
		x.loops, ws = []*disk{a, b}, b.path(name)
	case 1:
		data = filepath.Join(x.t.TempDir(), "small")
		mountSmall(x.t, data)
		ws = filepath.Join(x.t.TempDir(), name)
	default:
		x.loops = []*disk{a}
	}
	x.data, x.ws, x.filler = filepath.Join(data, "data"), filepath.Join(ws, "ws"), filepath.Join(data, "filler")
	if len(x.loops) > 0 {
		x.data, x.ws = data+"-data", ws+"-ws"
		x.filler = data + "-filler"
	}
	if err := os.MkdirAll(x.ws, 0o755); err != nil {
		x.t.Fatal(err)
	}
	for _, dir := range []string{x.ws, filepath.Dir(x.ws)} { // no power failure takes the workspace's directory
		f, err := os.Open(dir)
		if err != nil {
			x.t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			x.t.Fatal(err)
		}
	}
	x.opts = harness.Options{DataDir: x.data}
	if x.r.IntN(3) > 0 { // else the floor of free room comes before the end of the disk
		x.opts.Config = "limits: {free_bytes: 1}\n"
	}
	x.say("data %s, files %s, %s", x.data, x.ws, x.opts.Config)
}

func mountSmall(t *testing.T, at string) {
	t.Helper()
	need.NoError(t, os.Mkdir(at, 0o755))
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=48m"); err != nil {
		need.Missing(t, "tmpfs cannot be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// say adds a line to what is shown if the schedule fails.
func (x *schedule) say(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said = append(x.said, fmt.Sprintf("%3d ", len(x.said))+fmt.Sprintf(format, args...))
}

// start starts the server; the first time it makes the tasks.
func (x *schedule) start() {
	x.srv = harness.Start(x.t, x.opts)
	x.clock = harness.NewWallClock(x.t, x.srv.PID())
	x.clock.Set(x.shift)
	x.say("start")
	for len(x.agents) < 2 {
		a := &agent{name: string(rune('A' + len(x.agents)))}
		r := x.srv.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": x.ws}).Expect(201)
		a.task, x.wsID, x.gitDir = r.Text("task_id"), r.Text("workspace_id"), r.Text("git_dir")
		x.agents = append(x.agents, a)
	}
}

// step does something.
func (x *schedule) step() {
	if x.srv == nil {
		switch x.r.IntN(3) {
		case 0:
			x.start()
		default:
			x.user()
		}
		return
	}
	switch n := x.r.IntN(100); {
	case n < 40:
		x.request(x.op(x.agents[x.r.IntN(2)], true))
	case n < 50:
		x.burst()
	case n < 80:
		x.user()
	case n < 86:
		x.jump()
	case n < 91:
		x.fill()
	case n < 94:
		x.count["stops"]++
		x.say("stop")
		x.srv.Stop()
		x.srv = nil
	default:
		x.fail()
	}
}

// moment is some milliseconds.
func (x *schedule) moment(most int) {
	timer := time.After(time.Duration(x.r.IntN(most*1000)) * time.Microsecond)
	<-timer
}

// fail kills the server or cuts the power while requests are under way.
func (x *schedule) fail() {
	var wg sync.WaitGroup
	for range x.r.IntN(3) {
		o := x.op(x.agents[x.r.IntN(2)], true)
		x.doubt(o)
		wg.Go(func() { x.send(o) })
	}
	x.moment(15)
	if len(x.loops) == 0 || x.r.IntN(2) == 0 {
		x.count["kills"]++
		x.say("kill -9")
		x.srv.Kill()
		wg.Wait()
		x.srv = nil
		return
	}
	x.count["power failures"]++
	x.say("power failure")
	for _, d := range x.loops {
		d.cut()
	}
	x.srv.Kill()
	wg.Wait()
	x.srv = nil
	x.closeAll()
	for _, d := range x.loops {
		d.reattach()
	}
	x.cut = true
	x.unsynced()
	if _, err := os.Stat(x.filler); err != nil {
		x.full = false
	}
}

// jump sets the server's clock.
func (x *schedule) jump() {
	const year = 365 * 24 * time.Hour
	x.shift = []time.Duration{0, time.Hour, -time.Hour, 40 * 24 * time.Hour, -40 * 24 * time.Hour, 10 * year, -10 * year}[x.r.IntN(7)]
	x.say("clock set by %v", x.shift)
	x.count["clock jumps"]++
	x.clock.Set(x.shift)
}

// fill takes the room of the data directory's disk, but for some, or gives it back.
func (x *schedule) fill() {
	x.count["full disks"]++
	if x.full {
		x.empty()
		return
	}
	f, err := os.Create(x.filler)
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for part := int64(64 << 20); part >= 4096; {
		if err := unix.Fallocate(int(f.Fd()), 0, size, part); err != nil {
			part /= 2
			continue
		}
		size += part
	}
	left := int64(x.r.IntN(100)) << (10 + x.r.IntN(4))
	if err := f.Truncate(max(size-left, 0)); err != nil {
		x.t.Fatal(err)
	}
	x.full = true
	x.say("the disk is full, but for %d KiB", left>>10)
}

func (x *schedule) empty() {
	if err := os.Remove(x.filler); err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	x.full = false
	x.say("there is room")
}

// burst is several requests at once, and a user's change among them.
func (x *schedule) burst() {
	x.say("at once:")
	moves := x.r.IntN(2) == 0
	var wg sync.WaitGroup
	var list []*op
	for i := range 4 {
		o := x.op(x.agents[i%2], moves)
		list = append(list, o)
		wg.Go(func() { x.send(o) })
	}
	x.moment(3)
	switch {
	case len(x.dirs) > 0 && x.r.IntN(3) == 0:
		x.dirCreate()
	case x.r.IntN(2) == 0:
		x.userAppend()
	case moves: // another file may be at a path by now
		x.heldAppend()
	default:
		x.userSave()
	}
	wg.Wait()
	for _, o := range list {
		x.doubt(o)
	}
	x.say("so far")
}
