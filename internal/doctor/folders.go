package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"umbra/internal/room"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// data checks the data directory.
func (r *report) data(ctx context.Context, o Options) {
	const check = "data"
	st, err := os.Stat(o.DataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.add(check, Note, o.DataDir, "", "the data directory is not there yet: the first start makes it")
		return
	case err != nil:
		r.add(check, Hurts, o.DataDir, "run this as the user that runs the server", "the data directory cannot be read: %v", reason(err))
		return
	case !st.IsDir():
		r.add(check, Hurts, o.DataDir, "give another --data-dir", "the data directory is not a directory")
		return
	}
	healthy := true
	hurts := func(do, format string, args ...any) {
		healthy = false
		r.add(check, Hurts, o.DataDir, do, format, args...)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		hurts("chmod 700 "+o.DataDir, "others may look into the data directory (mode %04o): it holds the history of everything, and the owner's secret", mode)
	}
	if uid, ok := ownerOf(st); ok && uid != os.Geteuid() && os.Geteuid() != 0 {
		hurts("run the server as the user that owns it", "the data directory belongs to user %d, and this is user %d", uid, os.Geteuid())
	}
	for _, name := range []string{"owner", "state.db", "answers.log"} {
		if st, err := os.Stat(filepath.Join(o.DataDir, name)); err == nil && st.Mode().Perm()&0o077 != 0 {
			hurts("chmod 600 "+filepath.Join(o.DataDir, name), "others may read %s (mode %04o)", name, st.Mode().Perm())
		}
	}
	kind := fileSystem(o.DataDir)
	switch {
	case kind.network:
		hurts("keep the data directory on a local disk", "the data directory is on a network or user-space file system (%s): locks and what is synced cannot be relied on", kind.name)
	case kind.memory:
		healthy = false
		r.add(check, Note, o.DataDir, "keep the data directory on a disk", "the data directory is in memory (%s): history is gone when the machine stops", kind.name)
	}
	if kind.unsafe != "" {
		hurts("mount it without "+kind.unsafe, "the data directory's file system is mounted with %s: what is synced may be lost in a power cut", kind.unsafe)
	}
	took, err := trySync(o.DataDir)
	switch {
	case err != nil:
		healthy = false
		r.add(check, Hurts, o.DataDir, writeAdvice(err), "the data directory cannot be written and synced: %v", reason(err))
	case took > slowSync:
		healthy = false
		r.add(check, Note, o.DataDir, "use a faster disk for the data directory", "to sync a small file takes %v: each group of commits waits for it", took.Round(time.Millisecond))
	}
	if healthy {
		r.ok(check, o.DataDir, "%s; a small file is synced in %v", kind.name, took.Round(10*time.Microsecond))
	}
	r.clock(ctx, o)
}

// slowSync is a sync that a user would notice.
const slowSync = 100 * time.Millisecond

// trySync makes a file, syncs it, and removes it.
func trySync(dir string) (took time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(make([]byte, 4096)); err == nil {
		began := time.Now()
		err = f.Sync()
		took = time.Since(began)
	}
	return took, errors.Join(err, f.Close())
}

// clock compares the machine's clock with what the disk and history say.
func (r *report) clock(_ context.Context, o Options) {
	const do = "set the clock, and keep it set (chrony, systemd-timesyncd)"
	now := o.Now()
	if now.Year() < 2024 {
		r.add("clock", Hurts, "", do, "the clock says %s", now.Format(time.RFC3339))
		return
	}
	// The disk's own clock is another machine's on a network file system.
	if f, err := os.CreateTemp(o.DataDir, ".doctor-*"); err == nil {
		_, werr := f.WriteString("x") // sets its time
		st, serr := f.Stat()
		f.Close()
		os.Remove(f.Name())
		if ahead := st.ModTime().Sub(now); werr == nil && serr == nil && (ahead > 10*time.Second || ahead < -10*time.Second) {
			r.add("clock", Hurts, o.DataDir, do, "the data directory's file system is %v away from the clock", ahead.Round(time.Second))
			return
		}
	}
	// The newest write cannot be in the future.
	newest := time.Time{}
	files, _ := filepath.Glob(filepath.Join(o.DataDir, "workspaces", "*", "repo.git", "refs", "heads", "shadow")) // the pattern is well-formed
	for _, name := range append(files, filepath.Join(o.DataDir, "state.db")) {
		if st, err := os.Stat(name); err == nil && st.ModTime().After(newest) {
			newest = st.ModTime()
		}
	}
	if ahead := newest.Sub(now); ahead > time.Minute {
		r.add("clock", Hurts, "", do, "the clock stepped back: history was written %v from now", ahead.Round(time.Second))
		return
	}
	r.ok("clock", "", "the clock agrees with the disk and with history")
}

