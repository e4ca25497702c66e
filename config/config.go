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
// and every leaf is in config.yaml with its default.
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
	Trace        Trace      `key:"trace"`
	HTTP         HTTP       `key:"http"`
	TLS          TLS        `key:"tls"`
	Auth         Auth       `key:"auth"`
	Workspaces   Workspaces `key:"workspaces"`
	Sessions     Sessions   `key:"sessions"`
	Agents
	Policy    Policy    `key:"policy"`
	Review    Review    `key:"review"`
	MCP       MCP       `key:"mcp"`
	Execute   Execute   `key:"execute"`
	Sandbox   Sandbox   `key:"sandbox"`
	Lint      Lint      `key:"lint"`
	Scripts   Scripts   `key:"scripts"`
	Limits    Limits    `key:"limits"`
	Retention Retention `key:"retention"`
	Cluster   Cluster   `key:"cluster"`
}

// Agents are the settings about agents' tools. Their tables are those of Config.
type Agents struct {
	Calls Calls `key:"calls"`
	Hooks Hooks `key:"hooks"`
	Exec  Exec  `key:"exec"`
}

// Cluster is how several servers, called nodes, share their work. URL and Blobs
// belong together; without them the rest has no effect.
type Cluster struct {
	URL         string        `key:"url"`       // of PostgreSQL
	Blobs       string        `key:"blobs"`     // s3://bucket/prefix?region=…
	Node        string        `key:"node"`      // empty: the host's name
	Advertise   string        `key:"advertise"` // where other nodes reach this one; empty: http://<host name>:<port>
	PublicURL   string        `key:"public_url"`
	ReadURL     string        `key:"read_url"`    // of a replica of PostgreSQL that followers read; empty: none
	Replication string        `key:"replication"` // sync, provider, none
	Wait        time.Duration `key:"wait"`        // for an answer of PostgreSQL, and while a workspace moves
	// StaleReads lets a node without a lease answer reads, which say so.
	StaleReads bool `key:"stale_reads"`
	// Physical lets this node open directories: their workspaces are its alone.
	Physical bool `key:"physical"`
	// CacheBytes bounds the copies of workspaces on this node's disk; 0: half of what is
	// free at the start, and of what they have.
	CacheBytes Size `key:"cache_bytes"`
	// UnsealedBytes bounds the log of one workspace that is not in the store yet.
	UnsealedBytes Size `key:"unsealed_bytes"`
	// GarbageGrace is how long a dropped object stays in the store.
	GarbageGrace time.Duration `key:"garbage_grace"`
}

// On reports whether the server is a node of a cluster.
func (c Cluster) On() bool { return c.URL != "" || c.Blobs != "" }

// Values of Cluster.Replication.
const (
	ReplicationSync     = "sync"
	ReplicationProvider = "provider"
	ReplicationNone     = "none"
)

// Retention says which history is dropped by itself; what is 0 drops nothing.
type Retention struct {
	Age      time.Duration `key:"age"`
	Bytes    Size          `key:"bytes"`    // history of one workspace
	Interval time.Duration `key:"interval"` // between two looks
}

// Output is where scripts save.
type Output struct {
	Dir      string `key:"dir"`
	MaxBytes Size   `key:"max_bytes"` // of all that one execution writes
	Enabled  bool   `key:"enabled"`   // false: scripts save nothing
}

// Scripts is how scripts run, and what they may call.
type Scripts struct {
	APIs        []API `key:"apis"`
	MaxAPICalls int   `key:"max_api_calls"` // a script
	APIMaxBytes Size  `key:"api_max_bytes"` // an answer
	Parallel    int   `key:"parallel"`      // scripts at once
	Queue       int   `key:"queue"`         // scripts that wait beyond that
}

// API is an OpenAPI document whose operations scripts may call.
type API struct {
	Name    string            `key:"name"`
	Spec    string            `key:"spec"`     // a file, JSON or YAML
	BaseURL string            `key:"base_url"` // empty: the document's first server
	Headers map[string]string `key:"headers"`  // values expand ${VARIABLE}
}

