package replay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/gitcmd"
)

// branch writes steps as ordinary commits on a new branch, by
// git-fast-import(1). Nothing else of the repository is touched, and nothing
// at all before write.
type branch struct {
	repo string
	ref  string
	from string // the commit that it begins at; empty: at none
	last map[string]file
	n    int
	temp string // a directory for git's own files

	spool *os.File // what git will read
	w     *bufio.Writer
}

// newBranch begins one in temp, a directory of the replay; name must not be taken.
func newBranch(ctx context.Context, repo, from, name, temp string) (*branch, error) {
	cmd, err := gitcmd.Command(ctx, repo, "check-ref-format", "--branch", name)
	if err != nil {
		return nil, err
	}
	if err := gitcmd.Run(cmd); err != nil {
		return nil, &Misuse{fmt.Errorf("%q cannot be a branch's name", name)}
	}
	b := &branch{repo: repo, ref: "refs/heads/" + name, from: from, temp: temp, last: make(map[string]file)}
	if cmd, err = gitcmd.Command(ctx, repo, "rev-parse", "--verify", "-q", b.ref); err != nil {
		return nil, err
	}
	if cmd.Run() == nil {
		return nil, fmt.Errorf("branch %s: %w", name, errBranch)
	}
	if b.spool, err = os.Create(filepath.Join(temp, "import")); err != nil {
		return nil, err
	}
	b.w = bufio.NewWriterSize(b.spool, 1<<20)
	return b, nil
}

func (b *branch) close() {
	if b != nil && b.spool != nil {
		b.spool.Close()
	}
}

// begin notes the state that the branch starts from.
func (b *branch) begin(s *state) {
	maps.Copy(b.last, s.files)
	s.changed = make(map[string]bool)
}

// written is the head of a commit to be written.
type written struct {
	author object.Signature
	when   time.Time
	text   string
}

// add makes a commit of the difference to the one before; none for none.
func (b *branch) add(s *state, c written) error {
	var set, gone []string
	for p := range s.changed {
		f, was := s.files[p], b.last[p]
		switch {
		case f == was:
		case f.exists():
			set = append(set, p)
			b.last[p] = f
		default:
			gone = append(gone, p)
			delete(b.last, p)
		}
	}
	clear(s.changed)
	if len(set)+len(gone) == 0 {
		return nil
	}
	slices.Sort(set)
	slices.Sort(gone)
	b.n++
	name, email := message.Committer()
	fmt.Fprintf(b.w, "commit %s\nmark :%d\nauthor %s <%s> %d +0000\ncommitter %s <%s> %d +0000\ndata %d\n%s\n", b.ref, b.n,
		c.author.Name, c.author.Email, c.author.When.Unix(), name, email, c.when.Unix(), len(c.text), c.text)
	if b.n == 1 && b.from != "" {
		fmt.Fprintf(b.w, "from %s\n", b.from)
	}
	// Removals first: a directory may take a file's place.
	for _, p := range gone {
		fmt.Fprintf(b.w, "D %s\n", quote(p))
	}
	for _, p := range set {
		f := s.files[p]
		data, err := s.bytes(f.id)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.w, "M %s inline %s\ndata %d\n", strconv.FormatUint(uint64(f.mode), 8), quote(p), len(data))
		b.w.Write(data) // a failure stays, and Flush gives it
		b.w.WriteByte('\n')
	}
	return nil
}

// write runs the import. It gives the branch's newest commit: the one that it
// begins at if there was nothing to commit, zero where that is none.
func (b *branch) write(ctx context.Context) (object.ID, error) {
	if b.n == 0 {
		if b.from == "" {
			return object.Zero, nil
		}
		fmt.Fprintf(b.w, "reset %s\nfrom %s\n\n", b.ref, b.from)
	}
	b.w.WriteString("done\n")
	if err := b.w.Flush(); err != nil {
		return object.Zero, err
	}
	if _, err := b.spool.Seek(0, io.SeekStart); err != nil {
		return object.Zero, err
	}
	cmd, err := gitcmd.Command(ctx, b.repo, "fast-import", "--quiet", "--done", "--export-marks="+b.marks())
	if err != nil {
		return object.Zero, err
	}
	cmd.Stdin = b.spool
	if err := gitcmd.Run(cmd); err != nil {
		return object.Zero, err
	}
	if cmd, err = gitcmd.Command(ctx, b.repo, "rev-parse", b.ref); err != nil {
		return object.Zero, err
	}
	out, err := cmd.Output()
	if err != nil {
		return object.Zero, err
	}
	return object.ParseID(strings.TrimSpace(string(out)))
}

// marks is the file in which git writes the ids of the commits.
func (b *branch) marks() string { return filepath.Join(b.temp, "marks") }

// ids returns the commits that were written, oldest first.
func (b *branch) ids() ([]string, error) {
	if b.n == 0 {
		return nil, nil
	}
	data, err := os.ReadFile(b.marks())
	if err != nil {
		return nil, err
	}
	out := make([]string, b.n)
	for line := range strings.Lines(string(data)) {
		mark, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(strings.TrimPrefix(mark, ":"))
		if err != nil || n < 1 || n > b.n {
			return nil, fmt.Errorf("git wrote the mark %q", line)
		}
		out[n-1] = id
	}
	return out, nil
}

// remove takes the branch back, if it is still at a commit.
func (b *branch) remove(ctx context.Context, at object.ID) error {
	cmd, err := gitcmd.Command(ctx, b.repo, "update-ref", "-d", b.ref, at.String())
	if err != nil {
		return err
	}
	return gitcmd.Run(cmd)
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
