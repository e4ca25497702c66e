// Package ui drives the web UI with a real browser: Chromium as the machine has
// it, steered by playwright-core. The scenarios are the .mjs files beside this
// one; what they measure stands in the test's log, and what they saw in
// bin/screenshots.
package ui

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// patience is for a whole scenario on a busy machine.
const patience = 4 * time.Minute

// scenario runs one in a browser against a server, with an empty project folder.
func scenario(t *testing.T, name string, s *harness.Server, env ...string) {
	t.Helper()
	node, chromium := need.Tool(t, "node"), need.Tool(t, "chromium")
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		need.Missing(t, "playwright-core is not installed: make tools")
	}
	if s.Do("GET", "/", nil).Status != 200 {
		need.Missing(t, "the program has no web UI: make embed")
	}
	shots, err := filepath.Abs("../../bin/screenshots")
	need.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, name)
	cmd.Env = harness.Env(t, append([]string{"UMBRA_URL=" + s.URL, "UMBRA_DIR=" + filepath.Join(t.TempDir(), "shop"), "UMBRA_SHOTS=" + shots, "CHROMIUM=" + chromium}, env...)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	t.Logf("%s\n%s", name, out)
}

// The tour done by clicks on a real task: the timeline live, diffs, reverts
// with their preview, the undo of the undo, a conflict; axe on every page.
func TestTour(t *testing.T) {
	scenario(t, "tour.mjs", harness.Start(t, harness.Options{}))
}

// Hostile names, contents, ids, messages, goals and actors: nothing runs.
func TestNothingOfAFileRuns(t *testing.T) {
	scenario(t, "hostile.mjs", harness.Start(t, harness.Options{}))
}

// Agents' turns and calls: the timeline, undo and redo of a call and of a turn.
func TestCalls(t *testing.T) {
	scenario(t, "calls.mjs", harness.Start(t, harness.Options{}))
}

// Several agents: who is at work now, their colors, and an undo that umbra redo finds.
func TestAtWork(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	scenario(t, "atwork.mjs", s, "UMBRA_BIN="+harness.Binary(t))
}

// The review: 300 files by keys alone, 10,000 hunks, what is rejected taken back.
func TestReview(t *testing.T) {
	scenario(t, "review.mjs", harness.Start(t, harness.Options{}))
}

// Parts of hunks, rejections that are held, changes against the policy, new files and
// images in the review.
func TestPieces(t *testing.T) {
	scenario(t, "pieces.mjs", harness.Start(t, harness.Options{Config: "policy: {protected: ['/ci/**']}\n"}))
}

// Blame, images, two points compared, checkpoints; the empty page, the API's page and a
// server out of reach at three widths.
func TestViews(t *testing.T) {
	scenario(t, "views.mjs", harness.Start(t, harness.Options{}))
}

// What comes at the wrong moment: early keys, double clicks, late answers, failed pages.
func TestRaces(t *testing.T) {
	scenario(t, "races.mjs", harness.Start(t, harness.Options{}))
}

// A text found in files and history, the whole diff, the palette, keys alone; every
// view at three widths in two themes.
func TestFind(t *testing.T) {
	scenario(t, "find.mjs", harness.Start(t, harness.Options{}))
}

// Large tasks and diffs: the first paint, and how little stands in the document.
func TestLarge(t *testing.T) {
	scenario(t, "large.mjs", harness.Start(t, harness.Options{}))
}

// Where tokens are on the page asks for one, and sends it with everything.
func TestToken(t *testing.T) {
	config := fmt.Sprintf("auth: {tokens: [{name: person, scope: write, roots: ['/'], sha256: '%x'}]}\n", sha256.Sum256([]byte("open sesame")))
	scenario(t, "token.mjs", harness.Start(t, harness.Options{Config: config, Token: "open sesame"}), "UMBRA_TOKEN=open sesame")
}

// Forks: side by side, compared, merged in parts with a conflict whose lines are whole; checkpoints on the
// timeline; by keys, at three widths in two themes.
func TestForks(t *testing.T) {
	scenario(t, "forks.mjs", harness.Start(t, harness.Options{}))
}
