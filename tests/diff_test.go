package tests

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// gitKinds gives of a folder what git tells apart: link, executable or not, and
// the bytes.
func gitKinds(l laid) laid {
	out := laid{}
	for name, what := range l {
		if what == "d" || filepath.Base(name) == "skip.log" { // which is in no history, and moves along with its folder
			continue
		}
		if perm, data, _ := strings.Cut(what, " "); perm != "->" {
			what = map[bool]string{true: "x ", false: "- "}[perm[3] == 'x'] + data
		}
		out[name] = what
	}
	return out
}

// applied lets stock git apply a patch to a copy of a folder's files, and gives
// what stands there then.
func applied(t *testing.T, files laid, patch []byte, args ...string) laid {
	t.Helper()
	dir := t.TempDir()
	for name, what := range files {
		full := filepath.Join(dir, name)
		if what == "d" {
			continue
		}
		need.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		perm, data, _ := strings.Cut(what, " ")
		if perm == "->" {
			need.NoError(t, os.Symlink(data, full))
			continue
		}
		mode := fs.FileMode(0o644)
		if perm[3] == 'x' {
			mode = 0o755
		}
		need.NoError(t, os.WriteFile(full, []byte(data), mode))
	}
	if len(patch) > 0 {
		cmd := exec.Command(need.Tool(t, "git"), append([]string{"apply", "--whitespace=nowarn"}, args...)...)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(patch)
		cmd.Env = harness.Env(t, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git apply %v: %v\n%s\n%.4000s", args, err, out, patch)
		}
	}
	return gitKinds(lay(t, dir))
}

// diffText gives an answer's diff out of its JSON form.
func diffText(t *testing.T, o map[string]any) string {
	t.Helper()
	s, _ := o["diff"].(string)
	if o["diff_encoding"] == nil {
		return s
	}
	raw, err := url.PathUnescape(s)
	need.NoError(t, err)
	return raw
}

