package peers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/disk"
	"umbra/tests/bench/measure"
)

const testFiles = 70

func testEnv(t *testing.T) *measure.Env {
	t.Helper()
	self, err := os.Executable()
	need.NoError(t, err)
	e, err := measure.NewEnv(measure.Quick(), disk.Disk{Dir: t.TempDir()}, os.Getenv("UMBRA_BIN"), self, t.Logf)
	need.NoError(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestMain lets the test's own program be the safe server.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == SafeVerb {
		if err := SafeServer(os.Args[len(os.Args)-1], slices.Contains(os.Args, "-gin"), os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// subject makes one; nil for a peer that a machine need not have.
func subject(t *testing.T, make Maker, history int) measure.Subject {
	t.Helper()
	env := testEnv(t)
	s, err := make(Params{Ctx: t.Context(), Env: env, Files: testFiles, History: history, Clients: 2, Templates: NewTemplates(env)})
	if errors.Is(err, ErrMissing) {
		t.Log(err)
		return nil
	}
	need.NoError(t, err)
	return s
}

func change(t *testing.T, s measure.Subject, c corpus.Change) {
	t.Helper()
	if p, ok := s.(measure.Preparer); ok {
		need.NoError(t, p.Prepare(c))
	}
	need.NoError(t, s.Change(t.Context(), 0, c))
}

// repoOf gives the repository that a subject commits to.
func repoOf(t *testing.T, s measure.Subject) *gitRepo {
	t.Helper()
	switch s := s.(type) {
	case *gitAddAll:
		return s.repo
	case *gitPlumbing:
		return s.repo
	case *fastImport:
		return s.repo
	case *libgit2:
		return s.repo
	case *goGit:
		return s.repo
	}
	t.Fatalf("%T has no repository", s)
	return nil
}

// A peer that did less than it says would make us look slow, one that did more
// would make us look fast: after each change git finds one commit more, with
// the file in it.
func TestGitPeersRecordEachChange(t *testing.T) {
	need.Tool(t, "git")
	const before = 5
	for name, m := range map[string]Maker{"add": GitAddAll, "add, synced": GitAddAllSynced, "plumbing": GitPlumbing,
		"fast-import": FastImport, "go-git": GoGit, "libgit2": Libgit2, "libgit2, synced": Libgit2Fsync} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, m, before)
			if s == nil {
				if !strings.HasPrefix(name, "libgit2") {
					t.Error("this peer is always there")
				}
				return
			}
			repo := repoOf(t, s)
			bare := &gitRepo{dir: repo.dir}
			edits := corpus.NewSequence(testFiles, 0, 1, 9)
			start := count(t, bare)
			if start != before+2 { // the project, and the commit that puts it back
				t.Errorf("history of %d commits", start)
			}
			for n := range 4 {
				c := edits.Next()
				change(t, s, c)
				got, err := bare.run(t.Context(), nil, "cat-file", "blob", "main:"+c.Path)
				if err != nil || got+"\n" != string(c.Data) {
					t.Fatalf("%s holds something else (%v)", c.Path, err)
				}
				if now := count(t, bare); now != start+n+1 {
					t.Fatalf("%d commits after %d changes and %d before", now, n+1, start)
				}
			}
			files, err := bare.run(t.Context(), nil, "ls-tree", "-r", "--name-only", "main")
			if err != nil || strings.Count(files, "\n")+1 != testFiles {
				t.Errorf("%d files (%v)", strings.Count(files, "\n")+1, err)
			}
		})
	}
}

func count(t *testing.T, g *gitRepo) int {
	t.Helper()
	out, err := g.run(t.Context(), nil, "log", "--format=%H", "main")
	need.NoError(t, err)
	return strings.Count(out, "\n") + 1
}

func TestServersPutTheFileThere(t *testing.T) {
	for name, m := range map[string]Maker{"net/http": Safe, "gin": SafeGin, "umbra": Umbra} {
		t.Run(name, func(t *testing.T) {
			if name == "umbra" && os.Getenv("UMBRA_BIN") == "" {
				need.Missing(t, "UMBRA_BIN names no server")
			}
			s := subject(t, m, 0)
			c := corpus.NewSequence(testFiles, 0, 1, 9).Next()
			change(t, s, c)
			root := s.(*HTTP).root
			if got, err := os.ReadFile(filepath.Join(root, c.Path)); err != nil || !bytes.Equal(got, c.Data) {
				t.Errorf("the file holds something else (%v)", err)
			}
			if w, err := s.(*HTTP).Process().Written(); err != nil || w < 0 {
				t.Errorf("wrote %d bytes (%v)", w, err)
			}
			if m, err := s.(*HTTP).Process().Memory(); err != nil || m.Resident < 1<<20 {
				t.Errorf("holds %+v (%v)", m, err)
			}
		})
	}
}

func TestOursAndTheBareOnesWork(t *testing.T) {
	for name, m := range map[string]Maker{"engine": Engine, "write service": Apply, "append": Append, "exchange": Exchange} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, m, 0)
			edits := corpus.NewSequence(testFiles, 0, 1, 9)
			for range 5 {
				change(t, s, edits.Next())
			}
			switch s := s.(type) {
			case *engine:
				if seq := s.store.Tip().Seq; seq != 6 {
					t.Errorf("seq %d", seq)
				}
			case *apply:
				if seq := s.w.Store().Tip().Seq; seq != 6 {
					t.Errorf("seq %d", seq)
				}
			}
		})
	}
}

func TestAgeMakesHistoryAndLeavesTheFiles(t *testing.T) {
	s := subject(t, Engine, 200).(*engine)
	tip := s.store.Tip()
	if tip.Seq != 201 {
		t.Errorf("seq %d, want 201", tip.Seq)
	}
	first, err := s.store.CommitAt(context.Background(), 1)
	need.NoError(t, err)
	base, err := s.store.ReadCommit(context.Background(), first)
	if err != nil || base.Tree != tip.Tree {
		t.Errorf("the files are not as they were (%v)", err)
	}
}

func TestTakersAgreeOnTheProject(t *testing.T) {
	env := testEnv(t)
	folder, err := env.Dir("project")
	need.NoError(t, err)
	need.NoError(t, corpus.Write(t.Context(), folder, testFiles))
	for _, taker := range Takers(true) {
		t.Run(taker.Name, func(t *testing.T) {
			if taker.Name == NameTakeServer && os.Getenv("UMBRA_BIN") == "" {
				need.Missing(t, "UMBRA_BIN names no server")
			}
			if d, err := taker.Take(t.Context(), env, folder); err != nil || d <= 0 {
				t.Errorf("%v, %v", d, err)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
				t.Errorf("it left something in the folder: %v", left)
			}
		})
	}
}

func TestTraceCountsSyncs(t *testing.T) {
	env := testEnv(t)
	s, err := Safe(Params{Ctx: t.Context(), Env: env, Files: testFiles, Clients: 1})
	need.NoError(t, err)
	edits := corpus.NewSequence(testFiles, 0, 1, 9)
	change(t, s, edits.Next())
	stop, err := Trace(t.Context(), env, s.(*HTTP).Process())
	if errors.Is(err, ErrMissing) {
		t.Log(err) // not there, or forbidden: the row is left out then
		return
	}
	need.NoError(t, err)
	for range 3 {
		change(t, s, edits.Next())
	}
	calls, err := stop()
	if err != nil || calls["fsync"] != 6 { // file and folder
		t.Errorf("%v, %v", calls, err)
	}
}
