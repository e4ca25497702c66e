package workspaces

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/forkstub"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// Fork says what a fork was made from. It is part of a Record.
type Fork struct {
	Of   string `json:"of"`   // id of the parent
	At   string `json:"at"`   // the parent's commit at which the fork begins
	Seq  uint64 `json:"seq"`  // its number
	Kind string `json:"kind"` // "virtual", "layer" or "copy"
	Name string `json:"name,omitempty"`
	// Origin is the root of the directory that the fork comes from, through all
	// forks; empty where that is virtual. Who may not know of it may not know of
	// the fork.
	Origin string `json:"origin,omitempty"`
	// Expires is when the fork is removed by itself; zero: never.
	Expires time.Time `json:"expires,omitzero"`
	// Dir and Ino are the directory that was made for a copy. It goes with the fork;
	// another one that the workspace was bound to since does not.
	Dir string `json:"dir,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
	// Linked is set while the fork's history continues the parent's store.
	Linked bool `json:"linked"`
	// Shares are the further workspaces whose history it has since it has one of its own:
	// those that Of was a fork of.
	Shares []string `json:"shares,omitempty"`
	// Whole is set of a layer that shows nothing of Origin any more, since the workspace of
	// that was deleted. Below names the directory that it shows in its place (BelowDir), if
	// any: one at a path may have taken over all that it showed.
	Whole bool   `json:"whole,omitempty"`
	Below string `json:"below,omitempty"`
	// Judged is how a race ended for the fork; nil where there was none.
	Judged *Judgment `json:"judged,omitempty"`
	// Unmade is set while a virtual fork was never opened: it has no repository yet.
	Unmade bool `json:"unmade,omitempty"`
}

// Judgment is what a race's judge said of a fork.
type Judgment struct {
	Passed  bool      `json:"passed"`
	Score   *float64  `json:"score,omitempty"`     // higher is better
	Exit    *int      `json:"exit_code,omitempty"` // of the judge, or of the command where there was none
	Seconds float64   `json:"seconds,omitempty"`   // that the command took
	Command string    `json:"command,omitempty"`   // the judge
	At      time.Time `json:"at"`
}

// The kinds of forks that are or have directories (Fork.Kind): a directory of its own,
// and an overlay over the parent's for commands, with the files only in git.
const (
	CopyKind  = "copy"
	LayerKind = "layer"
)

// maxForkDepth is how many forks deep a fork may be: git follows five alternates
// (git's object-file.c, link_alt_odb_entries).
const maxForkDepth = 5

// Place gives the root by which it is judged who may know of a workspace: its own,
// or for a virtual fork that of the directory that it comes from.
func (r Record) Place() string {
	if r.Root == "" && r.Fork != nil {
		return r.Fork.Origin
	}
	return r.Root
}

// ShownKind gives the kind as the contracts have it: a fork's own where it is one.
func (r Record) ShownKind() string {
	if r.Fork != nil {
		return r.Fork.Kind
	}
	return r.Kind
}

// ForksFirst orders ids so that a fork comes before what it is a fork of: a parent's
// history holds what its forks refer to, but not of an earlier moment.
func (m *Manager) ForksFirst(ids []string) {
	depth := func(id string) (n int) {
		for r, ok := m.Record(id); ok && r.Fork != nil && r.Fork.Linked; n++ {
			r, ok = m.Record(r.Fork.Of)
		}
		return n
	}
	slices.SortStableFunc(ids, func(a, b string) int { return depth(b) - depth(a) })
}

// linkedForks gives the forks whose history continues a workspace's store.
func (m *Manager) linkedForks(id string) []Record {
	return slices.DeleteFunc(m.Forks(id), func(r Record) bool { return !r.Fork.Linked })
}

// storeOptions returns the options with which a workspace's history is opened. A
// fork's base is held open until release.
func (m *Manager) storeOptions(ctx context.Context, r Record) (so gitstore.Options, release func(), err error) {
	if err := m.shareStore(ctx, r.ID, &so); err != nil {
		return so, nil, errs.Wrap(err, "")
	}
	base, release, err := m.baseOf(ctx, r)
	if err != nil {
		return so, release, err
	}
	if err := m.fetchHistory(ctx, r, base); err != nil {
		release()
		return so, nil, errs.Wrap(err, "")
	}
	files, err := m.opt.Host.Open(m.dirOf(r.ID))
	if err != nil {
		release()
		return so, nil, errs.Wrap(err, "")
	}
	so = gitstore.Options{FS: files, Base: base, Sink: so.Sink, Boot: so.Boot, Log: m.opt.Log.With("workspace", r.ID), Now: m.opt.Now, Foreground: m.opt.Foreground, Meter: m.opt.Meter.Store, Caches: m.kept}
	if m.pinned(r) {
		so.Copy = func(ctx context.Context) (sink.Sink, error) { return m.copyOf(ctx, r.ID) }
	}
	so.Readers = func() []vfs.Info { return m.readers(r.ID) }
	if m.opt.Store != nil {
		m.opt.Store(&so)
	}
	return so, release, nil
}

// baseOf opens the history that a fork continues, until release; nil for others.
func (m *Manager) baseOf(ctx context.Context, r Record) (b *gitstore.Base, release func(), err error) {
	if r.Fork == nil || !r.Fork.Linked {
		return nil, func() {}, nil
	}
	at, err := object.ParseID(r.Fork.At)
	if err != nil {
		return nil, nil, errs.New(errs.Internal, "", "the record of fork %s is damaged", r.ID)
	}
	of, err := m.Get(ctx, r.Fork.Of)
	if err != nil {
		return nil, nil, err
	}
	return &gitstore.Base{Store: of.Store(), At: at, Alternate: path.Join("../../..", r.Fork.Of, "repo.git/objects")}, of.Release, nil
}

// readers lists the repositories of all forks that continue a workspace's history.
func (m *Manager) readers(id string) (out []vfs.Info) {
	for _, f := range m.linkedForks(id) {
		for _, dir := range []string{"repo.git", "repo.git/objects"} {
			if info, err := m.opt.Host.Stat(filepath.Join(m.dirOf(f.ID), dir)); err == nil { // else nothing is there yet
				out = append(out, info)
			}
		}
		out = append(out, m.readers(f.ID)...)
	}
	return out
}

// putAwayForks closes the open forks of a workspace that is to be closed, so that
// nothing reads its store. It returns with m.mu held, at a moment in which none is
// open.
func (m *Manager) putAwayForks(ctx context.Context, id string, c closing) {
	for {
		var open []string
		forks := m.linkedForks(id)
		m.mu.Lock()
		for _, r := range forks {
			if m.open[r.ID] != nil {
				open = append(open, r.ID)
			}
		}
		if len(open) == 0 {
			return
		}
		m.mu.Unlock()
		var closing sync.WaitGroup
		for _, fork := range open {
			closing.Go(func() {
				if err := m.putAwayWith(ctx, fork, c); err != nil {
					m.opt.Log.Warn("workspace not unloaded cleanly", "workspace", fork, "error", err)
				}
			})
		}
		closing.Wait()
		ctx = context.WithoutCancel(ctx) // for those that are still being closed
	}
}

// ForkSpec says what a fork is to be.
type ForkSpec struct {
	At      object.ID // zero: the parent's newest commit
	Kind    string    // of ForkVirtual: VirtualKind or LayerKind
	Name    string
	Expires time.Time // zero: never
	ID      string    // of a layer that is mounted: as MountLayer had it
	// Begin, if set, is called by ForkVirtual with the forks' ids before they exist.
	Begin func(ids []string) error
}

// ForkVirtual makes virtual forks, one for each name, all or none. The caller records
// the parent's disk before. They get repositories when they are opened.
//
// errs.Conflict fork_too_deep.
func (m *Manager) ForkVirtual(ctx context.Context, parent *workspace.Workspace, spec ForkSpec, names []string) ([]Record, error) {
	defer parent.ShareHistory()()
	f, err := m.newFork(ctx, parent, spec)
	if err != nil {
		return nil, err
	}
	f.Kind, f.Unmade = cmp.Or(spec.Kind, VirtualKind), true
	m.making.Lock() // the parent cannot be forgotten meanwhile
	defer m.making.Unlock()
	if _, ok := m.Record(parent.ID()); !ok {
		return nil, errUnknown()
	}
	now := m.opt.Now().UTC()
	var made []Record
	var stubs []forkstub.Fork
	for i, name := range names {
		own := *f
		own.Name = name
		id := m.NewID(own.slug(parent.ID()))
		for slices.ContainsFunc(made, func(r Record) bool { return r.ID == id }) {
			id = m.NewID(own.slug(parent.ID()))
		}
		// The list is in the order of the names.
		r := Record{ID: id, Kind: VirtualKind, Created: now.Add(time.Duration(i)), LastUsed: now, Fork: &own, Rest: &Rest{Head: own.At}}
		made, stubs = append(made, r), append(stubs, own.stub(r.ID))
	}
	if spec.Begin != nil {
		ids := make([]string, len(made))
		for i := range made {
			ids[i] = made[i].ID
		}
		if err := spec.Begin(ids); err != nil {
			return nil, err
		}
	}
	if m.opt.Shared == nil { // else no directory has a history that others read
		if err := m.stubs(func(dir vfs.FS) error { return forkstub.Put(dir, stubs, false) }); err != nil {
			return nil, errs.Wrap(err, "")
		}
	}
	if err := m.opt.Records.Put(made...); err != nil {
		return nil, err
	}
	return made, nil
}

func (f *Fork) stub(id string) forkstub.Fork { return forkstub.Fork{ID: id, Parent: f.Of, At: f.At} }

func (m *Manager) stubs(do func(dir vfs.FS) error) error {
	dir, err := m.opt.Host.Open(m.dirOf("."))
	if err != nil {
		return err
	}
	return errors.Join(do(dir), dir.Close())
}

// renewStubs makes the stubs of forks that have no repository again, in place of what a
// crash left of one, and removes those of forks that do not exist.
func (m *Manager) renewStubs() error {
	if m.opt.Shared != nil {
		return nil
	}
	var list []forkstub.Fork
	err := m.each(unmade, func(r Record) bool {
		list = append(list, r.Fork.stub(r.ID))
		return true
	})
	if err != nil {
		return err
	}
	err = m.stubs(func(dir vfs.FS) error {
		if err := forkstub.Sweep(dir, list); err != nil {
			return err
		}
		for _, f := range list {
			if info, err := dir.Lstat(f.ID); err != nil || !info.IsDir() {
				continue
			}
			if err := vfs.RemoveAll(dir, f.ID); err != nil {
				return err
			}
		}
		return forkstub.Put(dir, list, true)
	})
	if errors.Is(err, fs.ErrNotExist) && len(list) == 0 { // a new data directory
		return nil
	}
	return err
}

// RemoveFiles removes what a workspace that was forgotten left in the data directory.
func (m *Manager) RemoveFiles(r Record) error {
	if _, there := m.Record(r.ID); there {
		return nil
	}
	return errs.Wrap(m.removeFiles(r), "")
}

// removeFiles removes a workspace's directory, for good: it does not come back after a
// power failure.
func (m *Manager) removeFiles(r Record) error {
	err := m.dropStub(r)
	if r.Mounted() {
		err = errors.Join(err, m.layerOf(r).Unmount(true))
	}
	if err == nil {
		err = m.opt.Host.RemoveAll(m.dirOf(r.ID))
	}
	if err != nil {
		return err
	}
	return m.stubs(func(dir vfs.FS) error { return dir.SyncDir(".") })
}

// DropUnfinished removes what was recorded of directories whose baseline was cut off.
func (m *Manager) DropUnfinished(of func(Record) bool) error {
	m.mu.Lock()
	var found []Record
	for id, r := range m.unfinished {
		if of(r) {
			delete(m.unfinished, id)
			found = append(found, r)
		}
	}
	m.mu.Unlock()
	for _, r := range found {
		if err := m.dropUnfinished(r); err != nil {
			m.keepUnfinished(r)
			return err
		}
	}
	return nil
}

// dropStub makes way for the repository of a fork that had none.
func (m *Manager) dropStub(r Record) error {
	if r.Fork == nil || !r.Fork.Unmade || m.opt.Shared != nil {
		return nil
	}
	last := func() bool {
		return !slices.ContainsFunc(m.Forks(r.Fork.Of), func(x Record) bool { return x.ID != r.ID && x.Fork.Unmade && x.Fork.At == r.Fork.At })
	}
	return m.stubs(func(dir vfs.FS) error { return forkstub.Drop(dir, r.Fork.stub(r.ID), last) })
}

// makeFork opens a fork that has no repository yet, and makes that. Nothing of it is
// synced until it is complete, and then all at once: what a crash leaves before the
// record says that it is made is removed.
func (m *Manager) makeFork(ctx context.Context, r Record) (*workspace.Workspace, error) {
	if err := m.dropStub(r); err != nil {
		return nil, errs.Wrap(err, "")
	}
	if err := m.opt.Host.RemoveAll(m.dirOf(r.ID)); err != nil { // of an attempt that failed
		return nil, errs.Wrap(err, "")
	}
	if err := m.opt.Host.MkdirAll(m.dirOf(r.ID)); err != nil {
		return nil, errs.Wrap(err, "")
	}
	flush := func() error { return nil }
	w, err := m.loadOn(ctx, r, func(files vfs.FS) vfs.FS {
		later := vfs.Defer(files)
		flush = later.Flush
		return later
	})
	if err != nil {
		return nil, err
	}
	if err := flush(); err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), w.Close(ctx, nil))
	}
	defer m.putting.Lock(r.ID)()
	m.mu.Lock()
	r, ok := m.records[r.ID]
	m.mu.Unlock()
	if !ok {
		return nil, errors.Join(errUnknown(), w.Close(ctx, nil))
	}
	f := *r.Fork
	f.Unmade, r.Fork, r.Rest = false, &f, nil
	if err := m.opt.Records.Put(r); err != nil {
		return nil, errors.Join(err, w.Close(ctx, nil))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[r.ID] = r
	return w, nil
}

// Vacant fails where a directory may not become a workspace: errors as of Open.
func (m *Manager) Vacant(root string, o OpenOptions) error {
	p, err := m.look(root, o)
	if err != nil {
		return err
	}
	m.making.Lock()
	defer m.making.Unlock()
	if _, known := m.find(p); known {
		return errs.New(errs.Conflict, "workspace_exists", "The directory is a workspace already.")
	}
	return m.overlaps(p, "")
}

// ForkCopy makes a fork of a directory that was filled with the parent's files, or that
// is a layer (MountLayer); what differs in it becomes an external change. The caller
// calls Release.
func (m *Manager) ForkCopy(ctx context.Context, parent *workspace.Workspace, root string, o OpenOptions, spec ForkSpec) (*workspace.Workspace, error) {
	defer parent.ShareHistory()()
	f, err := m.newFork(ctx, parent, spec)
	if err != nil {
		return nil, err
	}
	f.Kind, o.fork, o.id = cmp.Or(spec.Kind, CopyKind), f, spec.ID
	p, err := m.look(root, o)
	if err != nil {
		return nil, err
	}
	f.Dir, f.Ino = p.Root, p.Ino
	if f.Kind == LayerKind {
		o.like = parent
	}
	return m.openPlace(ctx, p, o)
}

func (m *Manager) newFork(ctx context.Context, parent *workspace.Workspace, spec ForkSpec) (*Fork, error) {
	rec, ok := m.Record(parent.ID())
	if !ok {
		return nil, errUnknown()
	}
	if parent.Store().Depth() >= maxForkDepth {
		return nil, errs.New(errs.Conflict, "fork_too_deep", "A fork may be %d forks deep at most; fork one of its parents.", maxForkDepth)
	}
	at := spec.At
	if at.IsZero() {
		at = parent.Store().Tip().Commit
	}
	c, err := parent.Store().ReadCommit(ctx, at)
	if err != nil {
		return nil, err
	}
	// Stock git reads the fork's history from the parent's packs.
	if err := parent.Store().Publish(ctx); err != nil {
		return nil, err
	}
	f := &Fork{Of: parent.ID(), At: at.String(), Seq: c.Seq, Name: spec.Name, Origin: rec.Place(), Expires: spec.Expires, Linked: true}
	if rec.Fork != nil && rec.Root == "" && spec.Kind != CopyKind {
		f.Whole, f.Below = rec.Fork.Whole, rec.Fork.Below // it shows the same
	}
	return f, nil
}

// slug is what the fork's id begins with.
func (f *Fork) slug(parent string) string {
	if f.Name != "" {
		return f.Name
	}
	if i := strings.LastIndexByte(parent, '-'); i > 0 {
		parent = parent[:i]
	}
	return strings.TrimSuffix(parent, "-fork") + "-fork"
}

// MadeFor reports whether the directory of a copy is the one that was made for it,
// and is at its place.
func (m *Manager) MadeFor(r Record) bool {
	if r.Fork == nil || r.Fork.Kind != CopyKind || r.Fork.Dir == "" || r.Root != r.Fork.Dir || r.Ino != r.Fork.Ino {
		return false
	}
	there, err := m.inPlace(r)
	return there && err == nil
}

// NewKey makes a key that begins with a name, for what is not a workspace.
func NewKey(name string) string { return workspace.NewID(name, random) }

// Judge notes how a race ended for a fork, in place of what was noted before.
//
// Unprocessable "not_a_fork".
func (m *Manager) Judge(id string, j Judgment) error {
	j.At = m.opt.Now().UTC()
	done := false
	m.changeRecord(id, func(r *Record) bool {
		if done = r.Fork != nil; !done {
			return false
		}
		f := *r.Fork
		f.Judged, r.Fork = &j, &f
		return true
	})
	if !done {
		return errs.New(errs.Unprocessable, "not_a_fork", "Only a fork has a judgment.").With("field", "judged")
	}
	return nil
}

// Detach makes stores of their own of a workspace's forks, so that it can be
// forgotten. Forks that were detached before an error stay so.
func (m *Manager) Detach(ctx context.Context, id string) error {
	w, err := m.Get(ctx, id)
	if err != nil {
		return err
	}
	defer w.Release()
	for _, r := range m.linkedForks(id) {
		if err := m.detach(ctx, w, r); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) detach(ctx context.Context, parent *workspace.Workspace, r Record) error {
	if m.shares(r) {
		return m.detachShared(ctx, r.ID)
	}
	if r.Fork.Unmade {
		w, err := m.Get(ctx, r.ID)
		if err != nil {
			return err
		}
		w.Release()
	}
	var done func()
	for done == nil {
		if err := m.putAway(ctx, r.ID, nil, false); err != nil {
			return err
		}
		var err error
		if done, err = m.claim(ctx, r.ID); err != nil {
			return err
		}
	}
	defer done()
	files, err := m.opt.Host.Open(m.dirOf(r.ID))
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer files.Close()
	if err := parent.Store().Detach(ctx, files); err != nil {
		return errs.Wrap(err, "")
	}
	return m.setAlone(r.ID)
}

// setAlone notes that a fork has a history of its own by now.
func (m *Manager) setAlone(id string) error {
	var of []string
	for r, ok := m.Record(id); ok && r.Fork != nil; r, ok = m.Record(r.Fork.Of) {
		of = append(append(of, r.Fork.Of), r.Fork.Shares...)
	}
	return m.alterRecord(id, func(r *Record) bool {
		if r.Fork == nil {
			return false
		}
		f := *r.Fork
		f.Linked, f.Shares, r.Fork = false, slices.Compact(of[1:]), &f
		return true
	})
}

// checkKept fails with errs.Conflict has_forks where a fork that Detach gave a history of
// its own has one of these contents: a purge would leave it there. Packs of such forks and of
// a fork's siblings, in which nothing reaches it, are rewritten once none of them refuses, but
// not in a dry run: Detach links whole packs.
func (m *Manager) checkKept(ctx context.Context, id string, blobs []object.ID, dry bool) error {
	for _, only := range []bool{true, false} {
		if !only && dry {
			return nil
		}
		var ids []string
		for _, fork := range m.apart(id) {
			has, err := m.keeps(ctx, fork, blobs, only)
			if err != nil {
				return err
			}
			if has {
				ids = append(ids, fork)
			}
		}
		if len(ids) > 0 {
			return workspace.ErrHasForks("Forks with a history of their own have such contents. Purge those first.", ids)
		}
	}
	for _, x := range m.Related(id) {
		if _, err := m.keeps(ctx, x, blobs, false); err != nil { // what its history has is purged by itself
			return err
		}
	}
	return nil
}

// apart lists the forks of a workspace, and of forks of it that were deleted, that Detach gave
// a history of their own.
func (m *Manager) apart(id string) (ids []string) {
	for _, r := range append(m.Forks(id), m.collect(keeping(id))...) {
		if !r.Fork.Linked {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Related lists the workspaces with a history of their own that may have packs of a
// workspace's: such forks of it, and of those that it is a fork of.
func (m *Manager) Related(id string) []string {
	ids := m.apart(id)
	if r, _ := m.Record(id); r.Fork != nil {
		for _, of := range append(slices.Clone(r.Fork.Shares), r.Fork.Of) {
			ids = append(ids, m.apart(of)...)
		}
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(x string) bool { return x == id })
}

// keeps reports whether a workspace has one of some contents, after what nothing reaches
// there is removed if it has. A dry run removes nothing, and reports the same.
func (m *Manager) keeps(ctx context.Context, id string, blobs []object.ID, dry bool) (bool, error) {
	w, err := m.Get(ctx, id)
	if err != nil {
		return false, err
	}
	defer w.Release()
	if !slices.ContainsFunc(blobs, w.Store().HasBlob) {
		return false, nil
	}
	done, err := w.Store().Collect(ctx, gitstore.CollectOptions{Now: true, Thorough: true, DryRun: dry, Among: blobs})
	return done.Left, err
}

// CheckUnforked fails with errs.Conflict has_forks where forks continue a
// workspace's history.
func (m *Manager) CheckUnforked(id string) error {
	return hasForks("Forks continue the history of this workspace.", m.linkedForks(id))
}

func hasForks(why string, list []Record) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return workspace.ErrHasForks(why, ids)
}
