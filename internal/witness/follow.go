package witness

import (
	"context"
	"time"
)

// Following says that a request is answered from the log that servers share, without
// the server that has the workspace.
type Following struct {
	Min   uint64    // the commit that the answer has to reflect
	Fresh bool      // it reflects every commit that was acknowledged before the request
	Until time.Time // how long it may wait for that commit
}

type followKey struct{}

// Follow returns a context of such a request.
func Follow(ctx context.Context, f Following) context.Context {
	return context.WithValue(ctx, followKey{}, f)
}

// Follows returns what Follow was given.
func Follows(ctx context.Context) (Following, bool) {
	f, ok := ctx.Value(followKey{}).(Following)
	return f, ok
}
