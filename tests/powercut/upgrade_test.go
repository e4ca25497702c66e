package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/tests/harness"
)

// A data directory of the first format is upgraded at a start whose power goes:
// the next one ends it, and all that was in it is there.
func TestPowerCutUpgradeExt4(t *testing.T) { cutUpgrade(t, newDisk(t, "ext4")) }
func TestPowerCutUpgradeXFS(t *testing.T)  { cutUpgrade(t, newDisk(t, "xfs")) }
func TestKillUpgrade(t *testing.T) {
	cutUpgrade(t, &disk{t: t, mount: t.TempDir(), killOnly: true})
}

func cutUpgrade(t *testing.T, d *disk) {
	need.Long(t, "power cuts")
	def := 4
	if os.Getenv("UMBRA_SOAK") != "" {
		def = 100
	}
	archive, err := filepath.Abs("../testdata/format-1.tar.gz")
	need.NoError(t, err)
	began := 0
	for i := range env("UMBRA_POWER_CUTS", def) {
		top := d.path(fmt.Sprint("old", i))
		need.NoError(t, os.Mkdir(top, 0o755))
		d.run(need.Tool(t, "tar"), "-xzf", archive, "-C", top)
		d.run("sync", "-f", top)
		data := filepath.Join(top, "data")
		cmd := harness.Command(t, nil, "serve", "--data-dir", data, "--listen", "127.0.0.1:0")
		need.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // it is killed
			close(ended)
		}()
		timer := time.After(time.Duration(rand.IntN(600)) * time.Millisecond)
		<-timer
		if !d.killOnly {
			d.cut()
		}
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) { // it gave up by itself
			t.Fatal(err)
		}
		<-ended
		d.reattach()
		if _, err := os.Stat(filepath.Join(data, "upgrade-1")); err == nil {
			began++
		}
		upgraded(t, data)
		need.NoError(t, os.RemoveAll(top))
		if t.Failed() {
			t.Fatalf("%s failed in round %d", t.Name(), i+1)
		}
	}
	t.Logf("%d upgrades had begun", began)
}

// upgraded starts the server, and looks for what the fixture holds.
func upgraded(t *testing.T, data string) {
	t.Helper()
	s := harness.Start(t, harness.Options{DataDir: data})
	if raw, err := os.ReadFile(filepath.Join(data, "format")); err != nil || string(raw) != fmt.Sprintln(state.Format) {
		t.Errorf("format: %q %v", raw, err)
	}
	if raw, err := os.ReadFile(filepath.Join(data, "upgrade-1", "format")); err != nil || string(raw) != "1\n" {
		t.Errorf("what the upgrade changed: %q %v", raw, err)
	}
	var list struct {
		Workspaces []struct {
			ID, Kind string
			GitDir   string `json:"git_dir"`
		}
	}
	s.Do("GET", "/workspaces", nil).Expect(200).JSON(&list)
	if len(list.Workspaces) != 2 {
		t.Fatalf("%+v", list)
	}
	for _, w := range list.Workspaces {
		if out, err := harness.TryGit(t, w.GitDir, "fsck", "--strict", "--full", "--no-dangling"); err != nil || strings.TrimSpace(out) != "" {
			t.Errorf("fsck: %v\n%s", err, out)
		}
		if w.Kind == "physical" {
			if got := harness.Git(t, w.GitDir, "show", "refs/umbra/head:last.txt"); got != "last" {
				t.Errorf("what was acknowledged last: %q", got)
			}
		}
	}
	s.Stop()
}
