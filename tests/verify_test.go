package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type verifyReport struct {
	Workspaces []struct {
		Workspace string   `json:"workspace"`
		Head      string   `json:"head"`
		Problems  []string `json:"problems"`
		Disk      string   `json:"disk"`
		Repaired  struct {
			Done   []string `json:"done"`
			Cannot []string `json:"cannot"`
		} `json:"repaired"`
	} `json:"workspaces"`
}

// verify runs umbra verify and gives its report.
func verify(t *testing.T, status int, args ...string) *verifyReport {
	t.Helper()
	got, out, errOut := harness.Run(t, nil, append([]string{"verify", "--json"}, args...)...)
	if got != status {
		t.Fatalf("verify %q: status %d, want %d\n%s\n%s", args, got, status, out, errOut)
	}
	r := &verifyReport{}
	if out != "" {
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return r
}

// damageable is a stopped server's data directory with a few packs, which each
// case damages a copy of.
type damageable struct {
	data, workspace, task string
	head                  string
	refs                  string // all of ours, as git lists them
}

func newDamageable(t *testing.T) *damageable {
	t.Helper()
	p := newProject(t, map[string]string{"a": "1\n2\n3\n", "dir/b": strings.Repeat("b\n", 1000)})
	k, other := p.task(t), p.task(t)
	for i, text := range []string{"one\n", "two\n", "three\n", "four\n"} {
		k.save(t, "a", text)
		other.save(t, "dir/c", strings.Repeat(text, 100*(i+1)))
		k.sync(t)
	}
	d := &damageable{data: p.DataDir, workspace: k.str("workspace_id"), task: k.ID, head: k.git(t, "rev-parse", "refs/umbra/head")}
	d.refs = k.git(t, "for-each-ref")
	p.Stop()
	return d
}

// copyTo copies the data directory, links of files to one inode included.
func (d *damageable) copyTo(t *testing.T) *damageable {
	t.Helper()
	c := *d
	c.data = filepath.Join(t.TempDir(), "data")
	need.NoError(t, os.CopyFS(c.data, os.DirFS(d.data)))
	need.NoError(t, os.Chmod(c.data, 0o700))
	return &c
}

func (d *damageable) path(name string) string {
	return filepath.Join(d.data, "workspaces", d.workspace, name)
}

func (d *damageable) glob(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(d.path("repo.git/objects/pack/" + pattern))
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: %v %v", pattern, list, err)
	}
	return list
}

// overwrite changes a file's bytes; nil removes it.
func overwrite(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	need.NoError(t, err)
	data = change(bytes.Clone(data))
	if err := os.Remove(name); err != nil { // a pack is read-only, and may have other names
		t.Fatal(err)
	}
	if data != nil {
		need.NoError(t, os.WriteFile(name, data, 0o644))
	}
}

func removed([]byte) []byte { return nil }

func flipped(b []byte) []byte {
	b[len(b)/2] ^= 0x40
	return b
}

func garbage([]byte) []byte { return []byte("\x00nothing") }

