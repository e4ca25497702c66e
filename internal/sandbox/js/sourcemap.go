package js

import (
	"encoding/json"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// sourceMap leads from a place in a bundle to the program's own files
// (ECMA-426). It is decoded when the first error asks.
type sourceMap struct {
	raw     []byte
	once    sync.Once
	sources []string
	lines   [][]segment
}

// segment says from which column on what source is meant. All from 0.
type segment struct{ col, source, line, srcCol int }

func (m *sourceMap) decode() {
	var raw struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	if json.Unmarshal(m.raw, &raw) != nil {
		return
	}
	for _, s := range raw.Sources {
		_, name, ok := strings.Cut(s, inWorkspace+":")
		if !ok {
			name = s
		}
		m.sources = append(m.sources, name)
	}
	var at segment
	for line := range strings.SplitSeq(raw.Mappings, ";") {
		var segments []segment
		at.col = 0
		for part := range strings.SplitSeq(line, ",") {
			n, ok := vlq(part)
			if !ok || len(n) == 0 {
				continue
			}
			at.col += n[0]
			if len(n) < 4 {
				continue
			}
			at.source += n[1]
			at.line += n[2]
			at.srcCol += n[3]
			if at.source >= 0 && at.source < len(m.sources) {
				segments = append(segments, at)
			}
		}
		m.lines = append(m.lines, segments)
	}
}

const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

func vlq(s string) (out []int, ok bool) {
	value, shift := 0, 0
	for i := range len(s) {
		d := strings.IndexByte(digits, s[i])
		if d < 0 || shift > 30 {
			return nil, false
		}
		value |= d & 31 << shift
		shift += 5
		if d&32 == 0 {
			if value&1 != 0 {
				value = -(value >> 1)
			} else {
				value >>= 1
			}
			out = append(out, value)
			value, shift = 0, 0
		}
	}
	return out, shift == 0
}

// place gives where a place of the bundle comes from; lines and columns count
// from 1.
func (m *sourceMap) place(line, col int) (file string, srcLine, srcCol int, ok bool) {
	m.once.Do(m.decode)
	if line < 1 || line > len(m.lines) {
		return "", 0, 0, false
	}
	segments := m.lines[line-1]
	i := sort.Search(len(segments), func(i int) bool { return segments[i].col > col-1 }) - 1
	if i < 0 {
		if len(segments) == 0 {
			return "", 0, 0, false
		}
		i = 0
	}
	s := segments[i]
	return m.sources[s.source], s.line + 1, s.srcCol + 1, true
}

var frame = regexp.MustCompile(`^(\s+at )(?:(.*?) \()?([^()\s]*):(\d+):(\d+)\)?\s*$`)

// stack rewrites an engine's stack: frames of the program name its own files,
// frames of what lies between it and the engine are left out.
func (m *sourceMap) stack(text string) string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		f := frame.FindStringSubmatch(line)
		if f == nil {
			if !strings.Contains(line, "<evalScript>") && strings.TrimSpace(line) != "at <anonymous>" {
				out = append(out, line)
			}
			continue
		}
		if f[3] != bundleName {
			continue
		}
		row, _ := strconv.Atoi(f[4])
		col, _ := strconv.Atoi(f[5])
		file, row, col, ok := m.place(row, col)
		if !ok {
			continue
		}
		at := file + ":" + strconv.Itoa(row) + ":" + strconv.Itoa(col)
		if f[2] != "" && f[2] != "<anonymous>" {
			at = f[2] + " (" + at + ")"
		}
		out = append(out, "    at "+at)
	}
	return strings.Join(out, "\n")
}
