// Package wspath holds canonical workspace-relative paths: what a request
// names is parsed here once, and every layer below works on the result.
//
// A Path is raw bytes in a string (it need not be UTF-8), slash-separated,
// without leading or trailing slash, without empty, "." and ".." components;
// the root alone is ".". A Path that Parse returned names nothing that git or
// the server keeps for itself: no component is ".git" in any spelling that git
// protects, none has the form of our temporary files.
//
// The package judges words only. Whether a link on the way leads out of the root
// is for the kernel to say (os.Root).
package wspath

import (
	"bytes"
	"iter"
	"strings"

	"umbra/internal/errs"
)

// Path is a canonical path relative to the workspace's root. The zero value is
// taken for the root by every method, but is never returned.
type Path string

// Root is the workspace's root itself.
const Root Path = "."

// Limits on names, in bytes; both are inclusive.
const (
	MaxComponent = 255
	MaxPath      = 4096
)

// Option widens what Parse accepts.
type Option uint8

// The options of Parse.
const (
	// AllowRoot accepts "", "." and what resolves to them as the root.
	AllowRoot Option = 1 << iota
	// AllowTrailingSlash is for routes that name folders: "a/" is "a".
	AllowTrailingSlash
	// AllowLeadingSlash is for dialects whose paths begin at the workspace's
	// root: "/a" is "a".
	AllowLeadingSlash
)

// Parse gives the canonical form of a path that a client sent, or an
// errs.BadPath with the code "bad_path" that says what is wrong with it.
//
// Components are judged as they were sent, also those that a later ".." takes
// back: ".git/../a" is refused, however it resolves.
func Parse(s string, opts ...Option) (Path, error) {
	var o Option
	for _, opt := range opts {
		o |= opt
	}
	if strings.IndexByte(s, 0) >= 0 {
		return "", bad(s, "The path contains a NUL byte.")
	}
	rest := s
	if strings.HasPrefix(rest, "/") {
		if o&AllowLeadingSlash == 0 {
			return "", bad(s, "The path is absolute; it must be relative to the workspace.")
		}
		rest = strings.TrimLeft(rest, "/")
	}
	if strings.HasSuffix(rest, "/") && o&AllowTrailingSlash == 0 {
		return "", bad(s, "The path ends with a slash; it must name a file.")
	}

	canonical := true
	depth := 0
	for name := range strings.SplitSeq(rest, "/") {
		switch name {
		case "", ".":
			canonical = false
		case "..":
			canonical = false
			if depth--; depth < 0 {
				return "", bad(s, "The path leads out of the workspace.")
			}
		default:
			if why := refuseName(name); why != "" {
				return "", bad(s, why)
			}
			depth++
		}
	}
	if depth == 0 {
		if o&AllowRoot == 0 {
			return "", bad(s, "The path is empty or names the workspace's root.")
		}
		return Root, nil
	}
	if !canonical {
		rest = resolve(rest)
	}
	if len(rest) > MaxPath {
		return "", bad(s, "The path is longer than 4096 bytes.")
	}
	return Path(rest), nil
}

// resolve drops empty and "." components and resolves ".." by the words. The
// caller has made sure that the path does not escape.
func resolve(s string) string {
	out := make([]byte, 0, len(s))
	for name := range strings.SplitSeq(s, "/") {
		switch name {
		case "", ".":
		case "..":
			out = out[:max(bytes.LastIndexByte(out, '/'), 0)]
		default:
			if len(out) > 0 {
				out = append(out, '/')
			}
			out = append(out, name...)
		}
	}
	return string(out)
}

// CheckName judges one component: nil, or an errs.BadPath with the code
// "bad_path". "." and ".." are refused, and so is a slash.
func CheckName(name string) error {
	switch {
	case name == "", name == ".", name == "..":
		return bad(name, "The name is empty, \".\" or \"..\".")
	case strings.IndexByte(name, '/') >= 0:
		return bad(name, "The name contains a slash.")
	case strings.IndexByte(name, 0) >= 0:
		return bad(name, "The name contains a NUL byte.")
	}
	if why := refuseName(name); why != "" {
		return bad(name, why)
	}
	return nil
}

// refuseName gives the sentence why a component is refused, or "".
func refuseName(name string) string {
	switch {
	case len(name) > MaxComponent:
		return "A name in the path is longer than 255 bytes."
	case IsGitName(name):
		return "The path has a component that git reads as \".git\"."
	case IsTemp(name):
		return "The path has a component of the form that the server's temporary files have."
	}
	return ""
}

func bad(path, why string) error {
	e := errs.New(errs.BadPath, "bad_path", "")
	e.Detail = why
	if len(path) <= MaxPath {
		e.Path = path
	}
	return e
}

// String gives the raw bytes.
func (p Path) String() string { return string(p) }

// IsRoot reports whether the path is the workspace's root.
func (p Path) IsRoot() bool { return p == Root || p == "" }

// Base gives the last component; the root's is ".".
func (p Path) Base() string {
	if p.IsRoot() {
		return "."
	}
	return string(p[strings.LastIndexByte(string(p), '/')+1:])
}

// Dir gives the folder that the path is in; the root's is the root.
func (p Path) Dir() Path {
	i := strings.LastIndexByte(string(p), '/')
	if i < 0 {
		return Root
	}
	return p[:i]
}

// Join appends a component, or several separated by slashes, which must be
// canonical: it is for names that come from a directory or a tree, and judges
// nothing.
func (p Path) Join(name string) Path {
	switch {
	case p.IsRoot() && name == "":
		return Root
	case p.IsRoot():
		return Path(name)
	case name == "" || name == ".":
		return p
	}
	return p + "/" + Path(name)
}

// Components gives the names from the root down; none for the root.
func (p Path) Components() []string {
	if p.IsRoot() {
		return nil
	}
	return strings.Split(string(p), "/")
}

// IsUnder reports whether the path is strictly below a folder.
func (p Path) IsUnder(dir Path) bool {
	if p.IsRoot() {
		return false
	}
	if dir.IsRoot() {
		return true
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// Within reports whether the path is a folder itself or below it.
func (p Path) Within(dir Path) bool {
	return p == dir || p.IsUnder(dir) || p.IsRoot() && dir.IsRoot()
}

// Rel gives the path as seen from a folder that it is Within, and false for
// any other.
func (p Path) Rel(dir Path) (Path, bool) {
	switch {
	case !p.Within(dir):
		return "", false
	case p == dir || p.IsRoot():
		return Root, true
	case dir.IsRoot():
		return p, true
	}
	return p[len(dir)+1:], true
}

// Ancestors gives the folders above the path, the nearest first and the root
// last; none for the root.
func (p Path) Ancestors() iter.Seq[Path] {
	return func(yield func(Path) bool) {
		for !p.IsRoot() {
			p = p.Dir()
			if !yield(p) {
				return
			}
		}
	}
}
