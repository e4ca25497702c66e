// Package blobtest helps tests of what uses a blob.Store: an S3 server, in memory or
// a real one, that can be slow, broken or wrong, and the suite that every store passes.
package blobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"umbra/internal/blob"
)

// What the server accepts.
const (
	Bucket    = "packs"
	AccessKey = "AKIATESTTESTTEST"
	SecretKey = "a/secret+of-the-test"
)

// Server is an S3 server that can be slow, broken or wrong. What it does not fail
// is served by its backend: a memory, or versitygw. Keys, With, Uploads and Page are of
// a server in memory alone.
type Server struct {
	URL string
	*memory

	backend  http.Handler
	mu       sync.Mutex
	faults   Faults
	requests map[string]int // by method
	failed   int
}

// Faults is how a server fails. The zero value is a healthy one.
type Faults struct {
	Times   int           // so many requests fail, then none; 0: all
	Method  string        // only requests with it; empty: all
	Delay   time.Duration // before each answer
	Status  int           // answered in place of the operation
	Code    string        // the error code with Status
	Cut     int           // bodies end after so many bytes; -1: before the first
	Hang    bool          // bodies stop after Cut bytes and stay open
	Whole   bool          // ranges are ignored
	Swallow bool          // a PUT is done, and its connection closed without an answer
}

// Start starts a server in memory that ends with the test.
func Start(t testing.TB) *Server {
	m := &memory{objects: map[string]object{}, parts: map[string]map[int][]byte{}, pageSize: 1000}
	return start(t, &Server{memory: m, backend: m})
}

func start(t testing.TB, s *Server) *Server {
	s.requests = map[string]int{}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// Credentials returns the environment of a program that uses the server.
func Credentials() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey}
}

// At returns the URL, as cluster.blobs has it, of a store below prefix at an endpoint.
func At(endpoint, prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?region=us-east-1&path_style=true&endpoint=" + endpoint
}

// Location returns where a store below prefix is.
func (s *Server) Location(prefix string) blob.Location {
	return blob.Location{Bucket: Bucket, Prefix: prefix, Endpoint: s.URL, Region: "us-east-1", PathStyle: true}
}

// Env sets the environment variables in which the SDK finds the server's
// credentials and nothing else.
func Env(t testing.TB, access, secret string) {
	set := t.(interface{ Setenv(key, value string) }).Setenv
	for _, name := range []string{"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		set(name, "")
	}
	set("AWS_ACCESS_KEY_ID", access)
	set("AWS_SECRET_ACCESS_KEY", secret)
	set("AWS_CONFIG_FILE", "/nonexistent")
	set("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	set("AWS_EC2_METADATA_DISABLED", "true")
}

// Fail sets how the server fails from now on.
func (s *Server) Fail(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Requests returns how many requests with a method there were.
func (s *Server) Requests(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[method]
}

// Failed returns how many requests met a fault.
func (s *Server) Failed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// fault returns how this request fails.
func (s *Server) fault(method string) Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[method]++
	f := s.faults
	if f.Method != "" && f.Method != method {
		return Faults{}
	}
	if f != (Faults{}) {
		s.failed++
	}
	if s.faults.Times > 0 {
		if s.faults.Times--; s.faults.Times == 0 {
			s.faults = Faults{}
		}
	}
	return f
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.fault(r.Method)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return
		}
	}
	if f.Status > 0 {
		refuse(w, f.Status, f.Code)
		return
	}
	if f.Whole {
		r.Header.Del("Range")
		r.Header.Set("Authorization", sign(r))
	}
	if _, key := place(r); f.Cut != 0 && r.Method == http.MethodGet && key != "" {
		w = &cutter{ResponseWriter: w, f: f, gone: r.Context().Done()}
	}
	if f.Swallow {
		s.backend.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	s.backend.ServeHTTP(w, r)
}

// place returns the bucket and the key that a request is about.
func place(r *http.Request) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return bucket, key
}

// cutter ends an object's body early.
type cutter struct {
	http.ResponseWriter
	f      Faults
	gone   <-chan struct{} // the client is
	failed bool            // it is the body of an error
	sent   int
}

func (c *cutter) WriteHeader(status int) {
	c.failed = status >= http.StatusMultipleChoices
	c.ResponseWriter.WriteHeader(status)
}

func (c *cutter) Write(data []byte) (int, error) {
	if left := max(c.f.Cut, 0) - c.sent; !c.failed && left < len(data) {
		_, _ = c.ResponseWriter.Write(data[:left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		if c.f.Hang {
			<-c.gone
		}
		panic(http.ErrAbortHandler)
	}
	c.sent += len(data)
	return c.ResponseWriter.Write(data)
}

// sign returns the Authorization that a request would have with the server's
// credentials, and the headers that it signs as far as it has them; empty: none.
func sign(r *http.Request) string {
	got := r.Header.Get("Authorization")
	_, rest, _ := strings.Cut(got, "/")
	scope := strings.Split(rest, "/") // day, region, service, …
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || len(scope) < 3 {
		return ""
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), nil)
	if err != nil {
		return ""
	}
	again.ContentLength = r.ContentLength
	_, signed, _ := strings.Cut(got, "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	for name := range strings.SplitSeq(signed, ";") {
		if values := r.Header.Values(name); name != "content-length" && len(values) > 0 {
			again.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	keys := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(context.Background(), keys, again, r.Header.Get("X-Amz-Content-Sha256"), scope[2], scope[1], at)
	if err != nil {
		return ""
	}
	return again.Header.Get("Authorization")
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>Said by the test.</Message></Error>", code)
}
