// Package demo plays two scripted agents on a small project that it makes, and
// removes what earlier runs have left.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/datadir"
	"umbra/internal/exitcode"
	"umbra/internal/server"
	"umbra/internal/state"
	"umbra/internal/term"
)

// demoMark, in a task's metadata, marks the demo's tasks.
const demoMark = "umbra_demo"

// The demo's project lies in a folder of its own: a temporary one of this
// prefix, and in it one of this name.
const (
	demoPrefix  = "umbra-demo-"
	demoProject = "shop"
)

// Demo is a run of the verb.
type Demo struct {
	cli.Verb
	cfg   config.Config
	Clean bool
	Stay  bool
	Pace  time.Duration
}

// Start finds a server, or makes one, and plays.
func (d *Demo) Start(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var holder state.Holder
	held := d.Server != ""
	if !held {
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return exitcode.Usage(err)
		}
		d.cfg = cfg
		if !d.Clean {
			if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
				return err
			}
			if holder, held, err = state.FindHolder(cfg.DataDir); err != nil {
				return err
			}
		}
	}
	if !held && d.Stay && !d.Clean {
		return d.besideOwnServer(ctx, stop)
	}
	c, closer, err := d.Open(ctx, cmd, d.Stderr)
	if err != nil {
		return err
	}
	if d.Clean {
		err = d.cleanUp(ctx, c)
	} else {
		err = d.play(ctx, c, server.Welcome{Address: cmp.Or(d.Server, holder.Address)}, false)
	}
	return errors.Join(err, closer())
}

// besideOwnServer serves in this process, plays, and goes on serving until a
// signal comes.
func (d *Demo) besideOwnServer(ctx context.Context, stop func()) error {
	ready, served := make(chan server.Welcome, 1), make(chan error, 1)
	cfg := d.cfg
	cfg.Log.Level = "warn" // the story is what there is to read
	go func() {
		served <- server.Serve(ctx, cfg, server.Options{AnyPort: true, Ready: func(w server.Welcome) { ready <- w }}, io.Discard, d.Stderr)
	}()
	var hello server.Welcome
	select {
	case err := <-served:
		return err
	case hello = <-ready:
	}
	c, err := d.ownClient(hello)
	if err == nil {
		err = d.play(ctx, c, hello, true)
		c.Close()
	}
	if err != nil {
		stop()
		return errors.Join(err, <-served)
	}
	return <-served
}

func (d *Demo) ownClient(hello server.Welcome) (*client.Client, error) {
	secret, err := datadir.ReadOwner(d.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Address: hello.Address, Token: secret, Actor: cli.ActorName(), Own: true})
}

// play makes the project, plays on it and prints how to view it; stays says
// that the server is this process's own and goes on.
func (d *Demo) play(ctx context.Context, c *client.Client, hello server.Welcome, stays bool) error {
	parent, err := os.MkdirTemp("", demoPrefix)
	if err != nil {
		return err
	}
	root := filepath.Join(parent, demoProject)
	if err := makeProject(root); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	o := term.Open(d.Stdout, term.Options{Color: term.Color(d.Color)})
	p := &play{client: c, pace: d.Pace, onStep: func(s demoStep) {
		if d.JSON {
			return
		}
		who := s.Actor
		if s.Subtask != "" {
			who += "/" + s.Subtask
		}
		o.Printf("  %s %s\n", o.Paint(term.Frag, fmt.Sprintf("%-18s", who)), s.Does)
		_ = o.Flush() // Close reports the error
	}}
	if !d.JSON {
		o.Printf("A project in %s; a task on it: Show prices with tax.\n\n", term.Name(root))
	}
	if err := p.run(ctx, root); err != nil {
		return errors.Join(err, o.Close(), os.RemoveAll(parent))
	}
	p.done.Server = hello.Base()
	if d.JSON {
		raw, err := json.Marshal(p.done)
		if err == nil {
			o.Printf("%s\n", raw)
		}
		return errors.Join(err, o.Close())
	}
	d.next(o, &p.done, hello, stays)
	return o.Close()
}

// next prints how to view what was played.
func (d *Demo) next(o *term.Output, done *played, hello server.Welcome, stays bool) {
	where := d.whereFlags()
	look := [][2]string{
		{"umbra log --task " + done.Task + where, "all that happened, newest first"},
		{"umbra summary --task " + done.Task + where, "what the task comes to"},
		{"umbra diff --task " + done.Task + where, "the same as a patch"},
		{"umbra revert --task " + done.Task + " --subtask " + demoTax + " --dry-run" + where, "what an undo would do"},
		{"umbra git " + done.Workspace + where + " -- log --stat", "the history, with the git you have"},
	}
	if base := hello.Base(); base != "" {
		look = append([][2]string{{base + "/#/tasks/" + done.Task, "in a browser"}}, look...)
	}
	width := 0
	for _, l := range look {
		width = max(width, len(l[0]))
	}
	o.Printf("\nLook at it:\n")
	for _, l := range look {
		o.Printf("  %-*s  %s\n", width, l[0], o.Paint(term.Dim, "# "+l[1]))
	}
	o.Printf("\nTake it away again:\n  umbra demo --clean%s\n", where)
	switch {
	case stays:
		o.Printf("\nThe server runs until Ctrl-C.\n")
	case hello.Base() == "":
		o.Printf("\nNo server runs; umbra serve starts one, with a web UI.\n")
	}
}

// whereFlags are the flags by which other verbs find the same server.
func (d *Demo) whereFlags() string {
	switch {
	case d.Server != "":
		return " --server " + term.ShellWord(d.Server)
	case d.cfg.DataDir != config.Default().DataDir && os.Getenv("UMBRA_DATA_DIR") != d.cfg.DataDir:
		return " --data-dir " + term.ShellWord(d.cfg.DataDir)
	}
	return ""
}
