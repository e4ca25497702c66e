package review

import (
	"context"
	"slices"

	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Picked is a file as it would be with some hunks of a task and without the others.
type Picked struct {
	Path, From string // From: its path without the task, where a picked hunk renames it
	Was, Want  Content
	Commit     object.ID // the newest that made one of the hunks
	Hunks      []string  // their ids
}

// Content is one version of a file; Mode 0: there is none. Data is set where no
// history has it.
type Content struct {
	Mode object.Mode
	ID   object.ID
	Data []byte
}

// Pick returns the files that hunks of a task change, and takes the ids that it found
// out of ids.
func (r *Reader) Pick(ctx context.Context, w *workspace.Workspace, task string, ids map[string]bool) ([]Picked, error) {
	read, err := r.Read(ctx, w, task)
	if err != nil {
		return nil, err
	}
	var files []*file
	byFile := map[*file][]*Hunk{}
	for i := range read.Hunks {
		h := &read.Hunks[i]
		if byFile[h.file] == nil {
			files = append(files, h.file)
		}
		byFile[h.file] = append(byFile[h.file], h)
	}
	var out []Picked
	for _, f := range files {
		if p := f.pick(byFile[f], ids); len(p.Hunks) > 0 {
			out = append(out, p)
		}
	}
	return out, nil
}

func contentOf(s history.State, data []byte) Content {
	c := Content{Mode: s.Mode, ID: s.ID, Data: data}
	if data != nil {
		c.ID = object.Hash(object.Blob, data)
	}
	return c
}

// pick puts a file together from its version without the task and the picked hunks.
func (f *file) pick(hunks []*Hunk, ids map[string]bool) Picked {
	n := &f.net
	p := Picked{Path: n.Without.Path, Was: contentOf(n.Without, n.Data)}
	if !n.Without.Exists() {
		p.Path, p.Was = n.Now.Path, Content{}
	}
	p.Want = p.Was
	var left []diff.Change
	lines := false
	entries := map[uint64]bool{}
	for _, h := range hunks {
		if !ids[h.ID] {
			left = append(left, h.changes...)
			continue
		}
		delete(ids, h.ID)
		p.Hunks = append(p.Hunks, h.ID)
		for _, e := range h.Entries {
			entries[e] = true
		}
		switch h.kind {
		case text:
			lines = true
		case mode:
			p.Want.Mode = n.Now.Mode
		case renamed:
			p.From, p.Path = n.Without.Path, n.Now.Path
		case whole:
			if p.Want = (Content{}); n.Now.Exists() {
				p.Want = contentOf(n.Now, nil)
			}
		}
	}
	if lines {
		m := p.Want.Mode
		p.Want = Content{Mode: m, ID: n.Now.ID}
		if len(left) > 0 {
			data := f.without(left)
			p.Want = Content{Mode: m, ID: object.Hash(object.Blob, data), Data: data}
		}
	}
	for _, e := range slices.Backward(n.Entries) {
		if p.Commit.IsZero() || entries[e.Ref.ID] {
			p.Commit = e.Commit
			if entries[e.Ref.ID] {
				break
			}
		}
	}
	return p
}
