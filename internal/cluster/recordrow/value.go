package recordrow

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
)

// What the value of a row begins with where it is not the record's value as it is.
const (
	asIs     = 0 // the value follows, which begins with one of these bytes itself
	deflated = 1 // of a bucket in packedBuckets: deflated, with packDictionary and the key
	markers  = 2
)

// packedBuckets have JSON of which a workspace at rest keeps one.
var packedBuckets = map[string]bool{"tasks": true, "workspaces": true}

// packDictionary has what the values of packedBuckets have in common. It is for ever:
// another one needs another marker.
const packDictionary = `0123456789abcdef","key_hash":"","parent":"","deleted":true,"status":"completed"}"status":"executing"}` +
	`{"id":"","workspace":"{"id":"","root":"","kind":"virtual","namespace":["","created":"202","last_used":"202Z","dev":0,"ino":0,"rest":{"head":"","disk_bytes":`

// PackValue returns the value of a record's row; nil for nil.
func PackValue(bucket, key string, value []byte) []byte {
	if packedBuckets[bucket] && len(value) > 0 {
		b := bytes.NewBuffer([]byte{deflated})
		// A bytes.Buffer takes everything.
		if err := flate.StatelessDeflate(b, value, true, []byte(packDictionary+key)); err == nil && b.Len() < len(value) {
			return b.Bytes()
		}
	}
	if len(value) > 0 && value[0] < markers {
		return append([]byte{asIs}, value...)
	}
	return value
}

// UnpackValue returns the value of a record from that of its row. It is not nil.
func UnpackValue(key string, row []byte) ([]byte, error) {
	switch {
	case len(row) == 0:
		return []byte{}, nil
	case row[0] == asIs:
		return row[1:], nil
	case row[0] != deflated:
		return row, nil
	}
	value, err := io.ReadAll(flate.NewReaderDict(bytes.NewReader(row[1:]), []byte(packDictionary+key)))
	if err != nil {
		return nil, fmt.Errorf("cluster: the record %q: %w", key, err)
	}
	return value, nil
}
