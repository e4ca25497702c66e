// Package project asks the git repository that a directory lies in what its
// commits hold. It runs git without any user's settings, changes nothing, and gives up
// after two seconds: what git does not say is not known.
package project

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
)

// Repo is a project's repository, as seen from a workspace. A nil Repo holds
// nothing. Its methods may be called from any goroutine.
type Repo struct {
	dir    string // of the repository
	prefix string // of the workspace in the work tree, with a slash behind; or empty
}

// gitPatience bounds one question to the project's git.
const gitPatience = 2 * time.Second

// Open finds the repository that a directory lies in; nil where there is none.
func Open(root string) *Repo {
	for dir := root; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			prefix, err := filepath.Rel(dir, root)
			if err != nil {
				return nil
			}
			if prefix = filepath.ToSlash(prefix) + "/"; prefix == "./" {
				prefix = ""
			}
			if info, err := os.Stat(filepath.Join(dir, ".git")); err == nil && info.IsDir() {
				return &Repo{dir: filepath.Join(dir, ".git"), prefix: prefix}
			}
			return gitFile(dir, prefix)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// For finds the repository that has a file of a workspace, and the file's path there:
// a submodule's, or that of another work tree inside the workspace, for what is in it;
// else Open's. Symbolic links are not followed.
func For(root, name string) (*Repo, string) {
	nested, inside := "", name
	at, rest := root, name
	for {
		part, more, below := strings.Cut(rest, "/")
		if !below {
			break
		}
		at, rest = filepath.Join(at, part), more
		if info, err := os.Lstat(at); err != nil || !info.IsDir() {
			break
		}
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			nested, inside = at, rest
		}
	}
	if nested == "" {
		return Open(root), name
	}
	return Open(nested), inside
}

// removed finds the repository of a submodule that has a file of a workspace, and the
// file's path there, without the submodule's directory: by its path, which git names it
// by unless the user says otherwise. It returns nil if there is none.
func removed(root, name string) (*Repo, string) {
	repo, inside, found := Open(root), name, false
	for at := 0; repo != nil; at++ {
		n := strings.IndexByte(inside[at:], '/')
		if n < 0 {
			break
		}
		at += n
		dir := filepath.Join(repo.dir, "modules", filepath.FromSlash(repo.prefix+inside[:at]))
		if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err == nil {
			repo, inside, found, at = &Repo{dir: dir}, inside[at+1:], true, -1
		}
	}
	if !found {
		return nil, ""
	}
	return repo, inside
}

