package taskfiles

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"umbra/internal/errs"
	"umbra/internal/taskfiles/pattern"
	"umbra/internal/textsearch"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Bounds of a search. A search that reaches one is truncated.
const (
	maxSearched = 64 << 20 // bytes of one file
	maxAnswer   = 16 << 20 // bytes of text in all matches
	searchTime  = 25 * time.Second
	sniff       = 8 << 10 // bytes in which a NUL makes a file binary
)

// SearchOptions say what to search for and where.
type SearchOptions struct {
	Pattern    string // RE2, or the text itself if Literal
	Literal    bool
	IgnoreCase bool
	Path       wspath.Path // a directory or file
	Given      bool        // Path was named by the caller
	Glob       string      // of the paths below Path; without a slash, of their names; empty: all
	Context    int         // lines before and after a match
	Max        int         // matches
	MaxPerFile int         // matches of one file; 0: no limit
}

// Match is one line that matches.
type Match struct {
	Path          wspath.Path
	Line          int    // from 1
	Column        int    // of the first match in the line, from 0, in UTF-16 units
	Text          string // without its line end
	Before, After []string
}

// Search returns the lines of text files that match, sorted by path and line,
// and whether matches were left out. Hidden files are searched; ignored ones
// only where the path names them or a directory above them that is ignored.
// Files with a NUL byte near their start, and files that are not UTF-8, are
// skipped.
//
// errs.Invalid invalid_pattern; errs.NotFound file_not_found.
func Search(ctx context.Context, w *workspace.Workspace, o SearchOptions) (found []Match, truncated bool, err error) {
	s := &search{o: &o, w: w, left: maxAnswer}
	if err := s.compile(); err != nil {
		return nil, false, err
	}
	limited, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	s.ctx = limited
	err = s.run()
	switch {
	case ctx.Err() != nil:
		return nil, false, errs.Wrap(ctx.Err(), "")
	case errors.Is(err, errStop), limited.Err() != nil:
		return s.found, true, nil
	case err != nil:
		return nil, false, err
	}
	return s.found, s.cut, nil
}

type search struct {
	o     *SearchOptions
	w     *workspace.Workspace
	ctx   context.Context
	re    *regexp.Regexp
	plain []byte // if not nil, a literal text to find instead
	glob  func(shown wspath.Path) bool
	found []Match
	left  int // bytes of text
	cut   bool
}

func (s *search) compile() error {
	o := s.o
	text := o.Pattern
	if text == "" {
		return badPattern("pattern", errors.New("the pattern is empty"))
	}
	if o.Literal && !o.IgnoreCase {
		s.plain = []byte(text)
	} else {
		if o.Literal {
			text = regexp.QuoteMeta(text)
		}
		if o.IgnoreCase {
			text = "(?i)" + text
		}
		var err error
		if s.re, err = textsearch.Compile(text); err != nil {
			return badPattern("pattern", err)
		}
	}
	s.glob = func(wspath.Path) bool { return true }
	if o.Glob == "" {
		return nil
	}
	g, err := pattern.Compile(o.Glob)
	if err != nil {
		return badPattern("glob", err)
	}
	byName := !g.Absolute && !strings.Contains(o.Glob, "/")
	s.glob = func(shown wspath.Path) bool {
		switch {
		case byName:
			return g.Match(shown.Base())
		case g.Absolute:
			return g.Match(string(shown))
		}
		rel, ok := shown.Rel(o.Path)
		return ok && g.Match(string(rel))
	}
	return nil
}

func (s *search) run() error {
	p := s.o.Path
	at := p
	if !p.IsRoot() {
		l, err := s.w.Stat(s.ctx, p)
		if err != nil {
			return err
		}
		if l.Kind == workspace.KindFile {
			if s.glob(p) || s.o.Glob != "" && !strings.Contains(s.o.Glob, "/") && s.glob(wspath.Path(p.Base())) {
				return s.file(p, l.Path)
			}
			return nil
		}
		if l.Kind != workspace.KindDir {
			return notFound(p)
		}
		at = l.Path
	}
	hidden, err := s.ignored(at)
	if err != nil {
		return err
	}
	k := &walker{ctx: s.ctx, w: s.w, o: workspace.ListOptions{GitIgnore: !hidden}, keep: !Virtual(s.w), descend: func(wspath.Path) bool { return true }}
	k.visit = func(shown, at wspath.Path, t fs.FileMode) error {
		if !t.IsRegular() || !s.glob(shown) {
			return nil
		}
		return s.file(shown, at)
	}
	return k.folder(p, at, true)
}

// ignored reports whether a directory, or one above it, is ignored.
func (s *search) ignored(at wspath.Path) (bool, error) {
	dir := wspath.Root
	for _, name := range at.Components() {
		root, _, err := s.w.Tree(s.ctx, dir, 1, math.MaxInt, workspace.ListOptions{GitIgnore: true})
		if err != nil {
			return false, err
		}
		shown := false
		for _, c := range root.Children {
			shown = shown || c.Path.Base() == name
		}
		if !shown {
			return true, nil
		}
		dir = dir.Join(name)
	}
	return false, nil
}

// file searches one file. A file that cannot be read is skipped.
func (s *search) file(shown, at wspath.Path) error {
	f, err := s.w.OpenFile(s.ctx, at)
	if err != nil {
		if errs.Is(err, errs.Canceled) || errs.Is(err, errs.Unavailable) {
			return err
		}
		return nil
	}
	defer f.Close()
	if f.Info.Size > maxSearched {
		s.cut = true
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSearched))
	if err != nil {
		return errs.Wrap(err, "")
	}
	if bytes.IndexByte(data[:min(len(data), sniff)], 0) >= 0 || s.plain != nil && !bytes.Contains(data, s.plain) || !utf8.Valid(data) {
		return nil
	}
	return s.lines(shown, data)
}

// lines searches the lines of one text.
func (s *search) lines(shown wspath.Path, data []byte) error {
	all := splitLines(data)
	inFile := 0
	for i, line := range all {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		column := bytes.Index(line, s.plain)
		if s.plain == nil {
			var err error
			if column, err = textsearch.Find(s.ctx, s.re, line); err != nil {
				return err
			}
		}
		if column < 0 {
			continue
		}
		if s.o.MaxPerFile > 0 && inFile == s.o.MaxPerFile {
			s.cut = true
			return nil
		}
		if len(s.found) == s.o.Max {
			return errStop
		}
		m := Match{Path: shown, Line: i + 1, Column: units(line[:column]), Text: string(line)}
		m.Before = texts(all[max(0, i-s.o.Context):i])
		m.After = texts(all[i+1 : min(len(all), i+1+s.o.Context)])
		for _, text := range append(append([]string{m.Text}, m.Before...), m.After...) {
			s.left -= len(text)
		}
		if s.left < 0 {
			return errStop
		}
		s.found = append(s.found, m)
		inFile++
	}
	return nil
}

// splitLines returns the lines of a text without their ends.
func splitLines(data []byte) [][]byte {
	var out [][]byte
	for len(data) > 0 {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		out = append(out, bytes.TrimSuffix(line, []byte{'\r'}))
	}
	return out
}

func texts(lines [][]byte) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = string(l)
	}
	return out
}

// units counts the UTF-16 units of a text.
func units(text []byte) int {
	n := 0
	for _, r := range string(text) {
		n += utf16.RuneLen(r)
	}
	return n
}