// TestVerifyRepair damages a copy in every way of which something is left that
// tells what stood there: afterwards all is as it was.
func TestVerifyRepair(t *testing.T) {
	whole := newDamageable(t)
	if r := verify(t, 0, "--data-dir", whole.data); len(r.Workspaces) != 1 || r.Workspaces[0].Disk != "same" || r.Workspaces[0].Head != whole.head {
		t.Fatalf("%+v", r)
	}
	if r := verify(t, 0, "--repair", "--data-dir", whole.data); len(r.Workspaces[0].Repaired.Done)+len(r.Workspaces[0].Repaired.Cannot) > 0 {
		t.Fatalf("nothing was damaged: %+v", r)
	}
	all := func(pattern string, change func([]byte) []byte) func(*testing.T, *damageable) {
		return func(t *testing.T, d *damageable) {
			for _, name := range d.glob(t, pattern) {
				overwrite(t, name, change)
			}
		}
	}
	file := func(name string, change func([]byte) []byte) func(*testing.T, *damageable) {
		return func(t *testing.T, d *damageable) { overwrite(t, d.path(name), change) }
	}
	for _, c := range []struct {
		name   string
		damage []func(*testing.T, *damageable)
		text   string // in one of the sentences
	}{
		{"indexes missing", []func(*testing.T, *damageable){all("*.idx", removed)}, "was missing: made again"},
		{"indexes damaged", []func(*testing.T, *damageable){all("*.idx", flipped)}, "was damaged: made again"},
		{"indexes cut", []func(*testing.T, *damageable){all("*.idx", func(b []byte) []byte { return b[:100] })}, "was damaged: made again"},
		{"keeps lost", []func(*testing.T, *damageable){all("*.keep", removed)}, "had no .keep"},
		{"keeps and indexes lost", []func(*testing.T, *damageable){all("*.keep", removed), all("*.idx", removed)}, "had no .keep"},
		{"note lost", []func(*testing.T, *damageable){file("refs", removed)}, "The ref log had no newest commit"},
		{"note damaged", []func(*testing.T, *damageable){file("refs", garbage)}, "The ref log had no newest commit"},
		{"note cut", []func(*testing.T, *damageable){file("refs", func(b []byte) []byte { return b[:len(b)*2/3] })}, ""},
		{"note and refs lost", []func(*testing.T, *damageable){file("refs", removed), func(t *testing.T, d *damageable) {
			need.NoError(t, os.RemoveAll(d.path("repo.git/refs/heads/shadow")))
			need.NoError(t, os.RemoveAll(d.path("repo.git/refs/umbra/tasks")))
		}}, "The ref log had no newest commit"},
		{"HEAD missing", []func(*testing.T, *damageable){file("repo.git/HEAD", removed)}, "HEAD was missing"},
		{"HEAD damaged", []func(*testing.T, *damageable){file("repo.git/HEAD", garbage)}, "HEAD was damaged"},
		{"config emptied", []func(*testing.T, *damageable){file("repo.git/config", func([]byte) []byte { return []byte{} })}, "config was damaged"},
		{"packed-refs damaged", []func(*testing.T, *damageable){func(t *testing.T, d *damageable) {
			harness.Git(t, d.path("repo.git"), "pack-refs", "--all", "--prune")
			overwrite(t, d.path("repo.git/packed-refs"), garbage)
		}}, "packed-refs was damaged"},
		{"shadow moved back", []func(*testing.T, *damageable){func(t *testing.T, d *damageable) {
			harness.Git(t, d.path("repo.git"), "update-ref", "refs/heads/shadow", "refs/heads/shadow~2")
		}}, "another process moved "},
		{"shadow emptied", []func(*testing.T, *damageable){file("repo.git/refs/heads/shadow", func([]byte) []byte { return []byte{} })}, "was damaged; ours was put back"},
		{"commit index damaged", []func(*testing.T, *damageable){file("records", flipped)}, "The commit index was damaged"},
		{"packs damaged, all loose too", []func(*testing.T, *damageable){func(t *testing.T, d *damageable) {
			repo := d.path("repo.git")
			apart := t.TempDir()
			for i, name := range d.glob(t, "*.pack") {
				data, err := os.ReadFile(name)
				need.NoError(t, err)
				if i == 0 {
					harness.Git(t, apart, "init", "-q", "--bare")
				}
				harness.GitInput(t, apart, string(data), "unpack-objects", "-q")
			}
			if err := os.CopyFS(filepath.Join(repo, "objects"), os.DirFS(filepath.Join(apart, "objects"))); err != nil {
				t.Log(err) // folders that are there
			}
		}, all("*.pack", flipped)}, "was damaged, and is in damaged/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := whole.copyTo(t)
			for _, damage := range c.damage {
				damage(t, d)
			}
			r := verify(t, 0, "--repair", "--data-dir", d.data)
			w := r.Workspaces[0]
			if text := strings.Join(w.Repaired.Done, "\n"); len(w.Repaired.Cannot) > 0 || !strings.Contains(text, c.text) {
				t.Errorf("reported: %q, %q", w.Repaired.Done, w.Repaired.Cannot)
			}
			if w.Head != whole.head {
				t.Errorf("the head is %s, was %s", w.Head, whole.head)
			}
			repo := d.path("repo.git")
			if out, err := harness.TryGit(t, repo, "fsck", "--strict", "--full", "--no-progress"); err != nil || strings.Contains(out, "missing") {
				t.Errorf("git fsck: %v %s", err, out)
			}
			if got := oursOf(harness.Git(t, repo, "for-each-ref")); got != oursOf(whole.refs) {
				t.Errorf("the refs are\n%s\nwere\n%s", got, whole.refs)
			}
			if r := verify(t, 0, "--repair", "--data-dir", d.data); len(r.Workspaces[0].Repaired.Done) > 0 {
				t.Errorf("repaired twice: %q", r.Workspaces[0].Repaired.Done)
			}
		})
	}
}

