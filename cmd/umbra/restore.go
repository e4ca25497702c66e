package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"umbra/config"
	"umbra/gitstore"
	"umbra/internal/backup"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/term"
	"umbra/internal/vfs"
)

func restoreCommand() *cobra.Command {
	v := &verb{}
	cmd := &cobra.Command{
		Use:   "restore PATH@COMMIT | DIR",
		Short: "Restore a version of a file, or a data directory from a backup",
		Long: `With PATH@COMMIT, bring a file, or a directory with all in it, back to its state at
that commit, by one new commit. Whoever changed it since is not asked; what is
replaced stays in history.

With DIR, restore the backup in the folder DIR into --data-dir, a new or an empty folder.
Every byte is compared with what the backup says; after a failure nothing is left.
No server is needed, and none runs there.

Folders of workspaces are not touched. A workspace takes the folder that stands at
its path then, unless it is empty. umbra verify --data-dir tells where a folder is
not as the backup has it; once a server or a verb uses the workspace, differences
are recorded as external changes.

With --json: {"workspaces","files","bytes",…}, as umbra backup.`,
		Example: `  umbra restore src/app.ts@1f3a9c2
  umbra restore src@1f3a9c2 --dry-run
  umbra restore /mnt/backup/umbra --data-dir ~/umbra-restored
  umbra verify --data-dir ~/umbra-restored`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("restore takes one PATH@COMMIT, or the directory of one backup")}
			}
			return nil
		},
	}
	all := cmd.Flags()
	v.connection.flags(all)
	all.Lookup("data-dir").Usage = "the data directory `DIR`; of a backup: the one to be made"
	v.workspaceFlag(all)
	v.outputFlags(all)
	dryRun := false
	all.BoolVarP(&dryRun, "dry-run", "n", false, "of PATH@COMMIT: show what would happen, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if path, commit, ok := pathAtCommit(args[0]); ok {
			return v.action(func(ctx context.Context, _ []string) error { return v.restorePath(ctx, path, commit, dryRun) })(cmd, args)
		}
		if dryRun || v.workspace != "" {
			return usageError{fmt.Errorf("%s is not PATH@COMMIT; --dry-run and --workspace are for that", term.Name(args[0]))}
		}
		if v.server != "" || v.token != "" {
			return usageError{errors.New("restore works on directories, not over --server")}
		}
		if v.color != "" {
			if _, err := term.ParseColor(v.color); err != nil {
				return usageError{err}
			}
		}
		cfg, err := config.Load(cmd.Flags())
		if err != nil {
			return usageError{err}
		}
		v.stdout, v.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		rep, err := restore(ctx, args[0], cfg.DataDir, v.stderr)
		if err != nil {
			return said(err)
		}
		if v.json {
			raw, err := json.Marshal(rep)
			if err != nil {
				return err
			}
			return v.printJSON(raw)
		}
		return v.print(false, func(o *term.Output) error {
			o.Printf("%s\n", term.Name(cfg.DataDir))
			writeCopied(o, &rep)
			return nil
		})
	}
	return cmd
}

// said gives the sentence of an error that has one for people.
func said(err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Detail != "" && e.Err == nil {
		return errors.New(e.Detail)
	}
	return err
}

// restore makes the data directory; after an error what it made is gone.
func restore(ctx context.Context, from, to string, stderr io.Writer) (rep backup.Report, err error) {
	if to, err = filepath.Abs(to); err != nil {
		return rep, err
	}
	src, err := vfs.OS(from)
	if err != nil {
		return rep, err
	}
	defer src.Close()
	unlock, err := backup.Lock(from)
	if err != nil {
		return rep, err
	}
	defer unlock()
	head, err := backup.ReadHeader(src)
	if err != nil {
		return rep, err
	}
	if n, err := strconv.Atoi(head.Format); err != nil || n < 1 || n > state.Format {
		return rep, &state.FormatError{Dir: from, Found: strconv.Quote(head.Format)}
	}
	unmake, err := makeFolder(to)
	if err != nil {
		return rep, err
	}
	defer func() {
		if err != nil {
			unmake()
		}
	}()
	unlockTo, err := backup.Lock(to)
	if err != nil {
		return rep, err
	}
	defer unlockTo()
	dst, err := vfs.OS(to)
	if err != nil {
		return rep, err
	}
	defer dst.Close()
	bar := showCount("restore", stderr)
	defer bar.done()
	rep, err = backup.Restore(ctx, backup.RestoreOptions{From: src, To: dst,
		Finish: func() error { return markRestored(filepath.Join(to, backup.StageDir, "state.db")) },
		Tell: func(r backup.Report) {
			if bar.tell != nil {
				bar.tell(int64(r.Files))
			}
		}})
	if err != nil {
		return rep, fmt.Errorf("%s: %w", to, said(err))
	}
	if err := os.Chmod(to, 0o700); err != nil {
		return rep, err
	}
	if head.Format == strconv.Itoa(state.Format) { // an older one is upgraded at the first start
		publishRestored(ctx, to, stderr)
	}
	return rep, nil
}

// publishRestored lets stock git see what the backup has in open journals. What
// cannot be opened is said, and stays for a server or verify to look at.
func publishRestored(ctx context.Context, dir string, stderr io.Writer) {
	list, err := os.ReadDir(filepath.Join(dir, "workspaces"))
	if err != nil {
		return // a backup of no workspaces
	}
	for _, e := range list {
		files, err := vfs.OS(filepath.Join(dir, "workspaces", e.Name()))
		if err == nil {
			var s *gitstore.Store
			if s, err = gitstore.Open(ctx, gitstore.Options{FS: files, Foreground: true}); err == nil {
				err = s.Close(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(stderr, "umbra: stock git does not see the newest of workspace %s yet: %s\n", term.Name(e.Name()), said(err))
		}
	}
}

// makeFolder makes a folder with those above it; unmake removes what it made.
func makeFolder(dir string) (unmake func(), err error) {
	var missing []string
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, at)
	}
	unmake = func() {
		for _, at := range missing {
			_ = os.Remove(at) // it stays where somebody has put something there
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		unmake()
		return nil, err
	}
	return unmake, nil
}

// markRestored tells the workspaces' records that they were restored.
func markRestored(name string) (err error) {
	db, err := state.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	records := workspaceRecords{db}
	all, err := records.All()
	if err != nil {
		return err
	}
	for _, r := range all {
		r.Restored = true
		if err := records.Put(r); err != nil {
			return err
		}
	}
	return nil
}
