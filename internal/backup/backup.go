package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Source is the process that holds the data directory.
type Source interface {
	// State writes the records as they are at one moment, and gives the ids of the
	// workspaces that they name. All earlier answers are in them.
	State(ctx context.Context, w io.Writer) (workspaces []string, err error)
	// Freeze gives a moment of a workspace's history; errs.NotFound for one that
	// was forgotten meanwhile.
	Freeze(ctx context.Context, workspace string) (*gitstore.Frozen, error)
}

// Report is what a backup or restore did.
type Report struct {
	Step         string   `json:"-"`
	Workspaces   int      `json:"workspaces"`
	Files        int      `json:"files"`
	Bytes        int64    `json:"bytes"`         // of all files
	CopiedBytes  int64    `json:"copied_bytes"`  // that the backup did not have
	ReusedBytes  int64    `json:"reused_bytes"`  // that it had
	RemovedBytes int64    `json:"removed_bytes"` // that it needs no longer
	Warnings     []string `json:"warnings"`
}

// Options of a backup.
type Options struct {
	Source  Source
	Data    vfs.FS // the data directory
	To      vfs.FS // the backup's folder
	Program string // version, for the manifest
	Now     func() time.Time
	// Progress is called with the progress; may be nil.
	Progress func(Report)
}

// passes bounds how often a backup starts over because workspaces were forgotten
// or packs merged meanwhile; copied pieces are not copied again.
const passes = 8

// Run makes a backup, or brings one up to date. What it did not end is gone on
// with by the next run.
//
// errs.Conflict not_a_backup, for a folder that holds something else;
// backup_damaged, backup_newer.
func Run(ctx context.Context, o Options) (rep Report, err error) {
	rep.Warnings = []string{}
	is, empty, err := isBackup(o.To)
	if err != nil {
		return rep, err
	}
	if !is && !empty {
		return rep, errs.New(errs.Conflict, "not_a_backup", "The directory is not empty, and not a backup.")
	}
	old, _, err := readManifest(o.To)
	if err != nil {
		return rep, err
	}
	progress := o.Progress
	if progress == nil {
		progress = func(Report) {}
	}
	w, err := openWriter(o.To, old, &rep, progress)
	if err != nil {
		return rep, errs.Wrap(err, "")
	}
	defer func() { err = errors.Join(err, w.log.Close()) }()
	for range passes {
		began := o.Now().UTC()
		c := &copier{ctx: ctx, o: &o, w: w, rep: &rep}
		err := c.all()
		if errors.Is(err, errAnew) {
			rep = Report{CopiedBytes: rep.CopiedBytes, Warnings: []string{}}
			continue
		}
		if err != nil {
			return rep, errs.Wrap(err, "")
		}
		m := &manifest{Header: Header{Version: 1, Format: c.format, Program: o.Program, Began: began, Workspaces: rep.Workspaces}, entries: c.entries}
		rep.Step = "finishing"
		progress(rep)
		if err := w.sync(); err != nil {
			return rep, errs.Wrap(err, "")
		}
		if err := m.write(o.To); err != nil {
			return rep, errs.Wrap(err, "")
		}
		return rep, errs.Wrap(w.sweep(m), "")
	}
	return rep, errs.New(errs.Unavailable, "busy", "Workspaces kept being removed under the backup; try again.")
}

// errAnew says that what was copied does not fit together.
var errAnew = errors.New("start over")

// copier gathers the entries of one manifest.
type copier struct {
	ctx     context.Context
	o       *Options
	w       *writer
	rep     *Report
	format  string
	entries []entry
}

// The names in the data directory that are no part of a backup: of a running
// server, caches, and what is copied in ways of its own.
var leftOut = []string{"lock", "owner", "node", "shared.sock", "watch", "staging", "cache", "state.db", "answers.log", "format", "workspaces"}

// all copies the data directory: the records first, history after.
func (c *copier) all() error {
	c.rep.Step = "records"
	format, err := vfs.ReadFile(c.o.Data, "format")
	if err != nil {
		return err
	}
	c.format = strings.TrimSpace(string(format))
	if err := c.bytes("format", format); err != nil {
		return err
	}
	known, err := c.state()
	if err != nil {
		return err
	}
	c.dir("workspaces", 0o700)
	for _, id := range known {
		c.rep.Step = "workspace " + id
		if err := c.workspace(id); err != nil {
			return err
		}
	}
	if err := c.forgotten(known); err != nil {
		return err
	}
	c.rep.Step = "files of tasks"
	return c.tree(".", func(name string) bool {
		return slices.Contains(leftOut, name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "upgrade-")
	})
}

func (c *copier) state() ([]string, error) {
	pr, pw := io.Pipe()
	var ids []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		ids, err = c.o.Source.State(c.ctx, pw)
		pw.CloseWithError(err) // nil is io.EOF
	}()
	pieces, size, err := c.w.put(c.ctx, pr, pageRun)
	pr.CloseWithError(err)
	<-done
	if err != nil {
		return nil, err
	}
	c.add(entry{Kind: kindFile, Path: "state.db", Perm: 0o600, Size: size, Pieces: pieces})
	return ids, nil
}

// forgotten copies the directories of forgotten workspaces, whose history was
// kept: they are not written to.
func (c *copier) forgotten(known []string) error {
	list, err := c.o.Data.ReadDir("workspaces")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if !e.Type.IsDir() || slices.Contains(known, e.Name) {
			continue
		}
		if _, err := c.o.Source.Freeze(c.ctx, e.Name); !errs.Is(err, errs.NotFound) {
			continue // made since the records were copied, or being made
		}
		if err := c.raw(e.Name); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) add(e entry) {
	c.entries = append(c.entries, e)
	if e.Kind != kindDir {
		c.rep.Files++
	}
	c.w.progress(*c.rep)
}

func (c *copier) dir(name string, perm uint32) {
	e := entry{Kind: kindDir, Perm: fsPerm(perm)}
	e.setPath(name)
	c.add(e)
}

// bytes copies what is in memory.
func (c *copier) bytes(name string, data []byte) error {
	pieces, size, err := c.w.put(c.ctx, bytes.NewReader(data), pieceSize)
	if err == nil {
		c.add(entry{Kind: kindFile, Path: name, Perm: 0o600, Size: size, Pieces: pieces})
	}
	return err
}

// bundle copies small files as one archive, below a folder.
func (c *copier) bundle(dir string, files []gitstore.FrozenFile) error {
	slices.SortFunc(files, func(a, b gitstore.FrozenFile) int { return strings.Compare(a.Name, b.Name) })
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.Name, Mode: 0o644, Size: int64(len(f.Data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := t.Write(f.Data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	pieces, size, err := c.w.put(c.ctx, &buf, pageRun)
	if err == nil {
		c.add(entry{Kind: kindBundle, Path: dir, Size: size, Pieces: pieces})
	}
	return err
}
