package replay

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
)

// branch writes steps as ordinary commits on a new branch, by
// git-fast-import(1). Nothing else of the repository is touched.
type branch struct {
	t    *target
	ref  string
	text strings.Builder
	last map[string]file // as of the last commit
	n    int
}

func newBranch(ctx context.Context, t *target, name string) (*branch, error) {
	if t == nil || t.repo == "" {
		return nil, fmt.Errorf("--commit needs --onto with a repository")
	}
	cmd, err := gitcmd.Command(ctx, t.repo, "check-ref-format", "--branch", name)
	if err != nil {
		return nil, err
	}
	if err := gitcmd.Run(cmd); err != nil {
		return nil, fmt.Errorf("%q cannot be a branch's name", name)
	}
	b := &branch{t: t, ref: "refs/heads/" + name, last: make(map[string]file)}
	if cmd, err = gitcmd.Command(ctx, t.repo, "rev-parse", "--verify", "-q", b.ref); err != nil {
		return nil, err
	}
	if cmd.Run() == nil {
		return nil, fmt.Errorf("branch %s: %w", name, errBranch)
	}
	return b, nil
}

// begin notes the state that the branch starts from.
func (b *branch) begin(s *state) {
	for p, f := range s.files {
		b.last[p] = f
	}
}

// add makes a commit of the difference to the one before; none for none.
func (b *branch) add(s *state, c *commit) error {
	var body strings.Builder
	for _, p := range s.paths() {
		f := s.files[p]
		if b.last[p] == f {
			continue
		}
		data, err := s.bytes(f.id)
		if err != nil {
			return err
		}
		fmt.Fprintf(&body, "M %s inline %s\ndata %d\n%s\n", strconv.FormatUint(uint64(f.mode), 8), quote(p), len(data), data)
		b.last[p] = f
	}
	var gone strings.Builder
	for p := range b.last {
		if !s.files[p].exists() {
			fmt.Fprintf(&gone, "D %s\n", quote(p))
			delete(b.last, p)
		}
	}
	if body.Len() == 0 && gone.Len() == 0 {
		return nil
	}
	b.n++
	w := &b.text
	fmt.Fprintf(w, "commit %s\n", b.ref)
	fmt.Fprintf(w, "author %s <%s> %d +0000\n", c.author.Name, c.author.Email, c.author.When.Unix())
	name, email := message.Committer()
	fmt.Fprintf(w, "committer %s <%s> %d +0000\n", name, email, c.when.Unix())
	fmt.Fprintf(w, "data %d\n%s\n", len(c.text), c.text)
	if b.n == 1 {
		fmt.Fprintf(w, "from %s\n", b.t.rev)
	}
	io.WriteString(w, gone.String())
	io.WriteString(w, body.String())
	return nil
}

// quote is git-fast-import(1)'s form of a path, which is always quoted here.
func quote(p string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// write runs the import. It gives the branch's newest commit, zero if there was
// nothing to commit.
func (b *branch) write(ctx context.Context) (object.ID, error) {
	if b.n == 0 {
		return object.Zero, nil
	}
	cmd, err := gitcmd.Command(ctx, b.t.repo, "fast-import", "--quiet", "--done")
	if err != nil {
		return object.Zero, err
	}
	cmd.Stdin = strings.NewReader(b.text.String() + "done\n")
	if err := gitcmd.Run(cmd); err != nil {
		return object.Zero, err
	}
	if cmd, err = gitcmd.Command(ctx, b.t.repo, "rev-parse", b.ref); err != nil {
		return object.Zero, err
	}
	out, err := cmd.Output()
	if err != nil {
		return object.Zero, err
	}
	return object.ParseID(strings.TrimSpace(string(out)))
}
