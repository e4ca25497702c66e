package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Response is an answer, read whole.
type Response struct {
	Status int
	Header http.Header
	Body   []byte

	t testing.TB
}

// Do sends a request and reads the answer, which must fit the OpenAPI document.
// target is the path and query as they are to be sent. body is nil, a string,
// []byte or io.Reader as it stands, or anything else as JSON. Headers are
// "Name: value".
func (s *Server) Do(method, target string, body any, headers ...string) *Response {
	s.t.Helper()
	res := s.send(context.Background(), method, target, body, headers)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	r := &Response{Status: res.StatusCode, Header: res.Header, Body: data, t: s.t}
	if err := s.checkAnswer(method, target, r); err != nil {
		s.t.Errorf("%s %s: %d %s\ndoes not fit the OpenAPI document: %v", method, target, r.Status, brief(data), err)
	}
	return r
}

func (s *Server) send(ctx context.Context, method, target string, body any, headers []string) *http.Response {
	s.t.Helper()
	var reader io.Reader
	isJSON := false
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	case io.Reader:
		reader = b
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		reader, isJSON = bytes.NewReader(raw), true
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+target, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.opts.Token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch name {
		case "Host":
			req.Host = value
		default:
			req.Header.Set(name, value)
		}
	}
	res, err := s.Client.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	return res
}

// Expect fails the test unless the status is as wanted.
func (r *Response) Expect(status int) *Response {
	r.t.Helper()
	if r.Status != status {
		r.t.Fatalf("status %d, want %d: %s", r.Status, status, brief(r.Body))
	}
	return r
}

// ExpectError fails the test unless the answer is this error.
func (r *Response) ExpectError(status int, code string) *Response {
	r.t.Helper()
	if got, _ := r.Field("error").(string); r.Status != status || got != code {
		r.t.Fatalf("%d %s, want %d %s: %s", r.Status, got, status, code, brief(r.Body))
	}
	return r
}

// JSON reads the body into v.
func (r *Response) JSON(v any) *Response {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.t.Fatalf("%v: %s", err, brief(r.Body))
	}
	return r
}

// Field gives one member of a JSON object, nil if it is not there. Names with
// dots lead into objects.
func (r *Response) Field(name string) any {
	r.t.Helper()
	var v any
	r.JSON(&v)
	for part := range strings.SplitSeq(name, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// Text gives a member that is a string.
func (r *Response) Text(name string) string {
	r.t.Helper()
	s, ok := r.Field(name).(string)
	if !ok {
		r.t.Fatalf("%s is no string: %s", name, brief(r.Body))
	}
	return s
}

func brief(data []byte) string {
	if len(data) > 2000 {
		return string(data[:2000]) + "…"
	}
	return string(data)
}

// Event is one that a stream sent; a comment has nothing but Comment.
type Event struct {
	ID, Name, Data string
	Comment        bool
}

// Stream is an open text/event-stream.
type Stream struct {
	t      testing.TB
	cancel context.CancelFunc
	body   io.ReadCloser
	lines  *bufio.Reader
}

// Stream opens one; it is closed at the test's end.
func (s *Server) Stream(target string, headers ...string) *Stream {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	res := s.send(ctx, http.MethodGet, target, nil, headers)
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		data, _ := io.ReadAll(res.Body)
		cancel()
		s.t.Fatalf("GET %s: %s %s", target, res.Status, brief(data))
	}
	st := &Stream{t: s.t, cancel: cancel, body: res.Body, lines: bufio.NewReader(res.Body)}
	s.t.Cleanup(st.Close)
	return st
}

// Close ends the stream.
func (st *Stream) Close() {
	st.cancel()
	st.body.Close()
}

// Next waits for the next event or comment; ok is false at the stream's end.
func (st *Stream) Next() (e Event, ok bool) {
	for {
		line, err := st.lines.ReadString('\n')
		if err != nil {
			return e, false
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return e, true
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			e.Comment = true
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			if e.Data != "" {
				e.Data += "\n"
			}
			e.Data += value
		}
	}
}
