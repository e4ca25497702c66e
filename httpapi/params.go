package httpapi

import (
	"maps"
	"net/http"
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
	query, err := queryOf(c)
	if err != nil {
		return "", false, err
	}
	switch list := query[name]; len(list) {
	case 0:
		return "", false, nil
	case 1:
		return list[0], true, nil
	default:
		return "", false, errs.New(errs.Invalid, "invalid_parameter", "%s is given %d times.", name, len(list)).With("field", name)
	}
}

// queryOf parses the query string, once a request.
func queryOf(c *gin.Context) (url.Values, error) {
	f := factsOf(c)
	if f.query == nil {
		values, err := url.ParseQuery(c.Request.URL.RawQuery)
		if err != nil {
			return nil, errs.New(errs.Invalid, "invalid_parameter", "The query string is not percent-encoded correctly.")
		}
		f.query = values
	}
	return f.query, nil
}

// onlyQuery refuses a query parameter that the route does not take: it would be
// ignored, so that a list has everything, or a delete deletes more than was meant. A
// read ignores one whose name is near none of its own: a cache's or a tracer's. A name
// of fields, those of the route's JSON body, is refused as one. What another node asks for
// of a list has a parameter of its own.
func onlyQuery(c *gin.Context, fields []string) error {
	f := factsOf(c)
	rt := f.route
	if c.Request.URL.RawQuery == "" || rt == nil || rt.AnyQuery || rt.Internal || f.received != nil && f.received.Part {
		return nil
	}
	query, err := queryOf(c)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(rt.query, name) {
			continue
		}
		if field := strictjson.Nearest(name, fields); field != "" {
			return errs.New(errs.Invalid, "invalid_parameter", "%s is a field of the JSON body, not a parameter of the query.", field).With("field", field)
		}
		near := strictjson.Nearest(name, rt.query)
		if near == "" && rt.Method == http.MethodGet {
			continue
		}
		takes := "none"
		if len(rt.query) > 0 {
			takes = strings.Join(rt.query, ", ")
		}
		e := errs.New(errs.Invalid, "invalid_parameter", "Unknown query parameter %s; this route takes: %s.", printable(name, 64), takes).With("field", printable(name, 64))
		if near != "" {
			e = e.With("did_you_mean", near)
			e.Detail += " Did you mean " + near + "?"
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
