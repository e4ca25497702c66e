package message

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func git(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, errOut.String())
	}
	return string(out)
}

// TestGitReadsOurTrailers gives hostile texts as every field a client reaches
// and compares what git takes for trailers with what was encoded.
func TestGitReadsOurTrailers(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "--bare")
	tree := strings.TrimSpace(git(t, dir, "", "hash-object", "-t", "tree", "-w", "--stdin"))
	var ids, blocks []string
	for _, h := range hostile() {
		m := Message{Subject: h, TaskID: "real", SubtaskID: "s", Actor: h, Source: API, RequestID: h, Author: h,
			Description: h, Extra: []Trailer{{"Version", h}}, Change: 1, Seq: 1,
			Entries: []Entry{{Operation: Rename, Path: h + "x", OldPath: "x" + h, AfterHash: hash}, {Operation: Modify, Path: "y"}}}
		s := m.Encode()
		checkText(t, s)
		_, block := split(s)
		if got := git(t, dir, s, "interpret-trailers", "--parse"); got != block+"\n" {
			t.Errorf("%.200q: interpret-trailers reads\n%.2000s\nof\n%.2000s", h, got, s)
		}
		name, email := Author(h)
		id := git(t, dir, "tree "+tree+"\nauthor "+name+" <"+email+"> 1 +0000\ncommitter umbra <umbra@umbra.invalid> 1 +0000\n\n"+s,
			"hash-object", "-t", "commit", "-w", "--stdin")
		ids, blocks = append(ids, strings.TrimSpace(id)), append(blocks, block)
		if tasks := git(t, dir, "", "log", "-1", "--format=%(trailers:key=Task-Id,valueonly)", ids[len(ids)-1]); tasks != "real\n\n" {
			t.Errorf("%.200q: Task-Id is %q", h, tasks)
		}
	}
	out := git(t, dir, strings.Join(ids, "\n"), "log", "--no-walk=unsorted", "--stdin", "-z", "--format=%(trailers)")
	for i, got := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		if strings.TrimRight(got, "\n") != blocks[i] {
			t.Errorf("log reads\n%.2000s\nwant\n%.2000s", got, blocks[i])
		}
	}
	if out := git(t, dir, "", "fsck", "--strict", "--full", "--no-dangling"); strings.TrimSpace(out) != "" {
		t.Errorf("fsck: %s", out)
	}
}

// TestMailKeepsTheMessage sends commits through format-patch and am.
func TestMailKeepsTheMessage(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "src")
	src, dst := dir+"/src", dir+"/dst"
	var texts []string
	stream := &strings.Builder{}
	for i, h := range hostile() {
		m := Message{Subject: "s\n" + h, TaskID: "real", Source: API, Seq: uint64(i + 1), Actor: h,
			Entries: []Entry{{Operation: Modify, Path: "f"}}}
		s := m.Encode()
		texts = append(texts, s)
		stream.WriteString("commit refs/heads/main\ncommitter umbra <umbra@umbra.invalid> 1 +0000\ndata <<EOT-EOT\n" +
			s + "EOT-EOT\nM 100644 inline f\ndata <<EOT-EOT\n" + strings.Repeat("x", i) + "\nEOT-EOT\n\n")
	}
	git(t, src, stream.String(), "fast-import", "--quiet")
	git(t, dir, "", "init", "-q", "dst")
	patches := git(t, src, "", "format-patch", "--stdout", "--root", "main")
	git(t, dst, patches, "-c", "user.name=u", "-c", "user.email=u@x.invalid", "am", "-q", "--keep-cr")
	out := git(t, dst, "", "log", "--reverse", "-z", "--format=%B")
	for i, got := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		if strings.TrimRight(got, "\n") != strings.TrimRight(texts[i], "\n") {
			t.Errorf("came as\n%.2000q\nwas\n%.2000q", got, texts[i])
		}
	}
}

// TestQuotesAsGit compares with git's own quoting of names: without
// core.quotePath it would leave the byte that is no UTF-8 bare.
func TestQuotesAsGit(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "", "init", "-q")
	names := []string{"a b", "tab\t", "nl\n", `q"`, `b\`, "ü", "\xff", "\x01", "\x7f", "\a\b\v\f\r", "a'b", "$x", "-", ":x", "#", "日本"}
	blob := strings.TrimSpace(git(t, dir, "x", "hash-object", "-w", "--stdin"))
	var in strings.Builder
	for _, n := range names {
		in.WriteString("100644 blob " + blob + "\t" + n + "\x00")
	}
	tree := strings.TrimSpace(git(t, dir, in.String(), "mktree", "-z"))
	got := map[string]bool{}
	for l := range strings.SplitSeq(git(t, dir, "", "-c", "core.quotePath=false", "ls-tree", "--name-only", tree), "\n") {
		got[l] = true
	}
	for _, n := range names {
		if utf8.ValidString(n) && !got[QuotePath(n)] {
			t.Errorf("git does not quote %q as %s", n, QuotePath(n))
		}
	}
	for l := range strings.SplitSeq(strings.TrimSpace(git(t, dir, "", "ls-tree", "--name-only", tree)), "\n") {
		if v, ok := Unquote(l); !ok || !strings.Contains(in.String(), "\t"+v+"\x00") {
			t.Errorf("Unquote(%s) = %q, %v", l, v, ok)
		}
	}
}

// TestGitReadsInfo holds an info tag to the same: its trailers are ours alone,
// and fsck takes the tag.
func TestGitReadsInfo(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "--bare")
	tree := strings.TrimSpace(git(t, dir, "", "hash-object", "-t", "tree", "-w", "--stdin"))
	for _, h := range hostile() {
		in := testInfo(h)
		s := EncodeInfo(in)
		checkText(t, s)
		_, block := split(s)
		if got := git(t, dir, s, "interpret-trailers", "--parse"); got != block+"\n" {
			t.Errorf("%.200q: interpret-trailers reads\n%.2000s\nof\n%.2000s", h, got, s)
		}
	}
	in := &Info{TaskID: "a.", Goal: "x", Created: time.Unix(1, 0)}
	s := EncodeInfo(in)
	commit := strings.TrimSpace(git(t, dir, "tree "+tree+"\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n", "hash-object", "-t", "commit", "-w", "--stdin"))
	id := git(t, dir, "object "+commit+"\ntype commit\ntag "+in.TagName()+"\ntagger umbra <umbra@umbra.invalid> 1 +0000\n\n"+s,
		"hash-object", "-t", "tag", "-w", "--stdin")
	git(t, dir, "", "update-ref", "refs/umbra/tasks/a./info", strings.TrimSpace(id))
	if out := git(t, dir, "", "fsck", "--strict", "--full"); strings.TrimSpace(out) != "" {
		t.Errorf("fsck: %s", out)
	}
}
