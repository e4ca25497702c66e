package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// NameEngine is the subject's name.
const NameEngine = "umbra's engine, in process"

const (
	// BenchTask is whose changes the measured ones are.
	BenchTask = "bench"
	// agers are how many goroutines make the history.
	agers = 64
)

type engine struct{ store *gitstore.Store }

// Engine makes the subject: history alone, no file is written.
func Engine(p Params) (measure.Subject, error) {
	dir, err := p.Env.Dir("engine")
	if err != nil {
		return nil, err
	}
	store, err := NewStore(p, dir, gitstore.Options{})
	if err != nil {
		return nil, err
	}
	p.Env.Defer(NameEngine, func() error { return store.Close(context.Background()) })
	return &engine{store}, Age(p.Ctx, store, BenchTask, p.Files, p.History)
}

// NewStore makes an engine with the project as its baseline.
func NewStore(p Params, dir string, o gitstore.Options) (*gitstore.Store, error) {
	fs, err := vfs.OS(dir)
	if err != nil {
		return nil, err
	}
	o.FS = fs
	store, err := gitstore.Open(p.Ctx, o)
	if err != nil {
		return nil, err
	}
	_, err = store.Baseline(p.Ctx, message.Message{Source: message.Baseline, Actor: "bench"}, func(add gitstore.AddFile) error {
		for i := range p.Files {
			data := corpus.Content(i, 0)
			if _, err := add(wspath.Path(corpus.Path(i)), object.Regular, bytes.NewReader(data), int64(len(data))); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		_, err = store.PutTask(p.Ctx, message.Info{TaskID: BenchTask, Goal: "measure", Status: "executing"}, gitstore.ID{})
	}
	if err != nil {
		return nil, errors.Join(err, store.Close(context.Background()))
	}
	return store, nil
}

// Age makes a history: commits that each edit one file, and a last one that
// leaves every file as it was.
func Age(ctx context.Context, store *gitstore.Store, task string, files, commits int) error {
	if commits == 0 {
		return nil
	}
	before := store.Tip().Tree
	edits := make(chan corpus.Change, agers)
	group, working := errgroup.WithContext(ctx)
	for range agers {
		group.Go(func() error {
			for c := range edits {
				if _, err := Record(working, store, task, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(edits)
		sequence := aging(files)
		for range commits - 1 {
			select {
			case edits <- sequence.Next():
			case <-working.Done():
				return context.Cause(working)
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	_, err := store.Commit(ctx, gitstore.Draft{Root: before, AllowEmpty: true,
		Message: message.Message{Source: message.API, Actor: "bench", TaskID: task, Files: files, Condensed: true}})
	if err != nil {
		return err
	}
	// As of a history that took its time: its upkeep is not still to be done while
	// something is measured.
	if err := store.Publish(ctx); err != nil {
		return err
	}
	return store.Maintain(ctx)
}

// Record makes one commit of one edit.
func Record(ctx context.Context, store *gitstore.Store, task string, c corpus.Change) (gitstore.Committed, error) {
	blob := store.NewBlob(c.Data)
	done, err := store.Commit(ctx, gitstore.Draft{
		Edits: []gitstore.Edit{{Path: wspath.Path(c.Path), Mode: object.Regular, Blob: blob}},
		Message: message.Message{TaskID: task, SubtaskID: "loop", Actor: "bench", Source: message.API,
			Entries: []message.Entry{{Operation: message.Modify, Path: c.Path, AfterHash: blob.AfterHash()}}},
		Entries: 1,
	})
	if err == nil && done.NoChange {
		err = fmt.Errorf("%s was as it should become", c.Path)
	}
	return done, err
}

func (e *engine) Name() string    { return NameEngine }
func (e *engine) Durable() string { return "the commit with all its objects" }

func (e *engine) Change(ctx context.Context, _ int, c corpus.Change) error {
	_, err := Record(ctx, e.store, BenchTask, c)
	return err
}
