package need

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files returns the bytes of the regular files below a directory, by path.
func Files(t T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	NoError(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		out[rel] = string(data)
		return err
	}))
	return out
}

// Tree describes a directory and all that is below it, a line each: path, mode, and bytes or
// target. It leaves out the directories named skip at the top.
func Tree(t T, dir string, skip ...string) string {
	t.Helper()
	var b strings.Builder
	NoError(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, s := range skip {
			if name == filepath.Join(dir, s) {
				return filepath.SkipDir
			}
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		var text []byte
		switch {
		case e.Type().IsRegular():
			text, err = os.ReadFile(name)
		case e.Type()&fs.ModeSymlink != 0:
			var target string
			target, err = os.Readlink(name)
			text = []byte(target)
		}
		rel, _ := filepath.Rel(dir, name)
		fmt.Fprintf(&b, "%s %v %q\n", rel, info.Mode(), text)
		return err
	}))
	return b.String()
}

// Leaks returns the files below a directory that contain text: raw, or inflated wherever
// a zlib stream may begin. Files may be removed meanwhile.
func Leaks(t T, dir, text string) (found []string) {
	t.Helper()
	NoError(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return unlessRemoved(err)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return unlessRemoved(err)
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, name+" (raw)")
			return nil
		}
		for i := 0; i+2 < len(data); i++ {
			if data[i] != 0x78 || (uint(data[i])<<8|uint(data[i+1]))%31 != 0 {
				continue
			}
			z, err := zlib.NewReader(bytes.NewReader(data[i:]))
			if err != nil {
				continue
			}
			inflated, _ := io.ReadAll(io.LimitReader(z, 1<<20)) // not a stream: an error ends it
			if bytes.Contains(inflated, []byte(text)) {
				found = append(found, fmt.Sprintf("%s (inflated at %d)", name, i))
				return nil
			}
		}
		return nil
	}))
	return found
}

func unlessRemoved(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
