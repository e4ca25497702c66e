package httpapi

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// FuzzTargets holds that every target gets an answer of the server, that a route
// takes the methods in its Allow, and that a parameter is decoded just once.
func FuzzTargets(f *testing.F) {
	for _, s := range []string{"/a/x/files/p%2Fq/diff", "/a//files", "/a/x/files/", "//", "/a/%00/files/%ff/diff", "/a/x/files/diff/diff", "/", "/b/../a/x", "/a/x/files/%25", "/b/%2F/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") || strings.ContainsAny(target, " \r\n") {
			return
		}
		var id, path string
		take := func(c *gin.Context) (err error) {
			if id, err = Param(c, "id"); err == nil {
				path, err = Param(c, "path")
			}
			return err
		}
		s := newServer(t, Options{},
			Route{Method: "GET", Pattern: "/a/{id}", Handler: take}, Route{Method: "PUT", Pattern: "/a/{id}/files", Handler: take},
			Route{Method: "GET", Pattern: "/a/{id}/files/{path...}", Handler: take}, Route{Method: "POST", Pattern: "/a/{id}/files/{path...}/diff", Handler: take},
			Route{Method: "GET", Pattern: "/b/{id}/c", Handler: take}, Route{Method: "GET", Pattern: "/b/fixed/c", Handler: take})
		ask := func(method string) *httptest.ResponseRecorder {
			req := httptest.NewRequest(method, "http://127.0.0.1/", nil)
			req.URL, req.RequestURI = u, target
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, req)
			return rec
		}
		allow := strings.Split(ask("OPTIONS").Header().Get("Allow"), ", ")
		for _, method := range []string{"GET", "PUT", "POST", "DELETE"} {
			id, path = "", ""
			rec := ask(method)
			if rec.Code >= 400 && !json.Valid(rec.Body.Bytes()) {
				t.Fatalf("%s %q: %d %s", method, target, rec.Code, rec.Body)
			}
			if taken := rec.Code == 200; taken != slices.Contains(allow, method) {
				t.Fatalf("%s %q: %d, and Allow says %v", method, target, rec.Code, allow)
			}
			if rec.Code != 200 || id == "" {
				continue
			}
			whole := "/a/" + id
			if path != "" {
				whole += "/files/" + path
			}
			if method == "POST" {
				whole += "/diff"
			}
			if strings.HasPrefix(target, "/a/") && method != "PUT" && whole != u.Path {
				t.Fatalf("%s %q: %q and %q", method, target, id, path)
			}
		}
	})
}
