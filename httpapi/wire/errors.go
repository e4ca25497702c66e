package wire

import (
	"errors"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// WithFields returns a shape in which the other fields of the write service's
// errors (paths, tags, what is not recorded) have their wire form.
func WithFields(s httpapi.Shape) httpapi.Shape {
	body := s.Body
	s.Body = func(c *gin.Context, p *httpapi.Problem) any {
		withFields := *p
		withFields.Fields = fields(p)
		return body(c, &withFields)
	}
	return s
}

func fields(p *httpapi.Problem) map[string]any {
	out := make(map[string]any, len(p.Fields)+2)
	for k, v := range p.Fields {
		switch v := v.(type) {
		case []workspace.Skip:
			out[k] = SkipsOf(v)
		case object.ID:
			out[k] = v.String()
		default:
			out[k] = v
		}
	}
	if tag, ok := p.Fields["etag"]; ok {
		out["etag"] = etagField(tag)
	}
	if e, ok := errors.AsType[*errs.Error](p.Err); ok && e.Path != "" && e.Kind != errs.Internal {
		setPath(out, "path", e.Path)
	}
	return out
}

// etagField gives the tag of a blob id that an error names.
func etagField(v any) any {
	switch v := v.(type) {
	case object.ID:
		return httpapi.ETag(v.String())
	case string:
		if _, err := object.ParseID(v); err == nil {
			return httpapi.ETag(v)
		}
	}
	return v
}

func setPath(m map[string]any, key, path string) {
	text, encoding := wspath.EncodeJSON(path)
	m[key] = text
	if encoding != "" {
		m[key+"_encoding"] = encoding
	}
}
