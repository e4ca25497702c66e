package review

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"umbra/internal/blame"
	"umbra/internal/wspath"
)

// name returns an id for parts.
func name(parts ...string) string {
	s := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(s, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(s.Sum(nil)[:8])
}

// once counts the hunks that have an id: the first keeps it.
func (c *cutter) once(id string) string {
	c.seen[id]++
	if n := c.seen[id]; n > 1 {
		id += fmt.Sprintf("-%d", n)
	}
	return id
}

// identify gives the hunks of a file of lines their ids: that of their content, and
// where several have the same, where the lines come from as well. A number in the order
// of the file would come to mean another hunk when one of them goes.
func (c *cutter) identify(hunks []Hunk) error {
	var all []*Hunk
	count := make(map[string]int)
	for i := range hunks {
		all = append(all, hunks[i].withParts()...)
	}
	for _, h := range all {
		count[h.content]++
	}
	for _, h := range all {
		h.ID = h.content
		if count[h.content] > 1 && c.r != nil {
			own, err := c.origin(h)
			if err != nil {
				return err
			}
			h.ID += "-" + own
		}
		h.ID = c.once(h.ID)
	}
	return nil
}

// origin names where a hunk's lines come from: the commit that wrote the first line and
// its number there, whatever was changed around it since; of lines that are gone, the
// version of the file without the task and the number in it.
func (c *cutter) origin(h *Hunk) (string, error) {
	for _, ch := range h.changes {
		if ch.New.Len() == 0 {
			continue
		}
		lines, err := c.blamed(h.file)
		if err != nil || ch.New.Start >= len(lines) {
			return "", err
		}
		l := &lines[ch.New.Start]
		return name(l.Origin.Commit.String(), l.Origin.Path, strconv.Itoa(l.No))[:8], nil
	}
	return name(h.file.net.Without.ID.String(), strconv.Itoa(h.changes[0].Old.Start))[:8], nil
}

// formerly finds the hunk, or the part of one, that had an id when others had the same
// lines, and that is the only one by now; nil if there is none.
func (v *Review) formerly(id string) (*Hunk, error) {
	content, own, ok := strings.Cut(id, "-")
	for i := range v.Hunks {
		for _, h := range v.Hunks[i].withParts() {
			if !ok || h.content != content || h.ID != content || len(h.changes) == 0 {
				continue
			}
			is, err := v.cut.origin(h)
			if err != nil {
				return nil, err
			}
			if is == own {
				return h, nil
			}
		}
	}
	return nil, nil
}

// withParts returns a hunk and its parts.
func (h *Hunk) withParts() []*Hunk {
	out := []*Hunk{h}
	for j := range h.Parts {
		out = append(out, &h.Parts[j])
	}
	return out
}

// blamed returns who wrote the lines of a file as it is now.
func (c *cutter) blamed(f *file) ([]blame.Line, error) {
	if f.lines == nil {
		b, err := c.r.Blame.Of(c.ctx, c.w, c.tip, wspath.Path(f.net.Now.Path), blame.Options{})
		if err != nil {
			return nil, err
		}
		f.lines = b.Lines
	}
	return f.lines, nil
}

// accepted reports whether a hunk was accepted: by its own id, by the one that it had
// when there were others with its lines, or by that of its lines alone, if it has had
// them since before.
func (c *cutter) accepted(h *Hunk, accepted map[string]uint64) (bool, error) {
	if _, ok := accepted[h.ID]; ok && h.ID != h.content {
		return true, nil
	}
	if len(h.changes) == 0 {
		_, ok := accepted[h.ID]
		return ok, nil
	}
	if seq, ok := accepted[h.content]; ok {
		if entries := h.file.net.Entries; len(entries) == 0 || entries[len(entries)-1].Seq <= seq {
			return true, nil
		}
		lines, err := c.blamed(h.file)
		if err != nil {
			return false, err
		}
		since := false
		for _, ch := range h.changes {
			for i := ch.New.Start; i < min(ch.New.End, len(lines)); i++ {
				since = since || lines[i].Origin.Seq > seq
			}
		}
		return !since, nil
	}
	for id := range accepted {
		if strings.HasPrefix(id, h.content+"-") {
			own, err := c.origin(h)
			if err != nil {
				return false, err
			}
			_, ok := accepted[h.content+"-"+own]
			return ok, nil
		}
	}
	return false, nil
}
