package backup

import (
	"crypto/sha1"
	"errors"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/vfs"
)

func fsPerm(perm uint32) fs.FileMode { return fs.FileMode(perm) & fs.ModePerm }

// immutable reports whether a file of its name and size has the bytes that it
// had: git names packs and loose objects by their content.
func immutable(name string) bool {
	_, in, ok := strings.Cut(name, "/repo.git/objects/")
	if !ok {
		return false
	}
	dir, base := path.Split(in)
	return dir == "pack/" && strings.HasPrefix(base, "pack-") && (strings.HasSuffix(base, ".pack") || strings.HasSuffix(base, ".idx")) ||
		len(dir) == 3 && len(base) == 38
}

// caches of a workspace's directory are made again; the rest of these names is in
// the moment that Freeze returns, or is of a running server. So is the state of a
// purge.
var notCopied = map[string]bool{"records": true, "records.names": true, "records.new": true, "records.names.new": true, "stat": true, "progress": true, "checkpoint": true,
	"checkpoint.new": true, "purge": true, "moved.new": true, "caches": true, "aside": true, "moves": true}

// workspace copies one workspace as it is at a moment. One whose baseline is being
// taken does not exist yet: only its record is copied, and its directory is read
// again.
func (c *copier) workspace(id string) error {
	dir := "workspaces/" + id
	f, err := c.o.Source.Freeze(c.ctx, id)
	if errs.Is(err, errs.NotFound) {
		return errAnew // the records that were copied name it
	}
	if errs.CodeOf(err) == "workspace_unfinished" {
		return nil
	}
	c.rep.Workspaces++
	if err != nil && c.ctx.Err() == nil && !errs.Is(err, errs.Unavailable) {
		c.rep.Warnings = append(c.rep.Warnings, "the history of workspace "+id+" cannot be opened; its files are copied as they are")
		return c.raw(id)
	}
	if err != nil {
		return err
	}
	if err := c.bundle(dir, f.Files); err != nil {
		return err
	}
	for _, name := range f.Packs {
		err := c.file(dir+"/"+name, 0o444)
		if errors.Is(err, fs.ErrNotExist) {
			return errAnew // merged into another since
		}
		if err != nil {
			return err
		}
	}
	c.dir(dir, 0o700)
	ours, err := c.ourPacks(dir)
	if err != nil {
		return err
	}
	// Files of the moment are not copied as they are now.
	taken := map[string]bool{"refs": true, "purge": true, "dropped": true}
	for _, file := range f.Files {
		taken[file.Name] = true
	}
	for _, name := range []string{"refs", "logs", "HEAD", "packed-refs", "shallow", "umbra"} {
		taken["repo.git/"+name] = true
	}
	c.dir(dir+"/repo.git/refs", 0o755)
	return c.tree(dir, func(name string) bool {
		in := strings.TrimPrefix(name, dir+"/")
		base := path.Base(in)
		switch {
		case notCopied[in], taken[in], strings.HasSuffix(in, ".lock") && strings.HasPrefix(in, "repo.git/"), isTemp(base):
			return true
		case path.Dir(in) == "journal":
			return !strings.HasPrefix(base, "torn-")
		case path.Dir(in) == "repo.git/objects/pack":
			stem, _, _ := strings.Cut(base, ".")
			return ours[stem] || strings.HasPrefix(base, "multi-pack-index") || strings.HasPrefix(base, "tmp_")
		case in == "repo.git/objects/info/commit-graph", in == "repo.git/objects/info/commit-graphs":
			return true // may name what was committed since; git does without
		}
		return false
	})
}

// isTemp knows the names of files that are being written (`.umbra-<16 hex
// digits>.tmp`, and gitstore's).
func isTemp(base string) bool {
	return strings.HasPrefix(base, ".umbra-") && strings.HasSuffix(base, ".tmp")
}

