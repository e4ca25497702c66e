package wire

import (
	"net/http"

	"umbra/httpapi"
	"umbra/internal/errs"
)

// CallsOr answers 429 where an error is that too many calls are open; it returns any
// other error as it is.
func CallsOr(err error) error {
	if err != nil && errs.CodeOf(err) == "too_many_calls" {
		return Busy("too_many_calls", "Too many calls are open; end some of them first.")
	}
	return err
}

// Busy is a 429 that asks the client to wait ten seconds.
func Busy(code, detail string) error {
	return &httpapi.Problem{Status: http.StatusTooManyRequests, Kind: errs.Unavailable, Code: code, Detail: detail, Header: http.Header{"Retry-After": {"10"}}}
}
