package blob_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
	"umbra/internal/errs"
	"umbra/internal/need"
)

const (
	one     = "11111111-1111-4111-8111-111111111111"
	another = "22222222-2222-4222-8222-222222222222"
)

// said compares code and sentence of a check's error.
func said(t *testing.T, err error, code, sentence string) {
	t.Helper()
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Code != code || e.Detail != sentence {
		t.Errorf("%v\nwant %s: %s", err, code, sentence)
	}
}

func TestCheck(t *testing.T) {
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	server := blobtest.Start(t)
	l := server.Location("teams/one")
	s := openS3(t, l, quick)
	ctx := context.Background()
	check := func(cluster string, create bool) error {
		return blob.Check(ctx, s, l.Place(), cluster, create, 10*time.Second)
	}
	said(t, check(one, false), "blobs_marker_missing", "s3://packs/teams/one has no marker of cluster "+one+". A wrong bucket or prefix?")
	if keys := server.Keys(); len(keys) > 0 {
		t.Error(keys)
	}
	for _, create := range []bool{true, true, false} {
		need.NoError(t, check(one, create))
	}
	if keys := server.Keys(); len(keys) != 1 {
		t.Error(keys) // the probes are deleted
	}
	for _, create := range []bool{true, false} {
		said(t, check(another, create), "blobs_other_cluster", "s3://packs/teams/one belongs to cluster "+one+"; the database is cluster "+another+".")
	}
	for _, c := range []struct{ method, op string }{{"PUT", "PUT"}, {"DELETE", "DELETE"}} {
		server.Fail(blobtest.Faults{Status: 403, Code: "AccessDenied", Method: c.method})
		said(t, check(one, false), "blobs_not_writable", "PUT, ranged GET, LIST or DELETE below s3://packs/teams/one was refused: "+c.op+": AccessDenied: Said by the test.")
	}
	server.Fail(blobtest.Faults{Whole: true})
	said(t, check(one, false), "blobs_not_writable", "PUT, ranged GET, LIST or DELETE below s3://packs/teams/one was refused: ranged GET: the store sent another range than was requested.")
	server.Fail(blobtest.Faults{Status: 403, Code: "ExpiredToken"})
	said(t, check(one, false), "blobs_credentials", "Bucket packs: credentials are missing or were refused: ExpiredToken: Said by the test.")
	server.Fail(blobtest.Faults{Status: 503, Code: "SlowDown", Times: 7})
	if err := check(one, false); err != nil {
		t.Error("it was not tried again:", err)
	}
	blobtest.Put(t, s, "umbra-cluster", []byte("something else"))
	said(t, check(one, true), "blobs_other_cluster", "s3://packs/teams/one belongs to cluster an unknown program's; the database is cluster "+one+".")
	l.Bucket = "other"
	s = openS3(t, l, quick)
	said(t, check(one, true), "blobs_unreachable", "Bucket other cannot be reached: the bucket does not exist.")
}

func TestCheckEnds(t *testing.T) {
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	server := blobtest.Start(t)
	s := openS3(t, server.Location(""), quick)
	check := func(ctx context.Context) error {
		return blob.Check(ctx, s, "s3://packs", one, true, 300*time.Millisecond)
	}
	server.Fail(blobtest.Faults{Status: 503, Code: "SlowDown"})
	said(t, check(context.Background()), "blobs_unreachable", "Bucket packs cannot be reached: SlowDown: Said by the test.")
	server.Fail(blobtest.Faults{Delay: time.Minute})
	said(t, check(context.Background()), "blobs_unreachable", "Bucket packs cannot be reached: no answer in time.")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := check(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "blobs_unreachable") {
		t.Error(err)
	}
	blobtest.Env(t, "", "")
	s = openS3(t, server.Location(""), quick)
	err := check(context.Background())
	if e, ok := errors.AsType[*errs.Error](err); !ok || e.Code != "blobs_credentials" {
		t.Error(err)
	}
}