// ourPacks names the packs that have a .keep of the engine's.
func (c *copier) ourPacks(dir string) (map[string]bool, error) {
	packs := dir + "/repo.git/objects/pack"
	list, err := c.o.Data.ReadDir(packs)
	if err != nil {
		return nil, err
	}
	ours := make(map[string]bool)
	for _, e := range list {
		stem, ok := strings.CutSuffix(e.Name, ".keep")
		if !ok {
			continue
		}
		text, err := vfs.ReadFile(c.o.Data, packs+"/"+e.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil || strings.HasPrefix(string(text), "umbra ") {
			ours[stem] = true
		}
	}
	return ours, nil
}

// raw copies a workspace's directory that is not written to, or that cannot be
// read otherwise: journals and ref log first, packs last.
func (c *copier) raw(id string) error {
	dir := "workspaces/" + id
	c.dir(dir, 0o700)
	return c.tree(dir, func(name string) bool {
		in := strings.TrimPrefix(name, dir+"/")
		// What a purge was at goes along: the files are of one moment.
		return notCopied[in] && in != "purge" && in != "moved.new" || in == "repo.git/umbra" || isTemp(path.Base(in))
	})
}

// tree copies what is in a folder, the folder's own entry left out. What goes
// meanwhile is not there.
func (c *copier) tree(dir string, skip func(name string) bool) error {
	list, err := c.o.Data.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range list {
		name := path.Join(dir, e.Name)
		if skip(name) {
			continue
		}
		info, err := c.o.Data.Lstat(name)
		if err == nil {
			err = c.one(name, info, skip)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (c *copier) one(name string, info vfs.Info, skip func(string) bool) error {
	switch {
	case info.IsDir():
		c.dir(name, uint32(info.Mode.Perm()))
		return c.tree(name, skip)
	case info.IsSymlink():
		target, err := c.o.Data.Readlink(name)
		if err != nil {
			return err
		}
		e := entry{Kind: kindLink, Target: []byte(target)}
		e.setPath(name)
		c.add(e)
		return nil
	case info.IsRegular():
		return c.file(name, uint32(info.Mode.Perm()))
	}
	return nil // a socket or FIFO: of a process, not of history
}

// file copies one file; a pack that the backup has is not even read.
func (c *copier) file(name string, perm uint32) error {
	f, err := c.o.Data.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.IsRegular() {
		return err
	}
	fixed := immutable(name)
	if e, ok := c.w.packs[name]; ok && fixed && e.Size == info.Size {
		there := true
		for _, p := range e.Pieces {
			has, err := c.w.has(p.Sum, p.Size)
			if err != nil {
				return err
			}
			there = there && has
		}
		if there {
			c.rep.Bytes += e.Size
			c.rep.ReusedBytes += e.Size
			c.add(e)
			return nil
		}
	}
	check := newPackCheck(name)
	e := entry{Kind: kindFile, Perm: fsPerm(perm)}
	e.setPath(name)
	if e.Pieces, e.Size, err = c.w.put(c.ctx, io.TeeReader(f, check), pieceSize); err != nil {
		return err
	}
	e.Damaged = !check.sound()
	c.add(e)
	if e.Damaged {
		c.rep.Warnings = append(c.rep.Warnings, name+" is damaged: run umbra verify for details")
		return nil
	}
	if fixed {
		c.w.packs[name] = e
		return c.w.note(e)
	}
	return nil
}

// packCheck compares a pack with its checksum while it is read
// (gitformat-pack(5): the last 20 bytes are the SHA-1 of those before); it accepts
// other files.
type packCheck struct {
	h    hash.Hash
	tail []byte
}

func newPackCheck(name string) *packCheck {
	if immutable(name) && strings.HasSuffix(name, ".pack") {
		return &packCheck{h: sha1.New()}
	}
	return &packCheck{}
}

func (k *packCheck) Write(p []byte) (int, error) {
	if k.h != nil {
		k.tail = append(k.tail, p...)
		if n := len(k.tail) - sha1.Size; n > 0 {
			k.h.Write(k.tail[:n])
			k.tail = append(k.tail[:0], k.tail[n:]...)
		}
	}
	return len(p), nil
}

func (k *packCheck) sound() bool { return k.h == nil || string(k.h.Sum(nil)) == string(k.tail) }
