package gitsmart

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"umbra/internal/errs"
	"umbra/internal/need"
)

// TestPlain: without git a bare repository is served, and a fork, whose
// objects are in another, is refused.
func TestPlain(t *testing.T) {
	git := need.Tool(t, "git")
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	run("init", "-q", "work")
	run("-C", "work", "commit", "-q", "--allow-empty", "-m", "one")
	tip := plumbing.NewHash(run("-C", "work", "rev-parse", "HEAD"))
	run("clone", "-q", "--bare", "work", "one/repo.git")
	run("clone", "-q", "--bare", "--shared", filepath.Join(dir, "one/repo.git"), "fork/repo.git")
	if _, err := plainSession(filepath.Join(dir, "fork/repo.git")); errs.CodeOf(err) != "git_missing" {
		t.Errorf("of a fork: %v", err)
	}
	s, err := plainSession(filepath.Join(dir, "one/repo.git"))
	need.NoError(t, err)
	refs, err := s.AdvertisedReferencesContext(t.Context())
	need.NoError(t, err)
	if refs.References["refs/heads/main"] != tip || refs.Head == nil || *refs.Head != tip {
		t.Errorf("advertised: %v, %v", refs.References, refs.Head)
	}
	req := packp.NewUploadPackRequest()
	req.Wants = []plumbing.Hash{tip}
	res, err := s.UploadPack(t.Context(), req)
	need.NoError(t, err)
	var answer bytes.Buffer
	if err := res.Encode(&answer); err != nil || !bytes.Contains(answer.Bytes(), []byte("PACK")) {
		t.Errorf("%q, %v", answer.Bytes(), err)
	}
	s.Close()
}
