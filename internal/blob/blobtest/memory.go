package blobtest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memory keeps objects in memory and checks each signature. It knows what blob.S3
// uses: objects, ranges, parts, and lists by path style.
type memory struct {
	mu       sync.Mutex
	objects  map[string]object
	parts    map[string]map[int][]byte // of uploads that are not completed
	pageSize int
}

type object struct {
	data     []byte
	etag     string
	modified time.Time
}

// Page sets how many objects an answer lists.
func (s *memory) Page(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = n
}

// Keys returns all keys with their prefixes, sorted.
func (s *memory) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// With returns the keys of the objects that contain some bytes, in order.
func (s *memory) With(data []byte) (keys []string) {
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
func (s *memory) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parts)
}

func (s *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if code := authorize(r, body); code != "" {
		refuse(w, http.StatusForbidden, code)
		return
	}
	bucket, key := place(r)
	query := r.URL.Query()
	switch {
	case bucket != Bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet && key == "":
		s.list(w, query)
	case r.Method == http.MethodGet:
		s.get(w, r, key)
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

// authorize signs the request again and compares; the result is an error code.
func authorize(r *http.Request, body []byte) string {
	got := r.Header.Get("Authorization")
	id, _, ok := strings.Cut(strings.TrimPrefix(got, "AWS4-HMAC-SHA256 Credential="), "/")
	sum := sha256.Sum256(body)
	switch {
	case !ok:
		return "AccessDenied"
	case id != AccessKey:
		return "InvalidAccessKeyId"
	case r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]):
		return "XAmzContentSHA256Mismatch"
	case sign(r) != got:
		return "SignatureDoesNotMatch"
	}
	return ""
}

func (s *memory) put(w http.ResponseWriter, key string, body []byte) {
	sum := md5.Sum(body)
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	s.mu.Lock()
	s.objects[key] = object{body, etag, time.Now()}
	s.mu.Unlock()
	w.Header().Set("ETag", etag)
}

func (s *memory) get(w http.ResponseWriter, r *http.Request, key string) {
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
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil {
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
	_, _ = w.Write(data)
}

func (s *memory) upload(w http.ResponseWriter, method string, query url.Values, key string, body []byte) {
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

func (s *memory) list(w http.ResponseWriter, query url.Values) {
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