// oursOf leaves out what was kept of somebody else's.
func oursOf(refs string) string {
	var b strings.Builder
	for line := range strings.Lines(refs) {
		if !strings.Contains(line, "refs/foreign/") {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	return b.String()
}

// TestVerifyReportsWhatIsLost holds that what nothing is left of is named, and
// that everything else is kept.
func TestVerifyReportsWhatIsLost(t *testing.T) {
	d := newDamageable(t)
	repo := d.path("repo.git")
	blob := harness.Git(t, repo, "rev-parse", "HEAD:a")
	// The byte that is changed is one of the blob's own.
	for _, idx := range d.glob(t, "*.idx") {
		for line := range strings.Lines(harness.Git(t, repo, "verify-pack", "-v", idx)) {
			if f := strings.Fields(line); len(f) >= 5 && f[0] == blob {
				at := 0
				for _, c := range f[4] {
					at = 10*at + int(c-'0')
				}
				overwrite(t, strings.TrimSuffix(idx, ".idx")+".pack", func(b []byte) []byte {
					b[at+6] ^= 0x01
					return b
				})
			}
		}
	}
	if r := verify(t, 1, "--data-dir", d.data); len(r.Workspaces[0].Problems) == 0 {
		t.Errorf("%+v", r)
	}
	if r := replay(t, 1, "--from", repo, "--task", d.task); r.OK {
		t.Errorf("replay proves it: %+v", r)
	}
	r := verify(t, 1, "--repair", "--data-dir", d.data)
	w := r.Workspaces[0]
	if lost := strings.Join(w.Repaired.Cannot, "\n"); !strings.Contains(lost, blob) || !strings.Contains(lost, `"a"`) || len(w.Repaired.Cannot) != 1 {
		t.Errorf("lost: %q, done: %q", w.Repaired.Cannot, w.Repaired.Done)
	}
	if text := strings.Join(w.Problems, "\n"); !strings.Contains(text, blob) || w.Head != d.head {
		t.Errorf("problems: %q", w.Problems)
	}
	if got := harness.Git(t, repo, "cat-file", "blob", "HEAD:dir/c"); !strings.HasPrefix(got, "four") {
		t.Errorf("dir/c is %.20q", got)
	}
}

// TestVerifyRefsOnDisk holds that a running server tells of refs that somebody
// moved, and refuses to be repaired.
func TestVerifyRefsOnDisk(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	k.save(t, "a", "2\n")
	k.sync(t)
	verify(t, 0, "--data-dir", p.DataDir)
	ref := "refs/umbra/tasks/" + k.ID + "/head"
	harness.Git(t, k.gitDir(), "update-ref", ref, ref+"~1")
	r := verify(t, 1, "--data-dir", p.DataDir)
	if text := strings.Join(r.Workspaces[0].Problems, "\n"); !strings.Contains(text, ref) {
		t.Errorf("problems: %q", r.Workspaces[0].Problems)
	}
	verify(t, 1, "--repair", "--data-dir", p.DataDir)
	verify(t, 2, "--repair", "--server", p.URL)
	p.Stop()
	r = verify(t, 0, "--repair", p.dir, "--data-dir", p.DataDir)
	if text := strings.Join(r.Workspaces[0].Repaired.Done, "\n"); !strings.Contains(text, ref) {
		t.Errorf("repaired: %q", text)
	}
	verify(t, 1, "--repair", "no-such-workspace", "--data-dir", p.DataDir)
}
