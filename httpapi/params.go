package httpapi

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/strictjson"
)

// Query gives a query parameter, decoded once. A malformed query string and a
// parameter given twice are a 400 that names it.
func Query(c *gin.Context, name string) (value string, present bool, err error) {
	f := factsOf(c)
	if f.query == nil {
		values, err := url.ParseQuery(c.Request.URL.RawQuery)
		if err != nil {
			return "", false, errs.New(errs.Invalid, "invalid_parameter", "The query string is malformed.").With("field", name)
		}
		f.query = values
	}
	switch list := f.query[name]; len(list) {
	case 0:
		return "", false, nil
	case 1:
		return list[0], true, nil
	default:
		return "", false, errs.New(errs.Invalid, "invalid_parameter", "%s is given %d times.", name, len(list)).With("field", name)
	}
}

// onlyQuery refuses a query parameter that is not one of these names.
func onlyQuery(c *gin.Context, names []string) error {
	if c.Request.URL.RawQuery == "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Request.URL.Query())) {
		if slices.Contains(names, name) {
			continue
		}
		takes := "none"
		if len(names) > 0 {
			takes = strings.Join(names, ", ")
		}
		e := errs.New(errs.Invalid, "invalid_parameter", "The query parameter %s is not known here, and nothing was deleted; this route takes: %s.",
			printable(name, 64), takes).With("field", printable(name, 64))
		if near := strictjson.Nearest(name, names); near != "" {
			e = e.With("did_you_mean", near)
		}
		return e
	}
	return nil
}

// QueryInt gives an integer parameter within [low, high], or what it is by default.
func QueryInt(c *gin.Context, name string, byDefault, low, high int64) (int64, error) {
	s, ok, err := Query(c, name)
	if err != nil || !ok {
		return byDefault, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		return 0, errs.New(errs.Invalid, "invalid_parameter", "%s must be an integer from %d to %d.", name, low, high).With("field", name)
	}
	return n, nil
}

// QueryBool gives a parameter that is true, false, 1 or 0, or what it is by default.
func QueryBool(c *gin.Context, name string, byDefault bool) (bool, error) {
	s, ok, err := Query(c, name)
	if err != nil || !ok {
		return byDefault, err
	}
	switch s {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, errs.New(errs.Invalid, "invalid_parameter", "%s must be true or false.", name).With("field", name)
}
