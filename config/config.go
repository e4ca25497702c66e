// Package config is what an owner may set: structs with their defaults, read
// from flags, the environment, a YAML or TOML file and the defaults, in this
// order, and checked as a whole.
//
// viper is used here alone; only cmd/umbra imports the package, and hands each
// layer its own options.
//
// Invariants: every leaf of Config is a key (the names in its `key` tags,
// joined by dots) and an environment variable (UMBRA_ and the key in capitals,
// dots as underscores; but lists of tables). A key that is no leaf is refused,
// and every leaf stands in config.yaml with its default.
package config

import (
	"os"
	"path/filepath"
	"time"
)

// Config is all that can be set.
type Config struct {
	Listen       string     `key:"listen"`
	DataDir      string     `key:"data_dir"`
	WorkspaceDir string     `key:"workspace_dir"`
	Output       Output     `key:"output"`
	Hosted       bool       `key:"hosted"`
	Insecure     bool       `key:"insecure"`
	Log          Log        `key:"log"`
	HTTP         HTTP       `key:"http"`
	Auth         Auth       `key:"auth"`
	Workspaces   Workspaces `key:"workspaces"`
	Sessions     Sessions   `key:"sessions"`
	Limits       Limits     `key:"limits"`
}

// Output is where scripts save.
type Output struct {
	Dir string `key:"dir"`
}

// Log is what goes to standard error.
type Log struct {
	Level  string `key:"level"`  // debug, info, warn, error
	Format string `key:"format"` // text, json
}

// HTTP is who may name us and which pages may call us, beside ourselves.
type HTTP struct {
	Hosts   []string `key:"hosts"`   // names without a port
	Origins []string `key:"origins"` // scheme://host[:port]
}

// Auth is who may call.
type Auth struct {
	Peer   string  `key:"peer"` // same-user, any
	Tokens []Token `key:"tokens"`
}

// Token is a bearer token: its hash, never itself.
type Token struct {
	Name    string    `key:"name"`
	SHA256  string    `key:"sha256"` // 64 hexadecimal digits
	Scope   string    `key:"scope"`  // read, write
	Roots   []string  `key:"roots"`
	Expires time.Time `key:"expires"` // zero: never
}

// Workspaces says which folders may become workspaces.
type Workspaces struct {
	Roots []string `key:"roots"`
}

// Sessions are about clients' sessions.
type Sessions struct {
	// Idle is how long after its last request's end a session ends.
	Idle time.Duration `key:"idle"`
}

// Limits are bounds on what a client may send and what is recorded.
type Limits struct {
	CaptureBytes Size `key:"capture_bytes"`
	WriteBytes   Size `key:"write_bytes"`
	UploadBytes  Size `key:"upload_bytes"`
	JSONBytes    Size `key:"json_bytes"`
	Rate         Rate `key:"rate"`
}

// Rate is requests a minute; 0 is off.
type Rate struct {
	PerIP  int `key:"per_ip"`
	Global int `key:"global"`
}

// The values of the settings that are words.
const (
	PeerSameUser = "same-user"
	PeerAny      = "any"
	ScopeRead    = "read"
	ScopeWrite   = "write"
	FormatText   = "text"
	FormatJSON   = "json"
)

// Default gives what holds where nothing is set.
func Default() Config {
	return Config{
		Listen:       "127.0.0.1:8080",
		DataDir:      defaultDataDir(),
		WorkspaceDir: "./workspace",
		Output:       Output{Dir: "./umbra-output"},
		Log:          Log{Level: "info", Format: FormatText},
		Auth:         Auth{Peer: PeerSameUser},
		Sessions:     Sessions{Idle: 2 * time.Hour},
		Limits: Limits{
			CaptureBytes: 256 << 20,
			WriteBytes:   100 << 20,
			UploadBytes:  10 << 30,
			JSONBytes:    1 << 20,
		},
	}
}

// defaultDataDir follows the XDG Base Directory Specification; a relative
// $XDG_DATA_HOME does not count there. Without a home it is empty.
func defaultDataDir() string {
	if d := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "umbra")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "umbra")
}
