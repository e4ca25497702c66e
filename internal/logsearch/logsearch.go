// Package logsearch finds the changes in a workspace's history that added or
// removed lines with a given text.
package logsearch

import (
	"bytes"
	"context"
	"regexp"
	"time"
	"unicode/utf8"

	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/task"
	"umbra/internal/textsearch"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Bounds of a search. One that reaches the time returns a cursor to go on from.
const (
	maxSide  = 4 << 20 // bytes of a version of a file; larger ones are skipped
	maxLines = 20      // of one change
	maxText  = 500     // bytes of a line
	sniff    = 8 << 10 // bytes in which a NUL makes a file binary
	perPage  = 16      // changes between two checks of the time
	perEntry = 2 * time.Second
	patience = 10 * time.Second
)

// Options say what to search for.
type Options struct {
	Pattern    string // RE2, or the text itself if Literal
	Literal    bool
	IgnoreCase bool
	Path       wspath.Path // changes of this file, or below this directory
	Max        int         // changes
	From       task.Place  // of the previous result's Next; zero: the newest change
}

// Hit is a change that added or removed matching lines.
type Hit struct {
	Entry workspace.ChangeEntry
	Lines []Line
	More  int // matching lines that are left out
}

// Line is a line that a change added or removed.
type Line struct {
	Added  bool
	Number int // from 1, in the version that has it
	Text   string
}

// Result is one page of a search. Next is zero where the history was searched to
// its beginning.
type Result struct {
	Hits     []Hit
	Next     task.Place
	Searched int // changes
	Skipped  int // changes of files that are too large, or took too long
}

// Search searches the changes from Options.From on, newest first. It ends early
// after ten seconds or with enough hits. errs.Invalid invalid_pattern.
func Search(ctx context.Context, tasks *task.Service, w *workspace.Workspace, o Options) (Result, error) {
	s, err := compile(o)
	if err != nil {
		return Result{}, err
	}
	var res Result
	place := o.From
	until := time.Now().Add(patience)
	for {
		entries, next, err := tasks.Log(ctx, w, task.Filter{Path: o.Path}, place, min(perPage, o.Max-len(res.Hits)))
		if err != nil {
			return Result{}, err
		}
		for i, pair := range entries {
			limited, cancel := context.WithTimeout(ctx, perEntry)
			hit, err := s.change(limited, w, &entries[i])
			slow := limited.Err() != nil && ctx.Err() == nil
			cancel()
			switch {
			case errs.Is(err, errs.TooLarge), err != nil && slow:
				res.Skipped++
			case err != nil:
				return Result{}, err
			case len(hit.Lines) > 0:
				hit.Entry = pair
				res.Hits = append(res.Hits, hit)
			}
		}
		res.Searched += len(entries)
		if next.Seq == 0 {
			return res, nil
		}
		if len(res.Hits) == o.Max || time.Now().After(until) {
			res.Next = next
			return res, nil
		}
		place = next
	}
}

type search struct {
	re    *regexp.Regexp
	plain []byte // a text that a matching line has; nil: not known
}

func compile(o Options) (*search, error) {
	bad := func(err string) error {
		return errs.New(errs.Invalid, "invalid_pattern", "Invalid pattern: %s.", err).With("field", "pattern")
	}
	if o.Pattern == "" {
		return nil, bad("it is empty")
	}
	s := &search{}
	text := o.Pattern
	if o.Literal {
		text = regexp.QuoteMeta(text)
		if !o.IgnoreCase {
			s.plain = []byte(o.Pattern)
		}
	}
	if o.IgnoreCase {
		text = "(?i)" + text
	}
	var err error
	if s.re, err = textsearch.Compile(text); err != nil {
		return nil, bad(err.Error())
	}
	return s, nil
}

// change returns the matching lines that an entry added or removed.
func (s *search) change(ctx context.Context, w *workspace.Workspace, e *workspace.ChangeEntry) (hit Hit, err error) {
	if e.Before == e.After {
		return hit, nil
	}
	for _, pair := range history.PairsOf([]workspace.ChangeEntry{*e}) {
		old, now, err := pair.Sides(ctx, w.Store(), maxSide)
		if err != nil {
			return hit, err
		}
		before, err := s.lines(ctx, old.Data)
		if err != nil {
			return hit, err
		}
		after, err := s.lines(ctx, now.Data)
		if err != nil {
			return hit, err
		}
		hit.add(false, without(before, after))
		hit.add(true, without(after, before))
	}
	return hit, nil
}

func (h *Hit) add(added bool, lines []Line) {
	for _, l := range lines {
		if len(h.Lines) == maxLines {
			h.More++
			continue
		}
		l.Added = added
		h.Lines = append(h.Lines, l)
	}
}

// lines returns the lines of a text that match; none of a binary one.
func (s *search) lines(ctx context.Context, data []byte) ([]Line, error) {
	if bytes.IndexByte(data[:min(len(data), sniff)], 0) >= 0 || s.plain != nil && !bytes.Contains(data, s.plain) {
		return nil, nil
	}
	var out []Line
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(err, "")
		}
		line = bytes.TrimRight(line, "\r\n")
		at, err := textsearch.Find(ctx, s.re, line)
		if err != nil {
			return nil, err
		}
		if at >= 0 {
			out = append(out, Line{Number: n, Text: clip(line)})
		}
	}
	return out, nil
}

// clip cuts a line between two characters.
func clip(line []byte) string {
	if len(line) > maxText {
		end := maxText
		for end > 0 && !utf8.RuneStart(line[end]) {
			end--
		}
		line = line[:end]
	}
	return string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
}

// without returns the lines that another version does not have as often.
func without(lines, other []Line) []Line {
	left := map[string]int{}
	for _, l := range other {
		left[l.Text]++
	}
	var out []Line
	for _, l := range lines {
		if left[l.Text] > 0 {
			left[l.Text]--
			continue
		}
		out = append(out, l)
	}
	return out
}
