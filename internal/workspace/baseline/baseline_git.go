package baseline

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/ignore"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// checkout is the project's own repository as far as the baseline may trust it:
// a file whose stat data is what git's index has need not be read, and its blob
// is copied from git's packs. A blob is taken only with the size of the file,
// and hashed; in any doubt files are read.
type checkout struct {
	index  *ignore.Index
	lender *gitstore.Lender

	mu    sync.Mutex
	loans []loaned
	doubt atomic.Bool // nothing of it may be trusted
}

// loaned is a file that was not read.
type loaned struct {
	path wspath.Path
	info vfs.Info
	id   object.ID
}

// attributesFile is the file that may make git convert what it records.
const attributesFile = ".gitattributes"

// openCheckout gives the project's repository, nil where it cannot be trusted
// or there is none.
func openCheckout(d *disk.Disk, index *ignore.Index) *checkout {
	checkouts, ok := d.Host.(host.Checkouts)
	if !ok || index == nil || len(index.Entries) == 0 || index.Mtime == (ignore.Timestamp{}) {
		return nil
	}
	read := scan.RuleReader(d.FS)
	for i := range index.Entries {
		name := index.Entries[i].Path
		if path.Base(name) != attributesFile {
			continue
		}
		text, err := read(wspath.Path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || !host.HarmlessAttributes(string(text)) {
			return nil
		}
	}
	objects, ok := checkouts.Objects(d.Dir)
	if !ok {
		return nil
	}
	lender, err := gitstore.OpenLender(objects)
	if err != nil {
		return nil
	}
	return &checkout{index: index, lender: lender}
}

// takes notes a file that need not be read, as far as is known by now.
func (c *checkout) takes(f scan.Found) bool {
	if c.doubt.Load() {
		return false
	}
	if f.Path.Base() == attributesFile && !c.index.Has(f.Path) {
		c.doubt.Store(true) // it holds, although git does not track it
		return false
	}
	e := c.index.Find(f.Path)
	if e == nil || !c.trusts(e, f.Info) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loans = append(c.loans, loaned{path: f.Path, info: f.Info, id: e.ID})
	return true
}

// trusts reports whether an entry proves which blob a file is
// (Documentation/technical/racy-git in git's source). An empty file is cheaper
// to read than to trust: git writes the size 0 for racy entries.
func (c *checkout) trusts(e *ignore.Entry, info vfs.Info) bool {
	if e.Stage != 0 || e.AssumeValid || e.SkipWorktree || e.IntentToAdd || e.Mode&^0o777 != ignore.IndexFile || !info.IsRegular() {
		return false
	}
	if info.Size == 0 || info.Size > wholeFile || uint32(info.Size) != e.Size {
		return false
	}
	same := e.Mtime == stamp(info.MtimeNs) && e.Ctime == stamp(info.CtimeNs) && e.Ino == uint32(info.Ino) &&
		e.UID == info.UID && e.GID == info.GID
	return same && !c.index.Racy(e)
}

func stamp(ns int64) ignore.Timestamp {
	return ignore.Timestamp{Sec: uint32(ns / 1e9), Nsec: uint32(ns % 1e9)}
}

// sampleEvery is how many of the files that need not be read are read all the
// same: should one be another blob, git's index lies about this folder.
const sampleEvery = 64

// settle borrows what was noted, and gives the files that have to be read.
func (c *checkout) settle(ctx context.Context, d *disk.Disk, log *slog.Logger, fill gitstore.Fill) (rest []scan.Found, err error) {
	defer c.lender.Close()
	at := d.Now()
	if !c.doubt.Load() && !c.sampleHolds(ctx, d) {
		c.doubt.Store(true)
	}
	if c.doubt.Load() {
		for _, l := range c.loans {
			rest = append(rest, scan.Found{Path: l.path, Info: l.info})
		}
		return rest, nil
	}
	files := make([]gitstore.Loan, len(c.loans))
	for i, l := range c.loans {
		files[i] = gitstore.Loan{Path: l.path, Mode: disk.GitMode(l.info), ID: l.id, Size: l.info.Size}
	}
	left, err := fill.Borrow(ctx, c.lender, files)
	if err != nil {
		return nil, err
	}
	unread := make(map[int]bool, len(left))
	for _, i := range left {
		unread[i] = true
		rest = append(rest, scan.Found{Path: c.loans[i].path, Info: c.loans[i].info})
	}
	for i, l := range c.loans {
		if !unread[i] {
			d.Index.Put(l.path, l.info, l.id, disk.GitMode(l.info), at)
		}
	}
	log.Debug("blobs copied from the project's repository", "files", len(files)-len(left), "read", len(left))
	return rest, nil
}

func (c *checkout) sampleHolds(ctx context.Context, d *disk.Disk) bool {
	n := (len(c.loans) + sampleEvery - 1) / sampleEvery
	err := scan.Spread(ctx, n, 0, func(ctx context.Context, i int) error {
		l := &c.loans[i*sampleEvery]
		id, info, err := d.HashFile(ctx, l.path)
		if err == nil && id != l.id && disk.SameContent(info, l.info) {
			return errLies
		}
		return nil
	})
	return err == nil
}

var errLies = errors.New("workspace: git's index names another blob than the file is")
