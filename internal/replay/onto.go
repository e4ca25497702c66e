package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
)

// target is the state that a task is put onto instead of its own base.
type target struct {
	repo string // git directory; empty for a plain folder
	rev  string // commit
	dir  string // plain folder

	blobs *blobReader // of repo, once a file's bytes were asked for
	holds map[object.ID]bool
}

func (t *target) close() {
	if t != nil && t.blobs != nil {
		t.blobs.close()
	}
}

// openTarget opens a repository (with "@REV", HEAD without) or a directory.
func openTarget(ctx context.Context, onto string) (*target, error) {
	path, rev := onto, "HEAD"
	if i := strings.LastIndexByte(onto, '@'); i > 0 {
		if _, err := os.Stat(onto); err != nil {
			path, rev = onto[:i], onto[i+1:]
		}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is neither a directory nor a git repository", path)
	}
	git := filepath.Join(abs, ".git")
	if _, err := os.Stat(filepath.Join(abs, "HEAD")); err == nil {
		if _, err := os.Stat(filepath.Join(abs, "objects")); err == nil {
			git = abs // a bare repository
		}
	}
	switch info, err := os.Stat(git); {
	case err != nil:
		if rev != "HEAD" {
			return nil, &Misuse{fmt.Errorf("%s is not a git repository", path)}
		}
		return &target{dir: abs}, nil
	case !info.IsDir(): // a linked working tree
		if git, err = gitDirOf(ctx, abs); err != nil {
			return nil, err
		}
	}
	cmd, err := gitcmd.Command(ctx, git, "rev-parse", "--verify", "-q", rev+"^{commit}")
	if err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s has no commit %q", path, rev)
	}
	return &target{repo: git, rev: strings.TrimSpace(string(out))}, nil
}

// gitDirOf gives the git directory of the repository that a folder lies in.
func gitDirOf(ctx context.Context, dir string) (string, error) {
	cmd, err := gitcmd.Command(ctx, dir, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return "", err
	}
	cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "GIT_DIR=") })
	out, err := cmd.Output()
	if err != nil {
		return "", &Misuse{fmt.Errorf("%s is not a git repository", dir)}
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// copyInto reads the target's files into a state. The target is only read, the
// bytes of a repository's files when they are asked for.
func (t *target) copyInto(ctx context.Context, s *state) error {
	if t.repo == "" {
		return t.copyFolder(ctx, s)
	}
	cmd, err := gitcmd.Command(ctx, t.repo, "ls-tree", "-r", "-z", "--full-tree", t.rev)
	if err != nil {
		return err
	}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-tree: %w", err)
	}
	t.holds = make(map[object.ID]bool)
	recorded := s.load
	s.load = func(id object.ID) ([]byte, error) {
		if t.holds[id] {
			return t.blob(ctx, id)
		}
		return recorded(id)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		meta, path, ok := strings.Cut(line, "\t")
		fields := strings.Fields(meta)
		if !ok || len(fields) != 3 || fields[1] != "blob" {
			continue // a submodule
		}
		mode, okMode := object.ParseMode(fields[0])
		id, err := object.ParseID(fields[2])
		if err != nil || !okMode {
			return fmt.Errorf("the repository lists %q", line)
		}
		t.holds[id] = true
		if err := s.put(path, file{mode, id}); err != nil {
			return err
		}
	}
	return nil
}

// blob reads the exact bytes of a file of the repository.
func (t *target) blob(ctx context.Context, id object.ID) ([]byte, error) {
	if t.blobs == nil {
		r, err := readBlobs(ctx, t.repo)
		if err != nil {
			return nil, err
		}
		t.blobs = r
	}
	return t.blobs.get(id)
}

// blobReader reads blobs of a repository through one git-cat-file(1).
type blobReader struct {
	ask   io.WriteCloser
	out   *bufio.Reader
	ended func() error
}

func readBlobs(ctx context.Context, repo string) (*blobReader, error) {
	cmd, err := gitcmd.Command(ctx, repo, "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	ask, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &blobReader{ask: ask, out: bufio.NewReaderSize(out, 1<<16), ended: cmd.Wait}, cmd.Start()
}

func (r *blobReader) get(id object.ID) ([]byte, error) {
	if _, err := fmt.Fprintln(r.ask, id); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	var got, kind string
	var size int64
	if _, err := fmt.Fscanf(r.out, "%s %s %d\n", &got, &kind, &size); err != nil || kind != "blob" {
		return nil, fmt.Errorf("blob %s cannot be read from the repository", id)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r.out, data); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	_, err := r.out.ReadByte()
	return data, err
}

func (r *blobReader) close() {
	r.ask.Close()
	_, _ = io.Copy(io.Discard, r.out) // nothing is left but after an error
	_ = r.ended()
}

func (t *target) copyFolder(ctx context.Context, s *state) error {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || d.IsDir() {
			return err
		}
		f := file{mode: object.Regular}
		var data []byte
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := root.Readlink(p)
			if err != nil {
				return err
			}
			f.mode, data = object.Symlink, []byte(to)
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Mode()&0o100 != 0 {
				f.mode = object.Executable
			}
			if data, err = root.ReadFile(p); err != nil {
				return err
			}
		default:
			return nil // FIFO, socket, device
		}
		f.id = object.Hash(object.Blob, data)
		s.made[f.id] = data
		return s.put(p, f)
	})
}

// Misuse is the error of who names what cannot be: a folder that is no
// repository, a branch's name that git refuses.
type Misuse struct{ Err error }

// Error is the error's own.
func (e *Misuse) Error() string { return e.Err.Error() }

// Unwrap gives it.
func (e *Misuse) Unwrap() error { return e.Err }

var errBranch = errors.New("the branch exists already")
