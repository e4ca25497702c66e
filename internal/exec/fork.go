package exec

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/ignore"
	"umbra/internal/layer"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// forks are the layer forks in which commands run.
type forks struct {
	mu     sync.Mutex
	begun  map[string]string // by fork: the layer of the last command
	guards map[string]func() // by layer: ends its guard
}

// physical finds the workspace with a directory that a fork is made of, through all
// forks, and opens it. The caller releases it. NotFound where it was deleted.
func (s *Service) physical(ctx context.Context, fork string) (*workspace.Workspace, error) {
	origin := ""
	for id := fork; ; {
		rec, ok := s.o.Workspaces.Record(id)
		switch {
		case !ok, rec.Fork == nil && rec.Root == "": // a fork between was deleted
			return s.o.Workspaces.At(ctx, origin)
		case rec.Root != "":
			return s.o.Workspaces.Get(ctx, id)
		}
		id, origin = rec.Fork.Of, rec.Fork.Origin
	}
}

// over makes what a fork's commands see of its files: the parent's directory, and a
// layer over it with what differs. Conflict "layer_in_use" while another command of the
// fork runs.
func (s *Service) over(ctx context.Context, l *Layer) error {
	rec, ok := s.o.Workspaces.Record(l.Workspace)
	if !ok || rec.Fork == nil || rec.Fork.Kind != workspaces.LayerKind || rec.Mounted() {
		return nil
	}
	s.forks.mu.Lock()
	defer s.forks.mu.Unlock()
	list, err := s.List(nil) // also those that were begun before the server started
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(x Layer) bool { return x.Workspace == l.Workspace && x.Running }) {
		return inUse()
	}
	var w *workspace.Workspace // whose directory is below; nil: it was deleted
	if !rec.Fork.Whole {
		if w, err = s.physical(ctx, l.Workspace); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	guarded := false
	if w != nil {
		defer func() {
			if !guarded {
				w.Release()
			}
		}()
		if err := w.RecordThen(ctx, func() {}); err != nil {
			return err
		}
		l.Root, l.Of = w.Root(), w.ID()
	} else {
		l.Root, l.Below = rec.Fork.Origin, s.below(rec)
		if err := os.MkdirAll(l.Below, 0o700); err != nil { // none was kept, or a restore has none
			return errs.Wrap(err, "")
		}
	}
	fork, err := s.o.Workspaces.Get(ctx, l.Workspace)
	if err != nil {
		return err
	}
	defer func() {
		if !guarded {
			fork.Release()
		}
	}()
	n, err := s.planner(ctx, fork, l)
	if err != nil {
		return err
	}
	tip, seq := fork.Store().Tip(), uint64(0)
	if w != nil {
		below := w.Store().Tip()
		if n.base, err = w.Store().SnapshotOf(ctx, below.Commit); err != nil {
			return err
		}
		seq = below.Seq
	}
	if n.tip, err = fork.Store().SnapshotOf(ctx, tip.Commit); err != nil {
		return err
	}
	l.From = tip.Seq // what the command sees
	if err := n.sources(); err != nil {
		return err
	}
	f := s.forkLayer(ctx, fork, l)
	f.Tracked = n.recorded
	if err := f.Refresh(ctx, n.base, n.tip); err != nil {
		return err
	}
	l.Over = f.Files()
	if s.forks.begun == nil {
		s.forks.begun = map[string]string{}
	}
	s.forks.begun[l.Workspace] = l.ID
	if w != nil { // else nothing below changes
		guarded = true
		s.guard(&guard{s: s, l: *l, of: w, fork: fork, tree: n.tip, seq: seq})
	}
	return nil
}

// below is what a fork shows in place of a directory whose workspace was deleted.
func (s *Service) below(rec workspaces.Record) string {
	if rec.Fork.Below != "" {
		return s.o.Workspaces.BelowDir(rec.Fork.Below)
	}
	return filepath.Join(s.o.Workspaces.LayerDirOf(rec.ID), "below")
}

// lower is the directory whose files a layer shows.
func (l *Layer) lower() string { return cmp.Or(l.Below, l.Root) }

// shownAt is where a layer's command sees it: at the directory that it is made of, also
// when that belongs to no workspace any more, unless there is none.
func (l *Layer) shownAt() string {
	if info, err := os.Stat(l.Root); l.Below != "" && (err != nil || !info.IsDir()) {
		return l.Below
	}
	return l.Root
}

// guard runs a guard, which releases its workspaces at its end. forks.mu is held.
func (s *Service) guard(g *guard) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	if s.forks.guards == nil {
		s.forks.guards = map[string]func(){}
	}
	s.forks.guards[g.l.ID] = func() { cancel(); <-done }
	go func() {
		defer close(done)
		defer g.of.Release()
		defer g.fork.Release()
		g.run(ctx)
	}()
}

// unguard ends a layer's guard.
func (s *Service) unguard(id string) {
	s.forks.mu.Lock()
	end := s.forks.guards[id]
	delete(s.forks.guards, id)
	s.forks.mu.Unlock()
	if end != nil {
		end()
	}
}

// Close ends what the service does by itself.
func (s *Service) Close() {
	s.forks.mu.Lock()
	ids := slices.Collect(maps.Keys(s.forks.guards))
	s.forks.mu.Unlock()
	for _, id := range ids {
		s.unguard(id)
	}
	s.end()
	s.others.Wait()
	s.cleaner.close()
}

