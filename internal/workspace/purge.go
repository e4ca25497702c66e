package workspace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/lineage"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/reconcile"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// PurgeRequest says what is to leave a workspace's history: a file's contents,
// or one content.
type PurgeRequest struct {
	Path wspath.Path // every content that the path had but the one now on disk
	Blob object.ID   // or, if not zero, this one
	// Ignore takes files that hold such bytes out of the tip, and lists them in
	// the workspace's exclude file. With it the content now on disk goes too.
	Ignore   bool
	Force    bool // drop people's refs, worktrees and reflogs that lead to it
	DryRun   bool
	Progress func(step string, done, all int64)
}

// PurgeResult reports what a purge did, or would do.
type PurgeResult struct {
	gitstore.Purged
	Blobs []object.ID   // the contents
	Names []wspath.Path // that the path had
	Kept  []wspath.Path // names whose content on disk stays in history too
	// OnDisk are the files that hold such bytes, those included that a fork's layer has and
	// no history. With Ignore they are taken out of the tip.
	OnDisk  []wspath.Path
	Refused bool // a dry run that would have been refused
}

// purgeRounds bounds how often the beginning is made again because another process
// writes the very file meanwhile; the last one is made while writers wait. What
// retention drops meanwhile makes a round more.
const purgeRounds = 3

// checkpointPatience bounds how long writers wait for the disk to be synced.
const checkpointPatience = 20 * time.Second

// Purge takes contents out of all history: docs/ARCHITECTURE.md, Purge. Writers
// wait while the newest commits are rewritten and the old objects removed.
//
// errs.NotFound "path_not_in_history", "blob_not_found"; errs.Invalid
// "purge_empty"; errs.Conflict "purge_only_on_disk", "purge_on_disk" with the
// field "files", "purge_held" with the field "held", workspace_missing;
// errs.Unavailable ref_locked; errs.Conflict has_forks.
func (w *Workspace) Purge(ctx context.Context, req PurgeRequest) (*PurgeResult, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer w.leave()
	if err := w.wholly(); err != nil {
		return nil, err
	}
	if req.Progress == nil {
		req.Progress = func(string, int64, int64) {}
	}
	for round := 1; ; round++ {
		if err := w.disk.Check(); err != nil {
			return nil, err
		}
		if !req.DryRun {
			if _, err := w.recon.Scan(ctx, reconcile.SyncOptions{Attribute: true}); err != nil {
				return nil, err
			}
			w.keeper.Settle(ctx, false)
		}
		p, begun := &purge{w: w, req: req, ctx: ctx}, w.historyNow()
		again, err := p.run(round >= purgeRounds)
		if (errs.Is(err, errs.Gone) || errs.CodeOf(err) == "blob_not_found") && w.historyNow() != begun {
			continue // what was checked went meanwhile: what is left has to be
		}
		if !again || err != nil {
			if err == nil && !req.DryRun {
				w.forgetPurged(p.blobs)
				w.keeper.DropNow()
				err = w.sweepDropped(ctx)
			}
			return p.result(), err
		}
	}
}

// historyState reports whether anything was taken out of history: by retention, or
// by a purge.
type historyState struct {
	begin    gitstore.Boundary
	rewrites uint64
}

func (w *Workspace) historyNow() historyState {
	return historyState{w.store.Boundary(), w.store.Rewrites()}
}

// purge is one round.
type purge struct {
	w      *Workspace
	req    PurgeRequest
	ctx    context.Context
	line   *lineage.Lineage // nil for one content
	blobs  map[object.ID]bool
	files  []wspath.Path
	shown  []wspath.Path // of a fork's layer, next to files
	kept   []wspath.Path
	purged gitstore.Purged
	no     bool
}

func (p *purge) result() *PurgeResult {
	r := &PurgeResult{Purged: p.purged, Kept: p.kept, OnDisk: p.holders(), Refused: p.no}
	for id := range p.blobs {
		r.Blobs = append(r.Blobs, id)
	}
	slices.SortFunc(r.Blobs, func(a, b object.ID) int { return bytes.Compare(a[:], b[:]) })
	if p.line != nil {
		for n := range p.line.Names {
			r.Names = append(r.Names, wspath.Path(n))
		}
	}
	slices.Sort(r.Names)
	return r
}

