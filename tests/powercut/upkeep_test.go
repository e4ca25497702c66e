package powercut

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// Retention, garbage collection, purges and backups go on beside the writers when
// the power goes, or the server is killed.
func TestPowerCutUpkeepExt4(t *testing.T) { cutUpkeep(t, newDisk(t, "ext4")) }
func TestPowerCutUpkeepXFS(t *testing.T)  { cutUpkeep(t, newDisk(t, "xfs")) }

// TestKillUpkeep is the same with a kill -9, which leaves the page cache.
func TestKillUpkeep(t *testing.T) {
	cutUpkeep(t, &disk{t: t, mount: t.TempDir(), killOnly: true})
}

// upkeepConfig lets history go as soon as no task keeps it, without a pause.
const upkeepConfig = "retention: {age: 1s, interval: 50ms}\nlimits: {free_bytes: 1}\n"

func cutUpkeep(t *testing.T, d *disk) {
	need.Long(t, "power cuts")
	def := len(moments)
	if os.Getenv("UMBRA_SOAK") != "" {
		def = 100
	}
	need.NoError(t, os.Mkdir(d.path("ws"), 0o755))
	u := &upkeep{world: world{t: t, d: d, files: make(map[string]*file)}, backup: d.path("backup"), answered: make(chan string),
		refused: make(map[string]string)}
	for i := range env("UMBRA_POWER_CUTS", def) {
		u.round(i)
		if t.Failed() {
			t.Fatalf("%s failed in round %d, whose cut comes %s", t.Name(), i+1, momentOf(i))
		}
	}
	t.Logf("%d purges were answered, %d not; %d backups; %d collections; after %d of them the power went at once", u.purged, u.cutOff, u.backups, u.collected, u.atOnce)
}

// upkeep is a world whose history is also dropped, purged and copied.
type upkeep struct {
	world
	ws, backup string

	mu      sync.Mutex
	secrets []string          // that were written, and whose purge was not answered
	gone    []string          // whose purge was
	saved   bool              // a backup was answered
	refused map[string]string // what each work was told when it failed last
	// answered gets the works that have just been, lossily: who cuts the power
	// listens.
	answered chan string

	purged, cutOff, backups, collected, atOnce int
}

// moments are when the power goes, a round each: some time after the start ("") or
// with the answer to a purge, a collection or a backup, when what was answered has
// to be there and what it left for later is not done yet.
var moments = []string{"", "purge", "", "gc", "purge", "backup"}

func momentOf(round int) string {
	if what := moments[round%len(moments)]; what != "" {
		return "with the answer to a " + what
	}
	return "at any time"
}

// late is how long a moment is waited for, and soon how long after it the power
// goes at most. The works are done over and over, each within a second or two
// even where the machine is busy.
const (
	late = time.Minute
	soon = 20 * time.Millisecond
)

// moment waits for when the power shall go.
func (u *upkeep) moment(round int) {
	what := moments[round%len(moments)]
	if what == "" {
		timer := time.After(time.Duration(100+rand.IntN(1500)) * time.Millisecond)
		<-timer
		return
	}
	for end := time.After(late); ; {
		select {
		case got := <-u.answered:
			if got != what {
				continue
			}
			u.mu.Lock()
			u.atOnce++
			u.mu.Unlock()
			if rand.IntN(2) == 0 { // else at once
				timer := time.After(rand.N(soon))
				<-timer
			}
		case <-end:
			u.mu.Lock()
			u.t.Errorf("no %s was answered within %v; the last one that failed was told: %q", what, late, u.refused[what])
			u.mu.Unlock()
		}
		return
	}
}

// failed notes what a work was told.
func (u *upkeep) failed(what, text string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refused[what] = fmt.Sprintf("%v: %s", err, few(text))
}

// few gives the first lines of what a verb told.
func few(text string) string {
	const most = 12
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= most {
		return text
	}
	return fmt.Sprintf("%s… and %d lines more", strings.Join(lines[:most], ""), len(lines)-most)
}

// report says that a work was answered.
func (u *upkeep) report(what string) {
	select {
	case u.answered <- what:
	default:
	}
}

// round looks at what the last cut left, works, and cuts the power.
func (u *upkeep) round(i int) {
	t := u.t
	if u.saved { // one that was cut off has hurt nothing
		u.restore("a backup that was cut off")
	}
	s := harness.Start(t, harness.Options{DataDir: u.d.path("data"), Config: upkeepConfig})
	if i > 0 {
		u.check(s)
		u.settle(s)
		s.Do("PATCH", "/tasks/"+u.task, map[string]string{"status": "completed"}).Expect(200)
		if t.Failed() {
			return
		}
	}
	r := s.Do("POST", "/tasks", map[string]string{"goal": "g", "workspace": u.d.path("ws")}).Expect(201)
	u.task, u.ws = r.Text("task_id"), r.Text("workspace_id")
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() { u.work(s, n, i, stop) })
	}
	for _, job := range []func(context.Context, *harness.Server, int){u.secret, u.collect, u.save} {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				job(ctx, s, i*1000+n)
			}
		})
	}
	u.moment(i)
	if !u.d.killOnly {
		u.d.cut()
		close(stop)
	}
	s.Kill()
	if u.d.killOnly {
		close(stop)
	}
	cancel()
	wg.Wait()
	u.d.reattach()
}

// verb runs the program; it ends with ctx.
func (u *upkeep) verb(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, harness.Binary(u.t), args...)
	cmd.Env = u.env()
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u *upkeep) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=" + os.TempDir(), "LC_ALL=C", "TZ=UTC"}
}

