package workspaces

import (
	"io"
	"log/slog"
)

// debugLog gives a logger that tells everything.
func debugLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