// room checks the data directory's file system, or that of the directory which it
// will be made in.
func (r *report) room(o Options) {
	const check = "room"
	dir := o.DataDir
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	const do = "make room (umbra du, umbra gc), or use a larger disk"
	free, total, err := room.Free(dir)
	if err != nil {
		r.add(check, Note, dir, "", "the file system does not report how much space is free: %v", reason(err))
		return
	}
	share := 0
	if total > 0 {
		share = int(100 * free / total)
	}
	switch {
	case room.New(dir, o.FreeFloor).Check() != nil:
		r.add(check, Hurts, dir, do, "%s are free, %d%%: below limits.free_bytes, so writes are refused", size(free), share)
	case share < 5:
		r.add(check, Note, dir, do, "%s are free, %d%%", size(free), share)
	default:
		r.ok(check, dir, "%s are free, %d%%", size(free), share)
	}
	if left, known := freeNames(dir); known && left < 1 {
		r.add(check, Hurts, dir, "remove files, or use a file system with more inodes", "the file system has less than 1%% of its inodes free")
	}
}

func size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// workspace checks one workspace's directory.
func (r *report) workspace(dir string) {
	const check = "workspace"
	st, err := os.Stat(dir)
	if err != nil {
		do := "bring the directory back, set its new path (PATCH /workspaces/{ws}), or forget the workspace (DELETE)"
		if errors.Is(err, fs.ErrPermission) {
			do = "let the server's user look into the directories above it"
		}
		r.add(check, Hurts, dir, do, "the directory cannot be read: %v", reason(err))
		return
	}
	if !st.IsDir() {
		r.add(check, Hurts, dir, "restore the directory, or forget the workspace (DELETE /workspaces/{ws})", "it is not a directory")
		return
	}
	healthy := true
	kind := fileSystem(dir)
	if kind.network || kind.layered {
		healthy = false
		r.add(check, Note, dir, "keep workspaces on a local disk", "it is on a network, user-space or layered file system (%s): what others change there is found by scanning, every minute", kind.name)
	}
	exchange, err := tryWrite(dir)
	switch {
	case err != nil:
		healthy = false
		r.add(check, Hurts, dir, writeAdvice(err), "the directory cannot be written and synced: %v", reason(err))
	case !exchange:
		healthy = false
		r.add(check, Hurts, dir, "keep workspaces on ext4, xfs, btrfs or another local file system", "its file system (%s) cannot exchange two names: a file that is saved in the instant in which it is replaced may be lost", kind.name)
	}
	if healthy {
		r.ok(check, dir, "%s", kind.name)
	}
}

// tryWrite does in a folder what a write does: it prepares two files, syncs one,
// and exchanges them. Nothing of it stays.
func tryWrite(dir string) (exchange bool, err error) {
	files, err := vfs.OS(dir)
	if err != nil {
		return false, err
	}
	defer files.Close()
	// No inode has these numbers: no file of the server's is called so.
	names := []string{wspath.TempName(0xd0c<<52 | uint64(os.Getpid())<<1), wspath.TempName(0xd0c<<52 | uint64(os.Getpid())<<1 | 1)}
	for _, name := range names {
		f, err := files.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return false, err
		}
		defer files.Remove(name)
		_, err = f.WriteAt(make([]byte, 4096), 0)
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return false, err
		}
	}
	err = files.Exchange(names[0], names[1])
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// writeAdvice says what to do about a folder that cannot be written.
func writeAdvice(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "let the server's user write there (chown, chgrp and chmod g+w, or an ACL; with systemd: ReadWritePaths)"
	case isFull(err):
		return "make room on that file system"
	case isReadOnly(err):
		return "mount the file system for writing (with systemd: ReadWritePaths)"
	}
	return "look at the disk (dmesg)"
}

// reason is an error without the path, which the finding has.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
