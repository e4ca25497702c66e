package blame

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Porcelain writes an answer's lines from..to (from 1, both included) as `git
// blame --porcelain` does (git-blame(1), "The Porcelain Format").
func (a *Answer) Porcelain(ctx context.Context, w *workspace.Workspace, out io.Writer, from, to int) error {
	b := bufio.NewWriter(out)
	st := w.Store()
	from = max(from, 1)
	if to == 0 || to > a.Lines {
		to = a.Lines
	}
	r := reader{list: a.segments}
	r.skip(from - 1)
	segs := r.copy(make([]segment, 0, 16), max(0, to-from+1))
	// Reverts make no difference here: what follows each other is one group.
	var list []segment
	paths := make(map[object.ID]map[string]bool)
	for _, s := range segs {
		s.via = -1
		list = appendSegment(list, s)
		v := &a.versions[s.from]
		if paths[v.commit] == nil {
			paths[v.commit] = make(map[string]bool)
		}
		paths[v.commit][v.path] = true
	}
	told := make(map[int32]bool)
	rest := a.text
	for range from - 1 {
		_, rest, _ = bytes.Cut(rest, []byte{'\n'})
	}
	line := from
	for _, s := range list {
		v := &a.versions[s.from]
		for k := range int(s.n) {
			fmt.Fprintf(b, "%s %d %d", v.commit, int(s.line)+k+1, line)
			if k == 0 {
				fmt.Fprintf(b, " %d", s.n)
			}
			b.WriteByte('\n')
			if k == 0 && !told[s.from] {
				told[s.from] = true
				if err := writeCommit(ctx, st, b, v); err != nil {
					return err
				}
			}
			var text []byte
			text, rest, _ = bytes.Cut(rest, []byte{'\n'})
			b.WriteByte('\t')
			b.Write(text)
			b.WriteByte('\n')
			line++
		}
	}
	return b.Flush()
}

// writeCommit writes what the format says of a commit.
func writeCommit(ctx context.Context, st *gitstore.Store, b *bufio.Writer, v *version) error {
	c, err := st.ReadCommit(ctx, v.commit)
	if err != nil {
		return err
	}
	name, mail := message.Committer()
	summary := c.Message.Summary
	if c.Message.Subject != "" {
		summary, _, _ = strings.Cut(c.Message.Subject, "\n")
	}
	fmt.Fprintf(b, "author %s\nauthor-mail <%s>\nauthor-time %d\nauthor-tz +0000\n", c.AuthorName, c.AuthorEmail, c.When.Unix())
	fmt.Fprintf(b, "committer %s\ncommitter-mail <%s>\ncommitter-time %d\ncommitter-tz +0000\nsummary %s\n", name, mail, c.When.Unix(), summary)
	if c.Parent.IsZero() {
		b.WriteString("boundary\n")
	} else if v.before != "" {
		fmt.Fprintf(b, "previous %s %s\n", c.Parent, diff.Quote(v.before))
	}
	fmt.Fprintf(b, "filename %s\n", diff.Quote(v.path))
	return nil
}
