package tasks

import (
	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// fileMode reads a mode as X-File-Mode and bodies have it.
func fileMode(s, field string) (*object.Mode, error) {
	if m, ok := object.ParseMode(s); ok && (m == object.Regular || m == object.Executable) {
		return &m, nil
	}
	return nil, errs.New(errs.Invalid, "invalid_mode", "%s must be 100644 or 100755.", field).With("field", field)
}
