//go:build linux

package powercut

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"umbra/tests/harness"
)

// patience is how long what a user wrote last may take until it is in history.
const patience = 20 * time.Second

// end brings everything to rest, and checks it.
func (x *schedule) end() {
	x.empty()
	if x.srv == nil {
		x.start()
	}
	for _, h := range x.held {
		if x.names(h) == 0 && !h.lost {
			x.t.Errorf("%s is open for writing and was removed by the server", h.from)
		}
	}
	x.closeAll()
	var wrong []string
	var h *history
	for end := time.Now().Add(patience); ; {
		// That there is room is noticed within a second.
		synced := x.srv.Do("POST", "/workspaces/"+x.wsID+"/sync", map[string]any{})
		late := time.Now().After(end)
		if synced.Status == 200 || late {
			synced.Expect(200)
			h = x.history()
			if wrong = append(x.missing(h), x.disk()...); len(wrong) == 0 || late {
				break
			}
		}
		x.moment(200)
	}
	for _, why := range append(wrong, h.wrong...) {
		x.t.Error(why)
	}
	for p, k := range x.known {
		data, err := os.ReadFile(x.at(p))
		if got := string(data); got != k.content && (err == nil || os.IsNotExist(err)) {
			x.t.Errorf("%s is %s, and was %s when it was changed last", p, short(got), short(k.content))
		}
	}
	if out := harness.Git(x.t, x.gitDir, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
		x.t.Errorf("fsck: %s", out)
	}
	x.srv.Stop()
	x.srv = nil
}

func short(s string) string {
	if s == "" {
		return "nothing"
	}
	ids := idPattern.FindAllString(s, -1)
	return fmt.Sprintf("%d bytes %v", len(s), ids)
}

var idPattern = regexp.MustCompile(`<[ABU][0-9]+-[0-9a-f]{4}>`)

// missing are the texts that are neither in history nor on disk, and have to be.
func (x *schedule) missing(h *history) (out []string) {
	for _, w := range x.written {
		switch {
		case h.has[w.id]:
		case w.acked:
			out = append(out, fmt.Sprintf("%s was answered, and is lost", w.id))
		case w.by == user && !w.gone && w.ino != 0:
			out = append(out, fmt.Sprintf("%s was written by the user (synced: %v), and is lost", w.id, w.synced))
		}
	}
	return out
}

// history is what is in the workspace's history.
type history struct {
	has   map[string]bool // texts that are whole
	wrong []string
}

func (x *schedule) git(stdin string, args ...string) string {
	x.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", x.gitDir}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		x.t.Fatalf("git %v: %v\n%s", args, err, &errOut)
	}
	return out.String()
}

// history reads all commits, the oldest first: each text must come first with its
// owner's.
func (x *schedule) history() *history {
	h := &history{has: make(map[string]bool)}
	texts := make(map[string]*written)
	for _, w := range x.written {
		texts[w.id] = w
	}
	log := x.git("", "log", "--reverse", "--raw", "--root", "--no-abbrev", "--no-renames", "--format=%x01%H%x02%B%x03", "refs/heads/shadow")
	type commit struct{ id, message, raw string }
	var commits []commit
	var ids []string
	asked := make(map[string]bool)
	for part := range strings.SplitSeq(log, "\x01") {
		head, raw, _ := strings.Cut(part, "\x03")
		id, message, _ := strings.Cut(head, "\x02")
		if id == "" {
			continue
		}
		commits = append(commits, commit{id, message, raw})
		for _, blob := range blobsIn(raw) {
			if !asked[blob] {
				asked[blob] = true
				ids = append(ids, blob)
			}
		}
	}
	blobs := x.blobs(ids)
	for _, c := range commits {
		for _, blob := range blobsIn(c.raw) {
			data := blobs[blob]
			for _, at := range idPattern.FindAllStringIndex(data, -1) {
				w := texts[data[at[0]:at[1]]]
				if w == nil || h.has[w.id] {
					continue
				}
				whole := strings.HasPrefix(data[at[0]:], w.text)
				if why := x.notOf(w, c.message); why != "" && (whole || w.by != user && !strings.Contains(c.message, "\nReason: ")) {
					h.wrong = append(h.wrong, fmt.Sprintf("%s (whole: %v) came with commit %s: %s\n%s", w.id, whole, c.id, why, c.message))
				}
				h.has[w.id] = whole
			}
		}
	}
	return h
}

// notOf says why a commit is not of the one who wrote a text; empty: it is.
func (x *schedule) notOf(w *written, message string) string {
	source, task := trailer(message, "Source"), trailer(message, "Task-Id")
	if w.by == user {
		switch {
		case source != "external" && source != "baseline":
			return "the user wrote it, and the source is " + source
		case task != "":
			return "the user wrote it, and it is of a task"
		}
		return ""
	}
	for _, a := range x.agents {
		if a.name == w.by && (source != "api" || task != a.task) {
			return fmt.Sprintf("%s wrote it, of task %s", a.name, a.task)
		}
	}
	return ""
}

func trailer(message, key string) string {
	for line := range strings.Lines(message) {
		if v, ok := strings.CutPrefix(line, key+": "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// blobsIn returns the blobs that raw lines of git-log(1) lead to.
func blobsIn(raw string) (ids []string) {
	for line := range strings.Lines(raw) {
		f := strings.Fields(line)
		if len(f) >= 5 && strings.HasPrefix(f[0], ":") && strings.Trim(f[3], "0") != "" {
			ids = append(ids, f[3])
		}
	}
	return ids
}

// blobs reads blobs.
func (x *schedule) blobs(ids []string) map[string]string {
	out := make(map[string]string)
	if len(ids) == 0 {
		return out
	}
	data := x.git(strings.Join(ids, "\n")+"\n", "cat-file", "--batch")
	for len(data) > 0 {
		head, rest, _ := strings.Cut(data, "\n")
		var id, kind string
		var size int
		if _, err := fmt.Sscan(head, &id, &kind, &size); err != nil {
			x.t.Fatalf("git cat-file: %q", head)
		}
		out[id], data = rest[:size], rest[size+1:]
	}
	return out
}

// disk holds the files against the newest tree, and returns where they differ.
func (x *schedule) disk() (out []string) {
	tree := make(map[string]string)
	var ids []string
	for line := range strings.Lines(x.git("", "ls-tree", "-r", "refs/heads/shadow")) {
		head, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		id := strings.Fields(head)[2]
		tree[name] = id
		ids = append(ids, id)
	}
	blobs := x.blobs(ids)
	err := filepath.WalkDir(x.ws, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		p := strings.TrimPrefix(name, x.ws+"/")
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if id, ok := tree[p]; !ok {
			out = append(out, p+" is on disk, and not in the tip")
		} else if blobs[id] != string(data) {
			out = append(out, fmt.Sprintf("%s is %s on disk, and %s in the tip", p, short(string(data)), short(blobs[id])))
		}
		delete(tree, p)
		return nil
	})
	if err != nil {
		out = append(out, err.Error())
	}
	for p := range tree {
		out = append(out, p+" is in the tip, and not on disk")
	}
	return out
}