// run does a round. hold makes all of it while writers wait; otherwise again
// says that the file was written meanwhile.
func (p *purge) run(hold bool) (again bool, err error) {
	w := p.w
	if hold && !p.req.DryRun {
		lock, err := w.locks.Acquire(p.ctx, []wspath.Path{wspath.Root})
		if err != nil {
			return false, errs.Wrap(err, "")
		}
		defer lock.Release()
	}
	if err := p.contents(); err != nil {
		return false, err
	}
	if err := p.keptBy(true); err != nil {
		return false, err
	}
	p.req.Progress("looking at the directory", 0, 0)
	if p.files, err = w.holding(p.ctx, p.blobs); err != nil {
		return false, err
	}
	if err := p.inLayer(); err != nil {
		return false, err
	}
	holders := p.holders()
	if len(holders) > 0 && !p.req.Ignore && !p.req.DryRun {
		return false, errOnDisk(holders)
	}
	begun, err := w.store.BeginPurge(p.ctx, gitstore.PurgeOptions{Blobs: slices.Collect(maps.Keys(p.blobs)), Force: p.req.Force, DryRun: p.req.DryRun, Progress: p.req.Progress})
	if err != nil {
		return false, err
	}
	defer begun.Discard()
	if p.purged, err = begun.Plan(p.ctx); err != nil {
		return false, err
	}
	if p.req.DryRun {
		p.no = len(p.purged.Holders) > 0 || len(holders) > 0 && !p.req.Ignore
		return false, nil
	}
	if len(p.purged.Holders) > 0 {
		return false, gitstore.ErrHeld(p.purged.Holders)
	}
	if !hold {
		if err := w.checkpoint(p.ctx, false); err != nil { // most of it, while no request waits
			return false, err
		}
		lock, err := w.locks.Acquire(p.ctx, []wspath.Path{wspath.Root})
		if err != nil {
			return false, errs.Wrap(err, "")
		}
		defer lock.Release()
		if p.line != nil {
			if again, err = p.line.Grown(p.ctx); again || err != nil {
				return again, err
			}
		}
	}
	done, err := w.unshared()
	if err != nil {
		return false, err
	}
	defer done()
	if err := p.keptBy(false); err != nil {
		return false, err
	}
	if err := p.takeOut(); err != nil {
		return false, err
	}
	// Before history forgets which paths had them: what a kill leaves is purged again.
	if err := p.forget(); err != nil {
		return false, err
	}
	// What the disk holds must survive a power cut from here on: an older content
	// that comes back would be taken for a user's. A file whose sync fails would
	// be rewritten under a lock that is held here: that is not waited for.
	soon, cancel := context.WithTimeout(p.ctx, checkpointPatience)
	defer cancel()
	if err := w.checkpoint(soon, false); err != nil {
		return false, err
	}
	p.purged, err = begun.Finish(p.ctx)
	if errs.CodeOf(err) == "purge_on_tip" && !hold {
		return true, nil // a file that came, or went and was not recorded yet
	}
	return false, err
}

// inLayer finds the files of a fork's layer that have what is to go.
func (p *purge) inLayer() error {
	if p.w.forks.layer == nil {
		return nil
	}
	contents, err := p.w.sizesOf(p.ctx, p.blobs)
	if err != nil {
		return err
	}
	names, err := p.w.forks.layer.Holding(contents, p.had)
	p.shown = nil
	for _, name := range names {
		p.shown = append(p.shown, wspath.Path(name))
	}
	return err
}

// holders lists all files that have what is to go.
func (p *purge) holders() []wspath.Path {
	list := slices.Concat(p.files, p.shown)
	slices.Sort(list)
	return slices.Compact(list)
}

// forget removes what is to go from a fork's layer.
func (p *purge) forget() error {
	if p.w.forks.layer == nil {
		return nil
	}
	contents, err := p.w.sizesOf(p.ctx, p.blobs)
	if err != nil {
		return err
	}
	return p.w.forks.layer.Forget(contents, p.req.Ignore, p.had)
}

// had reports whether a path had a content in history.
func (p *purge) had(name string, id object.ID) (bool, error) {
	line, err := lineage.Of(p.ctx, p.w.store, wspath.Path(name), func(int64, int64) {})
	if err != nil {
		return false, err
	}
	return line.Blobs[id], nil
}

