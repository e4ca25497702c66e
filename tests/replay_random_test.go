package tests

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// randomWork has tasks write, move and delete in turn, in no order, while a
// person saves files too. The last change is the first task's.
func randomWork(t *testing.T, seed uint64, steps int) (tasks []*taskOf) {
	p := newProject(t, map[string]string{"a": "1\n2\n3\n", "d/b": "b\n", "d/e/c": "c\n"})
	for range 3 {
		tasks = append(tasks, p.task(t))
	}
	rnd := rand.New(rand.NewPCG(seed, seed))
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	path := func() string {
		return pick("", "d/", "d/e/", "f/", "f/ünï/") + pick("a", "b", "c", "x y", "tab\there", "z.txt")
	}
	text := func() string {
		return strings.Repeat(fmt.Sprintf("line %d\n", rnd.IntN(50)), 1+rnd.IntN(30))
	}
	for range steps {
		k := tasks[rnd.IntN(len(tasks))]
		header := []string{"X-Subtask-Id", pick("s1", "s2", "s3")}
		switch rnd.IntN(10) {
		default:
			k.put(t, path(), text(), header...)
		case 0:
			p.call(t, "DELETE", k.file(path()), nil, header...)
		case 1:
			p.post(t, k.url("/move"), map[string]any{"from": pick("d", "f", path()), "to": pick("d", "f", "g", path())}, header...)
		case 2:
			p.post(t, k.url("/batch"), map[string]any{"operations": []map[string]any{
				{"op": "write", "path": path(), "content": text()}, {"op": "write", "path": path(), "content": text()}}}, header...)
		case 3:
			need.NoError(t, os.WriteFile(filepath.Join(p.dir, pick("a", "mine")), []byte(text()), 0o644))
		}
	}
	tasks[0].save(t, "last", text())
	tasks[0].sync(t)
	return tasks
}

// TestReplayProvesRandomHistories: whatever interleaves, every task proves.
func TestReplayProvesRandomHistories(t *testing.T) {
	seeds, steps := 4, 60
	if testing.Short() {
		seeds, steps = 1, 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, k := range randomWork(t, uint64(seed), steps) {
				if r := replay(t, 0, "--from", k.gitDir(), "--task", k.ID); !r.OK || !r.Proven {
					t.Errorf("seed %d, task %s: %+v", seed, k.ID, r)
				}
			}
		})
	}
}

// TestReplayOfOneWrongByte changes one bit of a repository's pack, anywhere: the
// replay fails, and says which object, pack or commit it is, unless git reads
// the same objects as before. The bits that fill up a deflate stream's last byte
// mean nothing (RFC 1951, 3.1.1).
func TestReplayOfOneWrongByte(t *testing.T) {
	k := randomWork(t, 1, 40)[0]
	top := t.TempDir()
	dir := filepath.Join(top, "r.git")
	harness.Git(t, top, "init", "-q", "--bare", "r.git")
	ref := "refs/umbra/tasks/" + k.ID + "/*"
	harness.Git(t, dir, "-c", "fetch.unpackLimit=1", "fetch", "-q", k.gitURL(), ref+":"+ref)
	replay(t, 0, "--from", dir, "--task", k.ID)
	packs, err := filepath.Glob(filepath.Join(dir, "objects/pack/*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("%v %v", packs, err)
	}
	whole, err := os.ReadFile(packs[0])
	need.NoError(t, err)
	need.NoError(t, os.Chmod(packs[0], 0o644))
	objects := func() string {
		cmd := exec.Command("git", "--git-dir", dir, "cat-file", "--batch", "--batch-all-objects")
		out, err := cmd.Output()
		return fmt.Sprintf("%x %v", sha256.Sum256(out), err)
	}
	sound := objects()
	where := regexp.MustCompile(`[0-9a-f]{40}|offset|packfile`)
	rnd := rand.New(rand.NewPCG(7, 7))
	flips := 30
	if testing.Short() {
		flips = 8
	}
	for range flips {
		at, bit := rnd.IntN(len(whole)), byte(1)<<rnd.IntN(8)
		wrong := append([]byte(nil), whole...)
		wrong[at] ^= bit
		need.NoError(t, os.WriteFile(packs[0], wrong, 0o644))
		status, out, errOut := harness.Run(t, nil, "replay", "--from", dir, "--task", k.ID)
		if status == 0 && objects() == sound {
			continue
		}
		if status != 1 || !where.MatchString(out+errOut) {
			t.Errorf("byte %d of %d, bit %#x: status %d, says %q %q", at, len(whole), bit, status, out, errOut)
		}
	}
}

// TestReplayResumes kills a replay in its third command: the second run does
// not run again what was done.
func TestReplayResumes(t *testing.T) {
	k, _ := replayed(t)
	top := t.TempDir()
	file, log := filepath.Join(top, "state"), filepath.Join(top, "log")
	args := []string{"replay", "--from", k.gitDir(), "--task", k.ID, "--resume", file, "--exec",
		`if [ $UMBRA_STEP = 3 ] && [ ! -e ` + top + `/killed ]; then touch ` + top + `/killed; kill -9 $PPID; exit; fi; echo $UMBRA_STEP >>` + log}
	if err := harness.Command(t, nil, args...).Run(); err == nil {
		t.Fatal("it was not killed")
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := harness.Run(t, nil, "replay", "--from", k.gitDir(), "--task", k.ID, "--resume", file); status != 1 || !strings.Contains(errOut, "another replay") {
		t.Errorf("another replay goes on from it: %d %s", status, errOut)
	}
	r := replay(t, 0, args[1:]...)
	if !r.OK || !r.Proven || len(r.Steps) != 5 {
		t.Errorf("%+v", r)
	}
	if got, err := os.ReadFile(log); err != nil || string(got) != "1\n2\n3\n4\n5\n" {
		t.Errorf("commands ran for the steps %q, %v", got, err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}
