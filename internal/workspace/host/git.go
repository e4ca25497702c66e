package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
)

// checkoutHost is a Host that knows the project's own objects.
type Checkouts interface {
	// Objects gives the "objects" folder of the repository that a folder is the
	// checkout of; ok is false where anything outside of the folder's tree might
	// make a file's bytes other than its blob's.
	Objects(dir string) (objects vfs.FS, ok bool)
}

// doubts are words of a git configuration, in lower case, that may lead to a
// blob that is not the file's bytes, or to more configuration. Conversions of
// line ends change a file's size, which is compared, and are no doubt.
var doubts = [...]string{"[include", "[extensions", "attributesfile", "encoding"}

// Objects is Checkouts'. It only reads files.
func (OS) Objects(dir string) (vfs.FS, bool) {
	g, err := ignore.FindGitDir(dir)
	if err != nil || g.Dir == "" || g.Linked || g.Common != g.Dir {
		return nil, false
	}
	objects := filepath.Join(g.Dir, "objects")
	if info, err := os.Lstat(objects); err != nil || !info.IsDir() {
		return nil, false
	}
	configs := []string{filepath.Join(g.Dir, "config"), "/etc/gitconfig"}
	attributes := []string{filepath.Join(g.Dir, "info", "attributes"), "/etc/gitattributes"}
	if home, err := os.UserHomeDir(); err == nil {
		configs = append(configs, filepath.Join(home, ".gitconfig"), filepath.Join(home, ".config", "git", "config"))
		attributes = append(attributes, filepath.Join(home, ".config", "git", "attributes"))
	}
	if xdg := os.Getenv("XDG_CONFIG_HOME"); xdg != "" {
		configs = append(configs, filepath.Join(xdg, "git", "config"))
		attributes = append(attributes, filepath.Join(xdg, "git", "attributes"))
	}
	for _, name := range configs {
		text, ok := readSmall(name)
		if !ok {
			return nil, false
		}
		for _, word := range doubts {
			if strings.Contains(strings.ToLower(text), word) {
				return nil, false
			}
		}
	}
	for _, name := range attributes {
		if text, ok := readSmall(name); !ok || !HarmlessAttributes(text) {
			return nil, false
		}
	}
	f, err := vfs.OS(objects)
	return f, err == nil
}

// readSmall reads a file of settings; a missing one is empty. One that is larger
// than any such file, or cannot be read, is not ok.
func readSmall(name string) (text string, ok bool) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", true
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return "", false
	}
	data, err := os.ReadFile(name)
	return string(data), err == nil
}

// HarmlessAttributes reports whether a file of gitattributes(5) names nothing
// that turns a file's bytes into others of the same number.
func HarmlessAttributes(text string) bool {
	text = strings.ToLower(text)
	for _, word := range [...]string{"filter", "encoding", "ident"} {
		if strings.Contains(text, word) {
			return false
		}
	}
	return true
}
