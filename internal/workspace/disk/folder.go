package disk

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/index"
	"umbra/internal/wspath"
)

// folder is the medium of a physical workspace: its directory.
type folder struct {
	*Disk
	dev, ino uint64      // of the directory that was opened
	standIn  bool        // it was missing then, and FS is an empty one in memory
	back     func() bool // whether it is at its place again, as far as can be known
	missing  atomic.Bool // another directory or none is at Dir

	// What the project's own repository says of its files, from one listing to the
	// next: to read an index each time would cost more than the listing.
	gitmu   sync.Mutex
	stamp   string
	used    time.Time
	exclude []byte
	index   *ignore.Index
}

func (d *Disk) openFolder(o Options) (err error) {
	d.medium = &folder{Disk: d, dev: o.Dev, ino: o.Ino, standIn: o.Absent, back: o.Back}
	if o.Absent {
		d.FS = vfs.NewMem(vfs.MemOptions{})
	} else if d.FS, err = d.Host.Open(d.Dir); err != nil {
		return err
	}
	d.Root = rootfs.New(d.FS, rootfs.Umask(), o.Staging)
	d.openAside(o.Log)
	return nil
}

// AsideDir is the folder, in a workspace's part of the data directory, to which
// exchanges put displaced files.
const AsideDir = "aside"

// openAside opens the folder; a displaced file stays next to its target where
// there can be none.
func (d *Disk) openAside(log *slog.Logger) {
	if !d.Root.TakesAside() {
		return
	}
	f, err := d.Files.Sub(AsideDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.Files.Mkdir(AsideDir, 0o700); err == nil {
			err = d.Files.SyncDir(".")
		}
		if err == nil {
			f, err = d.Files.Sub(AsideDir)
		}
	}
	if err != nil {
		log.Warn("no directory for displaced files; they are kept next to their targets", "error", err)
		return
	}
	d.aside = f
	d.Root.SetAside(f)
}

func (f *folder) Physical() bool { return true }

func (f *folder) Missing() bool { return f.missing.Load() }

func (f *folder) Back() bool { return f.standIn && f.back() }

// Check fails unless the directory that was opened is still at its path.
func (f *folder) Check() error {
	info, err := f.Host.Stat(f.Dir)
	if err == nil && info.Dev == f.dev && info.Ino == f.ino && !f.standIn {
		f.missing.Store(false)
		return nil
	}
	if err != nil && !IsAbsent(err) && !errors.Is(err, fs.ErrPermission) {
		return errs.Wrap(err, "")
	}
	f.missing.Store(true)
	return ErrMissing()
}

func (f *folder) blobOf(p wspath.Path, info vfs.Info) (object.ID, bool, error) {
	id, known := f.Index.Lookup(p, info)
	return id, known, nil
}

func (f *folder) Stamp(context.Context, wspath.Path, *vfs.Info) error { return nil }

func (f *folder) StampNear(context.Context, wspath.Path, *vfs.Info) error { return nil }

func (f *folder) Wrote(gitstore.Entry, time.Time) {}

func (f *folder) use(*gitstore.Store) {}

// statMagic begins the file of the index.
const statMagic = "USTA\x02"

// header ties the file to the directory and the mounts it was written for.
func (f *folder) header() []byte {
	if f.standIn {
		return nil
	}
	h := sha256.Sum256([]byte(f.Epoch))
	b := append([]byte(statMagic), h[:]...)
	b = binary.BigEndian.AppendUint64(b, f.dev)
	return binary.BigEndian.AppendUint64(b, f.ino)
}

// GitRules reads the project's rules, again only when the files behind them are
// others than the last time.
func (f *folder) GitRules() ([]byte, *ignore.Index, error) {
	stamp := gitStamp(f.Dir, f.Now())
	if stamp == "" {
		return f.Host.GitRules(f.Dir)
	}
	f.gitmu.Lock()
	defer f.gitmu.Unlock()
	f.used = f.Now()
	if f.stamp != stamp {
		exclude, index, err := f.Host.GitRules(f.Dir)
		if err != nil {
			return nil, nil, err
		}
		f.stamp, f.exclude, f.index = stamp, exclude, index
	}
	return f.exclude, f.index, nil
}

// knownFor is how long what is known is kept unused: an index takes more memory
// than all else that is kept of a file.
const knownFor = 10 * time.Second

func (f *folder) EvictIdle(now time.Time) {
	f.gitmu.Lock()
	defer f.gitmu.Unlock()
	if f.stamp != "" && now.Sub(f.used) > knownFor {
		f.stamp, f.exclude, f.index = "", nil, nil
	}
}

// gitStamp identifies by stat data the files that the project's exclude list and
// index are now. It is empty where that proves nothing: there is no index, or
// one of them was changed so lately that another change may look the same.
func gitStamp(dir string, now time.Time) string {
	g, err := ignore.FindGitDir(dir)
	if err != nil || g.Dir == "" {
		return ""
	}
	stamp := ""
	for _, name := range []string{filepath.Join(g.Dir, "index"), filepath.Join(g.Common, "info", "exclude")} {
		info, err := os.Stat(name)
		switch {
		case err == nil:
			if now.Sub(info.ModTime()) < index.RacyWindowCoarse {
				return ""
			}
			stamp += fileStamp(info)
		case stamp == "" || !IsAbsent(err):
			return ""
		}
	}
	return stamp
}

func fileStamp(info fs.FileInfo) string {
	ino := uint64(0)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		ino = st.Ino
	}
	return fmt.Sprintf("%d %d %d;", ino, info.Size(), info.ModTime().UnixNano())
}
