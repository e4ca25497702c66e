package revert

import "testing"

func TestMergeLineEnds(t *testing.T) {
	for name, x := range map[string]struct {
		before, after, cur, want string
		ok                       bool
	}{
		"another's line":          {"a\nb\nc\n", "a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n", "a\nB\nc\n", true},
		"the other way":           {"a\r\nb\r\nc\r\n", "a\nb\nc\n", "a\nB\nc\n", "a\r\nB\r\nc\r\n", true},
		"another's last line":     {"a\nb\n", "a\r\nb\r\n", "a\r\nb\r\nmore", "a\nb\nmore", true},
		"an edit with it":         {"a\nb\nc\nd\n", "A\r\nb\r\nc\r\nd\r\n", "A\r\nb\r\nc\r\nD\r\n", "a\nb\nc\nD\n", true},
		"another's end":           {"a\nb\nc\n", "a\r\nb\r\nc\r\n", "a\r\nB\nc\r\n", "a\nB\nc\n", true},
		"the same line":           {"a\nb\n", "A\r\nb\r\n", "Z\r\nb\r\n", "", false},
		"mixed before":            {"a\nb\r\nc\n", "a\nb\nc\n", "a\nB\nc\n", "", false},
		"a part alone":            {"a\nb\nc\n", "a\r\nb\nc\n", "A\r\nb\nc\n", "", false},
		"the ends did not change": {"a\nb\n", "A\nb\n", "Z\nb\n", "", false},
		"no line ends":            {"a", "b", "c", "", false},
	} {
		got, ok := mergeLineEnds([]byte(x.after), []byte(x.cur), []byte(x.before))
		if ok != x.ok || string(got) != x.want {
			t.Errorf("%s: %q %v, want %q", name, got, ok, x.want)
		}
	}
}
