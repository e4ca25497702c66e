package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/httpapi/upkeep"
	"umbra/internal/client"
	"umbra/internal/doctor"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/workspace"
)

// examined is what umbra doctor tells.
type examined struct {
	Hurts    bool             `json:"hurts"`
	Findings []doctor.Finding `json:"findings"`
}

func doctorCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the machine and report problems and fixes",
		Long: `Look at the machine: git's version; watches against what the workspaces need; the
file systems of the data directory and of the workspaces, and whether they can be
written, synced and exchange two names; rights; the clock; free room. Where a server
runs it looks itself, with its own rights; else this process does.

The exit status is 1 if something hurts. With --json: {"hurts":…,"findings":[…]}.`,
		Example: `  umbra doctor
  umbra doctor --json --data-dir /var/lib/umbra`,
		Args: noArgs,
	}
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if v.color != "" {
			if _, err := term.ParseColor(v.color); err != nil {
				return usageError{err}
			}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		v.stdout, v.stderr, v.hangUp = cmd.OutOrStdout(), cmd.ErrOrStderr(), func() error { return nil }
		found, err := v.examine(ctx, cmd)
		if err != nil {
			return err
		}
		if v.server == "" { // else the agents of this machine are not that server's
			found.Findings = append(found.Findings, agentFindings(cmd)...)
		}
		if v.json {
			raw, err := json.Marshal(found)
			if err == nil {
				err = v.printJSON(raw)
			}
			if err != nil {
				return err
			}
		} else if err := v.print(false, func(o *term.Output) error { writeExamined(o, found); return nil }); err != nil {
			return err
		}
		if found.Hurts {
			return exitError{exitFailed}
		}
		return nil
	}
	return cmd
}

// examine has the running server look, or looks itself.
func (v *verb) examine(ctx context.Context, cmd *cobra.Command) (examined, error) {
	if v.server != "" {
		c, closer, err := v.open(ctx, cmd, v.stderr)
		if err != nil {
			return examined{}, err
		}
		defer func() { _ = closer() }()
		return askDoctor(ctx, c)
	}
	if v.token != "" {
		return examined{}, usageError{errors.New("--token goes with --server")}
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return examined{}, usageError{err}
	}
	holder, held, err := state.FindHolder(cfg.DataDir)
	server := doctor.Finding{Check: "server", Level: doctor.OK, Detail: "no server runs on this data directory"}
	switch {
	case err != nil:
		server = doctor.Finding{Check: "server", Level: doctor.Note, Detail: "cannot determine whether a server runs: " + err.Error(), Do: "run this as the user that runs the server"}
	case held && holder.Address != "":
		found, err := v.askHolder(ctx, &state.HeldError{Dir: cfg.DataDir, Holder: holder})
		if err == nil {
			return found, nil
		}
		server = doctor.Finding{Check: "server", Level: doctor.Hurts, Do: "look into its log; end it, if it hangs (a stop takes ten seconds at most)",
			Detail: fmt.Sprintf("process %d holds the data directory and does not answer at %s: %v", holder.PID, holder.Address, err)}
	case held:
		server = doctor.Finding{Check: "server", Level: doctor.Note, Detail: fmt.Sprintf("process %d holds the data directory, and is starting or stopping", holder.PID), Do: "ask again in a moment"}
	}
	o := doctorOptions(cfg, cfg.DataDir)
	list := []doctor.Finding{server}
	if !held && err == nil {
		var finding *doctor.Finding
		if o.Workspaces, finding = knownFolders(cfg.DataDir); finding != nil {
			list = append(list, *finding)
		}
	}
	list = append(list, doctor.Run(ctx, o)...)
	return examined{doctor.Hurt(list), list}, ctx.Err()
}

func doctorOptions(cfg config.Config, dataDir string) doctor.Options {
	return doctor.Options{DataDir: dataDir, FreeFloor: int64(cfg.Limits.FreeBytes), MaxWatches: cfg.Workspaces.MaxWatches}
}

// answerPatience is how long a server may take to look at its machine.
const answerPatience = time.Minute

func (v *verb) askHolder(ctx context.Context, held *state.HeldError) (examined, error) {
	c, closer, err := beside(held, actorName())
	if err != nil {
		return examined{}, err
	}
	defer func() { _ = closer() }()
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return askDoctor(ctx, c)
}

func askDoctor(ctx context.Context, c *client.Client) (found examined, err error) {
	_, err = c.JSON(ctx, client.Request{Method: http.MethodPost, Path: "/upkeep/doctor"}, &found)
	return found, err
}

// knownFolders reads the workspaces' folders from the records, which nobody
// holds; a finding where that cannot be.
func knownFolders(dataDir string) ([]string, *doctor.Finding) {
	path := dataDir + "/state.db"
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	fail := func(err error) ([]string, *doctor.Finding) {
		return nil, &doctor.Finding{Check: "data", Level: doctor.Hurts, About: path, Detail: "the records cannot be read: " + err.Error(),
			Do: "run this as the user that runs the server; if the file is damaged, restore a backup"}
	}
	db, err := state.Open(path)
	if err != nil {
		return fail(err)
	}
	defer db.Close()
	records, err := workspaceRecords{db}.All()
	if err != nil {
		return fail(err)
	}
	var folders []string
	for _, r := range records {
		if r.Root != "" {
			folders = append(folders, r.Root)
		}
	}
	return folders, nil
}

func writeExamined(o *term.Output, found examined) {
	for _, f := range found.Findings {
		word := o.Paint(term.Added, "ok   ")
		switch f.Level {
		case doctor.Note:
			word = o.Paint(term.Meta, "note ")
		case doctor.Hurts:
			word = o.Paint(term.Removed, "hurts")
		}
		about := ""
		if f.About != "" {
			about = term.Name(f.About) + ": "
		}
		o.Printf("%s  %-11s %s%s\n", word, f.Check, about, term.Line(f.Detail))
		if f.Do != "" {
			o.Printf("       %-11s → %s\n", "", term.Line(f.Do))
		}
	}
	if !found.Hurts {
		o.Printf("nothing hurts\n")
	}
}

// examiner is the server's side of it.
func examiner(cfg config.Config, dir *state.Dir, m *workspace.Manager, ready func() error) *upkeep.Doctor {
	return &upkeep.Doctor{Workspaces: m, Options: doctorOptions(cfg, dir.Path), Ready: ready}
}
