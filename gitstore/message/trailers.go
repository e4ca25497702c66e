package message

import (
	"iter"
	"strings"
)

// split separates the last paragraph, if every line of it is a trailer (or one
// that git itself appends), from the text before it. umbra's messages are always
// so; git-interpret-trailers(1) is more lenient.
func split(s string) (body, block string) {
	s = strings.TrimRight(s, "\n")
	i := strings.LastIndex(s, "\n\n")
	if i < 0 {
		return s, ""
	}
	block = s[i+2:]
	for line := range strings.SplitSeq(block, "\n") {
		if _, _, ok := cutTrailer(line); !ok && !continues(line) && !strings.HasPrefix(line, "(cherry picked from commit ") {
			return s, ""
		}
	}
	return strings.TrimRight(s[:i], "\n"), block
}

// trailers yields the block's keys and values in order, continuation lines
// unfolded.
func trailers(block string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		var k, v string
		have := false
		for line := range strings.SplitSeq(block, "\n") {
			if continues(line) {
				v += " " + strings.TrimSpace(line)
				continue
			}
			key, value, ok := cutTrailer(line)
			if !ok {
				continue
			}
			if have && !yield(k, v) {
				return
			}
			k, v, have = key, value, true
		}
		if have {
			yield(k, v)
		}
	}
}

func hasKey(block, want string) bool {
	for k := range trailers(block) {
		if k == want {
			return true
		}
	}
	return false
}

func continues(line string) bool { return line != "" && (line[0] == ' ' || line[0] == '\t') }

// cutTrailer reads "Key: value". The value loses the white space around it,
// as git takes it.
func cutTrailer(line string) (k, v string, ok bool) {
	k, v, ok = strings.Cut(line, ":")
	if !ok || k == "" {
		return "", "", false
	}
	for i := 0; i < len(k); i++ {
		if !alnum(k[i]) && k[i] != '-' {
			return "", "", false
		}
	}
	return k, strings.Trim(v, " \t\r\v\f"), true
}
