package httpapi

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

func TestBodies(t *testing.T) {
	decode := func(c *gin.Context) error {
		var v struct {
			A string `json:"a"`
		}
		if err := DecodeJSON(c, &v); err != nil {
			return err
		}
		JSON(c, 200, v)
		return nil
	}
	raw := func(c *gin.Context) error {
		n, err := io.Copy(io.Discard, BodyReader(c))
		if err != nil {
			return errors.New("the cause is lost on the way")
		}
		JSON(c, 200, n)
		return nil
	}
	s := newServer(t, Options{MaxJSON: 64},
		Route{Method: "POST", Pattern: "/json", Body: BodyJSON, Handler: decode},
		Route{Method: "POST", Pattern: "/optional", Body: BodyOptionalJSON, Handler: decode},
		Route{Method: "PUT", Pattern: "/raw", Body: BodyRaw, MaxBody: 100, Handler: raw})
	long := `{"a":"` + strings.Repeat("x", 64) + `"}`
	for _, c := range []struct {
		target, body, contentType string
		status                    int
		code                      string
	}{
		{"/json", `{"a":"b"}`, "application/json", 200, ""},
		{"/json", `{"a":"b"}`, "application/json; charset=UTF-8", 200, ""},
		{"/json", `{"a":"b"}`, "application/problem+json", 200, ""},
		{"/json", `{"a":"b"}`, "", 415, "unsupported_media_type"},
		{"/json", `{"a":"b"}`, "text/plain", 415, "unsupported_media_type"},
		{"/json", `{"a":"b"}`, "application/json; charset=latin1", 415, "unsupported_media_type"},
		{"/json", `{"a":"b"}`, "application/x-www-form-urlencoded", 415, "unsupported_media_type"},
		{"/json", ``, "application/json", 400, "malformed_json"},
		{"/json", `{"a":"b"} {}`, "application/json", 400, "malformed_json"},
		{"/json", `{"a":"b","a":"c"}`, "application/json", 400, "malformed_json"},
		{"/json", "{\"a\":\"\xff\"}", "application/json", 400, "malformed_json"},
		{"/json", `{"a":1}`, "application/json", 400, "invalid_field"},
		{"/json", `[]`, "application/json", 400, "invalid_field"},
		{"/json", long, "application/json", 413, "body_too_large"},
		{"/optional", ``, "", 200, ""},
		{"/optional", ``, "application/json", 200, ""},
		{"/optional", `{}`, "text/plain", 415, "unsupported_media_type"},
		{"/optional", `{`, "application/json", 400, "malformed_json"},
	} {
		rec := s.ask("POST", c.target, c.body, headerOf("Content-Type", c.contentType)...)
		if c.code == "" {
			if rec.Code != c.status {
				t.Errorf("%+v: %d %s", c, rec.Code, rec.Body)
			}
			continue
		}
		expect(t, rec, c.status, c.code)
	}
	if rec := s.ask("POST", "/json", `{"a":1}`, jsonType); field(t, rec, "field") != "a" {
		t.Error(rec.Body)
	}
	// A body of unknown length is bounded while it is read.
	for n, want := range map[int]int{100: 200, 101: 413} {
		req := httptest.NewRequest("PUT", "http://127.0.0.1/raw", io.MultiReader(strings.NewReader(strings.Repeat("x", n))))
		req.ContentLength = -1
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, req)
		if rec.Code != want {
			t.Errorf("%d bytes: %d %s", n, rec.Code, rec.Body)
		}
	}
}

func headerOf(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{name + ": " + value}
}

func TestContent(t *testing.T) {
	serve := func(c *gin.Context) error {
		return ServeContent(c, Content{ETag: ETag("abc"), Filename: `na"më.txt`, ModTime: time.Unix(1e9, 0), Size: 10, Body: strings.NewReader("0123456789")})
	}
	s := newServer(t, Options{}, Route{Method: "GET", Pattern: "/x", Handler: serve})
	for _, c := range []struct {
		header string
		status int
		body   string
	}{
		{"X: y", 200, "0123456789"}, {"Range: bytes=2-4", 206, "234"}, {"Range: bytes=-3", 206, "789"}, {"Range: bytes=20-", 416, ""},
		{`If-None-Match: W/"abc"`, 304, ""}, {`If-None-Match: "abc"`, 304, ""}, {`If-None-Match: "x"`, 200, "0123456789"},
		{`If-Match: "abc"`, 200, "0123456789"}, {`If-Match: W/"abc"`, 200, "0123456789"}, {`If-Match: *`, 200, "0123456789"},
		{`If-Match: "x"`, 412, ""}, {`If-Match: x`, 400, ""},
	} {
		rec := s.ask("GET", "/x", "", c.header)
		if rec.Code != c.status || c.body != "" && rec.Body.String() != c.body {
			t.Errorf("%s: %d %s", c.header, rec.Code, rec.Body)
		}
	}
	rec := s.ask("GET", "/x", "", "Range: bytes=20-")
	expect(t, rec, 416, "range_not_satisfiable")
	if rec.Header().Get("Content-Range") != "bytes */10" || rec.Header().Get("Content-Type") != "application/json; charset=utf-8" {
		t.Error(rec.Header())
	}
	h := s.ask("GET", "/x", "").Header()
	if h.Get("ETag") != `W/"abc"` || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Disposition") != `attachment; filename=na_m_.txt; filename*=UTF-8''na%22m%C3%AB.txt` {
		t.Error(h)
	}
}

