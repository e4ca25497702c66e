package blame

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"umbra/internal/need"
)

// Differences of two texts that look through white space are those of `git blame
// -w`, also where changes could as well be a line higher or lower.
func TestWhitespaceAsGit(t *testing.T) {
	need.Tool(t, "git")
	pairs := 120
	if os.Getenv("UMBRA_SOAK") != "" {
		pairs = 4000
	}
	rnd := rand.New(rand.NewPCG(11, 5))
	line := func() string {
		space := func() string { return []string{"", "", " ", "\t", "  ", "\t\t", "    "}[rnd.IntN(7)] }
		switch rnd.IntN(4) {
		case 0:
			return space()
		case 1:
			return space() + "}" + space()
		case 2:
			return space() + "a" + space() + "b"
		}
		return space() + fmt.Sprintf("call(%d)", rnd.IntN(12)) + space()
	}
	text := func(lines []string) []byte {
		s := strings.Join(lines, "\n")
		if len(lines) > 0 && rnd.IntN(6) != 0 {
			s += "\n"
		}
		return []byte(s)
	}
	var in bytes.Buffer
	olds, news := make([][]byte, pairs), make([][]byte, pairs)
	for i := range pairs {
		var a []string
		for range rnd.IntN([]int{40, 40, 300}[rnd.IntN(3)]) { // long enough that git cuts a common end
			a = append(a, line())
		}
		b := append([]string{}, a...)
		for range 1 + rnd.IntN(4) {
			at := rnd.IntN(len(b) + 1)
			end := min(len(b), at+rnd.IntN(4))
			switch rnd.IntN(3) {
			case 0: // indented otherwise
				for k := at; k < end; k++ {
					b[k] = "  " + strings.TrimLeft(b[k], " \t")
				}
			default:
				var add []string
				for range rnd.IntN(4) {
					add = append(add, line())
				}
				b = append(b[:at:at], append(add, b[end:]...)...)
			}
		}
		olds[i], news[i] = text(a), text(b)
	}
	for n, list := range [][][]byte{olds, news} {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter a <a> %d +0000\ndata 0\n", n+1)
		for i, data := range list {
			fmt.Fprintf(&in, "M 100644 inline f%d\ndata %d\n%s\n", i, len(data), data)
		}
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		if args[0] == "fast-import" {
			cmd.Stdin = &in
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	git("init", "-q", "--bare", ".")
	git("fast-import", "--quiet")
	head := strings.TrimSpace(git("rev-parse", "main"))
	bad := 0
	for i := range pairs {
		want := ""
		for l := range strings.SplitSeq(git("blame", "-s", "-w", "--line-porcelain", "main", "--", fmt.Sprintf("f%d", i)), "\n") {
			if f := strings.Fields(l); len(f) >= 3 && len(f[0]) == 40 && !strings.HasPrefix(l, "\t") && !strings.HasPrefix(l, "previous") {
				want += map[bool]string{true: "N", false: "o"}[f[0] == head]
			}
		}
		got := ""
		for _, s := range carry([]segment{{n: int32(count(olds[i])), via: -1}}[:min(1, count(olds[i]))], count(news[i]), compare(olds[i], news[i], true), 1) {
			got += strings.Repeat(map[bool]string{true: "N", false: "o"}[s.from == 1], int(s.n))
		}
		if got != want {
			if bad++; bad < 4 {
				t.Errorf("pair %d: %s, git %s\nold\n%q\nnew\n%q", i, got, want, strings.Split(string(olds[i]), "\n"), strings.Split(string(news[i]), "\n"))
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d pairs differ", bad, pairs)
	}
}
