// Package blobtest helps tests of what uses a blob.Store: an S3 server in memory
// that can be slow, broken or wrong, and the suite that every store passes.
package blobtest

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
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

// Server is an S3 server that keeps objects in memory and checks each signature.
// It knows what blob.S3 uses: objects, ranges, parts, and lists by path style.
type Server struct {
	URL string

	mu       sync.Mutex
	objects  map[string]object
	parts    map[string]map[int][]byte // of uploads that are not completed
	faults   Faults
	requests map[string]int // by method
	pageSize int
}

type object struct {
	data     []byte
	etag     string
	modified time.Time
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

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	s := &Server{objects: map[string]object{}, parts: map[string]map[int][]byte{}, requests: map[string]int{}, pageSize: 1000}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// Location returns where a store below prefix is.
func (s *Server) Location(prefix string) blob.Location {
	return blob.Location{Bucket: Bucket, Prefix: prefix, Endpoint: s.URL, Region: "eu-test-1", PathStyle: true}
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

// Page sets how many objects an answer lists.
func (s *Server) Page(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = n
}

// Requests returns how many requests with a method there were.
func (s *Server) Requests(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[method]
}

// Keys returns all keys with their prefixes, sorted.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// With returns the keys of the objects that contain some bytes, in order.
func (s *Server) With(data []byte) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		if bytes.Contains(o.data, data) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Uploads returns how many uploads in parts are neither completed nor aborted.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parts)
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
	if code := s.authorize(r, body); code != "" {
		refuse(w, http.StatusForbidden, code)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != Bucket {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if f.Swallow {
		w = deaf{httptest.NewRecorder()}
	}
	s.serve(w, r, f, key, body)
	if f.Swallow {
		panic(http.ErrAbortHandler)
	}
}

// deaf is an answer that is not sent.
type deaf struct{ *httptest.ResponseRecorder }

func (s *Server) serve(w http.ResponseWriter, r *http.Request, f Faults, key string, body []byte) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && key == "":
		s.list(w, query)
	case r.Method == http.MethodGet:
		s.get(w, r, f, key)
	case query.Has("versioning"):
		answer(w, struct {
			XMLName xml.Name `xml:"VersioningConfiguration"`
		}{})
	case query.Has("uploads"), query.Has("uploadId"):
		s.upload(w, r.Method, query, key, body)
	case r.Method == http.MethodPut:
		s.put(w, key, body)
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>Said by the test.</Message></Error>", code)
}

// authorize signs the request again and compares; the result is an error code.
func (s *Server) authorize(r *http.Request, body []byte) string {
	got := r.Header.Get("Authorization")
	id, rest, ok := strings.Cut(strings.TrimPrefix(got, "AWS4-HMAC-SHA256 Credential="), "/")
	if !ok {
		return "AccessDenied"
	}
	if id != AccessKey {
		return "InvalidAccessKeyId"
	}
	sum := sha256.Sum256(body)
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if hash != hex.EncodeToString(sum[:]) {
		return "XAmzContentSHA256Mismatch"
	}
	scope := strings.Split(rest, "/") // day, region, service, …
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || len(scope) < 3 {
		return "AccessDenied"
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), nil)
	if err != nil {
		return "AccessDenied"
	}
	again.ContentLength = r.ContentLength
	_, signed, _ := strings.Cut(got, "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	for name := range strings.SplitSeq(signed, ";") {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	keys := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(context.Background(), keys, again, hash, scope[2], scope[1], at)
	if err != nil || again.Header.Get("Authorization") != got {
		return "SignatureDoesNotMatch"
	}
	return ""
}

func (s *Server) put(w http.ResponseWriter, key string, body []byte) {
	sum := md5.Sum(body)
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	s.mu.Lock()
	s.objects[key] = object{body, etag, time.Now()}
	s.mu.Unlock()
	w.Header().Set("ETag", etag)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, f Faults, key string) {
	s.mu.Lock()
	o, ok := s.objects[key]
	s.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != o.etag {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	status, data := http.StatusOK, o.data
	var from, to int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil && !f.Whole {
		if from >= len(data) {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		to = min(to, len(data)-1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
		status, data = http.StatusPartialContent, data[from:to+1]
	}
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if f.Cut == 0 || f.Cut >= len(data) {
		_, _ = w.Write(data)
		return
	}
	_, _ = w.Write(data[:max(f.Cut, 0)])
	_ = http.NewResponseController(w).Flush()
	if f.Hang {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) upload(w http.ResponseWriter, method string, query url.Values, key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := query.Get("uploadId")
	if query.Has("uploads") {
		id = strconv.Itoa(len(s.parts) + 1)
		s.parts[id] = map[int][]byte{}
		answer(w, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: id})
		return
	}
	parts := s.parts[id]
	if parts == nil {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch method {
	case http.MethodPut:
		number, _ := strconv.Atoi(query.Get("partNumber"))
		parts[number] = body
		w.Header().Set("ETag", strconv.Quote(strconv.Itoa(number)))
	case http.MethodDelete:
		delete(s.parts, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		var whole bytes.Buffer
		for i := range len(parts) {
			whole.Write(parts[i+1])
		}
		s.objects[key] = object{whole.Bytes(), strconv.Quote("parts-" + id), time.Now()}
		delete(s.parts, id)
		answer(w, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			ETag    string
		}{ETag: `"parts"`})
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v)
}

// listed is one object of a list.
type listed struct {
	Key          string
	LastModified string
	Size         int
}

func (s *Server) list(w http.ResponseWriter, query url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := max(query.Get("start-after"), query.Get("continuation-token"))
	page := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listed
	}{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if key <= after || !strings.HasPrefix(key, query.Get("prefix")) {
			continue
		}
		if len(page.Contents) == s.pageSize {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[len(page.Contents)-1].Key
			break
		}
		o := s.objects[key]
		page.Contents = append(page.Contents, listed{key, o.modified.UTC().Format(time.RFC3339), len(o.data)})
	}
	answer(w, page)
}