// TestDiffApplies: git apply makes of what the task found what it left, and
// back, from the whole diff and from those of the single files.
func TestDiffApplies(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	long := strings.Repeat("the same line\n", 60)
	for name, steps := range map[string][]string{
		"changed":              {"put a " + strings.Replace(eightLines, "4\n", "four\n", 1)},
		"far apart":            {"put b b\n" + long + "end\n", "put b first\n" + long + "END\nmore\n"},
		"made and deleted":     {"put n new\n", "put m/n/o new", "del b", "put e "},
		"no newline":           {"put open more", "put a " + eightLines + "9", "put n no newline"},
		"newline added":        {"put open no newline\n"},
		"emptied and filled":   {"put a ", "put void full\n"},
		"line ends":            {"put crlf 1\r\n2\r\n3\r\n", "put a 1\r\n2\n"},
		"binary":               {"put bin \x00\xff\xfe\n\x00", "put a \x00" + long, "put n \x00new", "mv void v2"},
		"becomes text":         {"put bin text\n"},
		"modes":                {"+x a", "-x run.sh", "put n x | +x n"},
		"mode and text":        {"+x a", "put a changed\n"},
		"renamed":              {"mv a c", "mv dir/x deep/er/x"},
		"renamed and edited":   {"put b " + long, "mv b c", "put c " + long + "more\n"},
		"swapped":              {"mv a t | mv b a | mv t b"},
		"ring":                 {"mv a t", "mv b a", "mv dir/x b", "mv t dir/x"},
		"folder moved":         {"mv dir moved", "put moved/x edited\n"},
		"folder becomes file":  {"del dir/sub", "put dir/sub file\n"},
		"file becomes folder":  {"del b", "put b/in/it new\n"},
		"link made a file":     {"del link", "put link file\n"},
		"file made a link":     {"disk ln b a"},
		"link elsewhere":       {"disk ln link dir/x"},
		"link moved and gone":  {"mv link l2", "disk ln l3 a"},
		"swapped, one a link":  {"mv a t | mv b a | mv t b", "disk ln a run.sh"},
		"odd names":            {"put tab\there x", "put q\"uote\\ x\n", "put -n x\n", "put new\nline x\n", "put é␠ü x\n", "put %41 x\n", "put \xff\xfe x\n", "mv b \xff/b", "put a␠b/␠c x\n"},
		"like a patch":         {"put n --- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n", "put a -- x\n\\ No newline at end of file\n"},
		"form feeds and CRs":   {"put a 1\r2\f3\v\n\r\n\x1a", "put b \r"},
		"nothing in the end":   {"put a x", "put a " + eightLines, "put n x", "del n", "mv b c", "mv c b"},
		"a private file":       {"put key changed\n", "mv key k2"},
		"ignored, but written": {"put out.log text\n", "put new.log text\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server.on(t, undoFiles)
			k := p.task(t)
			before := lay(t, p.dir)
			for _, s := range steps {
				k.step(t, s)
			}
			after := gitKinds(lay(t, p.dir))
			r := p.call(t, "GET", k.url("/diff"), nil).want(t, 200)
			if ct := r.head("Content-Type"); ct != "text/x-diff; charset=utf-8" {
				t.Errorf("Content-Type: %s", ct)
			}
			same(t, applied(t, before, r.Body), after)
			if len(r.Body) > 0 {
				same(t, applied(t, lay(t, p.dir), r.Body, "-R"), gitKinds(before))
			}
			whole := p.call(t, "GET", k.url("/diff"), nil, "Accept", "application/json").want(t, 200)
			if got := diffText(t, whole.obj(t)); got != string(r.Body) {
				t.Errorf("as JSON it is\n%s\nas text\n%s", got, r.Body)
			}
			// git counts the lines as we do.
			adds, dels, binaries := 0, 0, 0
			for line := range strings.SplitSeq(strings.TrimSuffix(harness.GitInput(t, t.TempDir(), string(r.Body), "apply", "--numstat", "--allow-empty"), "\n"), "\n") {
				var a, d int
				if n, _ := fmt.Sscanf(line, "%d\t%d", &a, &d); n == 2 {
					adds, dels = adds+a, dels+d
				} else if strings.HasPrefix(line, "-\t-\t") {
					binaries++
				}
			}
			has(t, whole.obj(t), map[string]any{"additions": adds, "deletions": dels, "binary": binaries > 0})
			// Zero context, and all of it.
			for _, n := range []string{"0", "100000"} {
				args := []string{}
				if n == "0" {
					args = append(args, "--unidiff-zero")
				}
				same(t, applied(t, before, p.call(t, "GET", k.url("/diff?context="+n), nil).want(t, 200).Body, args...), after)
			}
			// Each file's own: what the summary lists, by both routes.
			for _, f := range whole.list(t, "files") {
				path := fmt.Sprint(f["path"])
				raw := path
				if f["path_encoding"] == "percent" {
					var err error
					if raw, err = url.PathUnescape(path); err != nil {
						t.Fatal(err)
					}
				}
				one := p.call(t, "GET", k.url("/files/"+pathInURL(raw)+"/diff"), nil).want(t, 200)
				other := p.call(t, "GET", k.url("/diff?path="+url.QueryEscape(raw)), nil).want(t, 200)
				j := p.call(t, "GET", k.url("/files/"+pathInURL(raw)+"/diff"), nil, "Accept", "application/json").want(t, 200).obj(t)
				if want := diffText(t, f); string(one.Body) != want || string(other.Body) != want || diffText(t, j) != want {
					t.Errorf("%q alone is\n%s\nby its query\n%s\nof the whole\n%s", raw, one.Body, other.Body, want)
				}
				has(t, j, map[string]any{"path": path, "additions": f["additions"], "deletions": f["deletions"], "binary": f["binary"], "before": f["before"], "after": f["after"]})
			}
		})
	}
}

// pathInURL escapes a path's bytes, slashes too.
func pathInURL(path string) string {
	if utf8.ValidString(path) {
		return url.PathEscape(path)
	}
	var b strings.Builder
	for i := range len(path) {
		fmt.Fprintf(&b, "%%%02X", path[i])
	}
	return b.String()
}

// TestDiffRanges: from and to are the base, the head, a change or a commit.
func TestDiffRanges(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	states := []laid{lay(t, p.dir)}
	names := []string{"base"}
	commits := []string{k.str("base")}
	for i, s := range []string{"put a one\n", "put n two\n", "mv a c", "del b", "put c five\n", "+x c", "put n \x00"} {
		k.step(t, s)
		list := k.changes(t, "")
		if len(list) != i+1 {
			t.Fatalf("%d changes", len(list))
		}
		states = append(states, lay(t, p.dir))
		names = append(names, fmt.Sprint(list[i]["id"]))
		commits = append(commits, fmt.Sprint(list[i]["commit"]))
	}
	names[len(names)-1] = "head"
	ask := func(query string) []byte { return p.call(t, "GET", k.url("/diff"+query), nil).want(t, 200).Body }
	for i := range states {
		for j := range states {
			got := ask("?from=" + names[i] + "&to=" + names[j])
			same(t, applied(t, states[i], got), gitKinds(states[j]))
			if by := ask("?from=" + commits[i] + "&to=" + commits[j]); !bytes.Equal(by, got) {
				t.Errorf("%s to %s by commits:\n%s\nby names\n%s", names[i], names[j], by, got)
			}
		}
		same(t, applied(t, states[i], ask("?from="+names[i])), gitKinds(states[len(states)-1]))
		same(t, applied(t, states[0], ask("?to="+names[i])), gitKinds(states[i]))
	}
	// One file, by any of its names.
	for _, path := range []string{"a", "c"} {
		if got := string(p.call(t, "GET", k.url("/files/"+path+"/diff?from=base&to=head"), nil).want(t, 200).Body); !strings.Contains(got, "five") {
			t.Errorf("%s: %s", path, got)
		}
	}
	// Between two commits it is as it stands there, whoever changed it.
	other := p.task(t)
	other.step(t, "put n theirs\n")
	theirs := fmt.Sprint(other.changes(t, "")[0]["commit"])
	if got := string(ask("?from=base&to=" + theirs)); !strings.Contains(got, "+theirs") {
		t.Errorf("up to another's commit: %s", got)
	}
}

