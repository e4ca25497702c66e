//go:build !linux

package room

import "errors"

func statfs(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
