// Package audit writes the lines of the log by which an owner can account for
// what was allowed: who opened, adopted or moved a workspace, reverted, purged,
// dropped history, made a backup, changed tokens or ran a program. Refused
// calls are logged by httpapi, with the same attribute audit=true.
package audit

import (
	"context"
	"log/slog"
)

// The acts.
const (
	Open      = "open"      // a directory became a workspace
	Adopt     = "adopt"     // a workspace took the directory that replaced its own
	Rebind    = "rebind"    // a workspace was bound to another path
	Revert    = "revert"    // changes were undone
	Restore   = "restore"   // files were set back to a commit
	Purge     = "purge"     // content was taken out of history
	Retention = "retention" // old history was dropped, or was asked to be
	Backup    = "backup"    // the data directory was copied
	Tokens    = "tokens"    // a token was added or removed, or tokens were turned off
	Exec      = "exec"      // a program or script was run
)

type key struct{}

type caller struct {
	log   *slog.Logger
	token string
}

// Into returns a context in which Allowed writes to log. The logger adds the
// request's id; token is the name of the caller's token, empty if it has none.
func Into(ctx context.Context, log *slog.Logger, token string) context.Context {
	return context.WithValue(ctx, key{}, caller{log, token})
}

// Allowed logs that an act was done, or for Exec begun, in a workspace; an empty
// workspace means none. Without Into it does nothing.
func Allowed(ctx context.Context, act, workspace string, more ...slog.Attr) {
	if c, ok := ctx.Value(key{}).(caller); ok {
		attrs := append([]slog.Attr{slog.Bool("audit", true), slog.String("act", act), slog.String("token", c.token), slog.String("workspace", workspace)}, more...)
		c.log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "allowed", attrs...)
	}
}
