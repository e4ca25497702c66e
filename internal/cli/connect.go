package cli

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
	"umbra/internal/datadir"
	"umbra/internal/exitcode"
	"umbra/internal/person"
	"umbra/internal/server"
	"umbra/internal/state"
)

// Connection says which server a verb talks to.
type Connection struct {
	Server, Token string
	// share lets others in who find the data directory held by this process.
	Share bool
	// private: the server is in this process, and no one else can call it. It is
	// set by open.
	Private bool
	// Cluster is for verbs about tokens: where the settings name a cluster, they work
	// on its records, without a server.
	Cluster bool
}

// Flags adds the flags that say which server it is.
func (k *Connection) Flags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(all)
	for _, name := range []string{"config", "data-dir"} {
		fs.AddFlag(all.Lookup(name))
	}
	fs.Lookup("data-dir").Usage = "use the data directory `DIR`: through its server if one runs, else directly"
	fs.StringVar(&k.Server, "server", "", "use the server at `URL` (http://HOST:PORT or unix:PATH); default $UMBRA_SERVER, if --data-dir is not given")
	if k.Cluster {
		config.ClusterFlags(fs, false)
	}
	fs.StringVar(&k.Token, "token", "", "bearer `TOKEN` for --server; $UMBRA_TOKEN is better, since other users do not see it")
}

// startPatience is how long a verb waits for a data directory whose holder is
// starting or stopping, or is another verb.
const startPatience = 10 * time.Second

// Open gives a client, and what gives up what it is on.
func (k *Connection) Open(ctx context.Context, cmd *cobra.Command, stderr io.Writer) (c *client.Client, closer func() error, err error) {
	actor := ActorName()
	named := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if k.Server == "" && !named("data-dir") && !named("config") && !named("cluster") {
		k.Server = os.Getenv("UMBRA_SERVER")
	}
	if k.Server != "" {
		for _, flag := range []string{"data-dir", "cluster"} {
			if named(flag) {
				return nil, nil, exitcode.Usage(fmt.Errorf("--server and --%s exclude each other", flag))
			}
		}
		token := k.Token
		if token == "" {
			token = os.Getenv("UMBRA_TOKEN")
		}
		c, err := client.New(client.Options{Address: k.Server, Token: token, Actor: actor})
		if err != nil {
			return nil, nil, exitcode.Usage(fmt.Errorf("--server: %w", err))
		}
		return c, func() error { c.Close(); return nil }, nil
	}
	if k.Token != "" {
		return nil, nil, exitcode.Usage(errors.New("--token goes with --server"))
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, nil, exitcode.Usage(err)
	}
	if k.Cluster && cfg.Cluster.On() {
		if node := server.RunningNode(cfg.DataDir); node != nil {
			return Beside(node, actor)
		}
		k.Private = true
		deps, err := server.BuildTokens(ctx, cfg, verbLog(stderr))
		if err != nil {
			return nil, nil, err
		}
		return overPipe(deps.Server, deps.Owner, actor, func() error {
			deps.Server.Stop()
			return deps.Close(context.Background())
		})
	}
	if _, err := os.Stat(cfg.DataDir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, exitcode.Usage(fmt.Errorf("nothing is recorded yet: the data directory %s does not exist; umbra serve DIR makes it, --data-dir or --server names another", cfg.DataDir))
	}
	deadline := time.Now().Add(startPatience)
	for {
		dir, err := state.Acquire(cfg.DataDir)
		held, isHeld := errors.AsType[*state.HeldError](err)
		switch {
		case err == nil:
			k.Private = !k.Share
			return inProcess(cfg, dir, actor, stderr, k.Share)
		case !isHeld:
			return nil, nil, err
		case held.Holder.Address != "":
			return Beside(held, actor)
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

// Beside returns a client of the server that has the data directory open.
func Beside(held *state.HeldError, actor string) (*client.Client, func() error, error) {
	secret, err := datadir.ReadOwner(held.Dir)
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
	// It cannot be called from elsewhere.
	cfg.Auth.Peer = config.PeerAny
	cfg.Limits.Rate = config.Rate{}
	deps, err := server.Build(cfg, dir, verbLog(log))
	if err != nil {
		return nil, nil, errors.Join(err, dir.Release())
	}
	if share {
		server.CloseInheritedOnExec()
		deps.Resume()
		// Where that cannot be, others have to wait until this process ends.
		if l, address, err := httpapi.Listen("unix:" + dir.Join(sharedSocket)); err == nil {
			go func() { _ = deps.Server.Serve(l) }()
			err = dir.Announce(address)
			if err != nil {
				l.Close()
			}
		}
	}
	return overPipe(deps.Server, deps.Owner, actor, func() error {
		unannounced := dir.Announce("")
		deps.Server.Stop()
		// No deadline: a clean state is worked for until it is reached.
		return errors.Join(unannounced, deps.Close(context.Background()), dir.Release())
	})
}

// verbLog is the log of a server that a verb makes.
func verbLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// overPipe gives a client of a server in this process. stop stops the server, and
// closes what it is on.
func overPipe(s *httpapi.Server, owner, actor string, stop func() error) (*client.Client, func() error, error) {
	pipe := client.NewPipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(pipe) }()
	c, err := client.New(client.Options{Token: owner, Actor: actor, Dial: pipe.Dial})
	closer := func() error {
		if c != nil {
			c.Close()
		}
		return errors.Join(stop(), <-served)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closer())
	}
	return c, closer, nil
}

// ActorName is in whose name a verb changes something: the person's, if it may
// are in a commit.
func ActorName() string {
	if name := person.Name(); httpapi.ValidActor(name) {
		return name
	}
	return ""
}
