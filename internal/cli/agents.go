package cli

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/agentconf"
	"umbra/internal/doctor"
	"umbra/internal/hook"
)

// AgentEnv is where agents are looked for.
func AgentEnv(project string) (*agentconf.Env, error) {
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

// OwnProgram is how hooks call this program: by name if that finds it on PATH.
func OwnProgram() (string, error) {
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

// AgentFindings are what umbra doctor reports of the agents on this machine: which
// are wired, and when each was last heard.
func AgentFindings(cmd *cobra.Command) []doctor.Finding {
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil // reported already
	}
	dir, err := WorkingDir()
	if err != nil {
		return nil
	}
	e, err := AgentEnv(dir)
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