// TestDiffRefusals: what is not there, and what is not understood.
func TestDiffRefusals(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put a x")
	for _, c := range []struct {
		url    string
		status int
		code   string
	}{
		{"/tasks/nobody/diff", 404, "task_not_found"},
		{"/tasks/nobody/files/a/diff", 404, "task_not_found"},
		{k.url("/files/no/such/diff"), 404, "file_not_found"},
		{k.url("/files/no/such/diff?from=base"), 404, "file_not_found"},
		{k.url("/diff?path=no"), 404, "file_not_found"},
		{k.url("/files/..%2fx/diff"), 400, "bad_path"},
		{k.url("/diff?path=%2e%2e/x"), 400, "bad_path"},
		{k.url("/diff?path=.git/config"), 400, "bad_path"},
		{k.url("/diff?from=nonsense"), 400, "invalid_parameter"},
		{k.url("/diff?to=nonsense"), 400, "invalid_parameter"},
		{k.url("/diff?from=-1"), 400, "invalid_parameter"},
		{k.url("/diff?from=1.5"), 400, "invalid_parameter"},
		{k.url("/diff?from=99"), 404, "change_not_found"},
		{k.url("/diff?from=" + strings.Repeat("0", 39) + "1"), 404, "commit_not_found"},
		{k.url("/diff?context=-1"), 400, "invalid_parameter"},
		{k.url("/diff?context=x"), 400, "invalid_parameter"},
		{k.url("/diff?context=100001"), 400, "invalid_parameter"},
		{k.url("/diff?context=1&context=2"), 400, "invalid_parameter"},
		{k.url("/diff?subtask_id=none"), 404, "subtask_not_found"},
		{k.url("/diff?subtask_id=.."), 400, ""},
	} {
		r := p.call(t, "GET", c.url, nil)
		if c.code == "" {
			if r.Status != c.status {
				t.Errorf("%s: %d %s", c.url, r.Status, r.Body)
			}
			continue
		}
		if o := r.fails(t, c.status, c.code); !strings.Contains(c.url, "nobody") && o["task_id"] != k.ID {
			t.Errorf("%s: the error's task is %v", c.url, o["task_id"])
		}
	}
	// What the task never touched, and what it touched and took back, is empty.
	k.step(t, "put n x")
	k.step(t, "del n")
	for _, path := range []string{"b", "dir/skip.log", "n"} {
		if r := p.call(t, "GET", k.url("/files/"+path+"/diff"), nil).want(t, 200); len(r.Body) != 0 {
			t.Errorf("%s: %s", path, r.Body)
		}
		has(t, p.call(t, "GET", k.url("/files/"+path+"/diff"), nil, "Accept", "application/json").want(t, 200).obj(t),
			map[string]any{"path": path, "diff": "", "additions": 0, "deletions": 0, "binary": false, "before": nil, "after": nil})
	}
}

// TestDiffMixed: where others' changes lie between the task's own, theirs are
// taken out; where that cannot be, the plain range is told, and both say so.
func TestDiffMixed(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	set := func(pairs ...string) string {
		text := eightLines
		for i := 0; i < len(pairs); i += 2 {
			text = strings.Replace(text, pairs[i]+"\n", pairs[i+1]+"\n", 1)
		}
		return "put a " + text
	}
	for name, c := range map[string]struct {
		mine1, theirs, mine2 string
		have, not            []string
		adds                 int
	}{
		"other lines": {set("1", "one"), set("1", "one", "4", "THEIRS"), set("1", "one", "4", "THEIRS", "8", "eight"), []string{"+one", "+eight"}, []string{"THEIRS"}, 2},
		"same line":   {set("1", "one"), set("1", "THEIRS"), set("1", "uno"), []string{"-1", "+uno"}, []string{"+one", "THEIRS"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server.on(t, undoFiles)
			k, other := p.task(t), p.task(t)
			k.step(t, c.mine1)
			other.step(t, c.theirs)
			k.step(t, c.mine2)
			o := p.call(t, "GET", k.url("/files/a/diff"), nil, "Accept", "application/json").want(t, 200).obj(t)
			has(t, o, map[string]any{"mixed": true, "additions": c.adds, "deletions": c.adds})
			text := diffText(t, o)
			for _, s := range c.have {
				if !strings.Contains(text, "\n"+s+"\n") {
					t.Errorf("no %q in\n%s", s, text)
				}
			}
			for _, s := range c.not {
				if strings.Contains(text, s+"\n") {
					t.Errorf("%q in\n%s", s, text)
				}
			}
			files := p.call(t, "GET", k.url("/files"), nil).want(t, 200).list(t, "files")
			if len(files) != 1 {
				t.Fatalf("the summary has %v", files)
			}
			has(t, files[0], map[string]any{"path": "a", "status": "modified", "mixed": true, "additions": c.adds, "deletions": c.adds})
			// The other's is not mixed, unless something of mine lies in it.
			has(t, p.call(t, "GET", other.url("/files/a/diff"), nil, "Accept", "application/json").want(t, 200).obj(t), map[string]any{"mixed": false})
		})
	}
}

