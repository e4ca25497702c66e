package blame_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
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
	w := newWorkspace(t)
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
	if err := st.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	cmd := exec.Command("git", "--git-dir", w.GitDir(), "blame", "--porcelain", "refs/heads/shadow", "--", "src/hot.txt")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	git, gitCPU := time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	s := blame.NewCache()
	ask := func() (time.Duration, int) {
		began := time.Now()
		a, err := s.Lines(t.Context(), w, blame.Request{Path: "src/hot.txt", At: st.Tip().Commit, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(began), len(a.Ranges)
	}
	if f := os.Getenv("UMBRA_BLAME_PROFILE"); f != "" {
		out, err := os.Create(f)
		if err != nil || pprof.StartCPUProfile(out) != nil {
			t.Fatal(err)
		}
	}
	first, n := ask()
	pprof.StopCPUProfile()
	lines[7] = "other"
	commit("src/hot.txt", text())()
	next, _ := ask()
	lines[8] = "other"
	commit("src/hot.txt", text())()
	again, _ := ask()
	t.Logf("git %v (%v of a core), first %v, %.2f of it, next %v, %v (%d ranges)", git, gitCPU, first, first.Seconds()/git.Seconds(), next, again, n)
}
