// Package purge takes contents out of all history: it writes the history once more
// without them, switches to it, and removes what may hold the bytes.
package purge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"

	"umbra/gitstore/object"
	"umbra/gitstore/pace"
	"umbra/gitstore/packset"
	"umbra/gitstore/rawpack"
	"umbra/gitstore/refs"
	"umbra/gitstore/repo"
	"umbra/gitstore/rewrite"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// Host is what a purge needs of the store whose history it is.
type Host interface {
	// Pause waits for what is being committed, and holds up whatever comes until resume
	// is called.
	Pause(ctx context.Context) (resume func(), err error)
	// Publish closes the journals and moves the refs. Publishing is held.
	Publish(ctx context.Context) ([]refs.Failed, error)
	// Project moves git's refs to what the ref log says. Publishing is held.
	Project(ctx context.Context) []refs.Failed
	// Retry makes the next publication due a moment from now.
	Retry()
	// Report warns of refs that another process moved.
	Report([]refs.Foreign)
	// Salvage replaces the open journal if it is unsound.
	Salvage() error
	// Unpublished reports whether a journal holds anything. Committing is held.
	Unpublished() bool
	// ResumeCut ends a move of the boundary that could not be finished. Collecting is held.
	ResumeCut(ctx context.Context) error
	// SwapPurged makes these packs and refs, and the map in a temporary file, the history
	// in the sink.
	SwapPurged(ctx context.Context, used []*packset.File, values map[string]object.ID, newMap string) error
	// BreakOffCopy ends the copy of the history as it was.
	BreakOffCopy()
	// Stop refuses everything from now on.
	Stop()
}

// Purger does the purges of one history.
type Purger struct {
	*repo.Repo
	host    Host
	pending *purgeIntent // the purge that is not finished yet; Publishing
}

// NewPurger prepares the purges of a history.
func NewPurger(r *repo.Repo, h Host) *Purger { return &Purger{Repo: r, host: h} }

// Options say what is to leave the history.
type Options struct {
	Blobs []object.ID // contents
	// Force drops people's refs, worktrees and reflogs that lead to them.
	Force bool
	// DryRun reports what would be done and changes nothing.
	DryRun bool
	// Progress, if not nil, is called with the progress.
	Progress func(step string, done, all int64)
}

// Purged reports what a purge did, or would do.
type Purged struct {
	Commits uint64   // whose id changed
	Touched uint64   // of them, those whose tree held the bytes
	First   uint64   // number of the first of them
	Bytes   int64    // by which the repository is smaller
	Dropped []Holder // people's own that went
	Foreign []string // refs under refs/foreign that went
	Holders []Holder // people's own that forbid it, unless Force is given

	moves   map[object.ID]object.ID
	needles [][]byte
}

// Names reports whether a text names a commit that has another id now, or holds
// one of the contents: a caller that kept it must not return it again. Contents
// above a megabyte are not looked for.
func (p *Purged) Names(text []byte) bool {
	for _, n := range p.needles {
		if bytes.Contains(text, n) {
			return true
		}
	}
	run := 0
	for i, c := range text {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			run++
		} else {
			run = 0
		}
		if run < 40 {
			continue
		}
		if id, err := object.ParseID(string(text[i-39 : i+1])); err == nil {
			if _, moved := p.moves[id]; moved {
				return true
			}
		}
	}
	return false
}

// Purge is a purge under way: history is rewritten concurrently with the writers
// as far as possible. Finish or Discard ends it. Maintenance waits meanwhile.
//
// The steps, and what a crash between two of them leaves:
//
//  1. The rewritten history goes into packs in the journal folder: a start
//     removes them.
//  2. With the committer paused the newest commits follow. The file `purge` names
//     the new packs, then these get their names: a start takes both back.
//  3. `purge` says that it is switched to them, which is the one moment that
//     counts: a start finishes it.
//  4. Map, note, refs, people's own, commit index; then the old packs and all
//     else that may hold the bytes go, then `purge`.
type Purge struct {
	s        *Purger
	opt      Options
	Rewriter *rewrite.Rewriter
	begin    repo.Boundary
	fresh    *purgePack // what is new
	kept     *purgePack // what stays of packs that had something of what goes
	from     map[string]bool
	ended    bool
	// outside is set where one of the contents is in no history, but in the repository:
	// in a layer's version that was not merged, or in a user's own objects.
	outside bool

	needles [][]byte
}

