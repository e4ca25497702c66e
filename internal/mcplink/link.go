// Package mcplink carries MCP messages between a client on standard input and
// output and a server, which may end and be replaced by another.
package mcplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/clock"
	"umbra/internal/exitcode"
	"umbra/internal/state"
	"umbra/internal/stdio"
	"umbra/internal/term"
)

// Mount is a mount as POST /toolsets takes it.
type Mount struct {
	Prefix string `json:"prefix"`
	Scope  string `json:"scope"`
	Store  Store  `json:"store"`
}

// Store is where a mount's files are: a directory, or the virtual store of a
// namespace.
type Store struct {
	Type      string   `json:"type"`
	Root      string   `json:"root,omitempty"`
	Namespace []string `json:"namespace,omitempty"`
}

// ParseMounts reads the flags. The server judges the rest.
func ParseMounts(list []string) ([]Mount, error) {
	if len(list) == 0 {
		return nil, errors.New("--mount is missing")
	}
	scopes := []string{"READ_ONLY", "READ_WRITE", "WRITE_ONLY"}
	word := regexp.MustCompile(`^[A-Z_]+$`)
	out := make([]Mount, len(list))
	for i, s := range list {
		prefix, place, ok := strings.Cut(s, "=")
		if !ok || place == "" || !strings.HasPrefix(prefix, "/") {
			return nil, fmt.Errorf("--mount %s: it must be PREFIX=DIR[:SCOPE], with a PREFIX that begins with /", s)
		}
		m := Mount{Prefix: prefix, Scope: "READ_WRITE"}
		if at := strings.LastIndexByte(place, ':'); at >= 0 && word.MatchString(place[at+1:]) {
			if m.Scope = place[at+1:]; !slices.Contains(scopes, m.Scope) {
				return nil, fmt.Errorf("--mount %s: the scope must be one of %s", s, strings.Join(scopes, ", "))
			}
			place = place[:at]
		}
		if segments, isVirtual := strings.CutPrefix(place, "virtual:"); isVirtual {
			m.Store = Store{Type: "virtual", Namespace: strings.Split(segments, "/")}
		} else {
			root, err := filepath.Abs(cli.ExpandHome(place))
			if err != nil || place == "" {
				return nil, fmt.Errorf("--mount %s: %q is not a directory", s, place)
			}
			m.Store = Store{Type: "physical", Root: root}
		}
		out[i] = m
	}
	return out, nil
}

// ofMount names the mount that the server's refusal is about.
func ofMount(err error, mounts []Mount) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	var refused struct {
		Field string `json:"field"`
	}
	var i int
	if json.Unmarshal(e.Body, &refused) != nil {
		return err
	}
	if n, _ := fmt.Sscanf(refused.Field, "mounts[%d]", &i); n != 1 || i < 0 || i >= len(mounts) {
		return err
	}
	m := mounts[i]
	place := m.Store.Root
	if m.Store.Type == "virtual" {
		place = "virtual:" + strings.Join(m.Store.Namespace, "/")
	}
	return fmt.Errorf("--mount %s=%s: %w", m.Prefix, term.Name(place), err)
}

// mcpLease is how long the toolset outlives this process where that is killed,
// and mcpSign how often the process shows that it lives.
const (
	mcpLease = 15 * time.Minute
	mcpSign  = 2 * time.Minute
)

// stay keeps the toolset's lease while the client may have nothing to say. It
// follows to another server that has the data directory, but makes none: that is
// for the client's next message.
func (k *Link) stay(ctx context.Context, path string) {
	for range clock.Ticks(ctx, mcpSign) {
		k.mu.Lock()
		c := k.client
		k.mu.Unlock()
		res, err := c.Raw(ctx, http.MethodGet, path, nil, nil)
		if err != nil && k.dataDir != "" && ctx.Err() == nil {
			holder, held, ferr := state.FindHolder(k.dataDir)
			if ferr != nil || !held || holder.Address == "" {
				continue
			}
			if c, err = k.connect(ctx, c); err == nil {
				res, err = c.Raw(ctx, http.MethodGet, path, nil, nil)
			}
		}
		if err == nil {
			res.Body.Close()
		}
	}
}

// Link is the way to a server, which may end and be replaced by another.
type Link struct {
	cli.Connection
	cmd     *cobra.Command
	dataDir string // empty with --server

	mu     sync.Mutex
	client *client.Client
	closer func() error
}

// Serve makes the toolset and carries messages until the client leaves.
func (k *Link) Serve(ctx context.Context, cmd *cobra.Command, mounts []Mount, task string) (err error) {
	k.cmd = cmd
	if k.Server == "" {
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return exitcode.Usage(err)
		}
		k.dataDir = cfg.DataDir
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return err
		}
	}
	if _, err := k.connect(ctx, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.closer()) }()
	body := map[string]any{"mounts": mounts, "idleSeconds": int(mcpLease / time.Second)}
	if task != "" {
		body["taskId"] = task
	} else {
		body["lazyTasks"] = true // one is made at the client's first change
	}
	var made struct {
		ID string `json:"id"`
	}
	if _, err := k.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: "/toolsets", Body: body}, &made); err != nil {
		return ofMount(err, mounts)
	}
	path := client.Path("mcp", made.ID)
	alive, died := context.WithCancel(ctx)
	var staying sync.WaitGroup
	staying.Go(func() { k.stay(alive, client.Path("toolsets", made.ID)) })
	defer func() { died(); staying.Wait() }()
	err = stdio.Run(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), stdio.Options{MaxMessage: maxMessage,
		Send: func(ctx context.Context, method string, h http.Header, body []byte) (*http.Response, error) {
			return k.send(ctx, method, path, h, body)
		}})
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	res, gone := k.send(ending, http.MethodDelete, client.Path("toolsets", made.ID), nil, nil)
	if gone == nil {
		res.Body.Close()
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil // the client has left
	}
	return err
}

// maxMessage bounds a message from the client, in bytes: a file in it, as JSON.
const maxMessage = 256 << 20

// send sends a request, and once more by a new connection where the server is
// gone.
func (k *Link) send(ctx context.Context, method, path string, h http.Header, body []byte) (*http.Response, error) {
	k.mu.Lock()
	c := k.client
	k.mu.Unlock()
	res, err := c.Raw(ctx, method, path, h, body)
	if err == nil || ctx.Err() != nil {
		return res, err
	}
	again, cerr := k.connect(ctx, c)
	if cerr != nil {
		return nil, errors.Join(err, cerr)
	}
	return again.Raw(ctx, method, path, h, body)
}

// connect connects in place of a connection that is broken.
func (k *Link) connect(ctx context.Context, broken *client.Client) (*client.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != broken {
		return k.client, nil
	}
	if k.closer != nil {
		if err := k.closer(); err != nil {
			fmt.Fprintln(k.cmd.ErrOrStderr(), "umbra:", err)
		}
		k.closer = nil
	}
	c, closer, err := k.Open(ctx, k.cmd, k.cmd.ErrOrStderr())
	if err != nil {
		k.closer = func() error { return nil }
		return nil, err
	}
	k.client, k.closer = c, sync.OnceValue(closer)
	return c, nil
}