func (s *Service) forkLayer(ctx context.Context, fork *workspace.Workspace, l *Layer) *forklayer.Layer {
	return &forklayer.Layer{Dir: s.o.Workspaces.LayerDirOf(fork.ID()), Lower: l.lower(), Alone: l.Below != "",
		Blob: func(id object.ID) (io.ReadCloser, error) {
			r, _, err := fork.Store().OpenBlob(ctx, id)
			return r, err
		}}
}

// planner makes the planner of a layer. A fork has its own rules, and those that its
// parent's directory has outside of history.
func (s *Service) planner(ctx context.Context, w *workspace.Workspace, l *Layer) (*planner, error) {
	n := &planner{ctx: ctx, w: w, upper: s.path(l.ID, "upper"), rules: map[string]*ignore.Dir{}, touched: map[string]Version{}, perms: map[string]uint32{}, dirs: map[string]uint32{}}
	var err error
	if n.opened, err = s.bits(l.ID); err != nil {
		return nil, err
	}
	n.note = func(b *bits) error { return s.writeBits(l.ID, b) }
	if n.exclude, err = w.IgnoreOptions(); err != nil || l.Of == "" {
		if l.Below != "" && err == nil {
			n.exclude.Options.InfoExclude, err = infoExclude(l.Below)
		}
		return n, err
	}
	of, err := s.o.Workspaces.Get(ctx, l.Of)
	if errs.Is(err, errs.NotFound) {
		return n, nil // forgotten meanwhile: the fork's own rules are left
	}
	if err != nil {
		return nil, err
	}
	defer of.Release()
	outer, err := of.IgnoreOptions()
	own := n.exclude.Options.ReadFile
	n.exclude = outer
	n.exclude.Options.ReadFile = own
	return n, err
}

// infoExclude reads the rules that a directory's repository has for itself.
func infoExclude(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	defer root.Close()
	info, err := root.Lstat(".git/info/exclude")
	if err != nil || !info.Mode().IsRegular() || info.Size() > ignore.MaxFile {
		return nil, nil
	}
	raw, err := root.ReadFile(".git/info/exclude")
	return raw, errs.Wrap(err, "")
}

// absorb keeps what a command left in a fork that history does not have.
func (s *Service) absorb(ctx context.Context, w *workspace.Workspace, l *Layer, list []move) error {
	var hide, take []string
	for _, x := range list {
		switch x.Op {
		case opClear:
			hide = append(hide, x.Path)
		case opPut:
			take = append(take, x.Path)
		}
	}
	f := s.forkLayer(ctx, w, l)
	if err := f.Absorb(s.path(l.ID, "upper"), hide, take); err != nil {
		return err
	}
	for _, x := range insideFirst(list) {
		if x.Op != opChmod || !slices.ContainsFunc(take, func(p string) bool { return x.Path == p || strings.HasPrefix(x.Path, p+"/") }) {
			continue
		}
		err := os.Chmod(filepath.Join(f.Files(), x.Path), fs.FileMode(x.Perm).Perm())
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // one that is closed already
			return errs.Wrap(err, x.Path)
		}
	}
	return nil
}

// FreeFork makes a workspace that is to be deleted removable: a fork's guard ends, and
// directories that a command closed in it are opened. Conflict "layer_in_use" while a
// command runs in a layer of the workspace, and "unmerged", unless force is set, where a
// command's changes were never applied.
func (s *Service) FreeFork(rec workspaces.Record, force bool) error {
	list, err := s.List(nil)
	if err != nil {
		return err
	}
	for _, l := range list {
		switch {
		case l.Workspace != rec.ID:
		case l.Running:
			return inUse()
		case !force:
			return errs.New(errs.Conflict, "unmerged", "What a command changed in the workspace was never applied; apply or drop its layer, or delete the workspace with force.").With("layer", l.ID)
		}
	}
	if rec.Fork == nil || rec.Fork.Kind != workspaces.LayerKind {
		return nil
	}
	s.forks.mu.Lock()
	last := s.forks.begun[rec.ID]
	s.forks.mu.Unlock()
	s.unguard(last)
	layer.Unlock(s.o.Workspaces.LayerDirOf(rec.ID))
	return nil
}

// FreeBelow ends the guards of the forks that show a workspace's directory. Conflict
// "layer_in_use" while a command runs in one.
func (s *Service) FreeBelow(id string) error {
	list, err := s.List(nil)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].Of == id && list[i].Running {
			return inUse()
		}
	}
	for i := range list {
		if list[i].Of == id {
			s.unguard(list[i].ID)
		}
	}
	return nil
}

// ForgetFork drops the layers of a fork that was deleted.
func (s *Service) ForgetFork(id string) error {
	list, err := s.List(nil)
	if err != nil {
		return err
	}
	s.forks.mu.Lock()
	delete(s.forks.begun, id)
	s.forks.mu.Unlock()
	for _, l := range list {
		if l.Workspace == id && !l.Running {
			err = errors.Join(err, s.remove(l.ID))
		}
	}
	return err
}

// ForkFiles returns the directory of a fork's own ignored files.
func (s *Service) ForkFiles(fork string) string {
	return (&forklayer.Layer{Dir: s.o.Workspaces.LayerDirOf(fork)}).Files()
}

// Mounts reports whether the server can mount layers where other processes see them.
func (s *Service) Mounts() error {
	s.mounts.Do(func() { s.noMount = layer.MayMount(s.o.Dir) })
	return s.noMount
}

// Forks reports whether the system has layers for forks, whose directories are on the
// data directory's file system.
func (s *Service) Forks() error {
	s.probe.Do(func() {
		if s.probed = layer.Probe(s.o.Dir); s.probed != nil && !errors.Is(s.probed, layer.ErrUnsupported) {
			s.o.Log.Warn("layers are not available", "error", s.probed)
		}
	})
	return s.probed
}
