package exec

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"umbra/internal/errs"
	"umbra/internal/layer"
)

// remove removes a layer. It is gone when remove returns; its files are removed in the
// background.
func (s *Service) remove(id string) error {
	if err := s.stepped(); err != nil {
		return err
	}
	to := s.path(removedPrefix + id)
	if err := os.Rename(s.path(id), to); err != nil {
		return errs.Wrap(err, "")
	}
	if err := s.stepped(); err != nil {
		return err
	}
	return s.cleaner.add(cleaning{dir: to})
}

// removeApplied removes a layer whose apply is finished. Files that it moved on the file
// system of the directory moved must be durable first, which is awaited in the
// background: after a power failure before that, the apply is finished again.
func (s *Service) removeApplied(l *Layer, moved string) error {
	if moved == "" {
		return s.remove(l.ID)
	}
	return s.cleaner.add(cleaning{id: l.ID, sync: moved})
}

// cleaning is what is left to do of a layer.
type cleaning struct {
	dir  string // to be removed
	id   string // or: the layer to be removed
	sync string // after the file system of this directory is synced
}

// cleaner removes layers, one after the other.
type cleaner struct {
	s      *Service
	ctx    context.Context
	cancel context.CancelFunc
	// inline has add do it all. For tests.
	inline bool

	mu      sync.Mutex
	idle    sync.Cond
	running bool
	todo    []cleaning
	ids     map[string]bool // layers that are applied and not removed yet
}

func newCleaner(s *Service) *cleaner {
	c := &cleaner{s: s, ids: map[string]bool{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.idle.L = &c.mu
	return c
}

// has reports whether a layer is applied and only to be removed.
func (c *cleaner) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids[id]
}

// add has something removed. The error is always nil unless it is done inline.
func (c *cleaner) add(x cleaning) error {
	if c.inline {
		return c.clean(x)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.id != "" {
		c.ids[x.id] = true
	}
	if c.todo = append(c.todo, x); !c.running {
		c.running = true
		go c.run()
	}
	return nil
}

// run cleans until nothing is left to do, or the cleaner is closed.
func (c *cleaner) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.todo) > 0 && c.ctx.Err() == nil {
		x := c.todo[0]
		c.todo = c.todo[1:]
		c.mu.Unlock()
		if err := c.clean(x); err != nil && c.ctx.Err() == nil {
			c.s.o.Log.Warn("a layer that was applied is not removed; the next start tries again", "layer", filepath.Base(x.dir)+x.id, "error", err)
		}
		c.mu.Lock()
	}
	c.running = false
	c.idle.Broadcast()
}

func (c *cleaner) clean(x cleaning) error {
	if x.id == "" {
		return layer.RemoveSlowly(c.ctx, x.dir)
	}
	if err := c.s.stepped(); err != nil {
		return err
	}
	if err := syncFiles(x.sync); err != nil {
		return err
	}
	if err := c.s.stepped(); err != nil {
		return err
	}
	to := c.s.path(removedPrefix + x.id)
	if err := os.Rename(c.s.path(x.id), to); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.ids, x.id)
	c.mu.Unlock()
	if err := c.s.stepped(); err != nil {
		return err
	}
	return layer.RemoveSlowly(c.ctx, to)
}

// close stops cleaning; the next start goes on with it.
func (c *cleaner) close() {
	c.cancel()
	c.wait()
}

// wait returns when nothing is left to do.
func (c *cleaner) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running {
		c.idle.Wait()
	}
}
