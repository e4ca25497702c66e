package rows

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
)

const (
	// publishEach is how many edits a journal holds when it is closed: those of
	// a busy second.
	publishEach = 100
	// mayTake is what a small edit may take on disk, in bytes.
	mayTake = 1100
)

func footprintRows(s measure.Scale) []Row {
	return []Row{{
		Name:  "footprint",
		Title: "Room on disk for one small edit",
		About: fmt.Sprintf("%s edits of one line each, in a project of %s files, a journal closed each %d edits. Bytes: lengths of all files of the workspace's directory in the data directory, less what they were before; "+
			"blocks: what the file system gives them. The open journal, made ahead at the size of the last ones, is left out. After maintenance: packs merged, superseded ones gone.", report.Count(s.Edits), report.Count(s.Middle()), publishEach),
		Run: footprint,
	}}
}

func footprint(ctx context.Context, env *measure.Env, r *report.Result) error {
	p := peers.Params{Ctx: ctx, Env: env, Files: env.Scale.Middle(), Templates: peers.NewTemplates(env)}
	dir, err := env.Dir("engine")
	if err != nil {
		return err
	}
	// By hand, so that it ends when it is done; grace is for readers, and there
	// are none.
	store, err := peers.NewStore(p, dir, gitstore.Options{Foreground: true, MergeGrace: time.Nanosecond})
	if err != nil {
		return err
	}
	env.Defer("engine", func() error { return store.Close(context.Background()) })
	if err := errors.Join(store.Publish(ctx), store.Maintain(ctx)); err != nil {
		return err
	}
	before, err := used(dir)
	if err != nil {
		return err
	}
	edits := env.Scale.Edits
	env.Log("%d edits", edits)
	sequence := corpus.NewSequence(p.Files, 0, 1, 3)
	for n := range edits {
		if _, err := peers.Record(ctx, store, peers.BenchTask, sequence.Next()); err != nil {
			return err
		}
		if (n+1)%publishEach == 0 {
			if err := errors.Join(store.Publish(ctx), store.Maintain(ctx)); err != nil {
				return err
			}
		}
	}
	if err := store.Publish(ctx); err != nil {
		return err
	}
	raw, err := used(dir)
	if err != nil {
		return err
	}
	// Twice: what the first run supersedes, the second removes.
	if err := errors.Join(store.Maintain(ctx), store.Maintain(ctx)); err != nil {
		return err
	}
	after, err := used(dir)
	if err != nil {
		return err
	}

	r.Columns = []string{"", "bytes an edit", "blocks' bytes an edit"}
	line := func(name string, from, to room) {
		r.Line(name, report.Number(each(to.bytes-from.bytes, edits), ""), report.Number(each(to.blocks-from.blocks, edits), ""))
	}
	line("umbra, just published", before, raw)
	line("umbra, after maintenance", before, after)
	var looks []room
	err = peers.PackedByGit(p, edits, func(dir string) error {
		now, err := used(dir)
		looks = append(looks, now)
		return err
	})
	switch {
	case errors.Is(err, peers.ErrMissing):
		r.Note("Left out: %s.", err)
	case err != nil:
		return err
	default:
		line("git, the same edits (shorter messages), after `git gc`", looks[0], looks[1])
	}
	r.Checks = append(r.Checks, report.AtMost("one small edit, after maintenance: ≤ 1.1 KB", each(after.bytes-before.bytes, edits), mayTake, "%.0f bytes"))
	r.Data = map[string]float64{"published": each(raw.bytes-before.bytes, edits), "maintained": each(after.bytes-before.bytes, edits)}
	return nil
}

func each(total int64, n int) float64 { return float64(total) / float64(n) }

// room is what files take.
type room struct{ bytes, blocks int64 }

// used sums up the files below a folder but the journals, of which an open one
// is all that is left after a publication; a file with several names counts once.
func used(dir string) (room, error) {
	var total room
	seen := make(map[uint64]bool)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "journal" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[st.Ino] {
			return nil
		}
		seen[st.Ino] = true
		total.bytes += st.Size
		total.blocks += st.Blocks * 512 // of stat(2), whatever the file system's own
		return nil
	})
	return total, err
}
