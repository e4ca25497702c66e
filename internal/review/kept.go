package review

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/blame"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// An accepted line stays accepted when another task deletes it: then no hunk has it, and
// reject_rest does not include it. So an acceptance names the lines of its hunk, and the
// commit at which they had these numbers; of a name or a mode, that.

// keptLines writes message.KeyKept for a hunk; "" where it leaves nothing that another
// could take.
func keptLines(h *Hunk, at uint64) string {
	var ranges []string
	for _, c := range h.changes {
		if c.New.Len() > 0 {
			ranges = append(ranges, fmt.Sprintf("%d-%d", c.New.Start+1, c.New.End))
		}
	}
	switch {
	case h.kind == whole && h.file.net.Now.Exists() && !h.file.net.Without.Exists():
		ranges = []string{keptAll}
	case h.kind == renamed:
		ranges = []string{keptName}
	case h.kind == mode:
		ranges = []string{keptMode}
	case len(ranges) == 0:
		return ""
	}
	return fmt.Sprintf("%s %d %s %s", h.ID, at, strings.Join(ranges, ","), message.QuotePath(h.Path))
}

// kept is what was accepted of a task.
type kept struct {
	lines  map[blame.Origin]map[int]uint64 // the commit's number that accepted a line, by its number in the origin
	others map[string]uint64               // the same of whole files, names and modes: "all <path>"
}

// keptOf reads what was accepted of a task and not rejected since.
func (c *cutter) keptOf(task string) (*kept, error) {
	if k := c.kept[task]; k != nil {
		return k, nil
	}
	k := &kept{lines: make(map[blame.Origin]map[int]uint64), others: make(map[string]uint64)}
	accepted, err := marked(c.ctx, c.w, task, message.KeyAccepts)
	if err != nil {
		return nil, err
	}
	if err := eachReview(c.ctx, c.w, task, 0, func(of *gitstore.Commit) error {
		for _, v := range of.Message.Trailers(message.KeyKept) {
			id, rest, _ := strings.Cut(v, " ")
			if _, ok := accepted[id]; !ok {
				continue
			}
			if err := c.readKept(k, of.Seq, rest); err != nil && !errs.Is(err, errs.Gone) && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if c.kept == nil {
		c.kept = make(map[string]*kept)
	}
	c.kept[task] = k
	return k, nil
}

// readKept takes in the part of message.KeyKept after the hunk's id; what is malformed
// says nothing.
func (c *cutter) readKept(k *kept, seq uint64, text string) error {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return nil
	}
	at, err := strconv.ParseUint(parts[0], 10, 64)
	path, ok := message.Unquote(parts[2])
	if err != nil || !ok {
		return nil
	}
	switch parts[1] {
	case keptAll:
		k.others[keptAll+" "+path] = seq
	case keptName, keptMode:
		k.others[parts[1]+" "+path] = seq
		return nil
	}
	id, err := commitAt(c.ctx, c.w, at)
	if err != nil || id.IsZero() {
		return err
	}
	of, err := c.w.Store().ReadCommit(c.ctx, id)
	if err != nil {
		return err
	}
	f, err := c.r.Blame.Of(c.ctx, c.w, of, wspath.Path(path), blame.Options{})
	if errs.CodeOf(err) == "not_text" {
		return nil
	}
	if err != nil {
		return err
	}
	for r := range strings.SplitSeq(parts[1], ",") {
		from, to := 1, len(f.Lines)
		if r != keptAll {
			if n, err := fmt.Sscanf(r, "%d-%d", &from, &to); n != 2 || err != nil {
				continue
			}
		}
		for i := max(from, 1); i <= min(to, len(f.Lines)); i++ {
			l := &f.Lines[i-1]
			if k.lines[*l.Origin] == nil {
				k.lines[*l.Origin] = make(map[int]uint64)
			}
			k.lines[*l.Origin][l.No] = seq
		}
	}
	return nil
}

// commitAt returns the commit with a number; zero where history has none.
func commitAt(ctx context.Context, w *workspace.Workspace, seq uint64) (id object.ID, err error) {
	err = w.Store().Records(ctx, seq, seq, func(r gitstore.Record) error {
		if r.Seq == seq {
			id = r.Commit
		}
		return nil
	})
	return id, err
}
