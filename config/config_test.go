package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"umbra/internal/need"
)

func load(t *testing.T, args ...string) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Flags(fs)
	need.NoError(t, fs.Parse(args))
	return Load(fs)
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	need.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestNothingSetIsTheDefault(t *testing.T) {
	got, err := load(t)
	if err != nil || !reflect.DeepEqual(got, Default()) {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestSampleIsTheDefault(t *testing.T) {
	got, err := load(t, "--config", "../config.yaml")
	if err != nil || !reflect.DeepEqual(got, Default()) {
		t.Fatalf("%+v, %v", got, err)
	}
	text, err := os.ReadFile("../config.yaml")
	need.NoError(t, err)
	cfg := Default()
	for key := range leavesOf(reflect.ValueOf(&cfg).Elem(), "") {
		name := key[strings.LastIndexByte(key, '.')+1:]
		if !regexp.MustCompile(`(?m)^ *#?` + name + `:`).Match(text) {
			t.Errorf("the sample lacks %s", key)
		}
	}
	// The lines that are commented out are valid too.
	full := regexp.MustCompile(`(?m)^( *)#( *- |   *[a-z0-9_]+: |[a-z_]+: )`).ReplaceAllString(string(text), "$1$2")
	full = strings.Replace(full, "tokens: []", "tokens:", 1)
	full = strings.Replace(full, "mounts: []", "mounts:", 1)
	full = strings.Replace(full, "apis: []", "apis:", 1)
	full = strings.Replace(full, "places: []", "places:", 1)
	got, err = load(t, "--config", file(t, "full.yaml", full))
	if err != nil || got.DataDir != "/var/lib/umbra" || len(got.Auth.Tokens) != 1 || got.Auth.Tokens[0].Expires.IsZero() || len(got.Auth.Tokens[0].Roots) != 1 ||
		len(got.MCP.Mounts) != 2 || got.MCP.Mounts[0].Root == "" || len(got.MCP.Mounts[1].Namespace) != 2 ||
		len(got.Policy.Places) != 2 || got.Policy.Places[0].Secrets != "refuse" || len(got.Scripts.APIs) != 1 || len(got.Scripts.APIs[0].Headers) != 1 {
		t.Fatalf("%+v, %v\n%s", got, err, full)
	}
}

func TestOrder(t *testing.T) {
	yaml := file(t, "c.yaml", "listen: 127.0.0.1:1\ndata_dir: /file\nlimits: {write_bytes: 5MB, rate: {per_ip: 7}}\nhosted: true\n")
	t.Setenv("UMBRA_DATA_DIR", "/env")
	t.Setenv("UMBRA_LIMITS_WRITE_BYTES", "6KiB")
	t.Setenv("UMBRA_HTTP_HOSTS", "a.example, b.example")
	t.Setenv("UMBRA_OUTPUT_DIR", "/env-output")
	got, err := load(t, "--config", yaml, "--data-dir", "/flag")
	want := Default()
	want.Listen, want.DataDir, want.Hosted, want.Output.Dir = "127.0.0.1:1", "/flag", true, "/env-output"
	want.Limits.WriteBytes, want.Limits.Rate.PerIP = 6<<10, 7
	want.HTTP.Hosts = []string{"a.example", "b.example"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	t.Setenv("UMBRA_CONFIG", yaml)
	if got, err := load(t, "--hosted=false"); err != nil || got.DataDir != "/env" || got.Hosted || got.Listen != "127.0.0.1:1" {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestTOML(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	got, err := load(t, "--config", file(t, "c.toml", `
output_dir = "/out"
[log]
level = "debug"
[limits]
write_bytes = 1024
[[auth.tokens]]
name = "ci"
sha256 = "`+sum+`"
scope = "read"
roots = ["/a", "/b"]
expires = 2030-01-31T12:00:00Z
`))
	want := Default()
	want.Output.Dir, want.Log.Level, want.Limits.WriteBytes = "/out", "debug", 1024
	want.Auth.Tokens = []Token{{"ci", sum, "read", []string{"/a", "/b"}, time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	token := func(name, sum, scope, more string) string {
		return "auth: {tokens: [{name: '" + name + "', sha256: '" + sum + "', scope: " + scope + more + "}]}"
	}
	sum := strings.Repeat("0", 64)
	for _, c := range []struct{ name, text, want string }{
		{"c.yaml", "nonsense: 1", "nonsense: unknown key"},
		{"c.yaml", "limits: {rate: {per_moon: 1}}", "limits.rate.per_moon: unknown key"},
		{"c.yaml", "listn: x", "listn: unknown key; did you mean listen?"},
		{"c.yaml", "limits: {capture_byte: 1}", "limits.capture_byte: unknown key; did you mean limits.capture_bytes?"},
		{"c.yaml", "a: [", "the file is not valid: yaml"},
		{"c.yaml", "limits: 5", "limits: unknown key"},
		{"c.toml", "[http]\nport = 1", "http.port: unknown key"},
		{"c.yaml", "limits: {write_bytes: lots}", `limits.write_bytes: "lots" is not a size`},
		{"c.yaml", "limits: {write_bytes: -1}", "limits.write_bytes"},
		{"c.yaml", "limits: {write_bytes: 0}", "limits.write_bytes: must be above 0"},
		{"c.yaml", "limits: {write_bytes: 99999999TiB}", "limits.write_bytes"},
		{"c.yaml", "limits: {rate: {global: -3}}", "limits.rate.global: -3 is below 0"},
		{"c.yaml", "limits: {rate: {global: 1.5}}", "limits.rate.global"},
		{"c.yaml", "listen: 8080", "listen: \"8080\" is not text"},
		{"c.yaml", "listen: 127.0.0.1", "listen"},
		{"c.yaml", "listen: 127.0.0.1:99999", "listen"},
		{"c.yaml", "listen: 'unix:'", "listen"},
		{"c.yaml", "hosted: maybe", "hosted"},
		{"c.yaml", "limits: {free_bytes: much}", "limits.free_bytes"},
		{"c.yaml", "limits: {free_bytes: -1}", "limits.free_bytes"},
		{"c.yaml", "limits: {workspace_bytes: auto}", "limits.workspace_bytes"},
		{"c.yaml", "mcp: {mounts: [{prefix: a, scope: READ_ONLY, root: /a}]}", "mcp.mounts: item 1: prefix"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a/../b, scope: READ_ONLY, root: /a}]}", "mcp.mounts: item 1: prefix"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: READ_ONLY, root: /a}, {prefix: //a/, scope: READ_ONLY, root: /a}]}", "item 2: prefix: /a occurs twice"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: ALL, root: /a}]}", "scope: \"ALL\" is none of"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: READ_ONLY, root: a}]}", "root: \"a\" is not an absolute path"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: READ_ONLY}]}", "give either root or namespace"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: READ_ONLY, root: /a, namespace: [b]}]}", "give either root or namespace"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: READ_ONLY, namespace: ['']}]}", "a segment is empty"},
		{"c.yaml", "mcp: {mounts: [{prefix: /a, scope: READ_ONLY, dir: /a}]}", "unknown key dir"},
		{"c.yaml", "trace: {endpoint: collector}", "trace.endpoint"},
		{"c.yaml", "trace: {endpoint: 'ftp://collector'}", "trace.endpoint"},
		{"c.yaml", "log: {level: loud}", `log.level: "loud" is none of`},
		{"c.yaml", "http: {hosts: [a.example:80]}", "http.hosts"},
		{"c.yaml", "http: {hosts: a b}", "http.hosts"},
		{"c.yaml", "http: {origins: [a.example]}", "http.origins"},
		{"c.yaml", "http: {origins: ['http://a.example/']}", "http.origins"},
		{"c.yaml", "auth: {peer: friend}", "auth.peer"},
		{"c.yaml", token("a<b", sum, "read", ""), "auth.tokens: item 1: name"},
		{"c.yaml", token("a", "abc", "read", ""), "auth.tokens: item 1: sha256"},
		{"c.yaml", token("a", sum, "admin", ""), "auth.tokens: item 1: scope"},
		{"c.yaml", token("a", sum, "read", ", roots: [rel]"), "auth.tokens: item 1: roots"},
		{"c.yaml", token("a", sum, "read", ", expires: soon"), "auth.tokens: item 1: expires"},
		{"c.yaml", token("a", sum, "read", ", color: red"), "auth.tokens: item 1: unknown key color"},
		{"c.yaml", "workspaces: {roots: [relative]}", "workspaces.roots"},
		{"c.yaml", "output_dir: a\noutput: {dir: b}", "output_dir"},
		{"c.yaml", "a: [", "c.yaml"},
		{"c.yaml", "listen: x:1\nlisten: y:1", "c.yaml"},
		{"c.json", "{}", `extension ".json"`},
		{"c", "", `extension ""`},
	} {
		path := file(t, c.name, c.text)
		_, err := load(t, "--config", path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := load(t, "--config", missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
	t.Setenv("UMBRA_LIMITS_RATE_PER_IP", "many")
	if _, err := load(t); err == nil || !strings.Contains(err.Error(), "limits.rate.per_ip") {
		t.Error(err)
	}
}

func TestWhereOthersReachUs(t *testing.T) {
	for listen, ok := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:1": true, "[::1]:0": true, "localhost:0": true, "unix:/tmp/s": true, "[::ffff:127.0.0.1]:0": true,
		"0.0.0.0:0": false, "[::]:0": false, ":0": false, "192.0.2.1:0": false,
	} {
		cfg, err := load(t, "--listen", listen)
		if reach := cfg.CheckReach(); err != nil || (reach == nil) != ok || !ok && !strings.Contains(reach.Error(), listen+" is not a loopback address") {
			t.Errorf("%s: %v, %v", listen, err, reach)
		}
		if cfg, err := load(t, "--listen", listen, "--insecure"); err != nil || cfg.CheckReach() != nil {
			t.Errorf("%s, insecure: %v", listen, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "17": 17, "17B": 17, "1kB": 1000, "2 MiB": 2 << 20, "256mib": 256 << 20, "1GB": 1e9, "8TiB": 8 << 40} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if got, err := ParseSize(want.String()); err != nil || got != want {
			t.Errorf("%s: %d, %v", want, got, err)
		}
	}
	for _, text := range []string{"", "B", "MiB", "-1", "1.5MB", "1XB", "9223372036854775808", "9999999TiB", "1 2"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestEveryKeyIsWrittenInLowerCase(t *testing.T) {
	cfg := Default()
	keys := slices.Sorted(keysOf(leavesOf(reflect.ValueOf(&cfg).Elem(), "")))
	for _, key := range keys {
		if !regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)*$`).MatchString(key) {
			t.Errorf("key %q", key)
		}
	}
}

func TestFreeBytes(t *testing.T) {
	if cfg, err := load(t); err != nil || cfg.Limits.FreeBytes != FloorAuto {
		t.Error(cfg.Limits.FreeBytes, err)
	}
	for env, want := range map[string]Floor{"AUTO": FloorAuto, "0": 0, "1GiB": 1 << 30} {
		t.Setenv("UMBRA_LIMITS_FREE_BYTES", env)
		if cfg, err := load(t); err != nil || cfg.Limits.FreeBytes != want {
			t.Errorf("%q: %d %v", env, cfg.Limits.FreeBytes, err)
		}
	}
}
