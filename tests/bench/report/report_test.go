package report

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Number(math.NaN(), "×"), "–"}, {Number(0, ""), "0"}, {Number(0.0123, ""), "0.012"}, {Number(0.47, "×"), "0.47×"},
		{Number(9.96, ""), "10.0"}, {Number(12.34, ""), "12.3"}, {Number(1234.5, ""), "1234"}, {Number(0.0999, ""), "0.10"},
		{Millis(1500 * time.Microsecond), "1.50"}, {Millis(0), "–"}, {Seconds(2 * time.Second), "2.00"},
		{Count(0), "0"}, {Count(100_000), "100k"}, {Count(1234), "1234"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		check Check
		want  Verdict
	}{
		{AtMost("", 1, 1, "%.2f"), Met}, {AtMost("", 1.01, 1, "%.2f"), Missed},
		{AtLeast("", 2, 2, "%.2f"), Met}, {AtLeast("", 1.99, 2, "%.2f"), Missed},
		{AtMost("", math.NaN(), 1, "%.2f"), NotMeasured}, {AtLeast("", math.NaN(), 1, "%.2f"), NotMeasured},
	} {
		if c.check.Verdict != c.want {
			t.Errorf("%+v, want %s", c.check, c.want)
		}
	}
}

func result(row, text string) *Result {
	r := &Result{Row: row, Disk: "here", Title: row, About: text, Columns: []string{"a", "b"}}
	r.Line("x", "1")
	return r
}

func TestMergeReplacesByKeyAndKeepsTheRest(t *testing.T) {
	doc := "# By hand\n\n" + begin + end + "\nAfter.\n"
	doc, err := Merge(doc, []*Result{result("b", "old b"), result("a", "old a")}, cmp.Compare[string])
	need.NoError(t, err)
	doc, err = Merge(doc, []*Result{result("b", "new b"), result("c", "new c")}, cmp.Compare[string])
	need.NoError(t, err)
	if !strings.HasPrefix(doc, "# By hand\n\n") || !strings.HasSuffix(doc, "\nAfter.\n") {
		t.Errorf("what was written by hand is gone:\n%s", doc)
	}
	at := -1
	for _, want := range []string{"old a", "new b", "new c"} {
		i := strings.Index(doc, want)
		if i <= at {
			t.Errorf("%q is missing or out of order:\n%s", want, doc)
		}
		at = i
	}
	if strings.Contains(doc, "old b") {
		t.Errorf("a replaced section is still there:\n%s", doc)
	}
	again, err := Merge(doc, nil, cmp.Compare[string])
	if err != nil || again != doc {
		t.Errorf("merging nothing changes the document (%v)", err)
	}
	if _, err := Merge("no place", nil, cmp.Compare[string]); err == nil {
		t.Error("a document without a place took results")
	}
}

func TestUpdate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "doc.md")
	need.NoError(t, os.WriteFile(name, []byte(begin+end), 0o644))
	need.NoError(t, Update(name, []*Result{result("a", "text")}, cmp.Compare[string]))
	got, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(got), "| x   | 1   |") {
		t.Errorf("%v\n%s", err, got)
	}
}
