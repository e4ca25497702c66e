package sessions

import (
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

type target = wire.Target

// child is what has a name in a folder.
func child(t target, name string) target {
	return target{Path: t.Path.Join(name), Area: t.Area}
}

func parseTarget(path, encoding string, opts ...wspath.Option) (target, error) {
	t, err := wire.ParseTarget(path, encoding, opts...)
	if errs.Is(err, errs.BadPath) {
		_, rest, ok := areas.SplitURI(path)
		if !ok {
			rest = path
		}
		if leavesRoot(rest) {
			return target{}, errs.New(errs.NotFound, "file_not_found", "The file does not exist.")
		}
	}
	return t, err
}

// leavesRoot reports whether a relative path climbs over the root by its
// words: here that is not found, as it is through a link.
func leavesRoot(path string) bool {
	if strings.HasPrefix(path, "/") || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// queryTarget reads ?path=, which is needed.
func queryTarget(c *gin.Context, opts ...wspath.Option) (target, error) {
	value, given, err := httpapi.Query(c, "path")
	if err != nil {
		return target{}, err
	}
	if !given {
		return target{}, required("path")
	}
	return parseTarget(value, "", opts...)
}

// queryFolder reads ?path= of a folder, the root by default.
func queryFolder(c *gin.Context) (target, error) {
	value, given, err := httpapi.Query(c, "path")
	if err != nil {
		return target{}, err
	}
	if !given {
		return target{Path: wspath.Root}, nil
	}
	return parseTarget(value, "", wspath.AllowRoot, wspath.AllowTrailingSlash)
}

// bodyTarget reads a path of a JSON body, which is needed.
func bodyTarget(field string, value *string, encoding string, opts ...wspath.Option) (target, error) {
	if value == nil {
		return target{}, required(field)
	}
	return parseTarget(*value, encoding, opts...)
}

func required(field string) error {
	return errs.New(errs.Invalid, "invalid_parameter", "%s is required.", field).With("field", field)
}

func wrong(field, detail string) error {
	e := errs.New(errs.Invalid, "invalid_parameter", "")
	e.Detail = detail
	return e.With("field", field)
}

// condition reads the request's preconditions: the header and the body's
// ifMatchEtag are the same thing.
func condition(c *gin.Context, inBody *string) (workspace.Condition, error) {
	match, err := httpapi.IfMatch(c)
	if err != nil {
		return workspace.Condition{}, err
	}
	cond := workspace.Condition{Match: wire.Tags(match)}
	if inBody != nil {
		m, ok := httpapi.ParseMatch(*inBody)
		if !ok {
			return workspace.Condition{}, wrong("ifMatchEtag", "ifMatchEtag is not an entity tag.")
		}
		tags := wire.Tags(m)
		if match.Present && !slices.Equal(tags, cond.Match) {
			return workspace.Condition{}, wrong("ifMatchEtag", "ifMatchEtag and If-Match name different tags.")
		}
		cond.Match = tags
	}
	none, err := httpapi.IfNoneMatch(c)
	if err != nil {
		return workspace.Condition{}, err
	}
	if none.Present && !none.Any {
		return workspace.Condition{}, wrong("If-None-Match", "A change takes If-None-Match with * only.")
	}
	cond.NoneMatchAny = none.Any
	return cond, nil
}

// stamp is a time as this dialect's bodies have it: ISO 8601, UTC,
// milliseconds. A listing of many entries is full of them, and package time is
// quick with RFC 3339 alone: the milliseconds are put in by hand.
func stamp(t time.Time) string {
	var room [40]byte
	b := t.UTC().AppendFormat(room[:0], time.RFC3339) // …:05Z
	ms := t.Nanosecond() / int(time.Millisecond)
	b = append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
	return string(b)
}

func stampNs(ns int64) string { return stamp(time.Unix(0, ns)) }
