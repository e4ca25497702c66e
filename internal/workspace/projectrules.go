package workspace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"umbra/internal/ignore"
	"umbra/internal/workspace/index"
)

// gitKnown keeps what the project's own repository says of its files from one
// listing to the next: reading an index anew each time would cost more than
// the listing.
type gitKnown struct {
	mu      sync.Mutex
	stamp   string
	used    time.Time
	exclude []byte
	index   *ignore.Index
}

// projectRules is gitRules, read again only when the files behind it are
// others than the last time.
func (w *Workspace) projectRules() ([]byte, *ignore.Index, error) {
	if w.virtual != nil {
		return nil, nil, nil
	}
	stamp := gitStamp(w.dir, w.now())
	if stamp == "" {
		return w.host.GitRules(w.dir)
	}
	k := &w.gitKnown
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = w.now()
	if k.stamp != stamp {
		exclude, index, err := w.host.GitRules(w.dir)
		if err != nil {
			return nil, nil, err
		}
		k.stamp, k.exclude, k.index = stamp, exclude, index
	}
	return k.exclude, k.index, nil
}

// knownFor is how long what is known is kept unused: an index takes more memory
// than all else that is kept of a file.
const knownFor = 10 * time.Second

// forget frees what nobody has asked for lately.
func (k *gitKnown) forget(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stamp != "" && now.Sub(k.used) > knownFor {
		k.stamp, k.exclude, k.index = "", nil, nil
	}
}

// gitStamp tells by their stat data which files the project's exclude list and
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
		case stamp == "" || !isAbsent(err):
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
