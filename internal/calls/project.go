package calls

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"umbra/internal/gitcmd"
)

// project is the git repository that a workspace lies in, for asking what its
// commits hold. Nil where there is none.
type project struct {
	dir    string // of the repository
	prefix string // of the workspace in the work tree, with a slash behind; or empty
}

// gitPatience bounds one question to the project's git.
const gitPatience = 2 * time.Second

// openProject finds the repository that a directory lies in.
func openProject(root string) *project {
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
				return &project{dir: filepath.Join(dir, ".git"), prefix: prefix}
			}
			return gitFile(dir, prefix)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// gitFile follows a .git that is a file (gitrepository-layout(5)): of a worktree
// or a submodule.
func gitFile(dir, prefix string) *project {
	text, err := os.ReadFile(filepath.Join(dir, ".git"))
	to, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if err != nil || !ok {
		return nil
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	return &project{dir: to, prefix: prefix}
}

// ask runs git on the repository and returns what it writes.
func (p *project) ask(ctx context.Context, in io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	cmd, err := gitcmd.Command(ctx, p.dir, args...)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = in, &out
	err = gitcmd.Run(cmd)
	return out.String(), err
}

// maxSearched bounds for how many versions a call's end searches the project's
// history, which takes long: those that git has, but not at the newest commit.
const maxSearched = 64

// holds reports of each version whether a commit of the project's, other than a
// stash, has it. Where git does not say in time it is taken to have none.
func (p *project) holds(ctx context.Context, list []candidate) []bool {
	out := make([]bool, len(list))
	if p == nil {
		return out
	}
	var ask bytes.Buffer
	for i := range list {
		// A name with a line feed cannot be asked for: it is searched for.
		ask.WriteString("HEAD:" + p.prefix + strings.ReplaceAll(list[i].Path, "\n", "?") + "\n" + list[i].before.String() + "\n")
	}
	text, err := p.ask(ctx, &ask, "cat-file", "--batch-check=%(objectname)")
	lines := strings.Split(text, "\n")
	if err != nil || len(lines) < 2*len(list) {
		return out
	}
	searched := 0
	for i := range list {
		id := list[i].before.String()
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

// content is what the project's newest commit has at a path; empty where it has
// nothing.
func (p *project) content(ctx context.Context, path string) []byte {
	if p == nil {
		return nil
	}
	out, err := p.ask(ctx, nil, "cat-file", "blob", "HEAD:"+p.prefix+path)
	if err != nil || len(out) > maxCompared {
		return nil
	}
	return []byte(out)
}
