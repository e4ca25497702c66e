package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"umbra/config"
	"umbra/httpapi"
	"umbra/internal/client"
	"umbra/internal/person"
	"umbra/internal/state"
)

// connection says which server a verb talks to.
type connection struct {
	server, token string
	// share lets others in who find the data directory held by this process.
	share bool
	// private: the server is in this process, and no one else can call it. It is
	// set by open.
	private bool
}

func (k *connection) flags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(all)
	for _, name := range []string{"config", "data-dir"} {
		fs.AddFlag(all.Lookup(name))
	}
	fs.Lookup("data-dir").Usage = "the server is the one of this data directory `DIR`; where none runs, work on it directly"
	fs.StringVar(&k.server, "server", "", "talk to the server at `URL` (http://HOST:PORT or unix:PATH); UMBRA_SERVER without it and without --data-dir")
	fs.StringVar(&k.token, "token", "", "with --server: the bearer `TOKEN` (or UMBRA_TOKEN, which other users do not see)")
}

// startPatience is how long a verb waits for a data directory whose holder is
// starting or stopping, or is another verb.
const startPatience = 10 * time.Second

// open gives a client, and what gives up what it stands on.
func (k *connection) open(ctx context.Context, cmd *cobra.Command, stderr io.Writer) (c *client.Client, closer func() error, err error) {
	actor := actorName()
	if k.server == "" && !cmd.Flags().Changed("data-dir") && !cmd.Flags().Changed("config") {
		k.server = os.Getenv("UMBRA_SERVER")
	}
	if k.server != "" {
		if cmd.Flags().Changed("data-dir") {
			return nil, nil, usageError{errors.New("--server and --data-dir exclude each other")}
		}
		token := k.token
		if token == "" {
			token = os.Getenv("UMBRA_TOKEN")
		}
		c, err := client.New(client.Options{Address: k.server, Token: token, Actor: actor})
		if err != nil {
			return nil, nil, usageError{fmt.Errorf("--server: %w", err)}
		}
		return c, func() error { c.Close(); return nil }, nil
	}
	if k.token != "" {
		return nil, nil, usageError{errors.New("--token goes with --server")}
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, nil, usageError{err}
	}
	if _, err := os.Stat(cfg.DataDir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, usageError{fmt.Errorf("data directory %s does not exist", cfg.DataDir)}
	}
	deadline := time.Now().Add(startPatience)
	for {
		dir, err := state.Acquire(cfg.DataDir)
		held, isHeld := errors.AsType[*state.HeldError](err)
		switch {
		case err == nil:
			k.private = !k.share
			return inProcess(cfg, dir, actor, stderr, k.share)
		case !isHeld:
			return nil, nil, err
		case held.Holder.Address != "":
			return beside(held, actor)
		case time.Now().After(deadline):
			return nil, nil, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// beside talks to the server that holds the data directory.
func beside(held *state.HeldError, actor string) (*client.Client, func() error, error) {
	secret, err := readOwner(held.Dir)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Options{Address: held.Holder.Address, Token: secret, Actor: actor, Own: true})
	if err != nil {
		return nil, nil, err
	}
	return c, func() error { c.Close(); return nil }, nil
}

// sharedSocket, in the data directory, is where a verb that shares its server
// listens.
const sharedSocket = "shared.sock"

// inProcess makes the server itself, and talks to that. It has no address,
// unless it is to be shared.
func inProcess(cfg config.Config, dir *state.Dir, actor string, log io.Writer, share bool) (*client.Client, func() error, error) {
	// Nobody else can call it.
	cfg.Auth.Peer = config.PeerAny
	cfg.Limits.Rate = config.Rate{}
	deps, err := build(cfg, dir, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return nil, nil, errors.Join(err, dir.Release())
	}
	pipe := client.NewPipe()
	served := make(chan error, 1)
	go func() { served <- deps.server.Serve(pipe) }()
	if share {
		// Where that cannot be, others have to wait until this process ends.
		if l, address, err := httpapi.Listen("unix:" + dir.Join(sharedSocket)); err == nil {
			go func() { _ = deps.server.Serve(l) }()
			err = dir.Announce(address)
			if err != nil {
				l.Close()
			}
		}
	}
	c, err := client.New(client.Options{Token: deps.owner, Actor: actor, Dial: pipe.Dial})
	closer := func() error {
		if c != nil {
			c.Close()
		}
		unannounced := dir.Announce("")
		deps.server.Stop()
		// No deadline: a clean state is worked for until it is reached.
		return errors.Join(unannounced, <-served, deps.close(context.Background()), dir.Release())
	}
	if err != nil {
		return nil, nil, errors.Join(err, closer())
	}
	return c, closer, nil
}

// actorName is in whose name a verb changes something: the person's, if it may
// stand in a commit.
func actorName() string {
	if name := person.Name(); httpapi.ValidActor(name) {
		return name
	}
	return ""
}
