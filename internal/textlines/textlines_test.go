package textlines

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"umbra/internal/errs"
)

func wantLines(text string, offset, limit int64) (part string, count, total int64) {
	all := strings.SplitAfter(text, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	total = int64(len(all))
	from := min(offset, total)
	to := from + min(limit, total-from)
	return strings.Join(all[from:to], ""), to - from, total
}

func checkLines(t *testing.T, text string, offset, limit int64, r io.Reader) {
	t.Helper()
	l, err := Find(r, offset, limit)
	if !utf8.ValidString(text) {
		if errs.CodeOf(err) != "not_text" {
			t.Fatalf("%.40q: %v", text, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%.40q: %v", text, err)
	}
	part, count, total := wantLines(text, offset, limit)
	if got := text[l.From:l.To]; got != part || l.Count != count || l.Total != total {
		t.Errorf("%.40q from %d, %d lines: %.40q (%d of %d), want %.40q (%d of %d)", text, offset, limit, got, l.Count, l.Total, part, count, total)
	}
	if l.Truncated(offset) != (total > offset+count) {
		t.Errorf("%.40q from %d, %d lines: truncated is %v", text, offset, limit, l.Truncated(offset))
	}
	if whole := In([]byte(text), offset, limit); whole != l {
		t.Errorf("%.40q from %d, %d lines: %+v at once, %+v in pieces", text, offset, limit, whole, l)
	}
}

func TestFind(t *testing.T) {
	long := strings.Repeat("caf\u00e9 \U0001f600\n", 10_000)
	wide := strings.Repeat("\u00e9\U0001f600x", 40_000)
	for _, text := range []string{"", "\n", "a", "a\n", "a\nb", "\n\n\n", "a\r\nb\r\n", "\u00e9", "\xff", "a\xc3", "\xc3\n", wide, wide + "\n" + wide, wide[:len(wide)-3], long, long[:len(long)-3]} {
		for _, offset := range []int64{0, 1, 2, 9_999, 10_000, 1 << 62} {
			for _, limit := range []int64{0, 1, 2, 1000, 1<<63 - 1} {
				checkLines(t, text, offset, limit, strings.NewReader(text))
			}
		}
		checkLines(t, text, 1, 1, iotest.OneByteReader(strings.NewReader(text)))
		checkLines(t, text, 1, 1, iotest.DataErrReader(strings.NewReader(text)))
	}
	if _, err := Find(iotest.TimeoutReader(strings.NewReader(long)), 0, 1); err == nil {
		t.Error("a failed read is not reported")
	}
}

func FuzzFind(f *testing.F) {
	f.Add("a\nb\r\nc", int64(1), int64(1))
	f.Fuzz(func(t *testing.T, text string, offset, limit int64) {
		if offset >= 0 && limit >= 0 {
			checkLines(t, text, offset, limit, iotest.HalfReader(strings.NewReader(text)))
		}
	})
}
