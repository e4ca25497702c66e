package sessions

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// wantLines is scanLines by the simplest means.
func wantLines(text string, offset, limit int64) (part string, lines, total int64) {
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
	s, ok, err := scanLines(r, offset, limit)
	if err != nil || ok != utf8.ValidString(text) {
		t.Fatalf("%.40q: %v %v", text, ok, err)
	}
	if !ok {
		return
	}
	part, lines, total := wantLines(text, offset, limit)
	if text[s.from:s.to] != part || s.lines != lines || s.total != total {
		t.Errorf("%.40q from %d, %d lines: %.40q (%d of %d), want %.40q (%d of %d)", text, offset, limit, text[s.from:s.to], s.lines, s.total, part, lines, total)
	}
	if s.truncated(offset) != (total > offset+lines) {
		t.Errorf("%.40q from %d, %d lines: truncated is %v", text, offset, limit, s.truncated(offset))
	}
}

func TestScanLines(t *testing.T) {
	long := strings.Repeat("caf\u00e9 \U0001f600\n", 20_000)
	for _, text := range []string{"", "\n", "a", "a\n", "a\nb", "\n\n\n", "a\r\nb\r\n", "\u00e9", "\xff", "a\xc3", "\xc3\n", long, long + "\U0001f600", long[:len(long)-3], strings.Repeat("x", 200_000)} {
		for _, offset := range []int64{0, 1, 2, 19_999, 20_000, 1 << 62} {
			for _, limit := range []int64{0, 1, 2, 1000, 1<<63 - 1} {
				checkLines(t, text, offset, limit, strings.NewReader(text))
			}
		}
		checkLines(t, text, 1, 1, iotest.OneByteReader(strings.NewReader(text)))
		checkLines(t, text, 1, 1, iotest.DataErrReader(strings.NewReader(text)))
	}
	if _, _, err := scanLines(iotest.TimeoutReader(strings.NewReader(long)), 0, 1); err == nil {
		t.Error("a failed read is not reported")
	}
}

func FuzzScanLines(f *testing.F) {
	f.Add("a\nb\r\nc", int64(1), int64(1))
	f.Add("\xc3\xa9\n\xff", int64(0), int64(9))
	f.Fuzz(func(t *testing.T, text string, offset, limit int64) {
		if offset < 0 || limit < 0 {
			return
		}
		checkLines(t, text, offset, limit, iotest.HalfReader(strings.NewReader(text)))
	})
}

func FuzzJSONText(f *testing.F) {
	f.Add("a \"b\" \\ \n\t\r\x00\x1f </x> \u2028 \U0001f600")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		var b bytes.Buffer
		b.WriteByte('"')
		w := jsonText{&b}
		for i := range len(text) { // bytewise: runes come apart
			if n, err := w.Write([]byte(text[i : i+1])); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		b.WriteByte('"')
		var got string
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	})
}
