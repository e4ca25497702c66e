package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// validate holds every value against what it may be.
func (c *Config) validate() error {
	checks := []struct {
		key string
		err error
	}{
		{"listen", checkListen(c.Listen)},
		{"data_dir", dataDir(c.DataDir)},
		{"workspace_dir", notEmpty(c.WorkspaceDir)},
		{"output.dir", notEmpty(c.Output.Dir)},
		{"output.max_bytes", positive(c.Output.MaxBytes)},
		{"scripts.apis", checkAPIs(c.Scripts.APIs)},
		{"scripts.max_api_calls", notNegative(c.Scripts.MaxAPICalls)},
		{"scripts.api_max_bytes", positive(c.Scripts.APIMaxBytes)},
		{"scripts.parallel", between(c.Scripts.Parallel, 1, 1024)},
		{"scripts.queue", between(c.Scripts.Queue, 200, 100_000)},
		{"log.level", oneOf(c.Log.Level, "debug", "info", "warn", "error")},
		{"log.format", oneOf(c.Log.Format, FormatText, FormatJSON)},
		{"trace.endpoint", checkEndpoint(c.Trace.Endpoint)},
		{"http.hosts", each(c.HTTP.Hosts, checkHostName)},
		{"http.origins", each(c.HTTP.Origins, checkOrigin)},
		{"tls.cert", together(c.TLS.Cert, c.TLS.Key, "tls.key")},
		{"tls.key", together(c.TLS.Key, c.TLS.Cert, "tls.cert")},
		{"auth.peer", oneOf(c.Auth.Peer, PeerSameUser, PeerAny)},
		{"auth.tokens", checkTokens(c.Auth.Tokens)},
		{"workspaces.roots", each(c.Workspaces.Roots, checkRoot)},
		{"workspaces.watch_idle", aboveZero(c.Workspaces.WatchIdle)},
		{"workspaces.max_watches", notNegative(c.Workspaces.MaxWatches)},
		{"sessions.idle", aboveZero(c.Sessions.Idle)},
		{"calls.ttl", between(int(c.Calls.TTL/time.Second), 60, 86_400)},
		{"calls.record_commands", oneOf(c.Calls.RecordCommands, RecordOff, RecordHash)},
		{"cluster.node", checkNode(c.Cluster.Node)},
		{"cluster.advertise", checkBase(c.Cluster.Advertise)},
		{"cluster.public_url", checkBase(c.Cluster.PublicURL)},
		{"cluster.replication", oneOf(c.Cluster.Replication, ReplicationSync, ReplicationProvider, ReplicationNone)},
		{"cluster.wait", between(int(c.Cluster.Wait/time.Millisecond), 100, 60_000)},
		{"cluster.cache_bytes", between(int(c.Cluster.CacheBytes), 0, 1<<50)},
		{"cluster.unsealed_bytes", between(int(c.Cluster.UnsealedBytes), 2<<20, 4<<30)},
		{"cluster.garbage_grace", between(int(c.Cluster.GarbageGrace/time.Second), 60, 365*86_400)},
		{"exec.concurrency", between(c.Exec.Concurrency, 1, 1024)},
		{"exec.output_bytes", between(int(c.Exec.OutputBytes), 1<<10, 1<<30)},
		{"exec.timeout", between(int(c.Exec.Timeout/time.Second), 1, 86_340)},
		{"hooks.context", oneOf(c.Hooks.Context, ContextOn, ContextOff)},
		{"mcp.mounts", checkMounts(c.MCP.Mounts)},
		{"execute.engine", oneOf(c.Execute.Engine, EngineEmbedded, EngineDeno)},
		{"execute.parallel", between(c.Execute.Parallel, 1, 1024)},
		{"execute.queue", between(c.Execute.Queue, 200, 100_000)},
		{"execute.warm", between(c.Execute.Warm, 1, 256)},
		{"execute.memory_bytes", between(int(c.Execute.MemoryBytes), 16<<20, 4<<30)},
		{"lint.engine", oneOf(c.Lint.Engine, EngineEmbedded, EngineDeno, EngineOxlint, EngineBiome)},
		{"limits.capture_bytes", positive(c.Limits.CaptureBytes)},
		{"limits.cache_bytes", between(int(c.Limits.CacheBytes), 1<<20, 1<<40)},
		{"limits.write_bytes", positive(c.Limits.WriteBytes)},
		{"limits.upload_bytes", positive(c.Limits.UploadBytes)},
		{"limits.bodies_bytes", notNegative(int(c.Limits.BodiesBytes))},
		{"limits.connections", notNegative(c.Limits.Connections)},
		{"limits.streams", notNegative(c.Limits.Streams)},
		{"limits.json_bytes", positive(c.Limits.JSONBytes)},
		{"limits.rate.per_ip", notNegative(c.Limits.Rate.PerIP)},
		{"limits.rate.per_code_id", notNegative(c.Limits.Rate.PerCodeID)},
		{"limits.rate.global", notNegative(c.Limits.Rate.Global)},
		{"retention.age", notBelowZero(c.Retention.Age)},
		{"retention.bytes", notNegative(int(c.Retention.Bytes))},
		{"retention.interval", aboveZero(c.Retention.Interval)},
	}
	for _, check := range checks {
		if check.err != nil {
			return &Error{Key: check.key, Err: check.err}
		}
	}
	return nil
}

