package main

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
	"umbra/internal/client"
	"umbra/internal/state"
	"umbra/internal/term"
)

// demoMark, in a task's metadata, tells the demo's tasks from others.
const demoMark = "umbra_demo"

// The demo's project lies in a folder of its own: a temporary one of this
// prefix, and in it one of this name.
const (
	demoPrefix  = "umbra-demo-"
	demoProject = "shop"
)

// demo is a run of the verb.
type demo struct {
	verb
	cfg   config.Config
	clean bool
	stay  bool
	pace  time.Duration
}

func demoCommand(stdout, stderr io.Writer) *cobra.Command {
	d := &demo{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play two scripted agents on a small project",
		Long: `Play a small agent's task on a project that is made for it in a temporary directory:
two agents work on it, one renames a file, one has an idea that fails, you edit a
file on disk in between, and the idea is undone, with a preview first. Then tell
how to look at it.

It plays on the server that holds the data directory. Where none runs it starts
one, and on a terminal that one stays until Ctrl-C, for the web UI; what it
recorded stays in the data directory. --clean removes all that demos have left:
their projects, workspaces and tasks.

With --json: {"workspace","root","task_id","steps":[{"actor","subtask","does",
"commit"}],"server"}; with --clean {"removed":[…]}.`,
		Example: `  umbra demo
  umbra demo --pace 2s        # with the web UI open
  umbra demo --clean`,
		Args: noArgs,
	}
	fs := cmd.Flags()
	d.connection.flags(fs)
	d.outputFlags(fs)
	fs.BoolVar(&d.clean, "clean", false, "remove what demos have left, and play nothing")
	fs.BoolVar(&d.stay, "stay", false, "a server that was started stays until Ctrl-C; by default so on a terminal")
	fs.DurationVar(&d.pace, "pace", 0, "wait so long between steps (`TIME`, as 500ms or 2s)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := term.ParseColor(d.color); err != nil {
			return usageError{err}
		}
		if d.pace < 0 {
			return usageError{errors.New("--pace is below zero")}
		}
		if !fs.Changed("stay") {
			d.stay = term.IsTerminal(stdout) && !d.json
		}
		d.stdout, d.stderr = stdout, stderr
		return misused(d.start(cmd))
	}
	return cmd
}

// start finds a server, or makes one, and plays.
func (d *demo) start(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var holder state.Holder
	held := d.server != ""
	if !held {
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return usageError{err}
		}
		d.cfg = cfg
		if !d.clean {
			if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
				return err
			}
			if holder, held, err = state.FindHolder(cfg.DataDir); err != nil {
				return err
			}
		}
	}
	if !held && d.stay && !d.clean {
		return d.besideOwnServer(ctx, stop)
	}
	c, closer, err := d.open(ctx, cmd, d.stderr)
	if err != nil {
		return err
	}
	if d.clean {
		err = d.cleanUp(ctx, c)
	} else {
		err = d.play(ctx, c, welcome{address: cmp.Or(d.server, holder.Address)}, false)
	}
	return errors.Join(err, closer())
}

// besideOwnServer serves in this process, plays, and goes on serving until a
// signal comes.
func (d *demo) besideOwnServer(ctx context.Context, stop func()) error {
	ready, served := make(chan welcome, 1), make(chan error, 1)
	cfg := d.cfg
	cfg.Log.Level = "warn" // the story is what there is to read
	go func() {
		served <- serve(ctx, cfg, serveOptions{anyPort: true, ready: func(w welcome) { ready <- w }}, io.Discard, d.stderr)
	}()
	var hello welcome
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

func (d *demo) ownClient(hello welcome) (*client.Client, error) {
	secret, err := readOwner(d.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Address: hello.address, Token: secret, Actor: actorName(), Own: true})
}

// play makes the project, plays on it and tells how to look at it; stays says
// that the server is this process's own and goes on.
func (d *demo) play(ctx context.Context, c *client.Client, hello welcome, stays bool) error {
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
	o := term.Open(d.stdout, term.Options{Color: term.Color(d.color)})
	p := &play{client: c, pace: d.pace, told: func(s demoStep) {
		if d.json {
			return
		}
		who := s.Actor
		if s.Subtask != "" {
			who += "/" + s.Subtask
		}
		o.Printf("  %s %s\n", o.Paint(term.Frag, fmt.Sprintf("%-18s", who)), s.Does)
		_ = o.Flush() // Close tells
	}}
	if !d.json {
		o.Printf("A project in %s; a task on it: Show prices with tax.\n\n", term.Name(root))
	}
	if err := p.run(ctx, root); err != nil {
		return errors.Join(err, o.Close(), os.RemoveAll(parent))
	}
	p.done.Server = hello.base()
	if d.json {
		raw, err := json.Marshal(p.done)
		if err == nil {
			o.Printf("%s\n", raw)
		}
		return errors.Join(err, o.Close())
	}
	d.next(o, &p.done, hello, stays)
	return o.Close()
}

// next tells how to look at what was played.
func (d *demo) next(o *term.Output, done *played, hello welcome, stays bool) {
	where := d.whereFlags()
	look := [][2]string{
		{"umbra log --task " + done.Task + where, "all that happened, newest first"},
		{"umbra summary --task " + done.Task + where, "what the task comes to"},
		{"umbra diff --task " + done.Task + where, "the same as a patch"},
		{"umbra revert --task " + done.Task + " --subtask " + demoTax + " --dry-run" + where, "what an undo would do"},
		{"umbra git " + done.Workspace + where + " -- log --stat", "the history, with the git you have"},
	}
	if base := hello.base(); base != "" {
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
	case hello.base() == "":
		o.Printf("\nNo server runs; umbra serve starts one, with a web UI.\n")
	}
}

// whereFlags are what the other verbs have to be told to find the same server.
func (d *demo) whereFlags() string {
	switch {
	case d.server != "":
		return " --server " + shellWord(d.server)
	case d.cfg.DataDir != config.Default().DataDir && os.Getenv("UMBRA_DATA_DIR") != d.cfg.DataDir:
		return " --data-dir " + shellWord(d.cfg.DataDir)
	}
	return ""
}
