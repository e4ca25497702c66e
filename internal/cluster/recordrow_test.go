package cluster

import (
	"bytes"
	"testing"

	"umbra/internal/need"
)

// TestRecordRows: a row's key leads back to its record, and the rows of a bucket are
// together.
func TestRecordRows(t *testing.T) {
	buckets := []string{"tasks", "tasks_by_time", "workspaces_index", "area_files", "area_filesx", ""}
	for name := range bucketCodes {
		buckets = append(buckets, name)
	}
	for _, bucket := range buckets {
		for _, key := range []string{"", "\x00", "a", "\xff\xff\x00b"} {
			row := rowKey(bucket, key)
			b, k, err := recordOf(row)
			need.NoError(t, err)
			if b != bucket || k != key {
				t.Errorf("the row of %q in %q is of %q in %q", key, bucket, k, b)
			}
			for _, other := range buckets {
				in := bytes.Compare(row, rowKey(other, "")) >= 0 && bytes.Compare(row, rowsEnd(other)) < 0
				if in != (other == bucket) {
					t.Errorf("%q of %q is among the rows of %q: %v", key, bucket, other, in)
				}
			}
		}
	}
	for _, row := range []string{"", "\x00tasks", "\x7fx"} {
		if _, _, err := recordOf([]byte(row)); err == nil {
			t.Errorf("%q is a record's row", row)
		}
	}
}
