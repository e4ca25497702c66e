package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
	"umbra/internal/need"
)

// start starts the server of faulty; TestGateway replaces it.
var start = blobtest.Start

// faulty starts a server with the object "a" and returns a store on it.
func faulty(t *testing.T, data []byte) (*blobtest.Server, *blob.S3) {
	t.Helper()
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	server := start(t)
	s := openS3(t, server.Location("p"), quick)
	blobtest.Put(t, s, "a", data)
	return server, s
}

func kind(t *testing.T, err error, want blob.Kind) {
	t.Helper()
	if !blob.Is(err, want) {
		t.Errorf("%v, want kind %v", err, want)
	}
	if err != nil && strings.Contains(err.Error(), blobtest.SecretKey) {
		t.Errorf("the error has the secret: %v", err)
	}
}

// all runs each operation and returns its error.
func all(s blob.Store) map[string]error {
	ctx := context.Background()
	list := map[string]error{"put": s.Put(ctx, "b", strings.NewReader("x"), 1), "delete": s.Delete(ctx, "b")}
	r, _, err := s.Get(ctx, "a")
	if err == nil {
		_, err = io.ReadAll(r)
		err = errors.Join(err, r.Close())
	}
	list["get"] = err
	_, list["range"] = blobtest.GetRange(ctx, s, "a", 0, 1)
	for _, err := range s.List(ctx, "", "") {
		list["list"] = err
	}
	return list
}

func TestTriedThreeTimes(t *testing.T) {
	for _, status := range []int{500, 503, 429} {
		for times, works := range map[int]bool{2: true, 3: false} {
			for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
				server, s := faulty(t, []byte("x"))
				server.Fail(blobtest.Faults{Status: status, Code: "SlowDown", Times: times, Method: method})
				var err error
				before := server.Requests(method)
				switch method {
				case http.MethodPut:
					err = s.Put(context.Background(), "b", strings.NewReader("x"), 1)
				case http.MethodGet:
					_, err = blobtest.GetRange(context.Background(), s, "a", 0, 1)
				case http.MethodDelete:
					err = s.Delete(context.Background(), "a")
				}
				if works && err != nil {
					t.Error(method, status, err)
				} else if !works {
					kind(t, err, blob.Unreachable)
				}
				if n := server.Requests(method) - before; n != 3 {
					t.Errorf("%s, %d times %d: %d requests", method, times, status, n)
				}
			}
		}
	}
}

func TestOneMissingAnswer(t *testing.T) {
	server, s := faulty(t, []byte("x"))
	server.Fail(blobtest.Faults{Status: 404, Code: "NoSuchKey", Times: 1})
	_, _, err := s.Get(context.Background(), "a")
	kind(t, err, blob.NotFound)
	blobtest.Get(t, s, "a")
}

func TestWhatTheStoreRefuses(t *testing.T) {
	for code, want := range map[string]blob.Kind{"AccessDenied": blob.Refused, "InvalidAccessKeyId": blob.Credentials,
		"SignatureDoesNotMatch": blob.Credentials, "ExpiredToken": blob.Credentials} {
		server, s := faulty(t, []byte("x"))
		server.Fail(blobtest.Faults{Status: 403, Code: code})
		for op, err := range all(s) {
			kind(t, err, want)
			if err != nil && !strings.Contains(err.Error(), code) {
				t.Error(op, err)
			}
		}
	}
}

// TestNotFoundOfAnother answers every request as a proxy without the route does:
// nothing may be taken for missing, or for deleted.
func TestNotFoundOfAnother(t *testing.T) {
	server, s := faulty(t, []byte("x"))
	server.Fail(blobtest.Faults{Status: 404, Code: "Default"})
	for _, err := range all(s) {
		kind(t, err, blob.Refused)
	}
}

func TestWrongCredentials(t *testing.T) {
	server, _ := faulty(t, []byte("x"))
	for _, c := range [][2]string{{"AKIAOTHER", blobtest.SecretKey}, {blobtest.AccessKey, "guessed"}, {"", ""}} {
		blobtest.Env(t, c[0], c[1])
		for _, err := range all(openS3(t, server.Location("p"), quick)) {
			kind(t, err, blob.Credentials)
		}
	}
	if keys := server.Keys(); !slices.Equal(keys, []string{"p/a"}) {
		t.Error(keys)
	}
}

func TestOtherBucket(t *testing.T) {
	server, _ := faulty(t, nil)
	l := server.Location("")
	l.Bucket = "other"
	for op, err := range all(openS3(t, l, quick)) {
		kind(t, err, blob.Refused) // not NotFound: no pack would be there
		if err != nil && !strings.Contains(err.Error(), "the bucket does not exist") {
			t.Error(op, err)
		}
	}
}

