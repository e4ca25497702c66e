// Package merge3 merges two versions of a text that came from a common third
// one, line by line, on raw bytes.
//
// It agrees with `git merge-file`: what merges cleanly there does here, to the
// same bytes, and what conflicts there conflicts here, with the same markers
// when rendered. The package's tests hold that. (`git merge` itself compares by
// another algorithm, histogram, and now and then settles a case differently.)
// It differs in three places:
//   - Where one side equals the base, or both sides are equal, the result is
//     clean whatever the bytes are, also for binary content, which git settles
//     one layer above.
//   - Texts with more than 65,536 lines that take part in one comparison may be
//     aligned differently, and so may a comparison that needs more steps than
//     its allowance (Result.Coarse): then a conflict may be wider than git's.
//   - Result.Render in the Diff3 style shows the markers of git's, but whether
//     there is a conflict at all is always decided as in the default style.
//
// It does no I/O and keeps no state.
package merge3

import (
	"bytes"
	"errors"

	"umbra/gitstore/diff"
)

// ErrBinary is returned for content that is no text (diff.Binary), unless one
// side equals the base or both sides are equal.
var ErrBinary = errors.New("merge3: binary content")

// ErrTooLarge is returned for content over diff.MaxText bytes.
var ErrTooLarge = errors.New("merge3: content too large to merge")

// DefaultWork is the allowance of steps for one merge, of all its comparisons
// together (diff.Work).
const DefaultWork = diff.DefaultWork

// Options bound a merge.
type Options struct {
	Work int64 // steps; 0: DefaultWork
	// Touching merges changes without a line between them where one side only deletes
	// lines there: both orders give the same text. git has a conflict.
	Touching bool
}

// Hunk is one conflict, by its line ranges in the three texts. Where one
// overlap of changes was cut down to several conflicts, Base is the range of
// the whole overlap in each.
type Hunk struct{ Base, Ours, Theirs diff.Range }

// Result is a merge's outcome.
type Result struct {
	Clean     bool
	Merged    []byte // the merged text if Clean, else nil; may share an input's bytes
	Conflicts []Hunk // in order; empty if Clean
	Coarse    bool   // the allowance was used up; the result is right, but conflicts may be wider

	base, ours, theirs diff.Lines
	parts              []part // as cut down
	whole              []part // before that, for the Diff3 style
}

// Merge merges the changes base→ours and base→theirs.
//
// Changes to different lines are both taken, with at least one line of the base
// unchanged between them; equal changes are taken once; anything else is a
// conflict. Errors: ErrBinary, ErrTooLarge.
func Merge(base, ours, theirs []byte, opts Options) (Result, error) {
	switch {
	case bytes.Equal(base, ours):
		return Result{Clean: true, Merged: theirs}, nil
	case bytes.Equal(base, theirs), bytes.Equal(ours, theirs):
		return Result{Clean: true, Merged: ours}, nil
	}
	for _, data := range [][]byte{base, ours, theirs} {
		if len(data) > diff.MaxText {
			return Result{}, ErrTooLarge
		}
		if diff.Binary(data) {
			return Result{}, ErrBinary
		}
	}
	var t diff.Table
	w := diff.Work{Limit: opts.Work, Plain: true}
	if w.Limit == 0 {
		w.Limit = DefaultWork
	}
	r := Result{base: t.Cut(base), ours: t.Cut(ours), theirs: t.Cut(theirs)}
	m := merger{table: &t, work: &w, ours: r.ours, theirs: r.theirs, touching: opts.Touching}
	r.whole = m.combine(t.Compare(r.base, r.ours, &w), t.Compare(r.base, r.theirs, &w))
	r.parts = m.joinNear(m.cutDown(r.whole))
	r.Coarse = w.Coarse
	for _, p := range r.parts {
		if p.take == conflict {
			r.Conflicts = append(r.Conflicts, p.Hunk)
		}
	}
	if r.Clean = len(r.Conflicts) == 0; r.Clean {
		r.Merged = r.clean()
	}
	return r, nil
}

// clean puts the merged text together: ours, with the parts taken from theirs.
func (r *Result) clean() []byte {
	size := len(r.ours.Bytes(0, r.ours.Len()))
	for _, p := range r.parts {
		if p.take == fromTheirs {
			size += len(r.theirs.Bytes(p.Theirs.Start, p.Theirs.End))
		}
	}
	out := make([]byte, 0, size)
	at := 0
	for _, p := range r.parts {
		if p.take == fromTheirs {
			out = append(out, r.ours.Bytes(at, p.Ours.Start)...)
			out = append(out, r.theirs.Bytes(p.Theirs.Start, p.Theirs.End)...)
			at = p.Ours.End
		}
	}
	return append(out, r.ours.Bytes(at, r.ours.Len())...)
}
