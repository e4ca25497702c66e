package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/agentconf"
	"umbra/internal/cli"
	"umbra/internal/doctor"
	"umbra/internal/exitcode"
	"umbra/internal/hook"
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
project DIR), so that what they change is recorded as theirs. Agents: ` + strings.Join(agentconf.Names(), ", ") + `.

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

// agentEnv is where agents are looked for.
func agentEnv(project string) (*agentconf.Env, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	e := &agentconf.Env{Home: home, Project: project, ConfigHome: os.Getenv("XDG_CONFIG_HOME"), CodexHome: os.Getenv("CODEX_HOME"), LookPath: exec.LookPath, Program: "umbra"}
	if !filepath.IsAbs(e.ConfigHome) {
		e.ConfigHome = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(e.CodexHome) {
		e.CodexHome = filepath.Join(home, ".codex")
	}
	return e, nil
}

// wiredAgent is what init reports of one agent.
type wiredAgent struct {
	Agent string             `json:"agent"`
	Found bool               `json:"found"`
	Files []agentconf.Change `json:"files"`
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
	e, err := agentEnv(dir)
	if err != nil {
		return err
	}
	e.InProject = f.project
	if !f.project { // a project's files are for other machines, too
		if e.Program, err = ownProgram(); err != nil {
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

// ownProgram is how hooks call this program: by name if that finds it on PATH.
func ownProgram() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	if found, err := exec.LookPath("umbra"); err == nil {
		a, err1 := os.Stat(found)
		b, err2 := os.Stat(own)
		if err1 == nil && err2 == nil && os.SameFile(a, b) {
			return "umbra", nil
		}
	}
	return own, nil
}

func (v *verb) wire(cmd *cobra.Command, e *agentconf.Env, s *agentconf.Store, f *initFlags) error {
	var list []wiredAgent
	todo, failed := false, false
	for _, name := range agentconf.Names() {
		found := e.Found(name)
		if len(f.agents) > 0 && !slices.Contains(f.agents, name) || len(f.agents) == 0 && !found {
			continue
		}
		changes, err := e.Plan(s, name, f.remove)
		if err != nil {
			return err
		}
		for _, c := range changes {
			todo = todo || c.Action != "unchanged" && c.Action != "left"
		}
		list = append(list, wiredAgent{name, found, changes})
	}
	if todo && !f.dryRun && !f.yes && term.IsTerminal(v.Stderr) && term.IsTerminal(os.Stdin) {
		o := term.Open(v.Stderr, term.Options{Color: term.Color(v.Color)})
		if err := errors.Join(writeWired(o, list, false), o.Flush()); err != nil {
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
			list = []wiredAgent{}
		}
		raw, marshalErr := json.Marshal(map[string]any{"agents": list, "dry_run": f.dryRun})
		if marshalErr != nil {
			return marshalErr
		}
		err = v.PrintJSON(raw)
	} else {
		err = v.Print(false, func(o *term.Output) error { return writeWired(o, list, f.dryRun) })
	}
	if failed {
		return errors.Join(err, exitcode.With(exitcode.Failed))
	}
	return err
}

func writeWired(o *term.Output, list []wiredAgent, diffs bool) error {
	if len(list) == 0 {
		o.Printf("no agent was found; name one with --agent\n")
		return nil
	}
	for _, a := range list {
		for _, c := range a.Files {
			o.Printf("%-12s %-9s %s", a.Agent, c.Action, term.Name(c.Path))
			if c.Reason != "" {
				o.Printf(": %s", term.Line(c.Reason))
			}
			o.Printf("\n")
			if !diffs || c.Action == "unchanged" || c.Action == "left" {
				continue
			}
			side := func(data []byte) diff.File {
				if data == nil {
					return diff.File{}
				}
				return diff.File{Path: strings.TrimPrefix(c.Path, "/"), Mode: object.Regular, Data: data}
			}
			patch, err := diff.Format(side(c.Before), side(c.After), diff.Options{Abbrev: 7})
			if err != nil {
				return err
			}
			if err := o.Diff(strings.NewReader(string(patch.Text))); err != nil {
				return err
			}
		}
	}
	return nil
}

// agentFindings are what umbra doctor reports of the agents on this machine: which
// are wired, and when each was last heard.
func agentFindings(cmd *cobra.Command) []doctor.Finding {
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil // reported already
	}
	dir, err := cli.WorkingDir()
	if err != nil {
		return nil
	}
	e, err := agentEnv(dir)
	if err != nil {
		return nil
	}
	var list []doctor.Finding
	for _, name := range agentconf.Names() {
		wired := e.Wired(name)
		if !wired {
			e.InProject = true
			wired = e.Wired(name)
			e.InProject = false
		}
		at, heard := hook.LastHeard(cfg.DataDir, name)
		f := doctor.Finding{Check: "agents", Level: doctor.OK, About: name}
		switch {
		case wired && heard:
			f.Detail = "wired; last heard " + at.Local().Format("2006-01-02 15:04:05")
		case wired:
			f.Detail = "wired; never heard"
		case heard:
			f.Detail = "not wired; last heard " + at.Local().Format("2006-01-02 15:04:05")
		case e.Found(name):
			f.Level, f.Detail, f.Do = doctor.Note, "found, and not wired: what it changes is not recorded as its work", "umbra init --agent "+name
		default:
			continue
		}
		list = append(list, f)
	}
	return list
}
