package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	execrun "umbra/internal/exec/run"
	"umbra/internal/exitcode"
	"umbra/internal/hook"
)

// execCommand is umbra exec. Its flags end at the command.
func execCommand() *cobra.Command {
	var o execrun.Options
	var connection cli.Connection
	isolate, list, apply, drop := "try", false, "", ""
	cmd := &cobra.Command{
		Use:   "exec [flags] -- CMD [ARG…]",
		Short: "Run a command whose changes are known exactly",
		Long: `Run a command with a layer over the workspace: what it changes there is not seen by
others until it ends, and is then recorded and applied as one change set. What others
changed meanwhile is merged; what cannot be merged is listed, its version is kept in
history, and the exit status is 75 if the command's is 0.

The exit status is the command's; 127 if it is not found, 126 if it cannot be run,
128+n if signal n ended it, 69 if there is no server or no such task: it did not run
then. Without --task, the task is $UMBRA_TASK, or that of --agent and --session.`,
		Example: `  umbra exec --task fix-1 -- make test
  umbra exec --dry-run -- sed -i s/old/new/ main.go
  umbra exec --layers`,
	}
	connection.Flags(cmd.Flags())
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&o.Task, "task", "t", "", "the task `T`")
	f.StringVarP(&o.Subtask, "subtask", "s", "", "the subtask `S`")
	f.StringVar(&o.Agent, "agent", "", "the agent `A`; with --session, instead of a task")
	f.StringVar(&o.Session, "session", "", "the agent's session `X`")
	f.StringVar(&o.Call, "call", "", "the open call `ID` of a hook that this command is a part of; without a server it runs plainly")
	f.StringVar(&o.Dir, "cwd", "", "run in the directory `DIR`")
	f.BoolVar(&o.DryRun, "dry-run", false, "show the differences, and change nothing")
	f.BoolVar(&o.Live, "live", false, "run without a layer, as an ordinary call")
	f.StringVar(&isolate, "isolate", isolate, "where the system gives no layer: try runs live, require fails (`MODE`)")
	f.BoolVar(&o.JSON, "json", false, "print the result as JSON, the last line on standard error")
	f.BoolVar(&list, "layers", false, "list the layers that were not applied")
	f.StringVar(&apply, "apply", "", "apply the layer `ID`")
	f.StringVar(&drop, "drop", "", "drop the layer `ID`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := execrun.Usage(&o, isolate, list, apply, drop, args); err != nil {
			return exitcode.Usage(err)
		}
		o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		if err := execDefaults(&o); err != nil {
			return err
		}
		if err := execServer(cmd, &connection, &o); err != nil {
			return err
		}
		defer o.Client.Close()
		ctx := context.WithoutCancel(cmd.Context())
		status := 0
		var err error
		switch {
		case list:
			err = o.List(ctx)
		case drop != "":
			err = o.Drop(ctx, drop)
		case apply != "":
			status, err = o.Apply(ctx, apply)
		default:
			status = execrun.Run(ctx, o)
		}
		if err == nil && status != 0 {
			err = exitcode.With(status)
		}
		return err
	}
	return cmd
}

// execDefaults fills in whose the command is, and where it runs.
func execDefaults(o *execrun.Options) error {
	if o.Task == "" && o.Agent == "" && o.Call == "" {
		if o.Task = os.Getenv("UMBRA_TASK"); o.Task != "" && o.Subtask == "" {
			o.Subtask = os.Getenv("UMBRA_SUBTASK")
		}
	}
	if o.Task == "" && o.Agent == "" && o.Call == "" {
		o.Agent, o.Session = "exec", "shell"
		if name := cli.ActorName(); name != "" {
			o.Session = name
		}
	}
	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return exitcode.Usage(fmt.Errorf("--cwd: %w", err))
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return exitcode.Usage(fmt.Errorf("--cwd: %s is not a directory", dir))
	}
	o.Dir = dir
	return nil
}

// execServer connects to the server that runs: the command's changes must be
// recorded while it runs, so there is none in this process.
func execServer(cmd *cobra.Command, k *cli.Connection, o *execrun.Options) error {
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return exitcode.Usage(err)
	}
	v := hook.Invocation{Agent: hook.Generic, Server: k.Server, DataDir: cfg.DataDir}
	if v.Server == "" && !cmd.Flags().Changed("data-dir") {
		v.Server = os.Getenv("UMBRA_SERVER")
	}
	s := v.Find()
	if k.Token != "" {
		s.Token = k.Token
	}
	c, err := client.New(client.Options{Address: s.Address, Token: s.Token, Actor: cli.ActorName(), Own: s.Own})
	if err != nil {
		return exitcode.Usage(fmt.Errorf("--server: %w", err))
	}
	o.Client, o.Server = c, s.Address
	return nil
}
