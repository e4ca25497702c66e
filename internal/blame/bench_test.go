package blame_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/blame"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// TestLargeHistory measures a file of 2,000 lines with a fiftieth of all commits
// against git's own blame.
func TestLargeHistory(t *testing.T) {
	need.Soak(t, "it makes a history of 100,000 commits")
	need.Tool(t, "git")
	commits := 100_000
	k := newKit(t)
	w := k.reopen()
	st := w.Store()
	rnd := rand.New(rand.NewPCG(1, 2))
	lines := make([]string, 2000)
	for i := range lines {
		lines[i] = fmt.Sprintf("\tline %d of the file, as it was first written down", i)
	}
	text := func() string { return strings.Join(lines, "\n") + "\n" }
	commit := func(p, data string) func() {
		d := gitstore.Draft{Edits: []gitstore.Edit{{Path: wspath.Path(p), Mode: object.Regular, Blob: st.NewBlob([]byte(data))}}, Entries: 1,
			Message: message.Message{Source: message.API, Entries: []message.Entry{{Operation: message.Modify, Path: p, AfterHash: "sha256:" + strings.Repeat("0", 64)}}}}
		return func() {
			if _, err := st.Commit(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
	}
	commit("src/hot.txt", text())()
	var wg sync.WaitGroup
	for i := range commits {
		if i%(commits/2000) == 0 {
			lines[rnd.IntN(len(lines))] = fmt.Sprintf("\tedit %d", i)
			wg.Wait()
			commit("src/hot.txt", text())()
			continue
		}
		if i%64 == 0 {
			wg.Wait()
		}
		do := commit(fmt.Sprintf("src/d%02d/f%d", i%50, i%1000), fmt.Sprintf("%d\n", i))
		wg.Go(do)
	}
	wg.Wait()
	need.NoError(t, st.Publish(t.Context()))
	if err := st.Maintain(t.Context()); err != nil { // or it is done while the time is measured
		t.Fatal(err)
	}
	// Where others use the machine, processor time is what can be compared.
	const forever = time.Duration(math.MaxInt64)
	git, gitCPU, first, firstCPU := forever, forever, forever, forever
	var s *blame.Cache
	ask := func() time.Duration {
		began := time.Now()
		a, err := s.Lines(t.Context(), w, blame.Request{Path: "src/hot.txt", At: w.Store().Tip().Commit, Limit: 1000})
		need.NoError(t, err)
		if len(a.Ranges) != 1000 {
			t.Fatalf("%d ranges", len(a.Ranges))
		}
		return time.Since(began)
	}
	// In turns; each first answer is that of a workspace that was opened for it.
	for range 4 {
		began := time.Now()
		cmd := exec.Command("git", "--git-dir", w.GitDir(), "blame", "--porcelain", "refs/heads/shadow", "--", "src/hot.txt")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		git, gitCPU = min(git, time.Since(began)), min(gitCPU, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		w = k.reopen()
		s = blame.NewCache()
		if f := os.Getenv("UMBRA_BLAME_PROFILE"); f != "" {
			out, err := os.Create(f)
			if err != nil || pprof.StartCPUProfile(out) != nil {
				t.Fatal(err)
			}
		}
		used := processorTime(t)
		first = min(first, ask())
		firstCPU = min(firstCPU, processorTime(t)-used)
		pprof.StopCPUProfile()
	}
	st = w.Store()
	next := forever
	for i := range 5 {
		lines[7] = fmt.Sprintf("other %d", i)
		commit("src/hot.txt", text())()
		next = min(next, ask())
	}
	ratio, ratioCPU := first.Seconds()/git.Seconds(), firstCPU.Seconds()/gitCPU.Seconds()
	t.Logf("git %v (%v of a core), first %v (%v), %.2f of it (%.2f), next %v", git, gitCPU, first, firstCPU, ratio, ratioCPU, next)
	if ratio > 0.25 && ratioCPU > 0.25 {
		t.Errorf("the first answer took %.2f of git's time, %.2f of its processor time", ratio, ratioCPU)
	}
	if next > 10*time.Millisecond {
		t.Errorf("the answer after a write took %v", next)
	}
}

// processorTime is what the process used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	need.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
