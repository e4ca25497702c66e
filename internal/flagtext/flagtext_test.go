package flagtext

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestError(t *testing.T) {
	for args, want := range map[string]string{
		"--limt=3":      "unknown flag --limt; did you mean --limit?",
		"--zzz":         "unknown flag: --zzz",
		"-z":            `unknown shorthand flag: 'z' in -z`,
		"--limit=x":     `--limit "x": it must be a whole number`,
		"--since=later": `--since "later": it must be a duration such as 90s or 36h`,
		"--limit":       "flag needs an argument: --limit",
	} {
		set := pflag.NewFlagSet("umbra", pflag.ContinueOnError)
		set.Int("limit", 0, "")
		set.Duration("since", time.Hour, "")
		err := set.Parse([]string{args})
		if err == nil {
			t.Fatalf("%s is taken", args)
		}
		if got := Error(set, err).Error(); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