// together refuses an empty value where the other, named key has one.
func together(value, other, key string) error {
	if value == "" && other != "" {
		return fmt.Errorf("is empty, but %s is set", key)
	}
	return nil
}

// CheckReach refuses an address that others can reach where the settings have no
// token and do not say that this is meant. Tokens may also have been added; who
// knows of some need not ask. The error is *Error.
func (c *Config) CheckReach() error {
	if c.Insecure || len(c.Auth.Tokens) > 0 || loopback(c.Listen) {
		return nil
	}
	return &Error{Key: "listen", Err: fmt.Errorf("%s is not a loopback address: add a token (umbra token add), set auth.tokens, or give --insecure", c.Listen)}
}

// UnixSocket gives the path of a "unix:PATH" address.
func UnixSocket(listen string) (path string, ok bool) { return strings.CutPrefix(listen, "unix:") }

func checkListen(listen string) error {
	if path, ok := UnixSocket(listen); ok {
		if path == "" || strings.ContainsRune(path, 0) {
			return fmt.Errorf("%q has no path", listen)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is neither HOST:PORT nor unix:PATH", listen)
	}
	return nil
}

// loopback reports whether only this machine can reach an address. A name
// counts if all that it represents does.
func loopback(listen string) bool {
	if _, ok := UnixSocket(listen); ok {
		return true
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	addrs, err := net.LookupIP(host)
	return err == nil && len(addrs) > 0 && !slices.ContainsFunc(addrs, func(ip net.IP) bool { return !ip.IsLoopback() })
}

func dataDir(s string) error {
	if s == "" {
		return errors.New("HOME is not set, so that there is no default; give --data-dir")
	}
	return notEmpty(s)
}

func notEmpty(s string) error {
	if s == "" || strings.ContainsRune(s, 0) {
		return errors.New("must be a path")
	}
	return nil
}

func oneOf(s string, words ...string) error {
	if !slices.Contains(words, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
	}
	return nil
}

func positive(s Size) error {
	if s <= 0 {
		return errors.New("must be above 0")
	}
	return nil
}

func aboveZero(d time.Duration) error {
	if d <= 0 {
		return errors.New("must be above 0")
	}
	return nil
}

func notBelowZero(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%v is below 0", d)
	}
	return nil
}

func notNegative(n int) error {
	if n < 0 {
		return fmt.Errorf("%d is below 0", n)
	}
	return nil
}

func between(n, low, high int) error {
	if n < low || n > high {
		return fmt.Errorf("%d is not between %d and %d", n, low, high)
	}
	return nil
}

func each(list []string, check func(string) error) error {
	for _, s := range list {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// checkHostName takes a name or an address, without a port.
func checkHostName(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	}) {
		return fmt.Errorf("%q is not a host's name without a port", s)
	}
	return nil
}

func checkOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return fmt.Errorf("%q is not an origin such as https://example.org", s)
	}
	return nil
}

