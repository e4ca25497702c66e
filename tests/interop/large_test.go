package interop

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
)

const (
	largeEnv = "UMBRA_INTEROP_LARGE" // tells the test binary that it is the child
	// largeMemory is what a large file may cost beyond an idle store, in bytes.
	largeMemory = 64 << 20
)

// pattern is a file of any size that is nowhere: half of it compresses.
type pattern int64

func (p pattern) ReadAt(b []byte, off int64) (int, error) {
	if off >= int64(p) {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), int64(p)-off))
	for i := 0; i < n; {
		at := off + int64(i)
		block := uint64(at >> 3)
		word := (block * 0x9E3779B97F4A7C15) ^ (block >> 7)
		if block>>12&1 == 0 {
			word = block >> 9
		}
		for k := at & 7; k < 8 && i < n; k, i = k+1, i+1 {
			b[i] = byte(word >> (8 * k))
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// TestLargeBlobInConstantMemory has a process of its own take a file of 1 GB,
// commit it, read it back after a restart, and tell how much memory that took;
// stock git then reads the same.
func TestLargeBlobInConstantMemory(t *testing.T) {
	size := int64(128 << 20)
	if soak() {
		size = 1 << 30
	}
	if dir := os.Getenv(largeEnv); dir != "" {
		size, err := strconv.ParseInt(os.Getenv(largeEnv+"_SIZE"), 10, 64)
		need.NoError(t, err)
		takeLarge(t, dir, size)
		return
	}
	need.Long(t, "a large file")
	if _, err := os.Stat("/proc/self/status"); err != nil {
		need.Missing(t, "no /proc here to tell a process's memory")
	}
	dir := scratch(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLargeBlobInConstantMemory$", "-test.v")
	cmd.Env = append(os.Environ(), largeEnv+"="+dir, fmt.Sprintf("%s_SIZE=%d", largeEnv, size))
	out := string(run(t, cmd))
	_, line, ok := strings.Cut(out, "used ")
	if !ok {
		t.Fatal(out)
	}
	line, _, _ = strings.Cut(line, " ")
	used, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatal(out)
	}
	t.Logf("%d MiB took %.1f MiB of memory", size>>20, float64(used)/(1<<20))
	if used > largeMemory && !raceEnabled {
		t.Errorf("%d bytes of memory", used)
	}
	want := sha1.New()
	want.Write(object.Header(object.Blob, size))
	if _, err := io.Copy(want, io.NewSectionReader(pattern(size), 0, size)); err != nil {
		t.Fatal(err)
	}
	if got := git(t, repoOf(dir), "rev-parse", "HEAD:large"); got != hex.EncodeToString(want.Sum(nil)) {
		t.Fatalf("git has blob %s", got)
	}
	fsck(t, repoOf(dir)) // hashes what it reads
}

// takeLarge is the child: it prints what the peak of its memory grew by.
func takeLarge(t *testing.T, dir string, size int64) {
	s := open(t, dir, gitstore.Options{})
	before := peakMemory(t)
	b, err := s.StreamBlob(t.Context(), pattern(size), size)
	need.NoError(t, err)
	c, err := s.Commit(t.Context(), gitstore.Draft{Edits: []gitstore.Edit{{Path: "large", Mode: object.Regular, Blob: b}}, Entries: 1,
		Message: message.Message{Source: message.API, Entries: []message.Entry{{Operation: message.Create, Path: "large", AfterHash: b.AfterHash()}}}})
	need.NoError(t, err)
	closeStore(t, s)
	s = open(t, dir, gitstore.Options{})
	defer closeStore(t, s)
	if s.Tip().Commit != c.Commit {
		t.Fatal("the commit is not there after reopening")
	}
	r, n, err := s.OpenBlob(t.Context(), b.ID())
	if err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	if got := sum.Sum(nil); "sha256:"+hex.EncodeToString(got) != b.AfterHash() {
		t.Fatal("other bytes came back")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "journal", "large-*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	fmt.Printf("used %d bytes\n", peakMemory(t)-before)
}

// peakMemory gives the most memory that the process ever had, in bytes
// (VmHWM, proc(5)).
func peakMemory(t *testing.T) int64 { return statusBytes(t, "VmHWM:") }

func statusBytes(t testing.TB, key string) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	need.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == key {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			need.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatalf("no %s in /proc/self/status", key)
	return 0
}
