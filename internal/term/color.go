package term

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// Color says when to color.
type Color string

// The values of --color.
const (
	Auto   Color = "auto"
	Always Color = "always"
	Never  Color = "never"
)

// ParseColor reads a flag's value.
func ParseColor(s string) (Color, error) {
	switch c := Color(s); c {
	case Auto, Always, Never:
		return c, nil
	}
	return "", fmt.Errorf("--color is auto, always or never, not %q", s)
}

// Wanted decides for an output: auto is a terminal that is not dumb, without
// NO_COLOR (no-color.org) in the environment.
func (c Color) Wanted(w io.Writer) bool {
	switch c {
	case Always:
		return true
	case Never:
		return false
	}
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether w is one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Style is a color, as git names its slots.
type Style string

// The styles, in git's default colors.
const (
	Plain   Style = ""
	Commit  Style = "\x1b[33m" // yellow
	Meta    Style = "\x1b[1m"
	Frag    Style = "\x1b[36m" // cyan
	Added   Style = "\x1b[32m" // green
	Removed Style = "\x1b[31m" // red
	Dim     Style = "\x1b[2m"
)

const reset = "\x1b[m"

// Paint gives s in a style; without color, s.
func (o *Output) Paint(st Style, s string) string {
	if !o.color || st == Plain || s == "" {
		return s
	}
	return string(st) + s + reset
}
