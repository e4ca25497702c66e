package peers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// NameBareWrite is the least that a recorded write asks of a disk.
const NameBareWrite = "bare file exchange, then append + fdatasync"

// bareWrite is both bare subjects, one after the other.
type bareWrite struct{ exchange, record measure.Subject }

// BareWrite makes the subject.
func BareWrite(p Params) (measure.Subject, error) {
	x, err := Exchange(p)
	if err != nil {
		return nil, err
	}
	a, err := Append(p)
	return &bareWrite{exchange: x, record: a}, err
}

func (b *bareWrite) Name() string    { return NameBareWrite }
func (b *bareWrite) Durable() string { return "the appended bytes; the file follows" }
func (b *bareWrite) OneAtATime()     {}

func (b *bareWrite) Change(ctx context.Context, client int, c corpus.Change) error {
	return errors.Join(b.exchange.Change(ctx, client, c), b.record.Change(ctx, client, c))
}

// The storm of one process: files in so many folders.
const (
	stormFolders = 40
	stormFiles   = 4000
)

// Storm makes and replaces files below a directory, as fast as one process can,
// until the function that it returns is called, which returns how many.
func Storm(ctx context.Context, folder string) (stop func() (files int, err error)) {
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	made := 0
	group.Go(func() error {
		for ; ctx.Err() == nil; made++ {
			name := filepath.Join(folder, "storm", strconv.Itoa(made%stormFolders), strconv.Itoa(made%stormFiles))
			if made < stormFolders {
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					return err
				}
			}
			if err := os.WriteFile(name, strconv.AppendInt(nil, int64(made), 10), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	return func() (int, error) {
		cancel()
		err := group.Wait()
		return made, err
	}
}

// WalkAll walks a directory, with an lstat for each file, on all processors: the
// cost of knowing whether anything has changed.
func WalkAll(ctx context.Context, root string) error {
	var mu sync.Mutex
	wake := sync.NewCond(&mu)
	pending, busy := []string{root}, 0
	var group errgroup.Group
	for range 2 * runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for {
				mu.Lock()
				for len(pending) == 0 && busy > 0 {
					wake.Wait()
				}
				if len(pending) == 0 || ctx.Err() != nil {
					mu.Unlock()
					return context.Cause(ctx)
				}
				dir := pending[len(pending)-1]
				pending = pending[:len(pending)-1]
				busy++
				mu.Unlock()
				below, err := lstatAll(dir)
				mu.Lock()
				pending = append(pending, below...)
				busy--
				wake.Broadcast()
				mu.Unlock()
				if err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

func lstatAll(dir string) (below []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			below = append(below, name)
		} else if _, err := os.Lstat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return below, err
		}
	}
	return below, err
}

// CPU gives the processor time that the process has used (proc_pid_stat(5)).
func (p *Process) CPU() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // after the name, field 3
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", p.PID(), data)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	var sum time.Duration
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// Checkout makes a folder a clean checkout of a repository in it, as a clone
// leaves one: the objects in one pack, the index older than no file's second.
func Checkout(ctx context.Context, folder string) error {
	g := &gitRepo{dir: filepath.Join(folder, ".git"), work: folder}
	if _, err := (&gitRepo{dir: g.dir}).run(ctx, nil, "init", "-q", "-b", "main", folder); err != nil {
		return err
	}
	for _, args := range [][]string{
		// Into a pack at once: 100,000 loose objects take minutes.
		{"-c", "core.bigFileThreshold=1", "add", "-A"}, {"commit", "-q", "-m", "all"}, {"repack", "-q", "-a", "-d"}, {"prune-packed", "-q"},
	} {
		if _, err := g.run(ctx, nil, args...); err != nil {
			return err
		}
	}
	// git trusts no file that was written in the second of its index.
	if err := measure.Pause(ctx, 1100*time.Millisecond); err != nil {
		return err
	}
	_, err := g.run(ctx, nil, "update-index", "-q", "--really-refresh")
	return err
}
