package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/agentconf"
	"umbra/internal/cli"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

// initFlags are those of umbra init.
type initFlags struct {
	agents                 []string
	project, user          bool
	autostart, noAutostart bool
	isolate                bool
	dryRun, remove, yes    bool
}

func initCommand() *cobra.Command {
	v, f := &verb{}, &initFlags{}
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Wire coding agents to umbra: hooks, plugin and MCP entry",
		Long: `Add umbra's hooks, MCP entry and, for opencode, plugin to the configuration of the
coding agents that are found (program on PATH, or their directory in the home or the
project DIR), so that what they change is recorded as theirs. Agents:
` + strings.Join(agentconf.Names(), ", ") + `.

Files are merged: other keys, order, comments and formatting stay. A file that cannot
be parsed is left and named (exit status 1). --remove takes everything out again, and
gives a file back byte for byte if it was not changed since.`,
		Example: `  umbra init
  umbra init --agent codex --project .
  umbra init --dry-run
  umbra init --remove`,
		Args: cli.Args(0, 1),
	}
	fs := cmd.Flags()
	config.Flags(fs)
	for _, name := range []string{"listen", "workspace-dir", "output-dir", "hosted", "insecure"} {
		fs.Lookup(name).Hidden = true
	}
	v.OutputFlags(fs)
	fs.StringArrayVar(&f.agents, "agent", nil, "wire the agent `NAME`, found or not; may be given several times")
	fs.BoolVar(&f.project, "project", false, "write the project's files")
	fs.BoolVar(&f.user, "user", false, "write the user's files (the default)")
	fs.BoolVar(&f.autostart, "autostart", false, "hooks start a server in the background if none runs; it ends after 8 h without a request")
	fs.BoolVar(&f.noAutostart, "no-autostart", false, "hooks start no server (the default)")
	fs.BoolVar(&f.isolate, "isolate", false, "run the agents' shell commands by umbra exec, where an agent lets a hook rewrite them")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the changes as diffs, and do nothing")
	fs.BoolVar(&f.remove, "remove", false, "take out what init added")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do it without a question")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v.Stdout, v.Stderr, v.HangUp = cmd.OutOrStdout(), cmd.ErrOrStderr(), func() error { return nil }
		return v.init(cmd, f, args)
	}
	return cmd
}

func (v *verb) init(cmd *cobra.Command, f *initFlags, args []string) error {
	for _, name := range f.agents {
		if !slices.Contains(agentconf.Names(), name) {
			return exitcode.Usage(fmt.Errorf("unknown agent %q; it is one of %s", name, strings.Join(agentconf.Names(), ", ")))
		}
	}
	switch {
	case f.project && f.user:
		return exitcode.Usage(errors.New("--project and --user exclude each other"))
	case f.autostart && f.noAutostart:
		return exitcode.Usage(errors.New("--autostart and --no-autostart exclude each other"))
	}
	if len(args) == 0 {
		args = []string{"."}
	}
	dir, err := cli.FolderArgument(args)
	if err != nil {
		return err
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return exitcode.Usage(err)
	}
	e, err := cli.AgentEnv(dir)
	if err != nil {
		return err
	}
	e.InProject = f.project
	if !f.project { // a project's files are for other machines, too
		if e.Program, err = cli.OwnProgram(); err != nil {
			return err
		}
		if cfg.DataDir != config.Default().DataDir {
			data, err := filepath.Abs(cfg.DataDir)
			if err != nil {
				return err
			}
			e.HookFlags = append(e.HookFlags, "--data-dir="+data)
		}
	}
	if f.autostart {
		e.HookFlags = append(e.HookFlags, "--autostart")
	}
	if f.isolate {
		e.HookFlags = append(e.HookFlags, "--isolate")
	}
	return v.wire(cmd, e, &agentconf.Store{Path: filepath.Join(cfg.DataDir, "agents.json")}, f)
}

func (v *verb) wire(cmd *cobra.Command, e *agentconf.Env, s *agentconf.Store, f *initFlags) error {
	var list []render.Wired
	todo, failed := false, false
	for _, name := range agentconf.Names() {
		found, named := e.Found(name), slices.Contains(f.agents, name)
		if len(f.agents) > 0 && !named || !named && !found && !f.remove {
			continue
		}
		changes, err := e.Plan(s, name, f.remove)
		if err != nil {
			return err
		}
		changed := false
		for _, c := range changes {
			changed = changed || c.Action != "unchanged" && c.Action != "left"
		}
		if !named && !found && !changed { // an agent that is gone, and has left nothing of umbra
			continue
		}
		todo = todo || changed
		list = append(list, render.Wired{Agent: name, Found: found, Files: changes})
	}
	if todo && !f.dryRun && !f.yes && term.IsTerminal(v.Stderr) && term.IsTerminal(os.Stdin) {
		o := term.Open(v.Stderr, term.Options{Color: term.Color(v.Color)})
		if err := errors.Join(render.Wiring(o, list, false), o.Flush()); err != nil {
			return err
		}
		if !cli.Confirmed(cmd.InOrStdin(), v.Stderr, "Change these files? [y/N] ") {
			return v.undone(nil, false, "nothing was changed")
		}
	}
	if !f.dryRun {
		for i := range list {
			if err := e.Apply(s, list[i].Files, f.remove); err != nil {
				return err
			}
		}
	}
	for _, a := range list {
		for _, c := range a.Files {
			failed = failed || c.Failed
		}
	}
	var err error
	if v.JSON {
		if list == nil {
			list = []render.Wired{}
		}
		raw, marshalErr := json.Marshal(map[string]any{"agents": list, "dry_run": f.dryRun})
		if marshalErr != nil {
			return marshalErr
		}
		err = v.PrintJSON(raw)
	} else {
		err = v.Print(false, func(o *term.Output) error { return render.Wiring(o, list, f.dryRun) })
	}
	if failed {
		return errors.Join(err, exitcode.With(exitcode.Failed))
	}
	return err
}