// Begin rewrites the history of now. errs.NotFound "blob_not_found" where
// no commit has one of the blobs.
func (pr *Purger) Begin(ctx context.Context, opt Options) (*Purge, error) {
	if opt.Progress == nil {
		opt.Progress = func(string, int64, int64) {}
	}
	pr.Upkeep.Collecting.Lock()
	pr.Upkeep.Maintaining.Lock()
	p := &Purge{s: pr, opt: opt, from: make(map[string]bool)}
	err := pr.endPending(ctx)
	if err == nil {
		err = pr.Whole(ctx)
	}
	if err == nil {
		p.begin = pr.Boundary()
		err = p.prepare(ctx)
	}
	if err != nil {
		p.Discard()
		return nil, errs.Wrap(err, "")
	}
	return p, nil
}

// Discard gives the purge up; after Finish it does nothing.
func (p *Purge) Discard() {
	if p.ended {
		return
	}
	p.ended = true
	for _, x := range []*purgePack{p.fresh, p.kept} {
		p.s.dropPurgePack(x)
	}
	p.s.Upkeep.Maintaining.Unlock()
	p.s.Upkeep.Collecting.Unlock()
}

// endPending ends what could not be ended before: another purge, a move of the
// boundary.
func (pr *Purger) endPending(ctx context.Context) error {
	pr.Publishing.Lock()
	lctx, cancel := context.WithTimeout(ctx, repo.PublishPatience)
	err := pr.GoOn(lctx)
	cancel()
	pr.Publishing.Unlock()
	if err != nil {
		return err
	}
	return pr.host.ResumeCut(ctx)
}

func (p *Purge) prepare(ctx context.Context) (err error) {
	s := p.s
	if broken := s.Packs.Broken(); len(broken) > 0 {
		return errs.New(errs.Conflict, "repository_damaged", "The pack %s is damaged and cannot be read. Run umbra verify --repair first.", broken[0])
	}
	blobs, sums := make(map[object.ID]bool), make(map[string]bool)
	for _, id := range p.opt.Blobs {
		sum, err := s.sumOf(ctx, id)
		switch {
		case errs.Is(err, errs.NotFound), errs.Is(err, errs.Gone):
			data, err := s.besideHistory(id)
			if err != nil {
				return err
			}
			p.outside = true
			p.needleOf(data)
		case err != nil:
			return err
		default:
			sums[sum] = true
			p.needle(ctx, id)
		}
		blobs[id] = true
	}
	if !p.opt.DryRun {
		if p.fresh, err = s.createPurgePack(); err != nil {
			return err
		}
	}
	if p.Rewriter, err = rewrite.New(rewriteSource{s}, blobs, sums, repo.PurgedText, p.fresh.writer()); err != nil {
		return err
	}
	if err := p.rewrite(ctx, "rewriting history"); err != nil {
		return err
	}
	if p.opt.DryRun {
		return nil
	}
	if err := p.records(); err != nil {
		return err
	}
	if p.kept, err = s.createPurgePack(); err != nil {
		return err
	}
	return p.keep(ctx, func(f *packset.File) bool { return f.Keep.Through <= p.Rewriter.Seq })
}

// Contents are looked for in texts up to this size, if they are longer than any
// text may have by chance.
const (
	maxNeedle = 1 << 20
	minNeedle = 6
)

// needle notes a content as it is in a text: bare, and inside of JSON.
func (p *Purge) needle(ctx context.Context, id object.ID) {
	if data, err := p.s.ReadBlob(ctx, id, maxNeedle); err == nil {
		p.needleOf(data)
	}
}

