package httpapi

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// ETag is the tag of a file's content: W/"<git blob id>". It is weak as a seed
// shows it, though equal tags do mean equal bytes.
func ETag(blobID string) string { return `W/"` + blobID + `"` }

// Match is an If-Match or If-None-Match header (RFC 9110, section 13.1).
type Match struct {
	Present bool
	Any     bool     // *
	Tags    []string // opaque tags, without W/ and quotes
}

// Matches reports whether the content with this tag (or bare blob id) is meant.
// W/ is ignored; * means whatever exists. Nothing matches an absent header.
func (m Match) Matches(tag string, exists bool) bool {
	if !m.Present || !exists {
		return false
	}
	return m.Any || slices.Contains(m.Tags, opaque(tag))
}

func opaque(tag string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(tag, "W/"), `"`), `"`)
}

// IfMatch reads the request's If-Match; malformed is a 400.
func IfMatch(c *gin.Context) (Match, error) { return matchHeader(c, "If-Match") }

// IfNoneMatch reads the request's If-None-Match; malformed is a 400.
func IfNoneMatch(c *gin.Context) (Match, error) { return matchHeader(c, "If-None-Match") }

func matchHeader(c *gin.Context, name string) (Match, error) {
	values, ok := c.Request.Header[name]
	if !ok {
		return Match{}, nil
	}
	m, ok := ParseMatch(strings.Join(values, ","))
	if !ok {
		return Match{}, errs.New(errs.Invalid, "bad_etag", "%s must be * or entity tags with commas between, such as W/\"<id>\".", name).With("field", name)
	}
	return m, nil
}

// ParseMatch reads a list of entity tags or *.
func ParseMatch(s string) (m Match, ok bool) {
	m.Present = true
	if s = strings.TrimSpace(s); s == "*" {
		m.Any = true
		return m, true
	}
	for {
		s = strings.TrimLeft(s, " \t,")
		if s == "" {
			return m, len(m.Tags) > 0
		}
		s = strings.TrimPrefix(s, "W/")
		body, quoted := strings.CutPrefix(s, `"`)
		end := strings.IndexByte(body, '"')
		if !quoted || end < 0 || strings.ContainsFunc(body[:end], notTagChar) {
			return Match{}, false
		}
		m.Tags = append(m.Tags, body[:end])
		s = strings.TrimLeft(body[end+1:], " \t")
		if s != "" && s[0] != ',' {
			return Match{}, false
		}
	}
}

// notTagChar: etagc is any visible character but the quote.
func notTagChar(r rune) bool { return r <= 0x20 || r == 0x7f }
