package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/vfs"
)

// StageDir exists in a directory while a backup is restored into it: nothing else
// there is to be used.
const StageDir = state.RestoringDir

// RestoreOptions say what is restored, and where.
type RestoreOptions struct {
	From vfs.FS // the backup's folder
	To   vfs.FS // an empty folder
	// Finish is called with all files in place below the folder StageDir, before
	// they get their names; its error fails the restore.
	Finish   func() error
	Progress func(Report)
}

// ReadHeader returns what a directory is a backup of.
//
// errs.NotFound no_backup where it holds none that is complete; errs.Conflict
// backup_damaged, backup_newer.
func ReadHeader(from vfs.FS) (Header, error) {
	m, err := openBackup(from)
	if err != nil {
		return Header{}, err
	}
	return m.Header, nil
}

func openBackup(from vfs.FS) (*manifest, error) {
	is, _, err := isBackup(from)
	if err != nil {
		return nil, err
	}
	m, found, err := readManifest(from)
	if err != nil {
		return nil, err
	}
	if !is || !found {
		return nil, errs.New(errs.NotFound, "no_backup", "The directory has no complete backup.")
	}
	return m, nil
}

// Restore makes a data directory of a backup. Each byte is compared with the
// manifest. After an error the directory is empty again; what a kill left is
// removed by the next restore.
//
// errs.Conflict not_empty if the directory is not empty,
// backup_damaged; as ReadHeader.
func Restore(ctx context.Context, o RestoreOptions) (rep Report, err error) {
	m, err := openBackup(o.From)
	if err != nil {
		return rep, err
	}
	names := topNames(m)
	if err := clearStage(o.To, names); err != nil {
		return rep, errs.Wrap(err, "")
	}
	list, err := o.To.ReadDir(".")
	if err != nil {
		return rep, errs.Wrap(err, "")
	}
	if len(list) > 0 {
		return rep, errs.New(errs.Conflict, "not_empty", "The directory is not empty.")
	}
	r := &restorer{ctx: ctx, o: &o, rep: &rep, dirs: map[string]fs.FileMode{".": 0o700}}
	if err := r.run(m, names); err != nil {
		return rep, errs.Wrap(errors.Join(err, clearAll(o.To, names)), "")
	}
	return rep, nil
}

// topNames are the names that a restore gives in the data directory, the format
// the last: without it no server takes the folder for its own.
func topNames(m *manifest) []string {
	var names []string
	for i := range m.entries {
		top, _, _ := strings.Cut(m.entries[i].path(), "/")
		if top != "format" && !slices.Contains(names, top) {
			names = append(names, top)
		}
	}
	return append(names, "format")
}

