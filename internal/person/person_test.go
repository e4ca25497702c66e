package person

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

// Name reads its sources once, so each case is a process of its own.
func TestName(t *testing.T) {
	if os.Getenv("PERSON_TEST_CHILD") == "1" {
		_, _ = os.Stdout.WriteString(Name())
		os.Exit(0)
	}
	for name, c := range map[string]struct{ file, want string }{
		"git's name":  {"[user]\n\tname = Ada Lovelace\n\temail = ada@example.org\n", "Ada Lovelace"},
		"spaces only": {"[user]\n\tname = \"  \"\n", ""},
		"broken":      {"[user\nname", ""},
		"no file":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if c.file != "" {
				need.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(c.file), 0o600))
			}
			cmd := exec.Command(os.Args[0], "-test.run", "^TestName$")
			cmd.Env = []string{"HOME=" + home, "PERSON_TEST_CHILD=1", "GIT_CONFIG_NOSYSTEM=1"}
			out, err := cmd.Output()
			need.NoError(t, err)
			got := string(out)
			if c.want != "" && got != c.want {
				t.Errorf("the name is %q, not %q", got, c.want)
			}
			if c.want == "" && got == "Ada Lovelace" {
				t.Errorf("the name is another test's: %q", got)
			}
		})
	}
}
