package interop

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	gogitobject "github.com/go-git/go-git/v5/plumbing/object"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

// TestSecondReaders has three libraries read one history whole. The store is
// open while they do, as it is in a server.
func TestSecondReaders(t *testing.T) {
	h := newHistory(t, historyOptions{commits: 360, tasks: 70, names: append(slices.Clone(oddNames), withBackslash)})
	h.checkModel(t)
	fsck(t, h.repo)
	want := h.dump(t)
	t.Run("go-git", func(t *testing.T) { compareDumps(t, "go-git", goGitDump(t, h.repo), want) })
	t.Run("libgit2", func(t *testing.T) { compareDumps(t, "libgit2", libgit2Dump(t, h.repo), want) })
	t.Run("after a person's gc", func(t *testing.T) {
		git(t, h.repo, "pack-refs", "--all")
		git(t, h.repo, "gc", "--quiet", "--prune=now")
		git(t, h.repo, "multi-pack-index", "write")
		git(t, h.repo, "commit-graph", "write", "--reachable")
		fsck(t, h.repo)
		compareDumps(t, "go-git", goGitDump(t, h.repo), want)
		compareDumps(t, "libgit2", libgit2Dump(t, h.repo), want)
	})
}

// TestIsomorphicGit is apart because isomorphic-git refuses a folder that
// holds a name with a backslash.
func TestIsomorphicGit(t *testing.T) {
	h := newHistory(t, historyOptions{commits: 200, tasks: 70, names: oddNames})
	want := h.dump(t)
	// It takes names for UTF-8, and each bad byte for U+FFFD.
	for i, line := range want {
		if f := strings.Fields(line); f[0] == "entry" {
			name := make([]byte, len(f[3])/2)
			if _, err := fmt.Sscanf(f[3], "%x", &name); err != nil {
				t.Fatal(err)
			}
			f[3] = fmt.Sprintf("%x", string([]rune(string(name))))
			want[i] = strings.Join(f, " ")
		}
	}
	node := need.Tool(t, "node")
	if found, _ := filepath.Glob("isomorphic/node_modules/isomorphic-git/package.json"); len(found) == 0 {
		need.Missing(t, "isomorphic-git is not installed: run tests/tools/setup")
	}
	out := run(t, command(t.Context(), "isomorphic", node, "dump.mjs", h.repo))
	compareDumps(t, "isomorphic-git", strings.Split(string(out), "\n"), want)
}

// libgit2Dump compiles the reader in libgit2/ and runs it.
func libgit2Dump(t *testing.T, repo string) []string {
	t.Helper()
	gcc, pkg := need.Tool(t, "gcc"), need.Tool(t, "pkg-config")
	flags, err := exec.Command(pkg, "--cflags", "--libs", "libgit2").Output()
	if err != nil {
		need.Missing(t, "libgit2's headers are not installed: run tests/tools/setup")
	}
	bin := filepath.Join(t.TempDir(), "dump")
	args := append([]string{"-O1", "-Wall", "-Werror", "-o", bin, "dump.c"}, strings.Fields(string(flags))...)
	run(t, command(t.Context(), "libgit2", gcc, args...))
	return strings.Split(string(run(t, command(t.Context(), repo, bin, repo))), "\n")
}

// goGitDump reads with go-git, which the program uses itself for reading what
// others wrote, by the calls that its users make.
func goGitDump(t *testing.T, path string) []string {
	t.Helper()
	repo, err := gogit.PlainOpen(path)
	need.NoError(t, err)
	d := &goGit{repo: repo, seen: make(map[plumbing.Hash]bool)}
	need.NoError(t, d.all())
	return d.out
}

type goGit struct {
	repo *gogit.Repository
	seen map[plumbing.Hash]bool
	out  []string
}

func (d *goGit) line(format string, args ...any) { d.out = append(d.out, fmt.Sprintf(format, args...)) }

func (d *goGit) all() error {
	refs, err := d.repo.References()
	if err != nil {
		return err
	}
	err = refs.ForEach(func(r *plumbing.Reference) error {
		if r.Name() == plumbing.HEAD {
			return nil
		}
		direct, err := d.repo.Reference(r.Name(), true)
		if err != nil {
			return err
		}
		d.line("ref %s %v", r.Name(), direct.Hash())
		return nil
	})
	if err != nil {
		return err
	}
	tags, err := d.repo.TagObjects()
	if err != nil {
		return err
	}
	// TagObjects gives those of older info too, to which no ref leads.
	err = tags.ForEach(func(tag *gogitobject.Tag) error {
		if ref, err := d.repo.Reference(plumbing.ReferenceName("refs/"+tag.Name), true); err != nil || ref.Hash() != tag.Hash {
			return err
		}
		d.line("tag %v %v %x", tag.Hash, tag.Target, tag.Name)
		return nil
	})
	if err != nil {
		return err
	}
	log, err := d.repo.Log(&gogit.LogOptions{})
	if err != nil {
		return err
	}
	return log.ForEach(func(c *gogitobject.Commit) error {
		parent := "-"
		if len(c.ParentHashes) > 0 {
			parent = c.ParentHashes[0].String()
		}
		d.line("commit %v %v %s %d %v", c.Hash, c.TreeHash, parent, c.Committer.When.Unix(), messageID(c.Message))
		return d.tree(c.TreeHash)
	})
}

func (d *goGit) tree(id plumbing.Hash) error {
	if d.seen[id] {
		return nil
	}
	d.seen[id] = true
	tree, err := d.repo.TreeObject(id)
	if err != nil {
		return fmt.Errorf("tree %v: %w", id, err)
	}
	for _, e := range tree.Entries {
		d.out = append(d.out, entryLine(object.ID(id), object.Mode(e.Mode), e.Name, object.ID(e.Hash)))
		switch {
		case uint32(e.Mode) == uint32(object.Dir):
			err = d.tree(e.Hash)
		case !d.seen[e.Hash]:
			d.seen[e.Hash] = true
			err = d.blob(e.Hash)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *goGit) blob(id plumbing.Hash) error {
	blob, err := d.repo.BlobObject(id)
	if err != nil {
		return fmt.Errorf("blob %v: %w", id, err)
	}
	r, err := blob.Reader()
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	d.line("blob %v %d %v", id, blob.Size, object.Hash(object.Blob, data))
	return nil
}