// TestDiffNegotiation: text by default, JSON where it is preferred.
func TestDiffNegotiation(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put a x")
	for accept, kind := range map[string]string{
		"": "text/x-diff", "*/*": "text/x-diff", "text/x-diff": "text/x-diff", "text/plain, */*": "text/x-diff", "application/json": "application/json",
		"text/x-diff;q=0.5, application/json": "application/json", "application/json;q=0.1, text/x-diff": "text/x-diff",
	} {
		header := []string{}
		if accept != "" {
			header = []string{"Accept", accept}
		}
		for _, path := range []string{"/diff", "/files/a/diff"} {
			r := p.call(t, "GET", k.url(path), nil, header...).want(t, 200)
			if got := r.head("Content-Type"); !strings.HasPrefix(got, kind) || !slices.Equal(r.Header["Vary"], []string{"Origin", "Accept"}) {
				t.Errorf("%s, Accept %q: %s, Vary %q", path, accept, got, r.Header["Vary"])
			}
		}
	}
}

// TestSummary: each path in one list, net of what the task did.
func TestSummary(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k, other := p.task(t), p.task(t)
	other.step(t, "put other theirs")
	k.step(t, "put n new\n", "X-Subtask-Id", "s2")
	k.step(t, "put n newer\nmore\n", "X-Subtask-Id", "s1")
	k.step(t, "put gone x")
	k.step(t, "del gone")
	k.step(t, "put a x | put a "+eightLines)
	k.step(t, "put b x")
	k.step(t, "put b b\n")
	k.step(t, "mv dir/x moved")
	k.step(t, "mv crlf m2")
	k.step(t, "put m2 1\r\n2\r\n3\r\n")
	k.step(t, "del open")
	k.step(t, "+x void")
	k.step(t, "put bin \x00")
	o := p.call(t, "GET", k.url("/files"), nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"task_id": k.ID, "created": "[n]", "modified": "[bin void]", "deleted": "[open]"})
	if got, want := testJSON(o["renamed"]), `[{"from":"crlf","modified":true,"to":"m2"},{"from":"dir/x","modified":false,"to":"moved"}]`; got != want {
		t.Errorf("renamed: %s", got)
	}
	byPath := map[string]map[string]any{}
	var order []string
	for _, f := range p.call(t, "GET", k.url("/files"), nil).list(t, "files") {
		byPath[fmt.Sprint(f["path"])] = f
		order = append(order, fmt.Sprint(f["path"]))
	}
	if fmt.Sprint(order) != "[bin m2 moved n open void]" {
		t.Errorf("files: %v", order)
	}
	for path, want := range map[string]map[string]any{
		"n":     {"status": "created", "additions": 2, "deletions": 0, "binary": false, "before": nil, "subtasks": "[s1 s2]"},
		"bin":   {"status": "modified", "binary": true, "additions": 0, "deletions": 0, "subtasks": "[]"},
		"m2":    {"status": "renamed", "additions": 1, "deletions": 0},
		"moved": {"status": "renamed", "additions": 0, "deletions": 0},
		"open":  {"status": "deleted", "additions": 0, "deletions": 1, "after": nil},
		"void":  {"status": "modified", "additions": 0, "deletions": 0},
	} {
		has(t, byPath[path], want)
	}
	for _, f := range byPath {
		for _, side := range []string{"before", "after"} {
			if s, ok := f[side].(string); ok && (len(s) != 44 || !strings.HasPrefix(s, "git:")) {
				t.Errorf("%v: %s is %q", f["path"], side, s)
			}
		}
	}
	p.call(t, "GET", "/tasks/nobody/files", nil).fails(t, 404, "task_not_found")
}