func (p *Purge) needleOf(data []byte) {
	if data = bytes.TrimSpace(data); len(data) < minNeedle {
		return
	}
	p.needles = append(p.needles, data)
	if text, err := json.Marshal(string(data)); err == nil {
		p.needles = append(p.needles, text[1:len(text)-1])
	}
}

// besideHistory gives a content that is in no history, but loose or in another
// process's pack in the repository; nothing of one over maxNeedle. errs.NotFound
// "blob_not_found" where there is none.
func (pr *Purger) besideHistory(id object.ID) ([]byte, error) {
	none := errs.New(errs.NotFound, "blob_not_found", "The history has no such content: %s.", id)
	data, ok, err := rawpack.LooseBlob(pr.FS, storedir.Repo+"/objects", maxNeedle, id)
	if ok {
		return data, nil
	}
	if err == nil {
		return nil, none
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.Wrap(err, "")
	}
	h := &finder{s: pr}
	defer h.close()
	if _, err := h.openForeign(); err != nil {
		return nil, errs.Wrap(err, "")
	}
	for _, f := range h.packs {
		kind, size, err := f.p.Info(id)
		if err != nil || kind != object.Blob {
			continue
		}
		if size > maxNeedle {
			return nil, nil
		}
		_, data, err := f.p.Get(id)
		return data, errs.Wrap(err, "")
	}
	return nil, none
}

// sumOf gives the After-Hash of a blob's bytes.
func (pr *Purger) sumOf(ctx context.Context, id object.ID) (string, error) {
	r, _, err := pr.OpenBlob(ctx, id)
	if err != nil {
		return "", err
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, pace.Reader(ctx, r)); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func (p *Purge) rewrite(ctx context.Context, step string) error {
	return p.Rewriter.Through(ctx, p.s.Tip().Seq, func(done, all int64) { p.opt.Progress(step, done, all) })
}

// Plan reports what Finish would do. A dry run ends with it and Discard.
func (p *Purge) Plan(ctx context.Context) (Purged, error) {
	h, o, _, err := p.look(ctx)
	if h != nil {
		h.close()
	}
	if err != nil {
		return Purged{}, errs.Wrap(err, "")
	}
	return p.summarize(o), nil
}

// OnTip reports whether the newest tree that was checked has one of the blobs.
func (p *Purge) OnTip() bool { return p.Rewriter.Prev != p.Rewriter.Tip.Tree }

func (p *Purge) summarize(o *others) Purged {
	out := Purged{moves: p.Rewriter.Commits, needles: p.needles, Commits: uint64(len(p.Rewriter.Commits)), Touched: p.Rewriter.Touched, First: p.Rewriter.First, Foreign: o.foreign, Holders: o.holders}
	if p.opt.Force {
		out.Dropped, out.Holders = o.holders, nil
	}
	return out
}

// look finds what of people's own leads to what goes.
func (p *Purge) look(ctx context.Context) (h *finder, o *others, unreadable []string, err error) {
	h = &finder{s: p.s, r: p.Rewriter, memo: make(map[object.ID]bool)}
	if unreadable, err = h.openForeign(); err != nil {
		return h, nil, nil, err
	}
	if o, err = h.others(ctx); err != nil {
		return h, nil, nil, err
	}
	for _, base := range unreadable {
		if _, err := p.s.FS.Lstat(path.Join(storedir.Packs, base+storedir.Idx)); err == nil {
			o.hold("pack", base) // its content is unknown
		} else if !errors.Is(err, fs.ErrNotExist) {
			return h, nil, nil, err
		}
	}
	return h, o, unreadable, nil
}

// rewriteSource is the history as a rewriter reads it.
type rewriteSource struct{ *Purger }

// Object reads an object of a kind.
func (s rewriteSource) Object(id object.ID, want object.Kind) ([]byte, error) {
	kind, data, err := s.ReadObject(id, object.MaxMeta)
	if err == nil && kind != want {
		err = repo.Missing(id)
	}
	return data, err
}