// call sends a request whose answer may never come.
func (u *upkeep) call(ctx context.Context, method, target string, body string) (status int) {
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		u.t.Error(err)
		return 0
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0
	}
	return res.StatusCode
}

// secret writes one, takes it out of the tip, and purges it.
func (u *upkeep) secret(ctx context.Context, s *harness.Server, n int) {
	text := fmt.Sprintf("the secret %d %016x%016x", n, rand.Uint64(), rand.Uint64())
	u.mu.Lock()
	u.secrets = append(u.secrets, text)
	u.mu.Unlock()
	at := s.URL + "/tasks/" + u.task + "/content?path=" + url.QueryEscape("key")
	if u.call(ctx, "PUT", at, text) >= 300 || u.call(ctx, "DELETE", at, "") != 200 {
		return
	}
	u.purge(ctx)
}

func (u *upkeep) purge(ctx context.Context) {
	out, err := u.verb(ctx, "purge", u.ws, "key", "--data-dir", u.d.path("data"))
	if err == nil {
		defer u.report("purge") // after the lock: what is gone is known before the power goes
	} else {
		u.failed("purge", out, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.cutOff++
		return
	}
	u.gone, u.secrets = append(u.gone, u.secrets...), nil
	u.purged++
}

func (u *upkeep) collect(ctx context.Context, _ *harness.Server, n int) {
	args := []string{"gc", "--data-dir", u.d.path("data")}
	if n%2 == 0 {
		args = append(args, "--now")
	}
	if out, err := u.verb(ctx, args...); err == nil {
		defer u.report("gc")
		u.mu.Lock()
		defer u.mu.Unlock()
		u.collected++
	} else {
		u.failed("gc", out, err)
	}
}

func (u *upkeep) save(ctx context.Context, _ *harness.Server, _ int) {
	if out, err := u.verb(ctx, "backup", u.backup, "--data-dir", u.d.path("data")); err == nil {
		defer u.report("backup")
		u.mu.Lock()
		defer u.mu.Unlock()
		u.saved = true
		u.backups++
	} else {
		u.failed("backup", out, err)
	}
}

// settle holds what the cut left of the works against what was answered, and has
// the next run of each finish them.
func (u *upkeep) settle(s *harness.Server) {
	t := u.t
	t.Helper()
	u.absent("a purge that was answered", u.gone)
	ctx := context.Background()
	run := func(args ...string) {
		t.Helper()
		if out, err := u.verb(ctx, append(args, "--data-dir", u.d.path("data"))...); err != nil {
			t.Errorf("umbra %s: %v\n%s", strings.Join(args, " "), err, few(out))
		}
	}
	// The file may stand there still, and the path may be in no history.
	u.call(ctx, "DELETE", s.URL+"/tasks/"+u.task+"/content?path=key", "")
	if out, err := u.verb(ctx, "purge", u.ws, "key", "--data-dir", u.d.path("data")); err != nil && !strings.Contains(out, "no content of that path") {
		t.Errorf("umbra purge: %v\n%s", err, few(out))
	}
	run("gc", "--now")
	run("backup", u.backup)
	u.saved = true
	run("verify")
	u.absent("the next purge", u.secrets)
	u.gone, u.secrets = append(u.gone, u.secrets...), nil
	gitDir := s.Do("GET", "/tasks/"+u.task, nil).Expect(200).Text("git_dir")
	if out := harness.Git(t, gitDir, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
		t.Errorf("fsck: %s", out)
	}
	for _, left := range []string{"purge", "purge.new", "moved.new"} {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(gitDir), left)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was left behind: %v", left, err)
		}
	}
	u.restore("the backup after the cut")
}

// restore takes the backup into a new folder, where all of it must be sound.
func (u *upkeep) restore(what string) {
	t := u.t
	t.Helper()
	to := filepath.Join(t.TempDir(), "restored")
	if out, err := u.verb(context.Background(), "restore", u.backup, "--data-dir", to); err != nil {
		t.Errorf("%s: umbra restore: %v\n%s", what, err, out)
		return
	}
	repos, err := filepath.Glob(filepath.Join(to, "workspaces", "*", "repo.git"))
	if err != nil || len(repos) == 0 {
		t.Errorf("%s: %d repositories, %v", what, len(repos), err)
	}
	for _, repo := range repos {
		if out, err := harness.TryGit(t, repo, "fsck", "--strict", "--full", "--no-dangling"); err != nil || strings.TrimSpace(out) != "" {
			t.Errorf("%s: fsck: %v\n%s", what, err, out)
		}
	}
	if err := os.RemoveAll(to); err != nil {
		t.Error(err)
	}
}

// absent looks for secrets in the data directory, raw and inflated.
func (u *upkeep) absent(after string, secrets []string) {
	t := u.t
	t.Helper()
	has := func(data []byte) string {
		for _, text := range secrets {
			if bytes.Contains(data, []byte(text)) {
				return text
			}
		}
		return ""
	}
	if len(secrets) == 0 {
		return
	}
	err := filepath.WalkDir(u.d.path("data"), func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if text := has(data); text != "" {
			t.Errorf("after %s, %q stands in %s", after, text, name)
		}
		for i := 0; i+2 < len(data); i++ {
			if data[i] != 0x78 || (uint(data[i])<<8|uint(data[i+1]))%31 != 0 {
				continue
			}
			z, err := zlib.NewReader(bytes.NewReader(data[i:]))
			if err != nil {
				continue
			}
			inflated, _ := io.ReadAll(io.LimitReader(z, 1<<20)) // what is no stream ends with an error
			if text := has(inflated); text != "" {
				t.Errorf("after %s, %q stands in %s, inflated at %d", after, text, name, i)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
