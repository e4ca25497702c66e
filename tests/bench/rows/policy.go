package rows

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"umbra/internal/policy"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	// judgedBytes is the size of a file that is judged.
	judgedBytes = 10_000
	// secretsMayTake is the target of the contract, in ms for such a file, and
	// offMayTake that of a server without a policy, as a part of a write.
	secretsMayTake = 0.3
	offMayTake     = 0.03
	// judgedFiles is small: what a write costs beside the policy is in other rows.
	judgedFiles = 1000
)

const (
	policyOff       = "no policy"
	policyProtected = "three protected patterns, a bound on sizes"
	policySecrets   = "the same, and secrets refused"
)

func policyRows(measure.Scale) []Row {
	return []Row{{
		Name:  "policy/files=" + report.Count(judgedFiles),
		Title: "What the policy costs of a write of 10 KB",
		About: "One server and one client; a workspace for each setting, by `policy.places`. Each write replaces a file of 10 KB, of which every tenth line has words that secrets are found by (`token`, `password`, `api_key`), as source code does. " +
			"What a server without a policy does to learn that there is none is too short to be found between writes: it is called many times, and held against the write.",
		Run: policyRow,
	}}
}

// lively are lines that have the rules for secrets look closer, and find none.
var lively = [...]string{
	"\ttoken := os.Getenv(\"API_TOKEN\")",
	"\tif password == \"\" { return errors.New(\"password: empty\") }",
	"\treq.Header.Set(\"X-Api-Key\", cfg.apiKey)",
	"\tsecret, err := vault.Read(ctx, \"database/creds/app\")",
	"  AWS_SECRET_ACCESS_KEY: ${{ secrets.AWS_SECRET_ACCESS_KEY }}",
	"\t// access_key and private_key are read from the environment",
}

// tenKB writes files of judgedBytes by another subject.
type tenKB struct{ *peers.HTTP }

func (s tenKB) Change(ctx context.Context, client int, c corpus.Change) error {
	text := make([]byte, 0, judgedBytes+len(c.Data))
	lines := strings.SplitAfter(string(c.Data), "\n")
	for n := 0; len(text) < judgedBytes; n++ {
		if n%10 == 9 {
			text = append(append(text, lively[n/10%len(lively)]...), '\n')
		}
		text = append(text, lines[n%len(lines)]...)
	}
	c.Data = text[:judgedBytes]
	return s.HTTP.Change(ctx, client, c)
}

func policyRow(ctx context.Context, env *measure.Env, r *report.Result) error {
	dir, err := env.Dir("policy")
	if err != nil {
		return err
	}
	names := []string{policyOff, policyProtected, policySecrets}
	protected := []string{"/.github/**", "*.lock", "/deploy/**"}
	var places []map[string]any
	folders := make([]string, len(names))
	for i, name := range names {
		folders[i] = filepath.Join(dir, fmt.Sprintf("project%d", i))
		if err := os.Mkdir(folders[i], 0o755); err != nil {
			return err
		}
		if err := corpus.Write(ctx, folders[i], judgedFiles); err != nil {
			return err
		}
		place := map[string]any{"root": folders[i], "protected": protected, "max_file_bytes": 1 << 20}
		switch name {
		case policyOff:
			continue
		case policySecrets:
			place["secrets"] = "refuse"
		}
		places = append(places, place)
	}
	config, err := json.Marshal(map[string]any{"policy": map[string]any{"places": places}})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "config.yaml") // JSON is YAML
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	s, err := peers.StartServer(ctx, env, filepath.Join(dir, "data"), 1, "--config", file)
	if err != nil {
		return err
	}
	var lanes []measure.Lane
	for i, name := range names {
		t, err := s.Open(ctx, folders[i])
		if err != nil {
			return err
		}
		if err := refuses(ctx, s, t, name != policyOff); err != nil {
			return err
		}
		lanes = append(lanes, measure.Lane{Subject: tenKB{s.Changes(t)}, Files: judgedFiles, Label: name})
	}
	list, err := env.Loop(ctx, lanes)
	if err != nil {
		return err
	}
	latencyLines(r, list, policyOff)
	r.Data = list
	asked, err := whetherNone()
	if err != nil {
		return err
	}
	off := p50s(list, policyOff)
	more := func(name string) float64 {
		return stats.Median(difference(p50s(list, name), off)) * 1000
	}
	r.Note("Asking whether there is a policy takes %d ns where there is none.", asked.Nanoseconds())
	r.Checks = append(r.Checks,
		report.AtMost("without a policy ≤ 3% of a write", asked.Seconds()/stats.Median(off)*100, offMayTake*100, "%.4f%%"),
		report.AtMost("patterns and sizes alone: ≤ 0.3 ms more, p50", more(policyProtected), secretsMayTake, "%.3f ms"),
		report.AtMost("with secrets ≤ 0.3 ms more for 10 KB, p50", more(policySecrets), secretsMayTake, "%.3f ms"))
	return nil
}

// difference returns what each round of a took more than that of b.
func difference(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] - b[i]
	}
	return out
}

// refuses reports that a workspace does not have the policy that it is measured for.
func refuses(ctx context.Context, s *peers.Server, t peers.Task, want bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL+"/tasks/"+t.ID+"/content?path=go.lock", strings.NewReader("x\n"))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if (res.StatusCode == http.StatusForbidden) != want {
		return fmt.Errorf("a write of a protected file is answered %s", res.Status)
	}
	return nil
}

// whetherNone measures what a write does where there is no policy.
func whetherNone() (time.Duration, error) {
	const times = 10_000_000
	book, err := policy.New(policy.Settings{})
	if err != nil {
		return 0, err
	}
	rules := book.Of([]string{"/x"}, []string{"x"})
	start := time.Now()
	for range times {
		if !rules.None(policy.TaskOf(nil)) {
			return 0, fmt.Errorf("a server without a policy has one")
		}
	}
	return time.Since(start) / times, nil
}
