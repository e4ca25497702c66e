package recordrow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Codes are what the keys of a bucket begin with in the table of records: a
// workspace at rest has a row in most of these buckets, and its key is in the row and in
// the index. A code is for ever. A bucket that has none yet may get one, or lose it,
// only with a migration of its records.
var Codes = map[string]byte{
	"answers": 1, "calls": 2, "calls_by": 3, "calls_order": 4, "calls_seen": 5, "sessions": 6, "sessions_by_key": 7,
	"sessions_by_use": 8, "tasks": 9, "tasks_by_key": 10, "tasks_by_parent": 11, "tasks_by_status": 12, "tasks_by_time": 13,
	"tasks_by_workspace": 14, "tasks_count": 15, "tasks_live_on": 16, "toolsets": 17, "toolsets_by_key": 18,
	"workspaces": 19, "workspaces_index": 20,
}

// bucketNames is Codes the other way round.
var bucketNames = func() map[byte]string {
	names := map[byte]string{}
	for name, code := range Codes {
		names[code] = name
	}
	return names
}()

// Prefix returns what the keys of a bucket's rows begin with: its code, or its name
// between two zeros.
func Prefix(bucket string) string {
	if code, ok := Codes[bucket]; ok {
		return string([]byte{code})
	}
	return "\x00" + bucket + "\x00"
}

// Key returns the key of a record's row.
func Key(bucket, key string) []byte { return []byte(Prefix(bucket) + key) }

// End returns the first key after those of a bucket's rows.
func End(bucket string) []byte {
	end := []byte(Prefix(bucket))
	end[len(end)-1]++
	return end
}

// RecordOf returns the record that a row is of.
func RecordOf(row []byte) (bucket, key string, err error) {
	if len(row) > 0 {
		if bucket, ok := bucketNames[row[0]]; ok {
			return bucket, string(row[1:]), nil
		}
		if name, key, ok := strings.Cut(string(row[1:]), "\x00"); ok && row[0] == 0 {
			return name, key, nil
		}
	}
	return "", "", fmt.Errorf("cluster: a record's key %q has no bucket", row)
}

// ShortKeys takes the name of the bucket out of the rows of records, and the second half
// of the hash of a namespace, which has 64 characters, out of those of the index of
// workspaces (datadir.Records).
var ShortKeys = func() []string {
	code := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(Codes)) {
		fmt.Fprintf(code, ` WHEN '%s' THEN '\x%02x'::bytea`, name, Codes[name])
	}
	return []string{
		`LOCK TABLE record IN ACCESS EXCLUSIVE MODE`,
		`ALTER TABLE record RENAME TO record_by_bucket`,
		`ALTER INDEX record_pkey RENAME TO record_by_bucket_pkey`,
		`CREATE TABLE record (key bytea PRIMARY KEY, value bytea NOT NULL) WITH (autovacuum_vacuum_scale_factor = 0.02)`,
		`INSERT INTO record (key, value) SELECT CASE bucket` + code.String() +
			` ELSE '\x00'::bytea || convert_to(bucket, 'UTF8') || '\x00'::bytea END || key,
			CASE WHEN value >= '\x00' AND value < '\x02' THEN '\x00'::bytea || value ELSE value END FROM record_by_bucket ORDER BY 1`,
		`DROP TABLE record_by_bucket`,
		fmt.Sprintf(`UPDATE record SET key = substr(key, 1, 38) || substr(key, 71) WHERE key >= '\x%x' AND key < '\x%x'`,
			Key("workspaces_index", "name/"), Key("workspaces_index", "name0")),
	}
}()

// UnlessUsed ends an upsert of records: the answer to an idempotency key, or its mark, is kept
// for a day where another request has the key. That of the same request begins with the same
// fingerprint (state.Answer). What this does not replace is lost: the key is the one's that
// was first.
const UnlessUsed = ` WHERE CASE WHEN get_byte(record.key, 0) <> 1 OR record.value IS NULL THEN true
	WHEN substr(record.value, 1, position('\x5d'::bytea IN record.value)) = substr(excluded.value, 1, position('\x5d'::bytea IN excluded.value)) THEN true
	ELSE substring(convert_from(record.value, 'UTF8') FROM '"at":"([^"]*)"')::timestamptz < now() - interval '1 day' END`