// gitFile follows a .git that is a file (gitrepository-layout(5)): of a worktree
// or a submodule.
func gitFile(dir, prefix string) *Repo {
	text, err := os.ReadFile(filepath.Join(dir, ".git"))
	to, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if err != nil || !ok {
		return nil
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	return &Repo{dir: to, prefix: prefix}
}

// ask runs git on the repository and returns what it writes.
func (p *Repo) ask(ctx context.Context, in io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	// The work tree is not read; that of a removed submodule, which its settings name, does
	// not exist.
	cmd, err := gitcmd.Command(ctx, p.dir, append([]string{"--work-tree=" + p.dir}, args...)...)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = in, &out
	err = gitcmd.Run(cmd)
	return out.String(), err
}

// maxSearched bounds for how many versions Holds searches the project's history,
// which takes long: those that git has, but not at the newest commit.
const maxSearched = 64

// Version is a version of a file.
type Version struct {
	Path string // in the workspace, or as For returns it
	Blob object.ID
}

// Holds reports of each version of a workspace's files whether a commit of the
// project's, other than a stash, has it: in the repository that has the file, or in that
// of a submodule that was removed. Where git does not say in time it is taken to have none.
func Holds(ctx context.Context, root string, list []Version) []bool {
	out := make([]bool, len(list))
	for _, find := range []func(root, name string) (*Repo, string){For, removed} {
		of, inside := map[Repo][]int{}, make([]Version, len(list))
		for i, v := range list {
			if out[i] {
				continue
			}
			if repo, name := find(root, v.Path); repo != nil {
				of[*repo], inside[i] = append(of[*repo], i), Version{name, v.Blob}
			}
		}
		for repo, at := range of {
			asked := make([]Version, len(at))
			for n, i := range at {
				asked[n] = inside[i]
			}
			for n, held := range repo.holds(ctx, asked) {
				out[at[n]] = held
			}
		}
	}
	return out
}

func (p *Repo) holds(ctx context.Context, list []Version) []bool {
	out := make([]bool, len(list))
	var ask bytes.Buffer
	for i := range list {
		// A name with a line feed cannot be asked for: it is searched for.
		ask.WriteString("HEAD:" + p.prefix + strings.ReplaceAll(list[i].Path, "\n", "?") + "\n" + list[i].Blob.String() + "\n")
	}
	text, err := p.ask(ctx, &ask, "cat-file", "--batch-check=%(objectname)")
	lines := strings.Split(text, "\n")
	if err != nil || len(lines) < 2*len(list) {
		return out
	}
	searched := 0
	for i := range list {
		id := list[i].Blob.String()
		if lines[2*i] == id {
			out[i] = true
		} else if lines[2*i+1] == id && searched < maxSearched {
			searched++
			found, err := p.ask(ctx, nil, "log", "--no-ext-diff", "--exclude=refs/stash", "--all", "-1", "--format=%H", "--find-object="+id)
			out[i] = err == nil && strings.TrimSpace(found) != ""
		}
	}
	return out
}

// Content is what the project's newest commit has at a path of the workspace;
// empty where it has nothing, or more than max bytes.
func (p *Repo) Content(ctx context.Context, path string, max int) []byte {
	if p == nil {
		return nil
	}
	out, err := p.ask(ctx, nil, "cat-file", "blob", "HEAD:"+p.prefix+path)
	if err != nil || len(out) > max {
		return nil
	}
	return []byte(out)
}

// Line is whose a line of a file is in the project's own history.
type Line struct {
	Commit string
	Author string
	When   time.Time
}

// Blame returns who wrote the lines of a version in the project's own history: as
// of its newest commit, or of another one in its history that has the version; nil
// where there is none.
func (p *Repo) Blame(ctx context.Context, v Version) []Line {
	if p == nil {
		return nil
	}
	at := p.commitWith(ctx, v)
	if at == "" {
		return nil
	}
	text, err := p.ask(ctx, nil, "blame", "--line-porcelain", at, "--", p.prefix+v.Path)
	if err != nil {
		return nil
	}
	var out []Line
	var l Line
	for row := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(row, " ")
		switch {
		case strings.HasPrefix(row, "\t"):
			out = append(out, l)
			l = Line{}
		case l.Commit == "" && len(name) >= 40:
			l.Commit = strings.TrimPrefix(name, "^")
		case name == "author":
			l.Author = value
		case name == "author-time":
			if sec, err := strconv.ParseInt(value, 10, 64); err == nil {
				l.When = time.Unix(sec, 0).UTC()
			}
		}
	}
	return out
}

// commitWith finds a commit in the history of the newest one that has a version at
// its path.
func (p *Repo) commitWith(ctx context.Context, v Version) string {
	name, id := p.prefix+v.Path, v.Blob.String()
	has := func(commit string) bool {
		out, err := p.ask(ctx, nil, "rev-parse", "--verify", "--quiet", commit+":"+name)
		return err == nil && strings.TrimSpace(out) == id
	}
	if has("HEAD") {
		return "HEAD"
	}
	// Of the commits that brought the version or replaced it, and their parents.
	out, err := p.ask(ctx, nil, "--literal-pathspecs", "log", "-4", "--no-ext-diff", "--format=%H %P", "--find-object="+id, "HEAD", "--", name)
	if err != nil {
		return ""
	}
	for commit := range strings.FieldsSeq(out) {
		if has(commit) {
			return commit
		}
	}
	return ""
}