// clearStage removes the files of an unfinished restore; its stage is removed last.
func clearStage(to vfs.FS, names []string) error {
	if _, err := to.Lstat(StageDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return clearAll(to, names)
}

// clearAll removes what a restore makes.
func clearAll(to vfs.FS, names []string) error {
	for _, name := range slices.Backward(names) {
		if err := vfs.RemoveAll(to, name); err != nil {
			return err
		}
	}
	if err := vfs.RemoveAll(to, StageDir); err != nil {
		return err
	}
	return to.SyncDir(".")
}

// restorer writes below the stage.
type restorer struct {
	ctx  context.Context
	o    *RestoreOptions
	rep  *Report
	dirs map[string]fs.FileMode // made, by path below the stage
}

func (r *restorer) run(m *manifest, names []string) error {
	to := r.o.To
	if err := to.Mkdir(StageDir, 0o700); err != nil {
		return err
	}
	if err := to.SyncDir("."); err != nil {
		return err
	}
	for i := range m.entries {
		if err := r.entry(&m.entries[i]); err != nil {
			return err
		}
	}
	if r.o.Finish != nil {
		if err := r.o.Finish(); err != nil {
			return err
		}
	}
	if err := r.settle(); err != nil {
		return err
	}
	for _, name := range names {
		if err := to.RenameNoReplace(StageDir+"/"+name, name); err != nil {
			if !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			if err := to.Rename(StageDir+"/"+name, name); err != nil {
				return err
			}
		}
	}
	if err := to.SyncDir("."); err != nil {
		return err
	}
	if err := vfs.RemoveAll(to, StageDir); err != nil {
		return err
	}
	return to.SyncDir(".")
}

// settle gives folders their bits, and makes all names durable.
func (r *restorer) settle() error {
	for dir, perm := range r.dirs {
		name := path.Join(StageDir, dir)
		if err := r.o.To.SyncDir(name); err != nil {
			return err
		}
		if perm != 0o700 {
			if err := r.o.To.Chmod(name, perm); err != nil {
				return err
			}
		}
	}
	r.rep.Step = "finishing"
	r.progress()
	return nil
}

func (r *restorer) progress() {
	if r.o.Progress != nil {
		r.o.Progress(*r.rep)
	}
}

// mkdir makes a folder with those above it.
func (r *restorer) mkdir(dir string) error {
	if _, ok := r.dirs[dir]; ok || dir == "." {
		return nil
	}
	if err := r.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	if err := r.o.To.Mkdir(StageDir+"/"+dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	r.dirs[dir] = 0o700
	return nil
}

func (r *restorer) entry(e *entry) error {
	if err := r.ctx.Err(); err != nil {
		return context.Cause(r.ctx)
	}
	name := e.path()
	if e.Kind == kindDir {
		if err := r.mkdir(name); err != nil {
			return err
		}
		if e.Perm&0o700 == 0o700 {
			r.dirs[name] = e.Perm
		}
		return nil
	}
	if top, rest, _ := strings.Cut(name, "/"); top == "workspaces" && rest != "" && !strings.Contains(rest, "/") {
		r.rep.Workspaces++
	}
	r.rep.Step, r.rep.Files = "restoring", r.rep.Files+1
	src := &pieces{r: r, left: e.Pieces}
	switch e.Kind {
	case kindBundle:
		return r.unpack(name, src)
	case kindLink:
		if err := r.mkdir(path.Dir(name)); err != nil {
			return err
		}
		return r.o.To.Symlink(string(e.Target), StageDir+"/"+name)
	case kindFile:
		return r.file(name, src, e.Perm)
	}
	return errDamaged("its manifest has an unknown kind of entry")
}

func (r *restorer) file(name string, src io.Reader, perm fs.FileMode) error {
	if err := r.mkdir(path.Dir(name)); err != nil {
		return err
	}
	f, err := r.o.To.OpenFile(StageDir+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{src}, make([]byte, 256<<10))
	if err == nil && perm&fs.ModePerm != 0o600 {
		err = f.Chmod(perm & fs.ModePerm)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// unpack writes the files of an archive below a folder.
func (r *restorer) unpack(dir string, src io.Reader) error {
	if err := r.mkdir(dir); err != nil {
		return err
	}
	t := tar.NewReader(src)
	for {
		h, err := t.Next()
		if err == io.EOF {
			// The bytes after the archive's end mark are compared too.
			_, err := io.Copy(io.Discard, src)
			return err
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(h.Name) {
			return errDamaged("an archive in it holds what it should not")
		}
		perm := fs.FileMode(0o644)
		if strings.HasPrefix(h.Name, "journal/") || h.Name == "refs" {
			perm = 0o600
		}
		if err := r.file(path.Join(dir, h.Name), t, perm); err != nil {
			return err
		}
	}
}

// pieces reads a file from its pieces, each compared with its sum before a byte
// of it is given.
type pieces struct {
	r    *restorer
	left []piece
	buf  []byte
}

// Read is io.Reader's.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.buf) == 0 {
		if len(p.left) == 0 {
			return 0, io.EOF
		}
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	return n, nil
}

func (p *pieces) next() error {
	if err := p.r.ctx.Err(); err != nil {
		return context.Cause(p.r.ctx)
	}
	want := p.left[0]
	p.left = p.left[1:]
	data, err := vfs.ReadFile(p.r.o.From, want.Sum.name())
	if errors.Is(err, fs.ErrNotExist) {
		return errDamaged("a piece of it is gone")
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if int64(len(data)) != want.Size || sha256.Sum256(data) != want.Sum {
		return errDamaged("a piece of it has other bytes than when it was written")
	}
	p.buf = data
	p.r.rep.Bytes += want.Size
	p.r.rep.CopiedBytes += want.Size
	p.r.progress()
	return nil
}
