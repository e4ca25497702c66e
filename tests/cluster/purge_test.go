package cluster

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// needle is in the middle of content that does not get smaller: it is seen wherever the
// content is, compressed or not.
func needle(content []byte) []byte { return content[len(content)/2:][:48] }

// diskWith lists the files of a node's data directory that contain some bytes.
func diskWith(t *testing.T, dir string, data []byte) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // what is removed meanwhile
		}
		if raw, err := os.ReadFile(path); err == nil && bytes.Contains(raw, data) {
			found = append(found, path)
		}
		return nil
	})
	need.NoError(t, err)
	return found
}

// rowsWith counts the rows of the engine that contain some bytes.
func (w *world) rowsWith(data []byte) int {
	w.t.Helper()
	text := w.pair.A.SQL("SELECT (SELECT count(*) FROM journal WHERE position('\\x" + hex.EncodeToString(data) + "'::bytea IN data) > 0)" +
		" + (SELECT count(*) FROM record WHERE position('\\x" + hex.EncodeToString(data) + "'::bytea IN value) > 0)")
	n, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// purge runs the verb at a node.
func (w *world) purge(m *member, args ...string) (status int, done purged) {
	w.t.Helper()
	status, out, errOut := harness.Run(w.t, w.verbs(), append([]string{"purge", "--json", "--server", m.server.URL}, args...)...)
	if err := json.Unmarshal([]byte(out), &done); err != nil {
		w.t.Fatalf("purge: status %d, %v: %s%s", status, err, out, errOut)
	}
	return status, done
}

type purged struct {
	Blobs      []string
	NotReached []string `json:"not_reached"`
	Remaining  *struct {
		Objects int
		Nodes   []string
		Error   string
	}
}

// TestPurgeEverywhere: when a purge returns, no object, no row and no live node has the
// bytes: not in packs that a seal dropped before, in copies on the disks of nodes that had
// the workspace or cloned it, nor in the log.
func TestPurgeEverywhere(t *testing.T) {
	w := newWorld(t, 1)
	at := w.spaces[0]
	small, large, late := blobtest.Bytes(1, 4000), blobtest.Bytes(2, 400<<10), blobtest.Bytes(3, 4000)
	put := func(m *member, path string, body []byte) {
		t.Helper()
		if a := w.ask(m, "PUT", "/tasks/"+at.task+"/content?path="+path, string(body)); a.err != nil || a.status/100 != 2 {
			t.Fatalf("%v %d %s", a.err, a.status, a.body)
		}
	}
	first := w.ownerOf(0)
	put(first, "f", small)
	put(first, "large", large)
	w.drain(first) // sealed
	second := w.ownerOf(0)
	third := w.after(second)
	if third == first {
		third = w.after(third)
	}
	w.undrain(first)
	harness.Git(t, t.TempDir(), "clone", "-q", third.server.URL+"/git/"+at.id+".git", filepath.Join(t.TempDir(), "clone"))
	put(second, "f", late)
	put(second, "f", []byte("none\n"))
	put(second, "large", []byte("none\n"))
	// Both are there now, or the test would show nothing.
	for name, data := range map[string][]byte{"small": small, "large": large} {
		if len(w.s3.With(needle(data))) == 0 {
			t.Errorf("no object has the %s file", name)
		}
		for _, m := range w.members {
			if err := clustertest.Await(20*time.Second, func() (bool, error) { return len(diskWith(t, m.server.DataDir, needle(data))) > 0, nil }); err != nil {
				t.Errorf("the disk of %s has not the %s file", m.name, name)
			}
		}
	}
	if w.rowsWith(needle(late)) == 0 {
		t.Error("the log has not the late content")
	}
	for _, path := range []string{"f", "large"} {
		began := time.Now()
		status, done := w.purge(third, at.id, path)
		t.Logf("the purge of %s took %v", path, time.Since(began).Round(time.Millisecond))
		if status != 0 || done.Remaining != nil || !strings.Contains(strings.Join(done.NotReached, " "), "wal_archive bucket_versions") {
			t.Errorf("purge of %s: status %d, %+v, remaining %+v", path, status, done, done.Remaining)
		}
	}
	for name, data := range map[string][]byte{"small": small, "large": large, "late": late} {
		if keys := w.s3.With(needle(data)); len(keys) > 0 {
			t.Errorf("objects have the %s file: %v", name, keys)
		}
		if n := w.rowsWith(needle(data)); n > 0 {
			t.Errorf("%d rows have the %s file", n, name)
		}
		for _, m := range w.members {
			if files := diskWith(t, m.server.DataDir, needle(data)); len(files) > 0 {
				t.Errorf("the disk of %s has the %s file: %v", m.name, name, files)
			}
		}
	}
	// The workspace is whole at every node.
	for _, m := range w.members {
		if a := w.ask(m, "GET", "/tasks/"+at.task+"/content?path=f", ""); a.err != nil || a.status != http.StatusOK || string(a.body) != "none\n" {
			t.Errorf("%s: %v %d %s", m.name, a.err, a.status, a.body)
		}
		dir := filepath.Join(t.TempDir(), "clone")
		harness.Git(t, t.TempDir(), "clone", "-q", m.server.URL+"/git/"+at.id+".git", dir)
		harness.Git(t, dir, "fsck", "--strict")
	}
}

// TestPurgeRemaining: what a purge could not delete is in its answer, and is deleted later.
func TestPurgeRemaining(t *testing.T) {
	need.Soak(t, "it waits for as long as a purge does")
	w := newWorld(t, 1)
	at, owner := w.spaces[0], w.ownerOf(0)
	secret := blobtest.Bytes(4, 4000)
	for _, body := range []string{string(secret), "none\n"} {
		w.ask(owner, "PUT", "/tasks/"+at.task+"/content?path=f", body)
	}
	w.drain(owner)
	w.undrain(owner)
	w.ownerOf(0)
	w.s3.Fail(blobtest.Faults{Method: http.MethodDelete, Status: http.StatusServiceUnavailable, Code: "SlowDown"})
	// Not by the verb: the harness ends one that takes so long.
	res, err := http.Post(owner.server.URL+"/upkeep/purge", "application/json", strings.NewReader(`{"workspace":"`+at.id+`","path":"f"}`))
	need.NoError(t, err)
	defer res.Body.Close()
	var line struct{ Done purged }
	for d := json.NewDecoder(res.Body); err == nil && line.Done.Blobs == nil; {
		err = d.Decode(&line)
	}
	if r := line.Done.Remaining; len(line.Done.Blobs) != 1 || r == nil || r.Objects == 0 || len(r.Nodes) > 0 || r.Error == "" {
		t.Errorf("purge: %d %+v, remaining %+v, %v", res.StatusCode, line.Done, r, err)
	}
}
