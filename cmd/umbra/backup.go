package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"

	"umbra/internal/backup"
	"umbra/internal/cli"
	"umbra/internal/client"
	"umbra/internal/exitcode"
	"umbra/internal/progress"
	"umbra/internal/render"
	"umbra/internal/term"
)

func backupCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the data directory while the server runs",
		Long: `Make a backup in the directory DIR, or update the one that is there. It has all
histories, the records, and the files of tasks, with every change that was acknowledged
before the backup began. Writers continue meanwhile.

An update copies only what is new. The next backup continues an interrupted one, and
until the new backup is complete the previous one can be restored.

The server makes the copy: with --server URL, DIR is a directory of the server's
machine. It must not be in the data directory or in a workspace, and must hold nothing
else. The directories of workspaces are not copied: their files are in the histories.

With --json: {"workspaces","files","bytes","copied_bytes","reused_bytes",
"removed_bytes","warnings"}. The exit status is 1 if there are warnings.`,
		Example: `  umbra backup /mnt/backup/umbra
  umbra restore /mnt/backup/umbra --data-dir ~/umbra-restored`,
		Args: cli.One("backup needs one directory"),
	}
	v.Connection.Flags(cmd.Flags())
	v.OutputFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := args[0]
		if v.Server != "" && !filepath.IsAbs(dir) {
			return exitcode.Usage(fmt.Errorf("--server: %q must be an absolute path of the server's machine", dir))
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return exitcode.Usage(err)
		}
		return v.Action(func(ctx context.Context, _ []string) error { return v.backup(ctx, dir) })(cmd, args)
	}
	return cmd
}

func (v *verb) backup(ctx context.Context, dir string) error {
	bar := progress.ShowCount("backup", v.Stderr)
	var rep backup.Report
	raw, err := v.Client.Work(ctx, client.Request{Method: http.MethodPost, Path: client.Path("upkeep", "backup"), Body: map[string]string{"dir": dir}}, func(p client.Progress) {
		if bar.Set != nil {
			bar.Set(p.Done)
		}
	}, &rep)
	bar.Done()
	if err != nil {
		return err
	}
	err = v.Answer(raw, func(o *term.Output) {
		o.Printf("%s\n", term.Name(dir))
		render.Copied(o, &rep)
	})
	if err == nil && len(rep.Warnings) > 0 {
		return exitcode.With(exitcode.Failed)
	}
	return err
}
