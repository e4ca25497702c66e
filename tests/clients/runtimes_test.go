package clients

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestRuntimes runs the core's tests on Bun and Deno.
func TestRuntimes(t *testing.T) {
	dir := built(t)
	for name, args := range map[string][]string{
		"bun":  {"test", "--timeout", "120000", "./test/core.test.mjs"},
		"deno": {"test", "--no-lock", "--no-check", "--allow-all", "./test/core.test.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			program := installed(t, filepath.Join(dir, "node_modules/.bin", name))
			s := harness.Start(t, harness.Options{Config: commands})
			run(t, dir, []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_TEST_WRITES=100", "DENO_DIR=" + t.TempDir(), "DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1"}, program, args...)
		})
	}
}

// TestBrowser runs the core in Chromium, in a page of another origin, with a token.
func TestBrowser(t *testing.T) {
	dir := built(t)
	chromium := need.Tool(t, "chromium")
	playwright := installed(t, "../ui/node_modules/playwright-core/package.json")
	// The origin must be known to the server before the page's server listens.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	origin := "http://" + l.Addr().String()
	l.Close()
	config := fmt.Sprintf("http: {origins: ['%s']}\nauth: {tokens: [{name: page, scope: write, roots: ['/'], sha256: '%x'}]}\n", origin, sha256.Sum256([]byte("open sesame")))
	s := harness.Start(t, harness.Options{Config: config, Token: "open sesame"})
	run(t, dir, []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_ORIGIN=" + origin, "UMBRA_TEST_TOKEN=open sesame", "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_TEST_PLAYWRIGHT=" + playwright, "CHROMIUM=" + chromium},
		"node", filepath.Join(dir, "test/browser.mjs"))
}
