package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestReviewBytes rejects changes of files that are not plain text, one by one: each file
// is what it was, byte for byte, and what was made is gone.
func TestReviewBytes(t *testing.T) {
	base := map[string]string{
		"crlf":    "a\r\nb\r\nc",
		"latin1":  "h\xe9llo\nw\xf6rld\n",
		"bytes":   "\xff\xfe\x00bin",
		"utf16":   "\xff\xfea\x00\n\x00b\x00",
		"open":    "one\ntwo\nthree\n",
		"closed":  "one\ntwo\nthree",
		"long":    strings.Repeat("x", 300_000) + "\nend\n",
		"nothing": "",
	}
	made := map[string]string{
		"crlf":    "a\nB\r\nc\r\nd",
		"latin1":  "h\xe9llo\nnew\xff\nw\xf6rld",
		"bytes":   "\x00\x01",
		"utf16":   "\xff\xfea\x00\n\x00c\x00",
		"open":    "one\ntwo\nthree",
		"closed":  "one\ntwo\nthree\n",
		"long":    strings.Repeat("x", 300_001) + "\nend\n",
		"nothing": "something",
		"empty":   "",
		"huge":    strings.Repeat("y", 900_000),
	}
	p := newProject(t, base)
	need.NoError(t, os.Symlink("open", filepath.Join(p.dir, "link")))
	k := p.task(t)
	for name, text := range made {
		k.put(t, name, text)
	}
	p.call(t, "DELETE", k.file("link"), nil).want(t, 200)
	list, _ := k.hunks(t, "")
	if len(list) < len(made)+1 {
		t.Errorf("%d hunks of %d files", len(list), len(made)+1)
	}
	for _, h := range list {
		p.post(t, k.url("/review"), map[string]any{"reject": []string{h.ID}}).want(t, 200)
	}
	for name, text := range base {
		if p.read(t, name) != text {
			t.Errorf("%s is not what it was", name)
		}
	}
	p.absent(t, "empty")
	p.absent(t, "huge")
	if to, err := os.Readlink(filepath.Join(p.dir, "link")); err != nil || to != "open" {
		t.Errorf("link: %q %v", to, err)
	}
	if list, _ := k.hunks(t, ""); len(list) != 0 {
		t.Errorf("left: %+v", list)
	}
	k.fsck(t)
}
