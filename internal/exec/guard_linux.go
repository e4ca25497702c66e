package exec

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/layer"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// pidFile of a layer has the process id of its command.
const pidFile = "pid"

// overlayMagic is statfs(2)'s type of overlayfs.
const overlayMagic = 0x794c7630

// guardEvery is how often a guard looks whether the command has begun, or ended.
const guardEvery = 20 * time.Millisecond

// beginWithin is the time that a client has to start its command.
const beginWithin = 30 * time.Second

// guard puts back in a fork's command what changes in the parent's directory while it
// runs: the fork's own version, through the overlay as the command has it, since the
// layers below must not change. What the command changed itself is left.
type guard struct {
	s    *Service
	l    Layer
	of   *workspace.Workspace // whose directory is below
	fork *workspace.Workspace
	tree gitstore.Snapshot // of the fork when the command began
	seq  uint64            // of the parent's newest commit then
}

// run guards until the context or the command ends.
func (g *guard) run(ctx context.Context) {
	root, err := g.mounted(ctx)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) { // else it ended meanwhile
			g.s.o.Log.Warn("a fork's command is not kept from changes of the parent's files", "layer", g.l.ID, "error", err)
		}
		return
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_ = await(ctx, guardEvery, func() bool { return !locked(g.s.path(g.l.ID, lockFile)) })
	}()
	err = g.of.Events(ctx, g.seq, func(e workspace.Event) error {
		for i := range e.Entries {
			for _, p := range []string{e.Entries[i].Path, e.Entries[i].NewPath} {
				if p = strings.TrimSuffix(p, "/"); p == "" {
					continue
				}
				if err := g.putBack(ctx, root, p); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if ctx.Err() == nil {
		g.s.o.Log.Warn("a fork's command is no more kept from changes of the parent's files", "layer", g.l.ID, "error", err)
	}
}

// await returns when a condition holds, which it checks again and again.
func await(ctx context.Context, every time.Duration, done func() bool) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for !done() {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// mounted opens the overlay as the command has it.
func (g *guard) mounted(ctx context.Context) (*os.Root, error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	var pid int
	err := await(ctx, guardEvery, func() bool {
		raw, err := os.ReadFile(g.s.path(g.l.ID, pidFile))
		if err == nil {
			pid, _ = strconv.Atoi(string(raw))
		}
		return pid > 0
	})
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot("/proc/" + strconv.Itoa(pid) + "/root" + g.l.Root)
	if err != nil {
		return nil, err
	}
	// It must not be the parent's directory itself.
	d, err := root.Open(".")
	if err == nil {
		var st unix.Statfs_t
		if err = unix.Fstatfs(int(d.Fd()), &st); err == nil && int64(st.Type) != overlayMagic {
			err = errors.New("the command has no overlay")
		}
		var here, there unix.Stat_t
		if err == nil {
			err = errors.Join(unix.Stat(g.l.Root, &here), unix.Fstat(int(d.Fd()), &there))
		}
		if err == nil && here.Dev == there.Dev {
			err = errors.New("the command sees the parent's own directory")
		}
		d.Close()
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// own reports whether a layer above the parent's directory decides about a path.
func (g *guard) own(p string) bool {
	for _, dir := range []string{g.s.path(g.l.ID, "upper"), g.l.Over} {
		at := dir
		for part := range strings.SplitSeq(p, "/") {
			at = filepath.Join(at, part)
			info, err := os.Lstat(at)
			if err != nil {
				break
			}
			if !info.IsDir() {
				return true
			}
			if hides, err := layer.IsOpaque(at); err != nil || hides {
				return true
			}
		}
	}
	return false
}

// putBack gives a path the fork's version.
func (g *guard) putBack(ctx context.Context, root *os.Root, p string) error {
	if g.own(p) {
		return nil
	}
	want, err := at(g.tree, p)
	if err != nil {
		return err
	}
	if want.Mode == object.Dir {
		return g.tree.Walk(wspath.Path(p), func(e gitstore.Entry) error {
			if g.own(string(e.Path)) {
				return nil
			}
			return g.write(ctx, root, string(e.Path), Version{e.Mode, e.ID})
		})
	}
	if want.Mode == 0 {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) { // the topmost that the fork lacks
			if v, err := at(g.tree, dir); err != nil || v.Mode != 0 {
				break
			}
			p = dir
		}
		return g.remove(root, p)
	}
	return g.write(ctx, root, p, want)
}

// remove removes what the parent has at and below a path, and leaves the command's own
// files and directories.
func (g *guard) remove(root *os.Root, p string) error {
	if g.own(p) {
		return nil
	}
	info, err := root.Lstat(p)
	if err != nil {
		return gone(err)
	}
	if !info.IsDir() {
		return gone(root.Remove(p))
	}
	has := g.has(p) // before what is removed below makes it one of the layer's
	dir, err := root.Open(p)
	if err != nil {
		return gone(err)
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, name := range names {
		if err := g.remove(root, path.Join(p, name)); err != nil {
			return err
		}
	}
	if has {
		return nil
	}
	if err = root.Remove(p); errors.Is(err, unix.ENOTEMPTY) { // the command was faster
		return nil
	}
	return gone(err)
}

// has reports whether a layer above the parent's directory has a path.
func (g *guard) has(p string) bool {
	for _, dir := range []string{g.s.path(g.l.ID, "upper"), g.l.Over} {
		if _, err := os.Lstat(filepath.Join(dir, p)); err == nil {
			return true
		}
	}
	return false
}

func (g *guard) write(ctx context.Context, root *os.Root, p string, want Version) error {
	for part, rest := "", p; ; { // a file may be where the fork has a directory
		name, below, more := strings.Cut(rest, "/")
		if !more {
			break
		}
		part, rest = path.Join(part, name), below
		if info, err := root.Lstat(part); err == nil && !info.IsDir() {
			if err := root.Remove(part); err != nil {
				return err
			}
		}
		if err := root.Mkdir(part, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if info, err := root.Lstat(p); err == nil && info.IsDir() {
		if err := g.remove(root, p); err != nil {
			return err
		}
		if info, err := root.Lstat(p); err == nil && info.IsDir() {
			return nil // the command has files of its own in it
		}
	}
	r, _, err := g.fork.Store().OpenBlob(ctx, want.ID)
	if err != nil {
		return err
	}
	defer r.Close()
	temp := tempName(p)
	if want.Mode == object.Symlink {
		target, err := io.ReadAll(io.LimitReader(r, wspath.MaxTarget))
		if err != nil {
			return err
		}
		if err := root.Symlink(string(target), temp); err != nil {
			return err
		}
		return root.Rename(temp, p)
	}
	perm := fs.FileMode(0o666)
	if want.Mode == object.Executable {
		perm = 0o777
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, p)
	}
	if err != nil {
		err = errors.Join(err, gone(root.Remove(temp)))
	}
	return err
}

// Began notes the process id of a layer's command, for the server. It is not synced: no
// process outlives a power failure.
func Began(dir string, pid int) error {
	temp := filepath.Join(dir, pidFile+".new")
	if err := os.WriteFile(temp, []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, pidFile))
}
