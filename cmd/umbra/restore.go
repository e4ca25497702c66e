package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/internal/cli"
	"umbra/internal/datadir"
	"umbra/internal/errs"
	"umbra/internal/exitcode"
	"umbra/internal/render"
	"umbra/internal/term"
)

func restoreCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "restore PATH@COMMIT | DIR",
		Short: "Restore a version of a file, or a data directory from a backup",
		Long: `With PATH@COMMIT, bring a file, or a directory with all in it, back to its state at
that commit, by one new commit. Later changes by others are undone, too;
they stay in history.

With DIR, restore the backup in the directory DIR into --data-dir, which must be new or
empty. Every byte is compared with the backup's checksums; after a failure nothing is
left. No server is needed, and none may run there.

The directories of workspaces are not touched. A workspace takes the directory that is
at its path then, unless it is empty. umbra verify --data-dir reports where a directory
differs from the backup; once a server or a verb uses the workspace, differences are
recorded as external changes.

With --json: {"workspaces","files","bytes",…}, as umbra backup.`,
		Example: `  umbra restore src/app.ts@1f3a9c2
  umbra restore src@1f3a9c2 --dry-run
  umbra restore /mnt/backup/umbra --data-dir ~/umbra-restored
  umbra verify --data-dir ~/umbra-restored`,
		Args: cli.One("restore takes one PATH@COMMIT, or the directory of one backup"),
	}
	all := cmd.Flags()
	v.Connection.Flags(all)
	all.Lookup("data-dir").Usage = "the data directory `DIR`; of a backup: the one to be made"
	v.WorkspaceFlag(all)
	v.OutputFlags(all)
	dryRun := false
	all.BoolVarP(&dryRun, "dry-run", "n", false, "of PATH@COMMIT: show what would happen, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if path, commit, ok := pathAtCommit(args[0]); ok {
			return v.Action(func(ctx context.Context, _ []string) error { return v.restorePath(ctx, path, commit, dryRun) })(cmd, args)
		}
		if dryRun || v.Workspace != "" {
			return exitcode.Usage(fmt.Errorf("%s is not PATH@COMMIT; --dry-run and --workspace are for that", term.Name(args[0])))
		}
		if v.Server != "" || v.Token != "" {
			return exitcode.Usage(errors.New("restore works on directories, not over --server"))
		}
		if v.Color != "" {
			if _, err := term.ParseColor(v.Color); err != nil {
				return exitcode.Usage(err)
			}
		}
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return exitcode.Usage(err)
		}
		if info, err := os.Stat(args[0]); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is neither PATH@COMMIT nor the directory of a backup", term.Name(args[0]))
		}
		v.Stdout, v.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		rep, err := datadir.Restore(ctx, args[0], cfg.DataDir, v.Stderr)
		if err != nil {
			return errs.Sentence(err)
		}
		return v.Answer(rep, func(o *term.Output) {
			o.Printf("%s\n", term.Name(cfg.DataDir))
			render.Copied(o, &rep)
		})
	}
	return cmd
}
