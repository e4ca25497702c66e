package tasks

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// target is what a request's path names: a file of the workspace, or, with an
// area, one of the task's own folders.
type target struct {
	path   wspath.Path
	area   task.Area // empty: the workspace
	folder bool      // written with a slash behind: it must be a folder
}

func (t target) inArea() bool { return t.area != "" }

// kind is what the path must be, if it says so.
func (t target) kind() workspace.Kind {
	if t.folder {
		return workspace.KindDir
	}
	return workspace.KindNone
}

func (t target) areaPath() task.AreaPath { return task.AreaPath{Area: t.area, Path: t.path} }

func parseTarget(path, encoding string, opts ...wspath.Option) (target, error) {
	area, rest, ok := task.SplitURI(path)
	if !ok {
		rest = path
	}
	return parseIn(area, rest, encoding, opts...)
}

// parseIn is parseTarget for a path whose area is known.
func parseIn(area task.Area, rest, encoding string, opts ...wspath.Option) (target, error) {
	p, err := wspath.FromJSON(rest, encoding, opts...)
	if err != nil {
		return target{}, err
	}
	return target{path: p, area: area, folder: strings.HasSuffix(rest, "/")}, nil
}

// queryTarget reads ?path=, which is needed.
func queryTarget(c *gin.Context, opts ...wspath.Option) (target, error) {
	value, given, err := httpapi.Query(c, "path")
	if err != nil {
		return target{}, err
	}
	if !given {
		return target{}, errs.New(errs.Invalid, "invalid_parameter", "The path parameter is required.").With("field", "path")
	}
	return parseTarget(value, "", opts...)
}

// by says whose a request's change is.
func by(c *gin.Context, key string) workspace.By {
	tags := httpapi.TagsOf(c)
	return workspace.By{SubtaskID: tags.SubtaskID, Actor: tags.Actor, Message: tags.Message, Source: message.API, RequestID: httpapi.RequestID(c), IdempotencyKey: key}
}

// condition reads the request's preconditions.
func condition(c *gin.Context) (workspace.Condition, error) {
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
	return workspace.Condition{Match: tags(match), NoneMatchAny: none.Any}, nil
}

// tags gives an If-Match as the write service takes it. A list without a tag
// matches nothing, and must not become "no condition".
func tags(m httpapi.Match) []string {
	switch {
	case !m.Present:
		return nil
	case m.Any:
		return []string{"*"}
	case len(m.Tags) == 0:
		return []string{""}
	}
	out := make([]string, len(m.Tags))
	for i, t := range m.Tags {
		out[i] = strings.ToLower(t)
		if _, err := object.ParseID(out[i]); err != nil {
			// Not a tag of this server; "*" in quotes is none either.
			out[i] = ""
		}
	}
	return slices.Compact(out)
}

// fileMode reads a mode as X-File-Mode and bodies have it.
func fileMode(s, field string) (*object.Mode, error) {
	if m, ok := object.ParseMode(s); ok && (m == object.Regular || m == object.Executable) {
		return &m, nil
	}
	return nil, errs.New(errs.Invalid, "invalid_mode", "%s must be 100644 or 100755.", field).With("field", field)
}

func headerMode(c *gin.Context) (*object.Mode, error) {
	values := c.Request.Header.Values("X-File-Mode")
	switch len(values) {
	case 0:
		return nil, nil
	case 1:
		return fileMode(values[0], "X-File-Mode")
	}
	return nil, errs.New(errs.Invalid, "invalid_mode", "X-File-Mode is given more than once.").With("field", "X-File-Mode")
}
