package blame

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Origin is a commit under a name of the file.
type Origin struct {
	Seq    uint64
	Commit object.ID
	Path   string // the file's, in the commit
}

// Line is one line and the commit that wrote it.
type Line struct {
	Origin *Origin
	No     int     // in the origin's version of the file, from 1
	Via    *Origin // the revert that brought the line back; nil: none
}

// File is a file with its lines.
type File struct {
	Path  string
	At    object.ID // the commit
	Blob  object.ID
	Data  []byte
	Lines []Line
}

// Options of Of.
type Options struct {
	// IgnoreWhitespace takes lines for the same that differ in white space alone.
	IgnoreWhitespace bool
}

// Of returns each line of a file at a commit with the commit that wrote it. Errors
// are those of Lines.
func (s *Cache) Of(ctx context.Context, w *workspace.Workspace, at *gitstore.Commit, path wspath.Path, o Options) (*File, error) {
	a, err := s.lines(ctx, w, Request{Path: path, At: at.ID, Whitespace: o.IgnoreWhitespace}, nil)
	if err != nil {
		return nil, err
	}
	origins := make(map[int32]*Origin)
	origin := func(i int32) *Origin {
		if i < 0 {
			return nil
		}
		out := origins[i]
		if out == nil {
			v := &a.versions[i]
			out = &Origin{Seq: v.seq, Commit: v.commit, Path: v.path}
			origins[i] = out
		}
		return out
	}
	f := &File{Path: a.Path, At: a.At, Blob: a.blob, Data: a.text, Lines: make([]Line, 0, a.Lines)}
	for _, s := range a.segments {
		from, via := origin(s.from), origin(s.via)
		for k := range int(s.n) {
			f.Lines = append(f.Lines, Line{Origin: from, No: int(s.line) + k + 1, Via: via})
		}
	}
	return f, nil
}
