//go:build !linux

package tests

import "errors"

// exchange swaps two names, which has no call here.
func exchange(string, string) error { return errors.ErrUnsupported }
