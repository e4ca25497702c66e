// Package flagtext words the errors of command-line flags for users.
package flagtext

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"umbra/internal/strictjson"
)

// Error words pflag's error for a user: a flag that does not exist comes with
// the nearest one, a wrong value without the text of Go's parser.
func Error(set *pflag.FlagSet, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && len(e.GetSpecifiedName()) > 1 {
		var names []string
		set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := strictjson.Nearest(e.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("unknown flag --%s; did you mean --%s?", e.GetSpecifiedName(), near)
		}
		return err
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		reason := "it must be " + kinds[e.GetFlag().Value.Type()]
		if kinds[e.GetFlag().Value.Type()] == "" {
			reason = e.Unwrap().Error()
		}
		return fmt.Errorf("--%s %q: %s", e.GetFlag().Name, e.GetValue(), reason)
	}
	return err
}

// kinds are what a flag's value must be, by pflag's type, where Go's parser reports errors.
var kinds = map[string]string{"int": "a whole number", "int64": "a whole number", "uint": "a whole number from 0", "uint64": "a whole number from 0",
	"float64": "a number", "bool": "true or false", "duration": "a duration such as 90s or 36h"}
