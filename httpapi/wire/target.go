package wire

import (
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Target is what a request's path names: a path of the workspace, or, with an
// area, one in the task's own directories.
type Target struct {
	Path   wspath.Path
	Area   areas.Area // empty: the workspace
	Folder bool       // written with a trailing slash: it must be a directory
}

// InArea reports whether the target is in one of the task's own directories.
func (t Target) InArea() bool { return t.Area != "" }

// AreaPath is the target in its area.
func (t Target) AreaPath() areas.Path { return areas.Path{Area: t.Area, Path: t.Path} }

// AreaOp is an operation on the target in its area.
func (t Target) AreaOp(o workspace.Op) areas.Op { return areas.Op{Area: t.Area, Op: o} }

// Kind is what the target must be, if the path says so.
func (t Target) Kind() workspace.Kind {
	if t.Folder {
		return workspace.KindDir
	}
	return workspace.KindNone
}

// JSON returns the path as a body has it, and its path_encoding.
func (t Target) JSON() (path, encoding string) {
	switch {
	case !t.InArea():
		return t.Path.JSON()
	case t.Path.IsRoot():
		return string(t.Area) + "://", ""
	}
	return t.AreaPath().URI()
}

// ParseTarget reads a path of a request.
func ParseTarget(path, encoding string, opts ...wspath.Option) (Target, error) {
	area, rest, ok := areas.SplitURI(path)
	if !ok {
		rest = path
	}
	return ParseIn(area, rest, encoding, opts...)
}

// ParseIn is like ParseTarget for a path whose area is known.
func ParseIn(area areas.Area, rest, encoding string, opts ...wspath.Option) (Target, error) {
	p, err := wspath.FromJSON(rest, encoding, opts...)
	if err != nil {
		return Target{}, err
	}
	return Target{Path: p, Area: area, Folder: strings.HasSuffix(rest, "/")}, nil
}

// QueryTarget reads ?path=, which is required.
func QueryTarget(c *gin.Context, opts ...wspath.Option) (Target, error) {
	t, given, err := QueryTargetOrRoot(c, opts...)
	if err == nil && !given {
		err = errs.New(errs.Invalid, "invalid_parameter", "The path parameter is required.").With("field", "path")
	}
	return t, err
}

// QueryTargetOrRoot reads ?path=; the root, and false, if it is not given.
func QueryTargetOrRoot(c *gin.Context, opts ...wspath.Option) (Target, bool, error) {
	value, given, err := httpapi.Query(c, "path")
	if err != nil || !given {
		return Target{Path: wspath.Root}, false, err
	}
	t, err := ParseTarget(value, "", opts...)
	return t, true, err
}

// Condition reads the request's preconditions.
func Condition(c *gin.Context) (workspace.Condition, error) {
	match, err := httpapi.IfMatch(c)
	if err != nil {
		return workspace.Condition{}, err
	}
	none, err := httpapi.IfNoneMatch(c)
	if err != nil {
		return workspace.Condition{}, err
	}
	if none.Present && !none.Any {
		return workspace.Condition{}, errs.New(errs.Invalid, "bad_etag", "A change takes If-None-Match with * only.").With("field", "If-None-Match")
	}
	return workspace.Condition{Match: Tags(match), NoneMatchAny: none.Any}, nil
}

// ETag is the tag of a file with these bytes, nil for the zero id.
func ETag(id object.ID) *string {
	if id.IsZero() {
		return nil
	}
	tag := httpapi.ETag(id.String())
	return &tag
}

// Written answers a change of one path.
type Written struct {
	Path            string  `json:"path"`
	PathEncoding    string  `json:"path_encoding,omitempty"`
	NewPath         *string `json:"new_path,omitempty"`
	NewPathEncoding string  `json:"new_path_encoding,omitempty"`
	Operation       *string `json:"operation"`
	ChangeID        *uint64 `json:"change_id"`
	Commit          *string `json:"commit"`
	ETag            *string `json:"etag"`
	Bytes           int64   `json:"bytes"`
}

// WrittenOf answers a request of one operation.
func WrittenOf(res *workspace.Result) Written {
	op := res.Ops[0]
	w := Written{Operation: Text(string(op.Operation)), ETag: ETag(op.Blob), Bytes: op.Size}
	w.Path, w.PathEncoding = op.Path.JSON()
	if op.To != "" {
		to, enc := op.To.JSON()
		w.NewPath, w.NewPathEncoding = &to, enc
	}
	if !res.Commit.IsZero() {
		id := res.Commit.String()
		w.Commit = &id
	}
	if len(res.Entries) > 0 && res.Entries[0].ID != 0 {
		w.ChangeID = &res.Entries[0].ID
	}
	return w
}

// AreaWritten answers a change of one path in an area.
func AreaWritten(r areas.Result) Written {
	w := Written{Operation: Text(string(r.Operation)), ETag: ETag(r.Blob), Bytes: r.Size}
	w.Path, w.PathEncoding = areas.Path{Area: r.Area, Path: r.Path}.URI()
	if r.ToArea != "" {
		to, enc := areas.Path{Area: r.ToArea, Path: r.To}.URI()
		w.NewPath, w.NewPathEncoding = &to, enc
	}
	return w
}
