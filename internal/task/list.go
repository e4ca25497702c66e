package task

import (
	"context"
	"encoding/base64"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"umbra/internal/errs"
	"umbra/internal/workspaces"
)

// Query says which tasks to list.
type Query struct {
	Status    Status // empty: all
	Workspace string // id, or path of the folder; empty: all
	After     string // Page.Next of the page before
	Limit     int
	Sees      Sees
}

// Page is a part of the list of tasks, newest first.
type Page struct {
	Tasks []Record
	Next  string // empty on the last page
}

// List gives a page of tasks, by their records: no workspace is opened. Invalid
// "invalid_parameter" for a cursor that is none.
func (s *Service) List(ctx context.Context, q Query) (*Page, error) {
	place, err := parseCursor(q.After)
	if err != nil {
		return nil, err
	}
	f := filter{status: q.Status, sees: func(id string) bool {
		ws, ok := s.o.Workspaces.Record(id)
		return ok && q.Sees.see(ws.Place())
	}}
	_ = s.readUnread(ctx) // those that cannot be read are left out
	page := &Page{}
	if q.Workspace != "" {
		rec, ok := s.findWorkspace(ctx, q.Workspace)
		if !ok {
			return page, nil
		}
		f.workspace = rec.ID
	}
	recs, err := s.index.page(place, q.Limit+1, f)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	if len(recs) > q.Limit {
		recs = recs[:q.Limit]
		page.Next = cursor(recs[len(recs)-1])
	}
	page.Tasks = recs
	return page, nil
}

// findWorkspace finds a known workspace by its id or its folder.
func (s *Service) findWorkspace(ctx context.Context, name string) (workspaces.Record, bool) {
	if rec, ok := s.o.Workspaces.Record(name); ok {
		return rec, true
	}
	if !filepath.IsAbs(name) {
		return workspaces.Record{}, false
	}
	return s.o.Workspaces.Find(ctx, name)
}

// cursor is the place of a record in the list, for Query.After.
func cursor(r Record) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(r.Created.UnixNano(), 10) + "/" + r.ID))
}

func parseCursor(c string) (Record, error) {
	if c == "" {
		return Record{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(c)
	if err != nil {
		return Record{}, errs.BadCursor()
	}
	nanos, id, ok := strings.Cut(string(raw), "/")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !ok || err != nil || !ValidID(id) {
		return Record{}, errs.BadCursor()
	}
	return Record{ID: id, Created: time.Unix(0, n).UTC()}, nil
}
