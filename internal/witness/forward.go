package witness

import "context"

type forwardKey struct{}

// Forwardable returns the context of a request that another server answers as well, where
// that has the workspace: it is not taken from it for the request.
func Forwardable(ctx context.Context, workspace string) context.Context {
	return context.WithValue(ctx, forwardKey{}, workspace)
}

// IsForwardable returns the workspace that Forwardable was given.
func IsForwardable(ctx context.Context) (workspace string, ok bool) {
	workspace, ok = ctx.Value(forwardKey{}).(string)
	return workspace, ok
}

// AsForwardable returns ctx with what Forwardable said in another context.
func AsForwardable(ctx, of context.Context) context.Context {
	if at, ok := IsForwardable(of); ok {
		return Forwardable(ctx, at)
	}
	return ctx
}
