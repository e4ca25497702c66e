package browse

import (
	"bytes"
	"sync"
	"time"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
	"umbra/internal/workspace/index"
	"umbra/internal/wspath"
)

// A client that asks for page after page of a large listing would have all of
// its names read each time. So the readings of the last few such listings are
// kept for a moment, folder by folder, and each folder is used again only if
// its stat says that no name came or went since, and the files of rules that
// apply in it are the same: the listing is what is on disk.

// keptListings are a workspace's.
type keptListings struct {
	mu   sync.Mutex
	list []*keptListing // the last used at the end
}

const (
	maxKeptListings = 3
	// maxKeptNames bounds one listing; about 100 bytes each.
	maxKeptNames = 300_000
	keptFor      = 10 * time.Second
)

// keptListing is what is kept of one listing. Who uses it has it alone.
type keptListing struct {
	key     listingKey
	used    time.Time
	exclude []byte
	index   *ignore.Index
	rules   *ignore.Dir // where it begins
	files   []ruleFile  // whose content the rules are made of, down to there
	names   int
	folders map[wspath.Path]*keptFolder
}

type listingKey struct {
	at                    wspath.Path
	git, codey, recursive bool
}

// keptFolder is one folder's reading.
type keptFolder struct {
	info         vfs.Info // before its names were read
	above, rules *ignore.Dir
	files        []ruleFile
	shown        []vfs.DirEntry // sorted
}

// ruleFile is a file of rules as it was when it was read; the zero Info: none.
type ruleFile struct {
	path wspath.Path
	info vfs.Info
}

// take gives what is kept of a listing, to its one user, or nil.
func (k *keptListings) take(key listingKey) *keptListing {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, kept := range k.list {
		if kept.key == key {
			k.list = append(k.list[:i], k.list[i+1:]...)
			return kept
		}
	}
	return nil
}

// put gives it back.
func (k *keptListings) put(kept *keptListing, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept.used = now
	if k.list = append(k.list, kept); len(k.list) > maxKeptListings {
		k.list = append(k.list[:0], k.list[1:]...)
	}
}

// forget removes entries that were not used recently.
func (k *keptListings) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, kept := range k.list {
		if now.Sub(kept.used) <= keptFor {
			k.list[n] = kept
			n++
		}
	}
	clear(k.list[n:])
	k.list = k.list[:n]
}

// resume takes up what is kept of the listing, if its rules still hold. The
// first page begins nothing: most listings have no other.
func (l *lister) resume(at wspath.Path) {
	if !l.r.disk.Physical() {
		return
	}
	key := listingKey{at, l.git, l.codey, l.recursive}
	kept := l.r.kept.take(key)
	if kept != nil && bytes.Equal(kept.exclude, l.exclude) && kept.index == l.index && l.sameFiles(kept.files) {
		l.kept, l.rules = kept, kept.rules
		return
	}
	if l.from == 0 {
		return
	}
	kept = &keptListing{key: key, exclude: l.exclude, index: l.index, rules: l.rules, folders: make(map[wspath.Path]*keptFolder)}
	if l.rules != nil {
		folders := []wspath.Path{at}
		for dir := range at.Ancestors() {
			folders = append(folders, dir)
		}
		for _, dir := range folders {
			files, ok := l.ruleFiles(dir, ignore.GitFile, ignore.UmbraFile, ignore.CodeyFile)
			if !ok {
				return
			}
			kept.files = append(kept.files, files...)
		}
	}
	l.kept = kept
}

// again gives a folder's reading if it still holds.
func (l *lister) again(at wspath.Path, above *ignore.Dir) *keptFolder {
	if l.kept == nil {
		return nil
	}
	f := l.kept.folders[at]
	if f == nil {
		return nil
	}
	info, err := l.r.disk.FS.Lstat(string(at))
	if err == nil && f.above == above && unchanged(info, f.info) && l.sameFiles(f.files) {
		return f
	}
	l.kept.names -= len(f.shown)
	delete(l.kept.folders, at)
	return nil
}

func unchanged(a, b vfs.Info) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.Mode == b.Mode && a.MtimeNs == b.MtimeNs && a.CtimeNs == b.CtimeNs
}

func (l *lister) sameFiles(files []ruleFile) bool {
	for _, f := range files {
		if info, _ := l.r.disk.FS.Lstat(string(f.path)); !unchanged(info, f.info) {
			return false
		}
	}
	return true
}

// ruleFiles checks the files of rules in a folder; ok is false for one that
// was changed so lately that another change might look the same.
func (l *lister) ruleFiles(at wspath.Path, names ...string) (files []ruleFile, ok bool) {
	for _, name := range names {
		f := ruleFile{path: at.Join(name)}
		info, err := l.r.disk.FS.Lstat(string(f.path))
		if err == nil {
			if f.info = info; index.IsRacy(info, l.r.disk.Now()) {
				return nil, false
			}
		}
		files = append(files, f)
	}
	return files, true
}

// before checks a folder whose names are to be read; nil where the reading
// is not to be kept.
func (l *lister) before(at wspath.Path) *keptFolder {
	if l.kept == nil || l.kept.names > maxKeptNames {
		return nil
	}
	info, err := l.r.disk.FS.Lstat(string(at))
	if err != nil || index.IsRacy(info, l.r.disk.Now()) {
		return nil
	}
	return &keptFolder{info: info}
}

// keep keeps a folder's reading.
func (l *lister) keep(f *keptFolder, at wspath.Path, above, rules *ignore.Dir, all, shown []vfs.DirEntry) {
	if rules != nil && at != l.kept.key.at {
		var names []string
		for _, e := range all {
			if ignore.IsRuleFile(e.Name) {
				names = append(names, e.Name)
			}
		}
		var ok bool
		if f.files, ok = l.ruleFiles(at, names...); !ok {
			return
		}
	}
	f.above, f.rules, f.shown = above, rules, shown
	l.kept.folders[at] = f
	l.kept.names += len(shown)
}
