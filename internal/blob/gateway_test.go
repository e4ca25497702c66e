package blob_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// TestGateway runs the suite, the checks of a start and the tests of faults against
// versitygw.
func TestGateway(t *testing.T) {
	need.Long(t, "the first build of versitygw takes minutes")
	ctx := context.Background()
	address := clustertest.NewLink(t, blobtest.Gateway(t)).Address()
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	l := blob.Location{Bucket: blobtest.Bucket, Prefix: "check", Endpoint: "http://" + address, PathStyle: true, Region: "us-east-1"}
	tune := quick
	tune.Attempts = 1
	if err := blob.Check(ctx, openS3(t, l, tune), l.Place(), one, true, time.Minute); err != nil {
		t.Fatal(err)
	}
	said(t, blob.Check(ctx, openS3(t, l, quick), l.Place(), another, true, time.Minute),
		"blobs_other_cluster", "s3://packs/check belongs to cluster "+one+"; the database is cluster "+another+".")
	blobtest.Conform(t, func(t *testing.T) blob.Store {
		l.Prefix = rand.Text()
		return openS3(t, l, quick)
	})
	for _, c := range [][2]string{{"AKIAOTHER", blobtest.SecretKey}, {blobtest.AccessKey, "guessed"}} {
		blobtest.Env(t, c[0], c[1])
		for op, err := range all(openS3(t, l, quick)) {
			t.Run(op, func(t *testing.T) { kind(t, err, blob.Credentials) })
		}
	}
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	l.Bucket = "other"
	for op, err := range all(openS3(t, l, quick)) {
		t.Run("bucket "+op, func(t *testing.T) { kind(t, err, blob.Refused) })
	}
	start = blobtest.StartGateway
	defer func() { start = blobtest.Start }()
	for name, test := range map[string]func(*testing.T){"cut": TestCutBodies, "replaced": TestReplacedWhileRead, "range ignored": TestRangeIgnored,
		"slow": TestSlow, "answer lost": TestAnswerLost, "missing once": TestOneMissingAnswer} {
		t.Run(name, test)
	}
}
