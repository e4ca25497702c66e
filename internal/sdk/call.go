package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"umbra/internal/sandbox/luau"
)

// Session is the calls of one script. It is used by one goroutine at a time.
type Session struct {
	sdk   *SDK
	calls int
}

// Begin begins a script.
func (s *SDK) Begin() *Session { return &Session{sdk: s} }

// Calls counts what was sent.
func (s *Session) Calls() int { return s.calls }

// Functions are the content of the script's table sdk.
func (s *Session) Functions() []luau.Function {
	out := make([]luau.Function, len(s.sdk.functions))
	for i, f := range s.sdk.functions {
		out[i] = luau.Function{Path: append([]string{"sdk"}, f.path...), Do: func(ctx context.Context, args luau.Args) (luau.Result, error) {
			return s.call(ctx, f.op, args)
		}}
	}
	return out
}

func (s *Session) call(ctx context.Context, op *operation, args luau.Args) (luau.Result, error) {
	named := map[string]json.RawMessage{}
	if !args.Absent(0) {
		raw, ok, err := args.Table(0)
		if err != nil {
			return luau.Result{}, err
		}
		if !ok || json.Unmarshal(raw, &named) != nil {
			return luau.Result{}, raise("%s takes one table of arguments by name", op.name)
		}
	}
	req, err := op.request(named)
	if err != nil {
		return luau.Result{}, err
	}
	if s.calls >= s.sdk.o.MaxCalls {
		return luau.Result{}, raise("API call limit exceeded (%d calls)", s.sdk.o.MaxCalls)
	}
	s.calls++
	ctx, cancel := context.WithTimeout(ctx, s.sdk.o.Timeout)
	defer cancel()
	res, err := s.sdk.client.Do(req.WithContext(ctx))
	if err != nil {
		return luau.Result{}, unreachable(ctx, op)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, s.sdk.o.MaxBytes+1))
	switch {
	case err != nil:
		return luau.Result{}, unreachable(ctx, op)
	case int64(len(answer)) > s.sdk.o.MaxBytes:
		return luau.Result{}, raise("the answer of %s is larger than %d bytes", op.name, s.sdk.o.MaxBytes)
	case res.StatusCode >= 400:
		return luau.Result{}, op.failed(res.StatusCode, answer)
	case res.StatusCode >= 300:
		return luau.Result{}, raise("HTTP %d from %s: a redirect that is not followed", res.StatusCode, op.name)
	case res.StatusCode == http.StatusNoContent:
		return luau.Result{}, nil
	}
	if !isJSON(res.Header.Get("Content-Type")) {
		return luau.Result{Text: answer}, nil
	}
	if len(answer) == 0 {
		return luau.Result{}, nil
	}
	return luau.Result{JSON: answer}, nil
}

// unreachable is the error of a failed call, without Go's text, which names
// addresses.
func unreachable(ctx context.Context, op *operation) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return raise("%s did not answer in time", op.name)
	}
	return raise("%s could not be reached", op.name)
}

// sameOrigin lets redirects stay where they began, ten of them.
func sameOrigin(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	if req.URL.Scheme != from.Scheme || req.URL.Host != from.Host || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}