// checkEndpoint takes a collector's URL, or nothing.
func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:4318", s)
	}
	return nil
}

var nodeName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

func checkNode(s string) error {
	if s != "" && !nodeName.MatchString(s) {
		return fmt.Errorf("%q is not 1 to 63 of a-z, 0-9 and -", s)
	}
	return nil
}

// checkBase takes the URL of a server, without a path.
func checkBase(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return errors.New("must be http://HOST:PORT or https://HOST:PORT")
	}
	return nil
}

func checkRoot(s string) error {
	if !filepath.IsAbs(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%q is not an absolute path", s)
	}
	return nil
}

func checkMounts(mounts []MCPMount) error {
	seen := map[string]bool{}
	for i, m := range mounts {
		fail := func(err error) error { return fmt.Errorf("item %d: %w", i+1, err) }
		prefix := path.Clean(m.Prefix)
		switch {
		case !strings.HasPrefix(m.Prefix, "/") || slices.Contains(strings.Split(m.Prefix, "/"), "..") ||
			strings.ContainsFunc(m.Prefix, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }):
			return fail(fmt.Errorf("prefix: %q is not an absolute path with slashes", m.Prefix))
		case seen[prefix]:
			return fail(fmt.Errorf("prefix: %s occurs twice", prefix))
		case (m.Root == "") == (len(m.Namespace) == 0):
			return fail(errors.New("give either root or namespace"))
		case slices.Contains(m.Namespace, ""):
			return fail(errors.New("namespace: a segment is empty"))
		}
		seen[prefix] = true
		if err := oneOf(m.Scope, "READ_ONLY", "READ_WRITE", "WRITE_ONLY"); err != nil {
			return fail(fmt.Errorf("scope: %w", err))
		}
		if m.Root != "" {
			if err := checkRoot(m.Root); err != nil {
				return fail(fmt.Errorf("root: %w", err))
			}
		}
	}
	return nil
}

// checkAPIs checks the settings; the documents are read where they are used.
func checkAPIs(apis []API) error {
	seen := map[string]bool{}
	for i, a := range apis {
		fail := func(err error) error { return fmt.Errorf("item %d: %w", i+1, err) }
		switch {
		case a.Name == "" || strings.ContainsFunc(a.Name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_')
		}) || a.Name[0] >= '0' && a.Name[0] <= '9':
			return fail(fmt.Errorf("name: %q is not letters, digits and _", a.Name))
		case seen[a.Name]:
			return fail(fmt.Errorf("name: %s occurs twice", a.Name))
		case notEmpty(a.Spec) != nil:
			return fail(fmt.Errorf("spec: %w", notEmpty(a.Spec)))
		}
		seen[a.Name] = true
	}
	return nil
}

func checkTokens(tokens []Token) error {
	seen := map[string]bool{}
	for i, t := range tokens {
		fail := func(err error) error { return fmt.Errorf("item %d: %w", i+1, err) }
		// The name becomes the author of commits.
		if n := len([]rune(t.Name)); n == 0 || n > 128 || strings.TrimSpace(t.Name) != t.Name ||
			strings.ContainsFunc(t.Name, func(r rune) bool { return r == '<' || r == '>' || !unicode.IsPrint(r) }) {
			return fail(fmt.Errorf("name: %q is not 1 to 128 printable characters without < and >", t.Name))
		}
		if seen[t.Name] {
			return fail(fmt.Errorf("name: %q occurs twice", t.Name))
		}
		seen[t.Name] = true
		if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != 32 {
			return fail(errors.New("sha256: must be 64 hexadecimal digits"))
		}
		if err := oneOf(t.Scope, ScopeRead, ScopeWrite, ScopeExec); err != nil {
			return fail(fmt.Errorf("scope: %w", err))
		}
		if err := each(t.Roots, checkRoot); err != nil {
			return fail(fmt.Errorf("roots: %w", err))
		}
	}
	return nil
}
