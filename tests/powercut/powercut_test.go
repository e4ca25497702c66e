// Package powercut cuts the power under a running server, on real journaled
// file systems, and looks at what the next start makes of it. It needs root and
// loop devices; without them the crash clones of internal/vfs stand alone.
//
// UMBRA_POWER_CUTS says how many cuts a file system gets: 20, and 200 in make
// soak.
package powercut

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func TestPowerCutExt4(t *testing.T) { cutOften(t, "ext4") }
func TestPowerCutXFS(t *testing.T)  { cutOften(t, "xfs") }

func cutOften(t *testing.T, kind string) {
	need.Long(t, "power cuts")
	def := 20
	if os.Getenv("UMBRA_SOAK") != "" {
		def = 200
	}
	d := newDisk(t, kind)
	need.NoError(t, os.Mkdir(d.path("ws"), 0o755))
	w := &world{t: t, d: d, files: make(map[string]*file)}
	for i := range env("UMBRA_POWER_CUTS", def) {
		w.round(i)
		if t.Failed() {
			t.Fatalf("%s failed in round %d", t.Name(), i+1)
		}
	}
}

// file is what a test knows of one path: the content that was answered last,
// and those that were sent and never answered, which may be there or not.
type file struct {
	acked   string // "" : not there
	pending []string
}

// world is the disk, and what must be on it.
type world struct {
	t    *testing.T
	d    *disk
	task string

	mu    sync.Mutex
	files map[string]*file
}

// round starts the server, checks what the last cut left, works for a moment
// and cuts the power.
func (w *world) round(i int) {
	s := harness.Start(w.t, harness.Options{DataDir: w.d.path("data")})
	if i == 0 {
		w.task = s.Do("POST", "/tasks", map[string]string{"goal": "g", "workspace": w.d.path("ws")}).Expect(201).Text("task_id")
	} else {
		w.check(s)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() { w.work(s, n, i, stop) })
	}
	timer := time.After(time.Duration(20+rand.IntN(400)) * time.Millisecond)
	<-timer
	w.d.cut()
	close(stop)
	wg.Wait()
	s.Kill()
	w.d.reattach()
}

// work writes, replaces and deletes files of its own until it is stopped. The
// server answers errors once the power is gone.
func (w *world) work(s *harness.Server, n, round int, stop chan struct{}) {
	client := &http.Client{Timeout: 5 * time.Second}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("d%d/f%d", n, rand.IntN(6))
		data := fmt.Sprintf("round %d writer %d step %d %s", round, n, i, strings.Repeat("x", rand.IntN(3000)))
		method := "PUT"
		if rand.IntN(6) == 0 {
			method, data = "DELETE", ""
		}
		w.mu.Lock()
		f := w.files[name]
		if f == nil {
			f = &file{}
			w.files[name] = f
		}
		f.pending = append(f.pending, data)
		w.mu.Unlock()
		req, err := http.NewRequest(method, s.URL+"/tasks/"+w.task+"/content?path="+url.QueryEscape(name), strings.NewReader(data))
		if err != nil {
			w.t.Error(err)
			return
		}
		res, err := client.Do(req)
		if err != nil {
			return
		}
		res.Body.Close()
		w.mu.Lock()
		switch {
		case res.StatusCode < 300:
			f.acked, f.pending = data, nil
		case res.StatusCode == 404 && method == "DELETE":
			f.acked, f.pending = "", nil
		}
		w.mu.Unlock()
		if res.StatusCode >= 500 {
			return
		}
	}
}

// check holds the disk and the history against what was answered.
func (w *world) check(s *harness.Server) {
	ws := s.Do("GET", "/tasks/"+w.task, nil).Expect(200)
	id, gitDir := ws.Text("workspace_id"), ws.Text("git_dir")
	s.Do("POST", "/workspaces/"+id+"/sync", map[string]any{}).Expect(200)
	for name, f := range w.files {
		data, err := os.ReadFile(w.d.path("ws", name))
		if err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
		got := string(data)
		ok := got == f.acked
		for _, p := range f.pending {
			ok = ok || got == p
		}
		if !ok {
			w.t.Errorf("%s: %d bytes %.60q; answered were %d %.60q, not answered %d more", name, len(got), got, len(f.acked), f.acked, len(f.pending))
		}
		// History agrees with the disk.
		tip, err := harness.TryGit(w.t, gitDir, "show", "HEAD:"+name)
		if err != nil {
			tip = ""
		}
		if tip != got {
			w.t.Errorf("%s: the tip has %d bytes, the disk %d", name, len(tip), len(got))
		}
		f.acked, f.pending = got, nil
	}
	if out := harness.Git(w.t, gitDir, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
		w.t.Errorf("fsck: %s", out)
	}
}
