package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/datadir"
	"umbra/internal/doctor"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/server"
	"umbra/internal/state"
	"umbra/internal/term"
)

func doctorCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the machine and report problems and fixes",
		Long: `Check the machine: git's version; the number of watches that the system allows; the
file systems of the data directory and of the workspaces, and whether they can be
written, synced and exchange two names; permissions; the clock; free space. A running
server does the checks itself, with its own permissions; else this process does. Of a
cluster: PostgreSQL and its standbys, the object store, and whether the nodes reach
each other.

The exit status is 1 if a problem was found. With --json: {"hurts":…,"findings":[…]}.`,
		Example: `  umbra doctor
  umbra doctor --json --data-dir /var/lib/umbra`,
		Args: cli.NoArgs,
	}
	v.Connection.Flags(cmd.Flags())
	config.ClusterFlags(cmd.Flags(), false)
	v.OutputFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if v.Color != "" {
			if _, err := term.ParseColor(v.Color); err != nil {
				return exitcode.Usage(err)
			}
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		v.Stdout, v.Stderr, v.HangUp = cmd.OutOrStdout(), cmd.ErrOrStderr(), func() error { return nil }
		found, err := v.examine(ctx, cmd)
		if err != nil {
			return err
		}
		if v.Server == "" { // else the agents of this machine are not that server's
			found.Findings = append(found.Findings, cli.AgentFindings(cmd)...)
		}
		if err := v.Answer(found, func(o *term.Output) { render.Examination(o, found) }); err != nil {
			return err
		}
		if found.Hurts {
			return exitcode.With(exitcode.Failed)
		}
		return nil
	}
	return cmd
}

// examine has the running server look, or looks itself.
func (v *verb) examine(ctx context.Context, cmd *cobra.Command) (render.Examined, error) {
	if v.Server != "" {
		c, closer, err := v.Open(ctx, cmd, v.Stderr)
		if err != nil {
			return render.Examined{}, err
		}
		defer func() { _ = closer() }()
		return askDoctor(ctx, c)
	}
	if v.Token != "" {
		return render.Examined{}, exitcode.Usage(errors.New("--token goes with --server"))
	}
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return render.Examined{}, exitcode.Usage(err)
	}
	holder, held, err := state.FindHolder(cfg.DataDir)
	running := doctor.Finding{Check: "server", Level: doctor.OK, Detail: "no server runs on this data directory"}
	switch {
	case err != nil:
		running = doctor.Finding{Check: "server", Level: doctor.Note, Detail: "cannot determine whether a server runs: " + err.Error(), Do: "run this as the user that runs the server"}
	case held && holder.Address != "":
		found, err := v.askHolder(ctx, &state.HeldError{Dir: cfg.DataDir, Holder: holder})
		if err == nil {
			return found, nil
		}
		running = doctor.Finding{Check: "server", Level: doctor.Hurts, Do: "look into its log; end it, if it hangs (a stop takes ten seconds at most)",
			Detail: fmt.Sprintf("process %d holds the data directory and does not answer at %s: %v", holder.PID, holder.Address, err)}
	case held:
		running = doctor.Finding{Check: "server", Level: doctor.Note, Detail: fmt.Sprintf("process %d holds the data directory, and is starting or stopping", holder.PID), Do: "ask again in a moment"}
	}
	o := server.DoctorOptions(cfg, cfg.DataDir)
	list := []doctor.Finding{running}
	if !held && err == nil {
		var finding *doctor.Finding
		if o.Workspaces, finding = datadir.KnownFolders(cfg.DataDir); finding != nil {
			list = append(list, *finding)
		}
	}
	list = append(list, doctor.Run(ctx, o)...)
	return render.Examined{Hurts: doctor.Hurt(list), Findings: list}, ctx.Err()
}

// answerPatience is how long a server may take to look at its machine.
const answerPatience = time.Minute

func (v *verb) askHolder(ctx context.Context, held *state.HeldError) (render.Examined, error) {
	c, closer, err := cli.Beside(held, cli.ActorName())
	if err != nil {
		return render.Examined{}, err
	}
	defer func() { _ = closer() }()
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return askDoctor(ctx, c)
}

func askDoctor(ctx context.Context, c *client.Client) (found render.Examined, err error) {
	_, err = c.JSON(ctx, client.Request{Method: http.MethodPost, Path: "/upkeep/doctor"}, &found)
	return found, err
}
