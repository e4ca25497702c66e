package doctor

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// How many folders are counted, and how long: a figure that is too small for
// a huge tree is reported as such.
const (
	countMost = 2_000_000
	countTime = 10 * time.Second
)

// watches compares what the workspaces need with what the system gives
// (inotify(7)).
func (r *report) watches(ctx context.Context, o Options) {
	const check = "watches"
	limit, known := number("/proc/sys/fs/inotify/max_user_watches")
	if !known {
		r.add(check, Note, "", "", "this system does not report how many directories may be watched")
		return
	}
	if o.MaxWatches > 0 {
		limit = min(limit, o.MaxWatches)
	}
	if err := tryInstance(); err != nil {
		r.add(check, Hurts, "", "sysctl -w fs.inotify.max_user_instances=1024, and the same in /etc/sysctl.d", "no more watchers are to be had: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	need, whole := 0, true
	for _, dir := range o.Workspaces {
		n, all := folders(ctx, dir, countMost-need)
		need, whole = need+n, whole && all
	}
	atLeast := ""
	if !whole {
		atLeast = "at least "
	}
	raise := "sysctl -w fs.inotify.max_user_watches=" + strconv.Itoa(raised(need)) + ", and the same in /etc/sysctl.d"
	if o.MaxWatches > 0 && limit == o.MaxWatches {
		raise = "raise workspaces.max_watches, or set it to 0"
	}
	switch {
	case need > limit:
		r.add(check, Hurts, "", raise, "the workspaces have %s%d directories and %d may be watched: the others are scanned every minute", atLeast, need, limit)
	case need > limit/10*8:
		r.add(check, Note, "", raise, "the workspaces have %s%d directories, %d may be watched by all programs of the user together", atLeast, need, limit)
	default:
		r.ok(check, "", "the workspaces have %s%d directories, %d may be watched", atLeast, need, limit)
	}
}

// raised is a limit for twice as much, and for editors.
func raised(need int) int {
	limit := 524_288
	for limit < 2*need {
		limit *= 2
	}
	return limit
}

// folders counts a folder and those in it, but git's own; whole is false where
// there are more, or time ran out. Ignored ones count: they may be tracked.
func folders(ctx context.Context, dir string, most int) (n int, whole bool) {
	whole = true
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return nil // what cannot be read is not watched either
		case d.Name() == ".git" && n > 0:
			return fs.SkipDir
		case n >= most || ctx.Err() != nil:
			whole = false
			return fs.SkipAll
		}
		n++
		return nil
	})
	return n, whole && err == nil
}

func number(file string) (n int, known bool) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(raw)))
	return n, err == nil
}

// descriptors compares what is open for each workspace with what may be.
func (r *report) descriptors(workspaces int) {
	const check = "descriptors"
	limit, known := openFiles()
	if !known {
		return
	}
	// Packs, journals and folders of an open workspace, and connections.
	need := uint64(256 + 64*workspaces)
	if limit < need {
		r.add(check, Note, "", "raise the limit (ulimit -n; with systemd: LimitNOFILE=65536)", "this process may have %d files open; %d workspaces may want %d at a busy time", limit, workspaces, need)
		return
	}
	r.ok(check, "", "this process may have %d files open", limit)
}
