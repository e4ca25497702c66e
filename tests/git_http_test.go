package tests

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func (k *taskOf) gitURL() string { return k.p.URL + "/git/" + k.str("workspace_id") + ".git" }

// save writes a file and gives the commit.
func (k *taskOf) save(t *testing.T, path, data string) string {
	t.Helper()
	a := k.put(t, path, data)
	if a.Status != 200 && a.Status != 201 {
		t.Errorf("%s: %d %s", path, a.Status, a.Body)
		return ""
	}
	return a.str(t, "commit")
}

func TestGitOverHTTP(t *testing.T) {
	p := newProject(t, map[string]string{"old": "x"})
	k := p.task(t)
	k.save(t, "a.txt", "one\n")
	k.save(t, "dir/b.txt", "two\n")
	k.save(t, "a.txt", "three\n")
	top := t.TempDir()
	for name, args := range map[string][]string{
		"full":    {"clone", "-q"},
		"shallow": {"clone", "-q", "--depth", "1"},
		"partial": {"clone", "-q", "--filter=blob:none"},
		"v0":      {"-c", "protocol.version=0", "clone", "-q"},
	} {
		dir := filepath.Join(top, name)
		harness.Git(t, top, append(args, k.gitURL(), dir)...)
		if out := harness.Git(t, dir, "fsck", "--strict"); strings.Contains(out, "error") {
			t.Errorf("%s: %s", name, out)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(got) != "three\n" {
			t.Errorf("%s: a.txt is %q, %v", name, got, err)
		}
	}
	if got := harness.Git(t, filepath.Join(top, "shallow"), "rev-list", "--count", "HEAD"); got != "1" {
		t.Errorf("the shallow clone has %s commits", got)
	}
	full := filepath.Join(top, "full")
	// What is answered is there at the next fetch, without waiting.
	commit := k.save(t, "a.txt", "four\n")
	harness.Git(t, full, "pull", "-q")
	if got := harness.Git(t, full, "rev-parse", "HEAD"); got != commit {
		t.Errorf("pulled %s, answered was %s", got, commit)
	}
	harness.Git(t, full, "fetch", "-q", k.gitURL(), "refs/umbra/*:refs/umbra/*")
	if got := harness.Git(t, full, "rev-parse", "refs/umbra/tasks/"+k.ID+"/head"); got != commit {
		t.Errorf("the task's head is %s", got)
	}
	if _, err := harness.TryGit(t, full, "push", "-q", k.gitURL(), "HEAD:refs/heads/other"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a push: %v", err)
	}
	if _, err := harness.TryGit(t, top, "clone", "-q", p.URL+"/git/none.git"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("an unknown repository: %v", err)
	}
	if a := p.call(t, "GET", "/git/", nil).want(t, 200); !strings.Contains(string(a.Body), k.gitURL()) {
		t.Errorf("the list has %s", a.Body)
	}
	repo := "/git/" + k.str("workspace_id") + ".git"
	p.call(t, "GET", repo+"/info/refs?service=git-receive-pack", nil).want(t, 403)
	p.call(t, "GET", repo+"/info/refs", nil).want(t, 403)
	p.call(t, "POST", repo+"/git-receive-pack", nil).want(t, 403)
	p.call(t, "POST", repo+"/git-upload-pack", []byte("junk")).want(t, 415)
}

func TestBundleAndPatches(t *testing.T) {
	p := newProject(t, map[string]string{"old": "x"})
	k, other := p.task(t), p.task(t)
	k.save(t, "a.txt", "one\n")
	other.save(t, "theirs.txt", "two\n")
	k.save(t, "sub/ünïcode.txt", "three\n")
	k.save(t, "bin", "\x00\x01\x02")
	top := t.TempDir()
	file := func(name, path, kind string) string {
		a := p.call(t, "GET", k.url(path), nil).want(t, 200)
		if got := a.head("Content-Type"); got != kind {
			t.Errorf("%s is %q", path, got)
		}
		full := filepath.Join(top, name)
		need.NoError(t, os.WriteFile(full, a.Body, 0o600))
		return full
	}
	bundle, mbox := file("t.bundle", "/bundle", "application/x-git-bundle"), file("t.mbox", "/patches", "application/mbox")
	harness.Git(t, top, "init", "-q", "r")
	dir := filepath.Join(top, "r")
	harness.Git(t, dir, "bundle", "verify", bundle)
	harness.Git(t, dir, "fetch", "-q", bundle, "refs/umbra/*:refs/umbra/*")
	ref := "refs/umbra/tasks/" + k.ID + "/"
	if out := harness.Git(t, dir, "ls-tree", "-r", "--name-only", "-z", ref+"head"); !strings.Contains(out, "sub/ünïcode.txt") {
		t.Errorf("the head has %q", out)
	}
	if out := harness.Git(t, dir, "cat-file", "-t", ref+"info"); out != "tag" {
		t.Errorf("info is a %s", out)
	}
	harness.Git(t, dir, "checkout", "-q", ref+"base")
	harness.Git(t, dir, "am", "-q", mbox)
	if out := harness.Git(t, dir, "rev-list", "--count", ref+"base..HEAD"); out != "3" {
		t.Errorf("am made %s commits", out)
	}
	if out := harness.Git(t, dir, "log", "-1", "--format=%(trailers:key=Task-Id,valueonly)"); strings.TrimSpace(out) != k.ID {
		t.Errorf("the trailer is %q", out)
	}
	p.call(t, "GET", "/tasks/none/bundle", nil).want(t, 404)
	p.call(t, "GET", other.url("/patches"), nil).want(t, 200)
}

func TestGitTokenAsPassword(t *testing.T) {
	root := t.TempDir()
	config := fmt.Sprintf("auth: {tokens: [{name: r, scope: read, sha256: '%x', roots: [%q]}, {name: w, scope: write, sha256: '%x', roots: [%q]}]}\n",
		sha256.Sum256([]byte("secret-r")), root, sha256.Sum256([]byte("secret-w")), root)
	p := &project{Server: harness.Start(t, harness.Options{Config: config}), dir: root}
	p.fill(t, map[string]string{"f": "x"})
	id := p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": root}, "Authorization", "Bearer secret-w").want(t, 201).str(t, "workspace_id")
	repo := "/git/" + id + ".git"
	a := p.call(t, "GET", repo+"/info/refs?service=git-upload-pack", nil).want(t, 401)
	if got := a.head("Www-Authenticate"); !strings.HasPrefix(got, "Basic") {
		t.Errorf("challenge %q", got)
	}
	top := t.TempDir()
	basic := "http.extraHeader=Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x:secret-r"))
	harness.Git(t, top, "-c", basic, "clone", "-q", p.URL+repo, "c")
	wrong := strings.Replace(p.URL, "http://", "http://any:wrong@", 1)
	if _, err := harness.TryGit(t, top, "clone", "-q", wrong+repo, "d"); err == nil {
		t.Error("a wrong token clones")
	}
}

// TestFetchBesideWriters clones while 16 writers write: always a consistent
// history.
func TestFetchBesideWriters(t *testing.T) {
	p := newProject(t, map[string]string{"old": "x"})
	k := p.task(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if a := k.put(t, fmt.Sprintf("w%d/f%d", w, i%10), fmt.Sprint(i)); a.Status > 299 {
					t.Errorf("a write: %d %s", a.Status, a.Body)
					return
				}
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	top := t.TempDir()
	for i := range 4 {
		dir := fmt.Sprintf("c%d", i)
		harness.Git(t, top, "clone", "-q", "--no-checkout", k.gitURL(), dir)
		if out := harness.Git(t, filepath.Join(top, dir), "fsck", "--full"); strings.Contains(out, "missing") || strings.Contains(out, "error") {
			t.Errorf("clone %d: %s", i, out)
		}
	}
}
