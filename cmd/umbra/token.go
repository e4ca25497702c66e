package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

func tokenCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "token",
		Short: "Add, list and remove access tokens",
		Long: `Add, list and remove the access tokens of users other than the owner. Changes
hold at once, also for a running server.

The first token turns tokens on: from then on every request needs one, except those
of the owner's own commands. Tokens stay on when the last one is removed; then only
the owner has access. umbra token off turns them off again.

With --cluster and --blobs they are the tokens of a cluster: no node has to run,
and a change holds on all nodes within 2 s.`,
		Example: `  umbra token add ci --scope read --expires 720h
  umbra token list`,
	}, tokenAddCommand(), tokenListCommand(), tokenRemoveCommand(), tokenOffCommand())
}

// tokenVerb is a verb that also works on the records of a cluster.
func tokenVerb() *verb {
	v := &verb{}
	v.Cluster = true
	return v
}

// oneName takes exactly one argument.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exitcode.Usage(errors.New("the NAME of one token is needed"))
	}
	return nil
}

func tokenAddCommand() *cobra.Command {
	v := tokenVerb()
	var scope string
	var roots []string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "add NAME --scope read|write|exec [--root DIR…] [--expires 720h]",
		Short: "Add a token, and print it",
		Long: `Add a token, and print it: this once, since only its SHA-256 is kept. NAME signs
the commits that are made with it.

A token of scope read may read everything that it sees, sync, lint, dry-run,
and open sessions on known workspaces. One of scope write may also change files. One of
scope exec may also run commands as the server's user, if exec.enabled is set. With
--root it sees and opens only directories under DIR, and none of the server's own;
without, it sees everything and opens nothing new. It is sent as
"Authorization: Bearer TOKEN", or as git's password.`,
		Example: `  umbra token add ci --scope read --expires 720h
  umbra token add alice --scope write --root ~/projects`,
		Args: oneName,
	}
	fs := cmd.Flags()
	fs.StringVar(&scope, "scope", "", "what it may do: `read|write|exec`")
	fs.StringArrayVar(&roots, "root", nil, "a directory `DIR` that it may read and open; may be given several times")
	fs.DurationVar(&expires, "expires", 0, "for how long it holds, such as `720h`; without, until it is removed")
	v.Connection.Flags(fs)
	v.OutputFlags(fs)
	add := v.Action(func(ctx context.Context, args []string) error {
		body := map[string]any{"name": args[0], "scope": scope, "roots": roots}
		if expires != 0 {
			body["expires"] = expires.String()
		}
		var made render.Token
		raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodPost, Path: "/upkeep/tokens", Body: body}, &made)
		if err != nil {
			return err
		}
		for _, w := range made.Warnings {
			fmt.Fprintln(v.Stderr, "umbra: warning:", term.Line(w))
		}
		return v.Answer(raw, func(o *term.Output) { o.Printf("%s\n", made.Token) })
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if scope != "read" && scope != "write" && scope != "exec" {
			return exitcode.Usage(errors.New("--scope must be read, write or exec"))
		}
		if cmd.Flags().Changed("expires") && expires <= 0 {
			return exitcode.Usage(errors.New("--expires must be above 0"))
		}
		for i, dir := range roots {
			abs, err := filepath.Abs(cli.ExpandHome(dir))
			if err != nil || dir == "" {
				return exitcode.Usage(fmt.Errorf("--root %q is not a directory", dir))
			}
			roots[i] = abs
		}
		// A server that others can reach does not start without one: this may be
		// the first thing that is done with a data directory.
		if v.Server == "" {
			cfg, err := config.Load(cmd.Flags())
			if err != nil {
				return exitcode.Usage(err)
			}
			if !cfg.Cluster.On() {
				if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
					return err
				}
			}
		}
		return add(cmd, args)
	}
	return cmd
}

func tokenListCommand() *cobra.Command {
	v := tokenVerb()
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens",
		Long: `List the tokens: those of the settings (auth.tokens), and those that were added.

With --json: {"on":…,"tokens":[…]}, as the server returns it.`,
		Example: `  umbra token list`,
		Args:    cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error {
		var list struct {
			On     bool           `json:"on"`
			Tokens []render.Token `json:"tokens"`
		}
		raw, err := v.Client.JSON(ctx, client.Request{Path: "/upkeep/tokens"}, &list)
		if err != nil {
			return err
		}
		return v.Answer(raw, func(o *term.Output) {
			switch {
			case len(list.Tokens) > 0:
				render.Tokens(o, list.Tokens)
			case list.On:
				o.Printf("no tokens: only the owner's own verbs have access\n")
			default:
				o.Printf("no tokens: none is asked for\n")
			}
		})
	})
	return cmd
}

func tokenRemoveCommand() *cobra.Command {
	v := tokenVerb()
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a token",
		Long: `Remove a token. Requests with it are refused at once, and its event streams end. A
token in the settings (auth.tokens) is removed there.`,
		Example: `  umbra token remove ci`,
		Args:    oneName,
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, args []string) error {
		var gone struct {
			Left int `json:"left"`
		}
		raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodDelete, Path: client.Path("upkeep", "tokens", args[0])}, &gone)
		if err != nil {
			return err
		}
		return v.Answer(raw, func(o *term.Output) {
			o.Printf("removed %s\n", term.Line(args[0]))
			if gone.Left == 0 {
				o.Printf("no token is left: only the owner's own verbs have access\n")
			}
		})
	})
	return cmd
}

func tokenOffCommand() *cobra.Command {
	v := tokenVerb()
	cmd := &cobra.Command{
		Use:   "off",
		Short: "Turn tokens off, once all are removed",
		Long: `Turn tokens off, once all are removed: requests need none any more. It is refused while
a token exists.`,
		Example: `  umbra token off`,
		Args:    cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = v.Action(func(ctx context.Context, _ []string) error {
		raw, err := v.Client.JSON(ctx, client.Request{Method: http.MethodDelete, Path: "/upkeep/tokens"}, nil)
		if err != nil {
			return err
		}
		return v.Answer(raw, func(o *term.Output) { o.Printf("tokens are off\n") })
	})
	return cmd
}
