package blob_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
	"umbra/internal/need"
	"umbra/internal/telemetry"
)

// quick are limits with which no test waits long.
var quick = blob.Tuning{Backoff: time.Millisecond, Answer: 5 * time.Second, Part: 5 << 20}

func openS3(t *testing.T, l blob.Location, tune blob.Tuning) *blob.S3 {
	t.Helper()
	s, err := blob.OpenS3(context.Background(), l, tune)
	need.NoError(t, err)
	return s
}

func TestMemory(t *testing.T) {
	blobtest.Conform(t, func(*testing.T) blob.Store { return blob.NewMemory() })
}

func TestS3(t *testing.T) {
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	for _, prefix := range []string{"", "teams/one"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			blobtest.Conform(t, func(t *testing.T) blob.Store {
				server := blobtest.Start(t)
				server.Page(3)
				return openS3(t, server.Location(prefix), quick)
			})
		})
	}
}

func TestMeasured(t *testing.T) {
	blobtest.Conform(t, func(t *testing.T) blob.Store { return blob.Measured(blob.NewMemory(), blob.NewMeter()) })

	m := blob.NewMeter()
	s := blob.Measured(blob.NewMemory(), m)
	ctx := context.Background()
	blobtest.Put(t, s, "a", []byte("abc"))
	blobtest.Get(t, s, "a")
	blobtest.Keys(t, s, "", "")
	if _, _, err := s.Get(ctx, "none"); err == nil {
		t.Error("found")
	}
	if _, err := blobtest.GetRange(ctx, s, "a", 2, 2); err == nil {
		t.Error("read")
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Delete(canceled, "a"); err == nil {
		t.Error("deleted")
	}
	type counted struct{ done, failed uint64 }
	got := map[string]counted{}
	m.Load(func(name string, took *telemetry.Histogram, failed uint64) {
		got[name] = counted{took.Load().Count, failed}
	})
	want := map[string]counted{"put": {1, 0}, "get": {2, 0}, "range": {1, 1}, "delete": {1, 0}, "list": {1, 0}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
