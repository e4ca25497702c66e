package toolset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestWindow(t *testing.T) {
	lines := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	on := func(n int) string { return fmt.Sprintf("[cut: the file goes on; read on with offset %d]", n) }
	for _, c := range []struct {
		name, text string
		w          window
		want, err  string
	}{
		{"empty", "", window{limit: 10, max: 100}, "", ""},
		{"whole", "a\nb", window{limit: 10, max: 100}, "a\nb", ""},
		{"whole with CRLF", "a\r\nb\r\n", window{limit: 10, max: 100}, "a\r\nb\r\n", ""},
		{"limit", lines(0, 5), window{limit: 2, max: 100}, lines(0, 2) + on(2), ""},
		{"limit at the end", lines(0, 2), window{limit: 2, max: 100}, lines(0, 2), ""},
		{"offset", lines(0, 5), window{offset: 3, limit: 10, max: 100}, lines(3, 5), ""},
		{"last line without an end", "a\nb", window{offset: 1, limit: 10, max: 100}, "b", ""},
		{"past the end", lines(0, 5), window{offset: 5, limit: 10, max: 100}, "", "5 lines"},
		{"far past the end", lines(0, 5), window{offset: 50, limit: 10, max: 100}, "", "5 lines"},
		{"past the end of one without an end", "a\nb", window{offset: 2, limit: 10, max: 100}, "", "2 lines"},
		{"past the end of nothing", "", window{offset: 1, limit: 10, max: 100}, "", "0 lines"},
		{"size", lines(0, 10), window{limit: 100, max: 20}, lines(0, 2) + on(2), ""},
		{"size in the second line", "ab\n" + strings.Repeat("x", 50), window{limit: 100, max: 20}, "ab\n" + on(1), ""},
		{"size in one line", strings.Repeat("x", 50), window{limit: 100, max: 20}, strings.Repeat("x", 20) + "\n[cut: line 0 goes on; read on with offset 0 and byte_offset 20]", ""},
		{"size between characters", strings.Repeat("ü", 50), window{limit: 100, max: 21}, strings.Repeat("ü", 10) + "\n[cut: line 0 goes on; read on with offset 0 and byte_offset 20]", ""},
		{"on in a line", "abcdef\ng", window{skip: 4, limit: 100, max: 20}, "ef\ng", ""},
		{"byte_offset past the line", "abc\ng", window{skip: 4, limit: 100, max: 20}, "", "in line"},
		{"bytes", "a\xff", window{limit: 100, max: 20}, "", errNoText.Error()},
		{"half a character", "a\xc3", window{limit: 100, max: 20}, "", errNoText.Error()},
		{"bytes before the window", "\xff\nb", window{offset: 1, limit: 100, max: 20}, "", errNoText.Error()},
	} {
		for _, one := range []bool{false, true} {
			src := iotest.DataErrReader(strings.NewReader(c.text))
			if one {
				src = iotest.OneByteReader(src)
			}
			got, err := c.w.read(src)
			problem := ""
			if past, ok := errors.AsType[*pastEnd](err); ok {
				if problem = fmt.Sprintf("%d lines", past.lines); past.inLine {
					problem = "in line"
				}
			} else if err != nil {
				problem = err.Error()
			}
			if got != c.want || problem != c.err {
				t.Errorf("%s: %q, %q; want %q, %q", c.name, got, problem, c.want, c.err)
			}
		}
	}
}

// Reading on as the last line says gives the whole text, and ends.
func FuzzWindow(f *testing.F) {
	f.Add("a\nb\n\nc", uint8(2), uint8(5))
	f.Add(strings.Repeat("ü", 40), uint8(3), uint8(9))
	f.Fuzz(func(t *testing.T, text string, limit, size uint8) {
		if strings.Contains(text, "[cut:") {
			return // it would be taken for the last line below
		}
		w := window{limit: int64(limit%16) + 1, max: int(size%64) + 4}
		got := ""
		for range len(text) + 2 {
			part, err := w.read(strings.NewReader(text))
			if errors.Is(err, errNoText) {
				if utf8.ValidString(text) {
					t.Fatalf("%q is text", text)
				}
				return
			}
			if err != nil {
				t.Fatalf("%q %+v: %v", text, w, err)
			}
			if len(part) > w.max+100 {
				t.Fatalf("%d bytes", len(part))
			}
			i := strings.LastIndexByte(part, '\n') + 1
			var line, begun int64
			if n, _ := fmt.Sscanf(part[i:], "[cut: the file goes on; read on with offset %d]", &line); n == 1 {
				got += part[:i]
				w.offset, w.skip = line, 0
			} else if n, _ := fmt.Sscanf(part[i:], "[cut: line %d goes on; read on with offset %d and byte_offset %d]", &line, &line, &begun); n == 3 {
				got += strings.TrimSuffix(part[:i], "\n")
				w.offset, w.skip = line, begun
			} else {
				if got += part; got != text {
					t.Fatalf("%q, want %q", got, text)
				}
				return
			}
		}
		t.Fatalf("no end in %q", text)
	})
}