// keptBy fails where a fork with a history of its own has some of what is to go. Unless dry,
// what nothing reaches in such forks is removed from them.
func (p *purge) keptBy(dry bool) error {
	if p.w.forks.keep == nil {
		return nil
	}
	return p.w.forks.keep(p.ctx, slices.Collect(maps.Keys(p.blobs)), dry)
}

// contents settles what is to go.
func (p *purge) contents() error {
	empty := object.Hash(object.Blob, nil)
	if !p.req.Blob.IsZero() {
		if p.req.Blob == empty || p.req.Blob == gitstore.PurgedBlob() {
			return errs.New(errs.Invalid, "purge_empty", "There is nothing in that content to be purged.")
		}
		p.blobs = map[object.ID]bool{p.req.Blob: true}
		return nil
	}
	var err error
	p.line, err = lineage.Of(p.ctx, p.w.store, p.req.Path, func(done, all int64) { p.req.Progress("looking for versions", done, all) })
	if err != nil {
		return err
	}
	p.blobs = p.line.Blobs
	delete(p.blobs, empty)
	delete(p.blobs, gitstore.PurgedBlob())
	if len(p.blobs) == 0 {
		return &errs.Error{Kind: errs.NotFound, Code: "path_not_in_history", Path: string(p.req.Path),
			Detail: "The history has no content of that path to be purged."}
	}
	if p.req.Ignore {
		return nil
	}
	now, err := p.w.onDisk(p.ctx, p.req.Path)
	if err != nil {
		return err
	}
	if p.blobs[now] {
		delete(p.blobs, now)
		p.kept = []wspath.Path{p.req.Path}
	}
	if len(p.blobs) == 0 {
		return errs.New(errs.Conflict, "purge_only_on_disk",
			"The only content that the path ever had is the one now on disk. Change the file first, or take it out with ignore.").
			With("files", pathsJSON([]wspath.Path{p.req.Path}))
	}
	return nil
}

func errOnDisk(files []wspath.Path) error {
	e := errs.New(errs.Conflict, "purge_on_disk", "Files on disk hold these bytes. Change or remove them first, or take them out with ignore.")
	return e.With("files", pathsJSON(files))
}

// pathsJSON gives paths as the error's body has them.
func pathsJSON(files []wspath.Path) []map[string]string {
	out := make([]map[string]string, len(files))
	for i, f := range files {
		text, encoding := f.JSON()
		out[i] = map[string]string{"path": text}
		if encoding != "" {
			out[i]["path_encoding"] = encoding
		}
	}
	return out
}

// onDisk gives the blob that a path's file is; zero for none.
func (w *Workspace) onDisk(ctx context.Context, p wspath.Path) (object.ID, error) {
	s, err := w.disk.LstatDirect(p)
	if err != nil {
		return object.ID{}, err
	}
	switch s.Kind {
	case KindSymlink:
		target, err := w.disk.FS.Readlink(string(p))
		return object.Hash(object.Blob, []byte(target)), disk.IgnoreAbsent(err)
	case KindFile:
		id, _, err := w.disk.HashFile(ctx, p)
		return id, disk.IgnoreAbsent(err)
	}
	return object.ID{}, nil
}

// holding finds every file of the folder, ignored or not, that has one of the
// contents.
func (w *Workspace) holding(ctx context.Context, blobs map[object.ID]bool) (out []wspath.Path, err error) {
	known, err := w.sizesOf(ctx, blobs)
	if err != nil {
		return nil, err
	}
	sizes := make(map[int64]bool, len(known))
	for _, n := range known {
		sizes[n] = true
	}
	err = w.eachFile(ctx, wspath.Root, func(p wspath.Path, e vfs.DirEntry) error {
		info, err := w.disk.FS.Lstat(string(p))
		if err != nil || !sizes[info.Size] {
			return disk.IgnoreAbsent(err)
		}
		id, err := w.onDisk(ctx, p)
		if err == nil && blobs[id] {
			out = append(out, p)
		}
		return err
	})
	slices.Sort(out)
	return out, err
}