func TestMatches(t *testing.T) {
	for header, want := range map[string]string{
		`"a"`: "a", `W/"a"`: "a", `"a", W/"b"`: "a b", `*`: "*", `"a","b" , "c"`: "a b c", ` "a" `: "a", `, "a",`: "a", `""`: "", "\"\xe9\"": "\xe9",
		`a`: "!", `"a`: "!", `"a" "b"`: "!", `w/"a"`: "!", ``: "!", `,`: "!", `*, "a"`: "!", `"a b"`: "!", `W/`: "!", `"a"x`: "!",
	} {
		m, ok := ParseMatch(header)
		got := strings.Join(m.Tags, " ")
		if m.Any {
			got = "*"
		}
		if !ok {
			got = "!"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", header, got, want)
		}
	}
	m, _ := ParseMatch(`W/"a", "b"`)
	if !m.Matches(`W/"b"`, true) || !m.Matches("a", true) || m.Matches("a", false) || m.Matches("c", true) || (Match{}).Matches("a", true) {
		t.Error("Matches")
	}
}

func FuzzParseMatch(f *testing.F) {
	f.Add(`W/"a", "b"`)
	f.Add(`*`)
	f.Fuzz(func(t *testing.T, s string) {
		m, ok := ParseMatch(s)
		if ok && !m.Any && len(m.Tags) == 0 {
			t.Fatalf("%q matches nothing", s)
		}
		for _, tag := range m.Tags {
			if again, ok := ParseMatch(ETag(tag)); !ok || !again.Matches(tag, true) {
				t.Fatalf("%q: tag %q is none", s, tag)
			}
		}
	})
}

func TestQueries(t *testing.T) {
	h := func(c *gin.Context) error {
		n, err := QueryInt(c, "n", 7, 1, 10)
		if err != nil {
			return err
		}
		b, err := QueryBool(c, "b", true)
		if err != nil {
			return err
		}
		after, given, err := LastEventID(c)
		if err != nil {
			return err
		}
		c.String(200, "%d %v %d %v", n, b, after, given)
		return nil
	}
	s := newServer(t, Options{}, Route{Method: "GET", Pattern: "/x?n&b&after", Handler: h})
	for target, want := range map[string]string{
		"/x": "7 true 0 false", "/x?n=10&b=false&after=0": "10 false 0 true", "/x?b=1": "7 true 0 false",
		"/x?n=0": "", "/x?n=11": "", "/x?n=x": "", "/x?n=1&n=2": "", "/x?b=yes": "", "/x?after=-1": "", "/x?n=%zz": "", "/x?n=1;b=1": "",
	} {
		rec := s.ask("GET", target, "")
		if want == "" {
			expect(t, rec, 400, "invalid_parameter")
		} else if rec.Body.String() != want {
			t.Errorf("%s: %s", target, rec.Body)
		}
	}
	if rec := s.ask("GET", "/x?after=3", "", "Last-Event-ID: 9"); rec.Body.String() != "7 true 9 true" {
		t.Error(rec.Body)
	}
}

// A parameter that would be ignored may have meant that less is deleted, or listed.
func TestUnknownQuery(t *testing.T) {
	deleted := 0
	h := func(c *gin.Context) error {
		deleted++
		c.Status(204)
		return nil
	}
	s := newServer(t, Options{}, Route{Method: "DELETE", Pattern: "/x?force&path", Handler: h},
		Route{Method: "DELETE", Pattern: "/none", Handler: h}, Route{Method: "POST", Pattern: "/x", Handler: h, AnyQuery: true}, Route{Method: "GET", Pattern: "/x?limit&task_id", Handler: h})
	for target, near := range map[string]string{"/x?dry_run=true": "", "/x?path=a&Force=1": "force", "/none?path=a": "", "/x?": "fine", "/x?force=1&path=a": "fine"} {
		rec := s.ask("DELETE", target, "")
		if near == "fine" {
			if rec.Code != 204 {
				t.Errorf("%s: %d %s", target, rec.Code, rec.Body)
			}
			continue
		}
		expect(t, rec, 400, "invalid_parameter")
		if got := strings.Contains(rec.Body.String(), `"did_you_mean":"force"`); got != (near == "force") {
			t.Errorf("%s: %s", target, rec.Body)
		}
	}
	if deleted != 2 {
		t.Errorf("deleted %d times", deleted)
	}
	for _, method := range []string{"POST", "GET"} {
		if rec := s.ask(method, "/x?trace=1", ""); rec.Code != 204 {
			t.Error(method, "with a parameter of others:", rec.Code)
		}
	}
	for target, near := range map[string]string{"/x?limti=5": "limit", "/x?taskId=a": "task_id", "/x?limit=%zz": "", "/x?a;b": ""} {
		rec := s.ask("GET", target, "")
		expect(t, rec, 400, "invalid_parameter")
		if near != "" && !strings.Contains(rec.Body.String(), `"did_you_mean":"`+near+`"`) {
			t.Errorf("%s: %s", target, rec.Body)
		}
	}
}
