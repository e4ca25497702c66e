package term

import (
	"os/exec"
	"testing"

	"umbra/internal/need"
)

// What is quoted for a shell comes out of one as it was.
func TestShellWord(t *testing.T) {
	sh := need.Tool(t, "sh")
	for _, word := range []string{"", "plain", "/a/b-c_d.e:1", "two words", "it's", "$HOME `x` \"y\" \\ * ? [a] !", "ü\n\tz", "-x", "#", "~"} {
		out, err := exec.Command(sh, "-c", "printf %s "+ShellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q as %s is %q: %v", word, ShellWord(word), out, err)
		}
	}
}
