package recordrow

import (
	"bytes"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestRecordRows: a row's key leads back to its record, and the rows of a bucket are
// together.
func TestRecordRows(t *testing.T) {
	buckets := []string{"tasks", "tasks_by_time", "workspaces_index", "area_files", "area_filesx", ""}
	for name := range Codes {
		buckets = append(buckets, name)
	}
	for _, bucket := range buckets {
		for _, key := range []string{"", "\x00", "a", "\xff\xff\x00b"} {
			row := Key(bucket, key)
			b, k, err := RecordOf(row)
			need.NoError(t, err)
			if b != bucket || k != key {
				t.Errorf("the row of %q in %q is of %q in %q", key, bucket, k, b)
			}
			for _, other := range buckets {
				in := bytes.Compare(row, Key(other, "")) >= 0 && bytes.Compare(row, End(other)) < 0
				if in != (other == bucket) {
					t.Errorf("%q of %q is among the rows of %q: %v", key, bucket, other, in)
				}
			}
		}
	}
	for _, row := range []string{"", "\x00tasks", "\x7fx"} {
		if _, _, err := RecordOf([]byte(row)); err == nil {
			t.Errorf("%q is a record's row", row)
		}
	}
}

// TestRecordValues: a row's value is the record's again, and what a workspace at rest
// keeps is small.
func TestRecordValues(t *testing.T) {
	for _, value := range []string{"", "\x00", "\x01", "\x02", "{}", `{"id":"a-1","status":"executing"}`, strings.Repeat("x", 100_000)} {
		for _, bucket := range []string{"tasks", "area_data"} {
			got, err := UnpackValue("a-1", PackValue(bucket, "a-1", []byte(value)))
			need.NoError(t, err)
			if string(got) != value {
				t.Errorf("%q in %q is %q", value, bucket, got)
			}
		}
	}
	if PackValue("tasks", "a", nil) != nil {
		t.Error("a removed record has a value")
	}
	record := `{"id":"idle-39-25375485","root":"","kind":"virtual","namespace":["idle","39"],"created":"2026-11-27T22:51:11.161630705Z",` +
		`"last_used":"2026-11-27T22:51:12.832712491Z","dev":0,"ino":0,"rest":{"head":"0a01937148a8597610e34ce5ea185dc469d81e1d","disk_bytes":2749}}`
	packed := PackValue("workspaces", "idle-39-25375485", []byte(record))
	if len(packed) > 110 {
		t.Errorf("a workspace's record of %d bytes takes %d", len(record), len(packed))
	}
	if _, err := UnpackValue("idle-39-25375485", packed[:len(packed)/2]); err == nil {
		t.Error("a torn value was read")
	}
}
