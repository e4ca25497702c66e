package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/hook"
	// It runs the verb before this program initializes, where it can.
	_ "umbra/internal/hook/early"
)

// hookCommand is umbra hook for what package early leaves: help, wrong use, and
// servers that need TLS or a name lookup.
func hookCommand() *cobra.Command {
	started := time.Now()
	v := hook.Invocation{}
	onFailure, contextFlag := "ignore", "on"
	var connection cli.Connection
	cmd := &cobra.Command{
		Use:   "hook AGENT",
		Short: "Begin and end calls for a coding agent; run by the agent's hooks",
		Long: `Read one event of a coding agent's hooks on standard input, and begin or end a call
for it, so that what the agent's own tools change on disk is recorded as its work.
AGENT is one of: ` + strings.Join(hook.Agents(), ", ") + `.

The server is $UMBRA_SERVER, else the running one of the data directory, else the
one at 127.0.0.1:8080. With no server, or no answer within 2 s, the exit status is 0,
nothing is printed, and hooks.log in the data directory gets a line.`,
		Example: `  umbra hook claude-code < event.json
  umbra hook codex --on-failure=block < event.json`,
		Args: cli.One("name one agent: " + strings.Join(hook.Agents(), ", ")),
	}
	connection.Flags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&onFailure, "on-failure", onFailure, "what to do if the call cannot be recorded: ignore, or block the tool with exit status 2 (`ACT`)")
	f.StringVar(&contextFlag, "context", contextFlag, "pass to the model what others changed and what its call overwrote: `on|off`")
	f.BoolVar(&v.Autostart, "autostart", false, "start a server in the background if none runs; it ends after 8 h without a request")
	f.BoolVar(&v.Isolate, "isolate", false, "have shell commands run by umbra exec, where the agent lets its hook rewrite them")
	f.StringVar(&v.Event, "event", "", "the event's `NAME`, where the agent's input does not have it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v.Agent, v.Server = args[0], connection.Server
		switch {
		case onFailure != "ignore" && onFailure != "block":
			return exitcode.Usage(fmt.Errorf("--on-failure is ignore or block, not %q", onFailure))
		case contextFlag != "on" && contextFlag != "off":
			return exitcode.Usage(fmt.Errorf("--context is on or off, not %q", contextFlag))
		}
		v.Block, v.Context = onFailure == "block", contextFlag == "on"
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return exitcode.Usage(err)
		}
		v.DataDir = cfg.DataDir
		v, ok := v.Complete()
		if !ok {
			return exitcode.Usage(fmt.Errorf("unknown agent %q; it is one of %s", v.Agent, strings.Join(hook.Agents(), ", ")))
		}
		if status := v.Main(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), started, sendHook, hook.StartServer); status != 0 {
			return exitcode.With(status)
		}
		return nil
	}
	return cmd
}

// sendHook sends a hook's requests with the verbs' client.
func sendHook(s hook.Server, deadline time.Time) func(method, path string, body []byte) (int, []byte, error) {
	return func(method, path string, body []byte) (int, []byte, error) {
		c, err := client.New(client.Options{Address: s.Address, Token: s.Token, Own: s.Own})
		if err != nil {
			return 0, nil, fmt.Errorf("%w: %w", hook.ErrUnreachable, err)
		}
		defer c.Close()
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		req := client.Request{Method: method, Path: path}
		if body != nil {
			req.Body = rawJSON(body)
		}
		raw, err := c.JSON(ctx, req, nil)
		if e, ok := errors.AsType[*client.Error](err); ok {
			return e.Status, e.Body, nil
		}
		if err != nil {
			return 0, nil, err
		}
		return 200, raw, nil
	}
}

// rawJSON is a body that is JSON already.
type rawJSON []byte

// MarshalJSON implements json.Marshaler.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }
