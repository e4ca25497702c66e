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
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
)

// target is the state that a task is put onto instead of its own base.
type target struct {
	repo string // git directory; empty for a plain folder
	rev  string // commit
	dir  string // plain folder
}

// openTarget tells a repository (with "@REV", HEAD without) from a folder.
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
		return nil, fmt.Errorf("%s is no folder and no repository", path)
	}
	git := filepath.Join(abs, ".git")
	if _, err := os.Stat(filepath.Join(abs, "HEAD")); err == nil {
		if _, err := os.Stat(filepath.Join(abs, "objects")); err == nil {
			git = abs // a bare repository
		}
	}
	if info, err := os.Stat(git); err != nil || !info.IsDir() {
		if rev != "HEAD" {
			return nil, fmt.Errorf("%s is no repository", path)
		}
		return &target{dir: abs}, nil
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

// copyInto reads the target's files into a state. The target is only read.
func (t *target) copyInto(ctx context.Context, s *state) error {
	if t.repo == "" {
		return t.copyFolder(ctx, s)
	}
	// Exact bytes: no attribute of the repository's makes git convert or leave
	// out anything.
	cmd, err := gitcmd.Command(ctx, t.repo, "-c", "core.bare=true", "-c", "core.autocrlf=false", "ls-tree", "-r", "-z", "--full-tree", t.rev)
	if err != nil {
		return err
	}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-tree: %w", err)
	}
	return t.readBlobs(ctx, s, string(out))
}

// readBlobs reads the listed files by git cat-file --batch.
func (t *target) readBlobs(ctx context.Context, s *state, list string) error {
	type item struct {
		path string
		f    file
	}
	var items []item
	var ask strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
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
		items = append(items, item{path, file{mode, id}})
		ask.WriteString(fields[2] + "\n")
	}
	cmd, err := gitcmd.Command(ctx, t.repo, "cat-file", "--batch")
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(ask.String())
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	r := bufio.NewReaderSize(pipe, 1<<20)
	for _, it := range items {
		var id, kind string
		var size int64
		if _, err := fmt.Fscanf(r, "%s %s %d\n", &id, &kind, &size); err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		if _, err := r.ReadByte(); err != nil {
			return err
		}
		s.made[it.f.id] = data
		if err := s.put(it.path, it.f); err != nil {
			return err
		}
	}
	return nil
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

var errBranch = errors.New("the branch exists already")
