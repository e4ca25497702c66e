package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/gitstore"
	"umbra/httpapi/upkeep"
	"umbra/internal/backup"
	"umbra/internal/client"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/workspace"
)

func backupCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the data directory while the server runs",
		Long: `Make a backup in the directory DIR, or bring the one that is there up to date: all
histories, what was just written included, the records, and the files of tasks.
Writers go on meanwhile. What was answered before the backup began is in it.

The second time only what is new is copied. A backup that was cut off is gone on
with, and until the new one is complete the one before can be restored.

The process that holds the data directory makes the copy: DIR is a folder of its
machine, with --server URL of that one. It must not lie in the data directory or
in a workspace, and holds nothing else. Folders of workspaces are not copied:
their files are in the histories.

With --json: {"workspaces","files","bytes","copied_bytes","reused_bytes",
"removed_bytes","warnings"}. The exit status is 1 if something could not be
copied as it should be.`,
		Example: `  umbra backup /mnt/backup/umbra
  umbra restore /mnt/backup/umbra --data-dir ~/umbra-restored`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("backup needs one directory")}
			}
			return nil
		},
	}
	v.connection.flags(cmd.Flags())
	v.outputFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := args[0]
		if v.server != "" && !filepath.IsAbs(dir) {
			return usageError{fmt.Errorf("--server: %q must be an absolute path of the server's machine", dir)}
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return usageError{err}
		}
		return v.action(func(ctx context.Context, _ []string) error { return v.backup(ctx, dir) })(cmd, args)
	}
	return cmd
}

func (v *verb) backup(ctx context.Context, dir string) error {
	bar := showCount("backup", v.stderr)
	var rep backup.Report
	raw, err := v.client.Work(ctx, client.Request{Method: http.MethodPost, Path: client.Path("upkeep", "backup"), Body: map[string]string{"dir": dir}}, func(p client.Progress) {
		if bar.tell != nil {
			bar.tell(p.Done)
		}
	}, &rep)
	bar.done()
	if err != nil {
		return err
	}
	if v.json {
		err = v.printJSON(raw)
	} else {
		err = v.print(false, func(o *term.Output) error {
			o.Printf("%s\n", term.Name(dir))
			writeCopied(o, &rep)
			return nil
		})
	}
	if err == nil && len(rep.Warnings) > 0 {
		return exitError{exitFailed}
	}
	return err
}

func writeCopied(o *term.Output, r *backup.Report) {
	o.Printf("%s, %s, %s", count(r.Workspaces, "workspace", "workspaces"), count(r.Files, "file", "files"), bytesText(r.Bytes))
	if r.ReusedBytes > 0 {
		o.Printf("; %s new", bytesText(r.Bytes-r.ReusedBytes))
	}
	o.Printf("\n")
	for _, w := range r.Warnings {
		o.Printf("%s %s\n", o.Paint(term.Removed, "warning"), term.Line(w))
	}
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// backupSource is this process for a backup: it holds the data directory.
type backupSource struct {
	db         *state.DB
	answers    *state.Answers
	workspaces *workspace.Manager
}

// State is backup.Source's.
func (s backupSource) State(_ context.Context, w io.Writer) ([]string, error) {
	if err := s.answers.Flush(); err != nil { // then the log holds nothing that the store lacks
		return nil, err
	}
	var ids []string
	err := s.db.Snapshot(w, func(tx *state.Tx) error {
		return tx.ForEach(workspacesBucket, "", func(key string, raw []byte) (bool, error) {
			var r workspace.Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return false, err
			}
			if r.Fork == nil || !r.Fork.Unmade { // which has no history of its own
				ids = append(ids, key)
			}
			return true, nil
		})
	})
	s.workspaces.ForksFirst(ids)
	return ids, err
}

// Freeze is backup.Source's.
func (s backupSource) Freeze(ctx context.Context, id string) (*gitstore.Frozen, error) {
	return s.workspaces.Freeze(ctx, id)
}

// backups makes the dialect of umbra backup.
func backups(cfg config.Config, dir *state.Dir, source backupSource) *upkeep.Backup {
	folders := func() []string {
		list := ownFolders(cfg.WorkspaceDir, cfg.Output.Dir)
		for _, r := range source.workspaces.List() {
			if r.Root != "" {
				list = append(list, r.Root)
			}
		}
		return list
	}
	return &upkeep.Backup{Service: &backup.Service{DataDir: dir.Path, Source: source, Folders: folders, Program: programVersion()}}
}