// sizesOf returns contents with their sizes, or -1 of one that no history has: BeginPurge
// reports that.
func (w *Workspace) sizesOf(ctx context.Context, blobs map[object.ID]bool) (map[object.ID]int64, error) {
	out := make(map[object.ID]int64, len(blobs))
	for id := range blobs {
		n, err := w.store.BlobSize(ctx, id)
		if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) {
			n, err = -1, nil
		}
		if err != nil {
			return nil, err
		}
		out[id] = n
	}
	return out, nil
}

// eachFile visits every file and link below a folder, but for repositories and
// folders of our own. What cannot be read is passed over: it cannot be recorded
// either.
func (w *Workspace) eachFile(ctx context.Context, dir wspath.Path, visit func(wspath.Path, vfs.DirEntry) error) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(err, "")
	}
	list, err := w.disk.FS.ReadDir(string(dir))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return disk.IgnoreAbsent(err)
	}
	for _, e := range list {
		p := dir.Join(e.Name)
		if w.disk.IsOwn(p) {
			continue
		}
		switch disk.KindOf(e.Type) {
		case KindDir:
			if strings.EqualFold(e.Name, ".git") {
				continue
			}
			err = w.eachFile(ctx, p, visit)
		case KindFile, KindSymlink:
			if err = visit(p, e); errors.Is(err, fs.ErrPermission) || errs.Is(err, errs.Forbidden) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOut lists the files in the exclude file, and takes those that history has
// out of the tip. All paths are locked.
func (p *purge) takeOut() error {
	w := p.w
	if len(p.files) == 0 {
		return nil
	}
	if w.disk.Physical() {
		if err := w.exclude(p.files); err != nil {
			return err
		}
	}
	var list []record.External
	tip := w.store.Snapshot()
	for _, f := range p.files {
		e, ok, err := tip.Lookup(f)
		if err != nil {
			return err
		}
		if ok && e.Mode != object.Dir {
			list = append(list, record.External{Path: f, Old: e})
		}
	}
	if len(list) == 0 {
		return nil
	}
	_, c, err := w.rec.CommitFound(p.ctx, list, record.Nobody)
	if err == nil && !c.NoChange {
		w.progress.Settle(c.Seq)
	}
	return err
}

// exclude adds paths to the workspace's own list of what is left out, durable
// when it returns.
func (w *Workspace) exclude(paths []wspath.Path) error {
	old, err := vfs.ReadFile(w.disk.Files, disk.ExcludeFile)
	if err != nil && !disk.IsAbsent(err) {
		return errs.Wrap(err, "")
	}
	text := string(old)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for _, p := range paths {
		line := excludeRule(p) + "\n"
		if text != line && !strings.Contains("\n"+text, "\n"+line) {
			text += line
		}
	}
	if text == string(old) {
		return nil
	}
	const temp = disk.ExcludeFile + ".new"
	f, err := w.disk.Files.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(err, "")
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = w.disk.Files.Rename(temp, disk.ExcludeFile)
	}
	if err == nil {
		err = w.disk.Files.SyncDir(".")
	}
	return errs.Wrap(err, "")
}

// excludeRule gives the line of gitignore(5) that matches one path. It cannot
// contain a line end: "?" matches that.
func excludeRule(p wspath.Path) string {
	var b strings.Builder
	b.WriteByte('/')
	for _, c := range []byte(p) {
		switch c {
		case '\\', '*', '?', '[', ']', ' ', '!', '#':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n', '\r':
			b.WriteByte('?')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// sweepDropped removes the objects of commits that retention dropped and that
// only wait for their grace to end: the bytes were not searched in them.
func (w *Workspace) sweepDropped(ctx context.Context) error {
	if w.store.Boundary().Whole() {
		return nil
	}
	_, err := w.store.Collect(ctx, gitstore.CollectOptions{Now: true, Thorough: true})
	return err
}

// forgetPurged removes contents from what is cached in memory and next to the
// repository.
func (w *Workspace) forgetPurged(blobs map[object.ID]bool) {
	w.rec.Sums.Forget(blobs)
	w.disk.Index.Forget(blobs)
	if err := w.disk.SaveIndex(); err != nil {
		w.log.Warn("the index of files could not be saved; the next start reads them again", "error", err)
	}
	if err := w.DropCaches(); err != nil {
		w.log.Warn("what is kept of tasks' changes could not be removed", "error", err)
	}
}
