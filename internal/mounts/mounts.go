// Package mounts reports where else a directory can be reached, by the system's
// mount table (proc_pid_mountinfo(5)): a bind mount shows one directory under
// several paths, and comparing paths does not see it.
package mounts

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line of the table.
type Mount struct {
	Device string // major:minor of the file system
	Root   string // the directory of the file system that is shown
	Point  string // where
	Type   string // of the file system
	Source string // as who mounted it named it
}

// Table is the mounts of a process, in the order in which they were made.
type Table []Mount

// Place is a directory by its file system, whatever path leads to it.
type Place struct {
	Device, Path string
}

// Parse reads a table in the form of /proc/self/mountinfo. Lines that it does not
// know are left out.
func Parse(r io.Reader) (Table, error) {
	var t Table
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// id parent major:minor root point options… - type source options
		f := strings.Fields(lines.Text())
		if len(f) < 6 || !strings.Contains(f[2], ":") {
			continue
		}
		m := Mount{Device: f[2], Root: unescape(f[3]), Point: unescape(f[4])}
		if i := slices.Index(f, "-"); i > 0 && i+2 < len(f) {
			m.Type, m.Source = f[i+1], unescape(f[i+2])
		}
		t = append(t, m)
	}
	return t, lines.Err()
}

// unescape undoes the octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Locate gives the place of a canonical path; false where no mount shows it.
func (t Table) Locate(path string) (Place, bool) {
	best := -1
	for i := range t {
		// Of several at one point the last covers the others.
		if Within(path, t[i].Point) && (best < 0 || len(t[i].Point) >= len(t[best].Point)) {
			best = i
		}
	}
	if best < 0 {
		return Place{}, false
	}
	m := t[best]
	return Place{m.Device, join(m.Root, rest(path, m.Point))}, true
}

// Below gives the paths in a directory under which a place, or a part of it, is
// shown by a mount.
func (t Table) Below(dir string, p Place) []string {
	var out []string
	for _, m := range t {
		if m.Device != p.Device || !Within(m.Point, dir) {
			continue
		}
		switch {
		case Within(p.Path, m.Root):
			out = append(out, join(m.Point, rest(p.Path, m.Root)))
		case Within(m.Root, p.Path):
			out = append(out, m.Point)
		}
	}
	return out
}

// In reports whether a place is another one or lies in it.
func (p Place) In(other Place) bool { return p.Device == other.Device && Within(p.Path, other.Path) }

// Within reports whether a clean absolute path is a directory or lies in it.
func Within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// rest is what of a path lies below a directory that it lies in.
func rest(path, dir string) string { return strings.Trim(strings.TrimPrefix(path, dir), "/") }

func join(dir, rest string) string {
	switch {
	case rest == "":
		return dir
	case dir == "/":
		return "/" + rest
	}
	return dir + "/" + rest
}
