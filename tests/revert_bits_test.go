package tests

import (
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

// TestRevertExternalPermissions: a private file that a user deleted, or replaced
// as editors do, comes back with its own permission bits, also after a restart; one
// without any stays closed.
func TestRevertExternalPermissions(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		p := newServer(t).on(t, nil)
		bits := map[string]os.FileMode{"gone": 0o600, "replaced": 0o640, "run": 0o700, "usual": 0o644, "closed": 0o600, "deleted": 0o600}
		if os.Geteuid() == 0 { // may read them
			bits["closed"], bits["deleted"] = 0, 0
		}
		for name, perm := range bits {
			path := filepath.Join(p.dir, name)
			need.NoError(t, os.WriteFile(path, []byte(name+"\n"), 0o600))
			need.NoError(t, os.Chmod(path, perm))
		}
		before := lay(t, p.dir)
		k := p.task(t)
		k.step(t, "put agent text | del deleted")
		sync := func() { p.Do("POST", "/workspaces/"+p.workspace(t)+"/sync", map[string]any{}).Expect(200) }
		if restart {
			p.Stop()
			p.Restart()
			sync()
		}
		for _, name := range []string{"gone", "run"} {
			need.NoError(t, os.Remove(filepath.Join(p.dir, name)))
		}
		saved := filepath.Join(p.dir, "saved")
		need.NoError(t, os.WriteFile(saved, []byte("edited\n"), 0o644))
		need.NoError(t, os.Rename(saved, filepath.Join(p.dir, "replaced")))
		need.NoError(t, os.WriteFile(saved, []byte("opened\n"), 0o644))
		need.NoError(t, os.Rename(saved, filepath.Join(p.dir, "closed")))
		sync()
		k.revert(t, "", map[string]any{"include_external": true}).want(t, 200)
		same(t, lay(t, p.dir), before)
	}
}