// Log is what goes to standard error.
type Log struct {
	Level  string `key:"level"`  // debug, info, warn, error
	Format string `key:"format"` // text, json
}

// Trace is where traces go.
type Trace struct {
	// Endpoint is an OpenTelemetry collector, http://HOST:4318; empty: what
	// OTEL_EXPORTER_OTLP_ENDPOINT says, else nowhere.
	Endpoint string `key:"endpoint"`
}

// HTTP lists the Host names and the web origins that are accepted besides the
// server's own.
type HTTP struct {
	Hosts   []string `key:"hosts"`   // names without a port
	Origins []string `key:"origins"` // scheme://host[:port]
}

// TLS is the certificate with which a TCP address is served by HTTPS; both are
// empty for plain HTTP.
type TLS struct {
	Cert string `key:"cert"` // a PEM file, with the chain
	Key  string `key:"key"`  // a PEM file
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
	// WatchIdle is how long a workspace is watched after its last use. It is also
	// watched while a task on it is executing or paused.
	WatchIdle time.Duration `key:"watch_idle"`
	// MaxWatches bounds the watched folders of all workspaces; 0 leaves it to
	// the system.
	MaxWatches int `key:"max_watches"`
}

// Sessions are about clients' sessions.
type Sessions struct {
	// Idle is how long after its last request's end a session ends.
	Idle time.Duration `key:"idle"`
}

// Calls are the times in which agents' tools work.
type Calls struct {
	// TTL is the time after which a call that is neither ended nor touched counts as lost.
	TTL time.Duration `key:"ttl"`
	// RecordCommands is what history has of a shell command: nothing ("off"), or
	// its SHA-256 where the agent's hook sends it ("hash").
	RecordCommands string `key:"record_commands"`
}

// Hooks are what umbra hook does for the agents of this server.
type Hooks struct {
	// Context says whether the model is given what others changed and what its
	// call overwrote: "on" or "off".
	Context string `key:"context"`
}

// Values of Hooks.Context.
const (
	ContextOn  = "on"
	ContextOff = "off"
)

// Review is how people take and leave agents' hunks.
type Review struct {
	Hold bool `key:"hold"` // rejections wait until no call of the task is open
}

// Policy is what requests may not change.
type Policy struct {
	Protected    []string      `key:"protected"`      // patterns as in .gitignore
	MaxFileBytes Size          `key:"max_file_bytes"` // of one file; 0: no bound
	Secrets      string        `key:"secrets"`        // off, warn, refuse
	After        string        `key:"after"`          // keep, revert
	Places       []PolicyPlace `key:"places"`
}

// PolicyPlace is policy of some workspaces, in addition.
type PolicyPlace struct {
	Root         string   `key:"root"`      // workspaces at or below it; or
	Workspace    string   `key:"workspace"` // one, by its id
	Protected    []string `key:"protected"`
	MaxFileBytes Size     `key:"max_file_bytes"` // 0: as for all
	Secrets      string   `key:"secrets"`        // empty: as for all
	After        string   `key:"after"`          // empty: as for all
}

// Exec is about POST /tasks/{id}/exec.
type Exec struct {
	Enabled     bool          `key:"enabled"`
	Concurrency int           `key:"concurrency"`  // commands at once
	OutputBytes Size          `key:"output_bytes"` // of each stream, in an answer
	Timeout     time.Duration `key:"timeout"`      // of a command
}

// MCP is what /mcp serves where the address names no toolset.
type MCP struct {
	Mounts        []MCPMount `key:"mounts"`
	ExecuteScript bool       `key:"execute_script"`
}

// MCPMount is a mount of the default toolset, on a folder or on the virtual
// store of a namespace.
type MCPMount struct {
	Prefix    string   `key:"prefix"`
	Scope     string   `key:"scope"` // READ_ONLY, READ_WRITE, WRITE_ONLY
	Root      string   `key:"root"`
	Namespace []string `key:"namespace"`
}

// Execute is how programs run.
type Execute struct {
	Engine      string `key:"engine"`   // embedded, deno
	Parallel    int    `key:"parallel"` // programs at once
	Queue       int    `key:"queue"`    // programs that wait beyond that
	Warm        int    `key:"warm"`     // processes that wait for a program
	MemoryBytes Size   `key:"memory_bytes"`
}

