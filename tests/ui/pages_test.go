package ui

import (
	"regexp"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// The page and its files: policy, caching, compression, and 404s that stay.
func TestPageAndFiles(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	page := s.Do("GET", "/", nil)
	if page.Status != 200 {
		need.Missing(t, "the program has no web UI: make embed")
	}
	policy := page.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || page.Header.Get("X-Content-Type-Options") != "nosniff" || page.Header.Get("Cache-Control") != "no-cache" {
		t.Error(page.Header)
	}
	body := string(page.Body)
	if regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script[^>]*>[^<]`).MatchString(body) || strings.Contains(body, "://") {
		t.Errorf("something stands in the page itself: %s", body)
	}
	if r := s.Do("GET", "/", nil, "If-None-Match: "+page.Header.Get("ETag")); r.Status != 304 || len(r.Body) != 0 {
		t.Errorf("the same page again: %d", r.Status)
	}
	if r := s.Do("HEAD", "/", nil).Expect(200); len(r.Body) != 0 || r.Header.Get("Content-Length") != page.Header.Get("Content-Length") {
		t.Error(r.Header)
	}

	files := regexp.MustCompile(`"(/ui/[^"]+)"`).FindAllStringSubmatch(body, -1)
	if len(files) != 4 {
		t.Fatalf("the page names %v", files)
	}
	for _, f := range files {
		plain := s.Do("GET", f[1], nil).Expect(200)
		if cache := plain.Header.Get("Cache-Control"); !strings.Contains(cache, "immutable") || !strings.Contains(cache, "max-age=31536000") {
			t.Errorf("%s: %s", f[1], cache)
		}
		packed := s.Do("GET", f[1], nil, "Accept-Encoding: br, gzip;q=0.5").Expect(200)
		if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("ETag") == plain.Header.Get("ETag") {
			t.Errorf("%s: %v", f[1], packed.Header)
		}
		if r := s.Do("GET", f[1], nil, "Accept-Encoding: gzip;q=0").Expect(200); r.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is sent packed to who refuses it", f[1])
		}
		if r := s.Do("GET", f[1], nil, "If-None-Match: "+plain.Header.Get("ETag")); r.Status != 304 {
			t.Errorf("%s again: %d", f[1], r.Status)
		}
	}
	for _, target := range []string{"/ui", "/ui/", "/ui/nothing.js", "/ui/index.html", "/ui/README", "/ui/..%2fopenapi.yaml", "/index.html", "/tasks.html", "/.well-known/security.txt"} {
		s.Do("GET", target, nil).ExpectError(404, "not_found")
	}
	s.Do("POST", "/", nil).ExpectError(405, "method_not_allowed")
}

// What others wrote is never a page of ours: whatever answer is opened in a
// browser, it is sandboxed and taken for what it says it is.
func TestAnswersAreNoPages(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir := t.TempDir()
	s.Do("POST", "/tasks", map[string]any{"goal": "<script>alert(1)</script>", "workspace": dir, "task_id": "t"}).Expect(201)
	s.Do("PUT", "/tasks/t/content?path=a.html", "<script>alert(1)</script>").Expect(201)
	s.Do("PUT", "/tasks/t/artifacts/a.html", "<script>alert(1)</script>").Expect(201)
	for _, target := range []string{"/tasks/t/content?path=a.html", "/tasks/t/content?path=a.html&at=head", "/tasks/t/artifacts/a.html", "/tasks/t/diff", "/tasks/t/patches",
		"/tasks/t", "/tasks/t/changes", "/tasks/t/files", "/tasks/none/content?path=a.html", "/nothing/<script>"} {
		r := s.Do("GET", target, nil)
		policy := r.Header.Get("Content-Security-Policy")
		if r.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(policy, "sandbox") || !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: %v", target, r.Header)
		}
		if kind := r.Header.Get("Content-Type"); strings.Contains(kind, "html") || strings.Contains(kind, "xml") || strings.Contains(kind, "script") {
			t.Errorf("%s is sent as %s", target, kind)
		}
	}
}
