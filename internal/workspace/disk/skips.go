package disk

import (
	"context"
	"errors"
	"sync"

	"umbra/internal/errs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Skips gathers what is left out, from several goroutines.
type Skips struct {
	mu   sync.Mutex
	List []op.Skip
}

func (s *Skips) Add(p wspath.Path, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.List = append(s.List, op.Skip{Path: string(p), Reason: reason})
}

// SkipReason says why a file is left out; empty for one that is gone.
func SkipReason(err error) (reason string, fatal bool) {
	switch code := errs.CodeOf(err); {
	case IsAbsent(err):
		return "", false
	case code == "file_changing":
		return "changing", false
	case code == "special_file":
		return "special", false
	case code == "sha1_collision":
		return code, false
	case errs.Is(err, errs.Forbidden), code == "io_error":
		return "unreadable", false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errs.Is(err, errs.Canceled), code == "out_of_descriptors", errs.Is(err, errs.NoSpace):
		return "", true
	}
	return "unreadable", false
}
