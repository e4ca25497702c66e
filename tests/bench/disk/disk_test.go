package disk

import (
	"os"
	"strings"
	"testing"

	"umbra/internal/need"
)

func TestOfNamesTheFileSystem(t *testing.T) {
	d, err := Of("here", t.TempDir())
	need.NoError(t, err)
	if d.FS == "" || d.Name != "here" {
		t.Errorf("%+v", d)
	}
	if _, err := os.Stat("/dev/shm"); err == nil {
		shm, err := Of("tmpfs", "/dev/shm")
		if err != nil || !strings.HasPrefix(shm.FS, "tmpfs") || shm.Journaled {
			t.Errorf("/dev/shm is %+v, %v", shm, err)
		}
	}
	if _, err := Of("here", "/nowhere/at/all"); err == nil {
		t.Error("a folder that is not there has a file system")
	}
}
