package watcher

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"umbra/internal/need"
	"umbra/internal/wspath"
)

// snapshot lists what is in a tree, so that two can be compared.
func snapshot(t *testing.T, root string) map[wspath.Path]string {
	t.Helper()
	m := map[wspath.Path]string{}
	need.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		state := info.Mode().String()
		if !d.IsDir() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			state += string(data)
		}
		m[wspath.Path(name[len(root)+1:])] = state
		return nil
	}))
	return m
}

// mess does something at random to a tree.
func mess(r *rand.Rand, root string, n int) {
	names := []string{"a", "b", "c"}
	path := func() string {
		p := root
		for range 1 + r.IntN(4) {
			p += "/" + names[r.IntN(len(names))]
		}
		return p
	}
	for i := range n {
		p := path()
		switch r.IntN(10) {
		case 0, 1:
			_ = os.MkdirAll(p, 0o777)
		case 2, 3, 4:
			_ = os.MkdirAll(filepath.Dir(p), 0o777)
			_ = os.WriteFile(p, fmt.Appendf(nil, "%d", i), 0o666)
		case 5:
			_ = os.WriteFile(p, fmt.Appendf(nil, "w%d", i), 0o666)
		case 6, 7:
			_ = os.Rename(p, path())
		case 8:
			_ = os.RemoveAll(p)
		case 9:
			other := path()
			_ = os.Rename(p, root+"/.swap")
			_ = os.Rename(other, p)
			_ = os.Rename(root+"/.swap", other)
		}
	}
}

// Whatever happens, each file that is not what it was is dirty after a Sync, and
// exactly the folders there are are watched.
func TestRandomChanges(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onDisks(t, func(t *testing.T, root string) {
				r := rand.New(rand.NewPCG(seed, 7))
				mess(r, root, 100)
				w, rec := watched(t, root, Options{Quiet: 1 + 1})
				before := snapshot(t, root)
				for round := range 60 {
					mess(r, root, 1+r.IntN(40))
					w.mustSync(t, "ws")
					after := snapshot(t, root)
					rec.mu.Lock()
					for _, m := range []map[wspath.Path]string{before, after} {
						for p := range m {
							if dirOnly := after[p] == "" && len(before[p]) > 0 && before[p][0] == 'd'; before[p] != after[p] && !dirOnly && !rec.covered(p) {
								t.Fatalf("round %d: %q was %q, is %q, and is not dirty", round, p, before[p], after[p])
							}
						}
					}
					if len(rec.lost) > 0 {
						t.Fatalf("lost %v", rec.lost)
					}
					rec.mu.Unlock()
					rec.forget()
					before = after
					want := []wspath.Path{"."}
					for p, state := range after {
						if state[0] == 'd' {
							want = append(want, p)
						}
					}
					slices.Sort(want)
					if got := w.folders("ws"); !slices.Equal(got, want) {
						t.Fatalf("round %d: watched are %q, there are %q", round, got, want)
					}
					if n := len(w.src.(notify).WatchList()); n != len(want)+1 {
						t.Fatalf("round %d: fsnotify watches %d folders, not %d", round, n, len(want)+1)
					}
				}
			})
		})
	}
}

// The same while Add walks the tree.
func TestAddWhileTheTreeChanges(t *testing.T) {
	root := t.TempDir()
	r := rand.New(rand.NewPCG(5, 5))
	w := start(t, Options{})
	for round := range 40 {
		mess(r, root, 50)
		rec := newRecorder()
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					mess(r, root, 5)
				}
			}
		}()
		err := w.Add(context.Background(), "ws", root, rec.space())
		close(stop)
		<-done
		need.NoError(t, err)
		w.mustSync(t, "ws")
		rec.forget()
		before := snapshot(t, root)
		mess(r, root, 20)
		w.mustSync(t, "ws")
		rec.mu.Lock()
		for p, now := range snapshot(t, root) {
			if before[p] != now && !rec.covered(p) {
				t.Fatalf("round %d: %q was %q, is %q, and is not dirty", round, p, before[p], now)
			}
		}
		rec.mu.Unlock()
	}
}