// Sandbox is what surrounds programs.
type Sandbox struct {
	Require bool `key:"require"` // no start where the kernel lacks one of the walls
}

// Lint is how programs are checked.
type Lint struct {
	Engine string `key:"engine"` // embedded, deno, oxlint, biome
}

// Limits are bounds on what a client may send and what is recorded.
type Limits struct {
	CaptureBytes   Size  `key:"capture_bytes"`
	CacheBytes     Size  `key:"cache_bytes"`     // of histories in memory, all workspaces together
	WorkspaceBytes Size  `key:"workspace_bytes"` // history of one workspace; 0: no limit
	FreeBytes      Floor `key:"free_bytes"`      // of the data directory's file system, kept free
	WriteBytes     Size  `key:"write_bytes"`
	UploadBytes    Size  `key:"upload_bytes"`
	JSONBytes      Size  `key:"json_bytes"`
	BodiesBytes    Size  `key:"bodies_bytes"` // of all bodies in memory; 0: no limit
	Connections    int   `key:"connections"`  // open at once; 0: no limit
	Streams        int   `key:"streams"`      // event streams open at once; 0: no limit
	Rate           Rate  `key:"rate"`
}

// Rate is requests a minute; 0 is off.
type Rate struct {
	PerIP     int `key:"per_ip"`
	PerCodeID int `key:"per_code_id"`
	Global    int `key:"global"`
}

// The values of the settings that are words.
const (
	PeerSameUser = "same-user"
	PeerAny      = "any"
	ScopeRead    = "read"
	ScopeWrite   = "write"
	ScopeExec    = "exec" // write, and run commands
	FormatText   = "text"
	FormatJSON   = "json"

	EngineEmbedded = "embedded"
	EngineDeno     = "deno"
	EngineOxlint   = "oxlint"
	EngineBiome    = "biome"
)

// What of a shell command is in history (Calls.RecordCommands).
const (
	RecordOff  = "off"
	RecordHash = "hash"
)

// Default gives what holds where nothing is set.
func Default() Config {
	return Config{
		Listen:       "127.0.0.1:8080",
		DataDir:      defaultDataDir(),
		WorkspaceDir: "./workspace",
		Output:       Output{Dir: "./umbra-output", MaxBytes: 50 << 20, Enabled: true},
		Log:          Log{Level: "info", Format: FormatText},
		Auth:         Auth{Peer: PeerSameUser},
		Workspaces:   Workspaces{WatchIdle: time.Hour},
		Sessions:     Sessions{Idle: 2 * time.Hour},
		Agents: Agents{
			Calls: Calls{TTL: 30 * time.Minute, RecordCommands: RecordOff},
			Hooks: Hooks{Context: ContextOn},
			Exec:  Exec{Concurrency: 4, OutputBytes: 1 << 20, Timeout: 10 * time.Minute},
		},
		Execute: Execute{Engine: EngineEmbedded, Parallel: 8, Queue: 200, Warm: 4, MemoryBytes: 256 << 20},
		Lint:    Lint{Engine: EngineEmbedded},
		Policy:  Policy{Secrets: "off", After: "keep"},
		MCP:     MCP{ExecuteScript: true},
		Scripts: Scripts{MaxAPICalls: 100, APIMaxBytes: 50 << 20, Parallel: 16, Queue: 200},
		Limits: Limits{
			CaptureBytes: 256 << 20,
			CacheBytes:   64 << 20,
			FreeBytes:    FloorAuto,
			WriteBytes:   100 << 20,
			UploadBytes:  10 << 30,
			JSONBytes:    1 << 20,
			BodiesBytes:  512 << 20,
			Connections:  4096,
			Streams:      1024,
		},
		Retention: Retention{Interval: time.Hour},
		Cluster:   Cluster{Replication: ReplicationSync, Wait: 8 * time.Second, StaleReads: true, UnsealedBytes: 64 << 20, GarbageGrace: 24 * time.Hour},
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