func TestCutBodies(t *testing.T) {
	data := blobtest.Bytes(3, 200_000)
	for _, hang := range []bool{false, true} {
		for _, cut := range []int{-1, 1, 70_000, 199_999} {
			server, _ := faulty(t, data)
			tune := quick
			tune.Answer = 200 * time.Millisecond
			s := openS3(t, server.Location("p"), tune)
			server.Fail(blobtest.Faults{Cut: cut, Hang: hang, Times: 2})
			if got := blobtest.Get(t, s, "a"); !bytes.Equal(got, data) {
				t.Errorf("cut at %d: other content", cut)
			}
			server.Fail(blobtest.Faults{Cut: cut, Hang: hang, Times: 2})
			if got, err := blobtest.GetRange(context.Background(), s, "a", 1, 199_999); err != nil || !bytes.Equal(got, data[1:]) {
				t.Errorf("cut at %d: %v", cut, err)
			}
		}
	}
	server, s := faulty(t, data)
	server.Fail(blobtest.Faults{Cut: 10})
	r, _, err := s.Get(context.Background(), "a")
	need.NoError(t, err)
	got, err := io.ReadAll(r)
	kind(t, err, blob.Unreachable)
	if len(got) != 30 || !bytes.Equal(got, data[:30]) {
		t.Errorf("%d bytes", len(got))
	}
	_ = r.Close()
}

// TestReplacedWhileRead cuts a body, and replaces the object before the rest is
// requested: it must not be completed from the other one.
func TestReplacedWhileRead(t *testing.T) {
	server, s := faulty(t, bytes.Repeat([]byte("a"), 1000))
	server.Fail(blobtest.Faults{Cut: 100, Times: 1})
	r, _, err := s.Get(context.Background(), "a")
	need.NoError(t, err)
	defer r.Close()
	blobtest.Put(t, s, "a", bytes.Repeat([]byte("b"), 1000))
	got, err := io.ReadAll(r)
	kind(t, err, blob.Refused)
	if strings.Contains(string(got), "b") {
		t.Error("two versions in one")
	}
}

func TestRangeIgnored(t *testing.T) {
	server, s := faulty(t, []byte("abcdef"))
	server.Fail(blobtest.Faults{Whole: true})
	for _, at := range [][2]int64{{0, 3}, {3, 3}, {1, 2}, {3, 6}} {
		_, err := blobtest.GetRange(context.Background(), s, "a", at[0], at[1])
		kind(t, err, blob.Refused)
	}
}

func TestSlow(t *testing.T) {
	server, _ := faulty(t, []byte("x"))
	tune := quick
	tune.Answer, tune.Attempts = 50*time.Millisecond, 2
	s := openS3(t, server.Location("p"), tune)
	server.Fail(blobtest.Faults{Delay: time.Minute})
	for _, err := range all(s) {
		kind(t, err, blob.Unreachable)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, _, err := openS3(t, server.Location("p"), quick).Get(ctx, "a")
	kind(t, err, blob.Canceled)
	server.Fail(blobtest.Faults{Delay: 10 * time.Millisecond})
	for op, err := range all(s) {
		if err != nil {
			t.Error(op, err)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	l.Close()
	for _, err := range all(openS3(t, blob.Location{Bucket: "packs", Endpoint: "http://" + l.Addr().String(), PathStyle: true}, quick)) {
		kind(t, err, blob.Unreachable)
	}
}

// TestAnswerLost does a PUT whose answer is lost: it is sent again.
func TestAnswerLost(t *testing.T) {
	server, s := faulty(t, nil)
	server.Fail(blobtest.Faults{Swallow: true, Method: http.MethodPut, Times: 2})
	blobtest.Put(t, s, "b", []byte("once"))
	if got := blobtest.Get(t, s, "b"); string(got) != "once" {
		t.Errorf("%q", got)
	}
}

func TestParts(t *testing.T) {
	server, s := faulty(t, nil)
	data := blobtest.Bytes(5, 16<<20)
	server.Fail(blobtest.Faults{Status: 503, Code: "SlowDown", Method: http.MethodPut, Times: 2})
	blobtest.Put(t, s, "large", data)
	if n := server.Requests(http.MethodPut) - 1; n != 4+2 {
		t.Errorf("%d parts were sent", n)
	}
	if !bytes.Equal(blobtest.Get(t, s, "large"), data) {
		t.Error("other content")
	}
	server.Fail(blobtest.Faults{Status: 503, Code: "SlowDown", Method: http.MethodPut})
	kind(t, s.Put(context.Background(), "larger", bytes.NewReader(data), int64(len(data))), blob.Unreachable)
	server.Fail(blobtest.Faults{Delay: time.Minute, Method: http.MethodPut})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	kind(t, s.Put(ctx, "larger", bytes.NewReader(data), int64(len(data))), blob.Canceled)
	if n := server.Uploads(); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
	if keys := server.Keys(); !slices.Equal(keys, []string{"p/a", "p/large"}) {
		t.Error(keys)
	}
}

// TestRegionOfOthers names no region to a store that is not Amazon's.
func TestRegionOfOthers(t *testing.T) {
	server, _ := faulty(t, []byte("x"))
	l := server.Location("p")
	l.Region = ""
	if got := blobtest.Get(t, openS3(t, l, quick), "a"); string(got) != "x" {
		t.Errorf("%q", got)
	}
}

// TestOtherPrefixes looks at a bucket that others use as well.
func TestOtherPrefixes(t *testing.T) {
	server, s := faulty(t, []byte("x"))
	root := openS3(t, server.Location(""), quick)
	for _, key := range []string{"o/a", "p", "p0", "q/a"} {
		blobtest.Put(t, root, key, nil)
	}
	if keys := blobtest.Keys(t, s, "", ""); !slices.Equal(keys, []string{"a"}) {
		t.Error(keys)
	}
	if err := s.Delete(context.Background(), "0"); err != nil {
		t.Error(err)
	}
	if n := len(server.Keys()); n != 5 {
		t.Error(server.Keys())
	}
}
