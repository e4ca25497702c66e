package object_test

import (
	"fmt"
	"strings"
	"testing"

	"umbra/gitstore/object"
)

// names are all sorts of file names; whether each is good is git's to say.
var names = []string{
	"a", "a b", " a", "a ", "-", ":", "a\nb", "a\tb", "\"", "\\", "a\\b", "\xff", "é", "e\u0301", "\u200c", strings.Repeat("n", 255),
	".", "..", "...", ". ", ".. ", ".a", "a.", "a..b",
	".git", ".Git", ".GIT", ".giT", ".git ", ".git.", ".git. . ", ".git:", ".git::$INDEX_ALLOCATION", ".git :x", ".git.:x", ".git\\", ".git\\x", "x\\.git", "x\\y\\.GIT. ", "x\\.gitx",
	"git~1", "GIT~1", "Git~1 ", "git~1.", "git~1:x", "x\\git~1", "git~1\\x", "git~2", "git~10", "git~", "git", "git.", "gi~1",
	".gitx", ".gi", ".gi t", ". git", " .git", "..git", ".git\x01", ".git-x", "a.git", ".git\u00a0",
	".g\u200cit", "\u200d.git", ".git\u200e", ".\u200fGIT", ".gi\u202at", ".git\u202e", ".g\u206ait", ".g\u206fIt", "\ufeff.git", ".git\ufeff\u200c", ".g\u2010it", ".g\u2029it", ".g\u202fit", ".g\u2070it", ".g\u206bit\u200ex",
	".git\xff", ".git\xffx", ".\xffgit", ".gi\xc0\xaft", ".git\xe2\x80", ".git\xed\xa0\x80", ".git\xf4\x90\x80\x80", ".git\xef\xbf\xbf", ".git\ufffex", ".git\U0001fffe", ".git\xef\xbf\xbd", ".g\u0130t", ".gİt", ".gıt", "\u212a",
	".gitmodules", ".gitmodule", ".gitmoduless", ".GitModules", ".gitmodules ", ".gitmodules.", ".gitmodules::$DATA", ".gitmodules\\x", "x\\.gitmodules", "x\\.gitmodules\\y", "x\\gi7eba~1",
	"gitmod~1", "GITMOD~4", "gitmod~5", "gitmod~0", "gitmod~12", "gitmod~1 .", "gitmod~1:x", "gi7eba~1", "GI7EBA~9", "gi7eba~0", "gi7eb~10", "gi7e~123", "gi~12345", "gi~1234", "g~123456", "~1234567", "~0234567", "gi7d~123", "gi7eba~1x", "gi7eba~1.", "gi7eba~12", "gi7e~12a", "gi7ebax~",
	".g\u200citmodules", ".gitmodules\u200c", ".gitmodules\xff", ".gıtmodules", "g\u0130~12345",
	".gitattributes", ".gitignore", ".mailmap", "gitatt~1", "gitign~1", "mailma~1",
}

// refused gives the names of entries that `git fsck --strict` complains about,
// each in a tree of its own, in one run.
func refused(t *testing.T, mode object.Mode) map[string]string {
	t.Helper()
	dir, id := repo(t)
	byID := map[string]string{}
	for _, n := range names {
		byID[write(t, dir, "tree", rawTree(object.Entry{Name: n, Mode: mode, ID: id})).String()] = n
	}
	out, _ := run(dir, nil, "fsck", "--strict", "--no-dangling")
	bad := map[string]string{}
	for line := range strings.Lines(out) {
		var kind, id string
		word, rest, _ := strings.Cut(line, " in ")
		if word != "error" && word != "warning" {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%s %s", &kind, &id); err != nil {
			t.Fatalf("git fsck says %q", line)
		}
		if name, ok := byID[strings.TrimSuffix(id, ":")]; ok {
			bad[name] += line
		}
	}
	return bad
}

func TestValidNameAgainstFsck(t *testing.T) {
	bad := refused(t, object.Regular)
	for _, n := range names {
		err := object.ValidName(n)
		if why, ok := bad[n]; ok != (err != nil) {
			t.Errorf("ValidName(%q) = %v, git fsck says %q", n, err, why)
		}
	}
	if len(bad) < 40 {
		t.Errorf("git fsck refuses only %d names", len(bad))
	}
	for _, n := range []string{"", "a/b", "/", "a\x00", strings.Repeat("n", 4097)} {
		if object.ValidName(n) == nil {
			t.Errorf("ValidName(%q) lets it pass", n)
		}
	}
}

func TestProtectedSymlinkNameAgainstFsck(t *testing.T) {
	plain, link := refused(t, object.Regular), refused(t, object.Symlink)
	for _, name := range names {
		if plain[name] != "" {
			continue // refused whatever its mode
		}
		want := strings.Contains(link[name], "gitmodulesSymlink")
		if got := object.ProtectedSymlinkName(name); got != want {
			t.Errorf("ProtectedSymlinkName(%q) = %v, git fsck says %q", name, got, link[name])
		}
	}
}
