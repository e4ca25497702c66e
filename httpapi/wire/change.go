package wire

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// By says whose a request's change is; the task is the caller's to fill in.
func By(c *gin.Context, key string) workspace.By {
	tags := httpapi.TagsOf(c)
	return workspace.By{SubtaskID: tags.SubtaskID, Actor: tags.Actor, Message: tags.Message, Source: message.API, RequestID: httpapi.RequestID(c), IdempotencyKey: key}
}

// KeyHash is the form of the request's idempotency key in history, empty without
// a key. The body has been read.
func KeyHash(c *gin.Context) (string, error) {
	if i := httpapi.IdempotencyOf(c); i != nil {
		return i.KeyHash()
	}
	return "", nil
}

// SettleKey reports to the frame what became of the request's key.
func SettleKey(c *gin.Context, replayed, inHistory bool) {
	i := httpapi.IdempotencyOf(c)
	if i == nil {
		return
	}
	if replayed {
		i.Replayed()
	}
	if inHistory {
		i.InHistory()
	}
}

// Tags gives an If-Match as the write service takes it. A tag that is none of
// ours matches nothing, and must not become "no condition".
func Tags(m httpapi.Match) []string {
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
			out[i] = "" // "*" in quotes least of all
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// HeaderMode reads X-File-Mode, nil where it is not given.
func HeaderMode(c *gin.Context) (*object.Mode, error) {
	values := c.Request.Header.Values("X-File-Mode")
	if len(values) == 0 {
		return nil, nil
	}
	if m, ok := object.ParseMode(values[0]); ok && len(values) == 1 && (m == object.Regular || m == object.Executable) {
		return &m, nil
	}
	return nil, errs.New(errs.Invalid, "invalid_mode", "X-File-Mode must be 100644 or 100755.").With("field", "X-File-Mode")
}
