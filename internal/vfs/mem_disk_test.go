package vfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A real repository through a Mem, a crash and out again is one still.
func TestImportExport(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	need.NoError(t, os.Mkdir(to, 0o755))
	git(t, from, "init", "-q")
	need.NoError(t, os.WriteFile(filepath.Join(from, "caf\xe9\n"), []byte("x"), 0o755))
	need.NoError(t, os.Symlink("caf\xe9\n", filepath.Join(from, "link")))
	need.NoError(t, os.Mkdir(filepath.Join(from, "locked"), 0o755))
	need.NoError(t, os.WriteFile(filepath.Join(from, "locked", "f"), []byte("y"), 0o400))
	need.NoError(t, os.Link(filepath.Join(from, "locked", "f"), filepath.Join(from, "hard")))
	need.NoError(t, os.Chmod(filepath.Join(from, "locked"), 0o555))
	git(t, from, "add", "-A")
	git(t, from, "commit", "-qm", "one")

	m, err := ImportMem(from, MemOptions{Umask: 0o077})
	need.NoError(t, err)
	m = m.CrashClone(CrashOptions{Mode: CrashSyncedOnly})
	need.NoError(t, m.Export(to))
	git(t, to, "fsck", "--strict")
	if got := git(t, to, "status", "--porcelain"); got != "" {
		t.Fatal(got)
	}
	disk, err := OS(to)
	need.NoError(t, err)
	defer disk.Close()
	info, err := disk.Lstat("hard")
	need.NoError(t, err)
	if info.Nlink != 2 || info.Mode != 0o400 {
		t.Fatalf("%+v", info)
	}
	info, err = disk.Lstat("locked")
	need.NoError(t, err)
	if info.Mode.Perm() != 0o555 {
		t.Fatalf("%+v", info)
	}
	need.NoError(t, disk.Chmod("locked", 0o755))
	need.NoError(t, os.Chmod(filepath.Join(from, "locked"), 0o755))
	write(t, m, "new", "")
	if info, err = m.Lstat("new"); err != nil || info.Mode != 0o600 {
		t.Fatalf("%+v %v", info, err)
	}
}
