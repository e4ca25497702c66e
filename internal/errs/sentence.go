package errs

import (
	"errors"
)

// Sentence gives the sentence of an error that has one for people.
func Sentence(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Detail != "" && e.Err == nil {
		return errors.New(e.Detail)
	}
	return err
}
