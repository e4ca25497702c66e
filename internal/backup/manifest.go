package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
	"unicode/utf8"

	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Names in the folder of a backup.
const (
	markFile     = "umbra-backup"
	markText     = "umbra backup 1\n"
	manifestFile = "manifest"
	partialFile  = "partial"
	objectsDir   = "objects"
	tempPrefix   = "tmp-"
)

// Header is the first line of a manifest.
type Header struct {
	Version    int       `json:"umbra_backup"` // of the manifest; 1
	Format     string    `json:"format"`       // of the data directory
	Program    string    `json:"program"`      // that made it
	Began      time.Time `json:"began"`        // what was answered before is in it
	Workspaces int       `json:"workspaces"`
}

// The kinds of entries.
const (
	kindFile   = "file"
	kindDir    = "dir"
	kindLink   = "link"
	kindBundle = "bundle" // a tar archive of files, unpacked where the path says
)

// entry is one file of the data directory, a line of the manifest.
type entry struct {
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
	// Raw is the path where it is no UTF-8.
	Raw    []byte      `json:"path_base64,omitempty"`
	Perm   fs.FileMode `json:"perm,omitempty"`
	Target []byte      `json:"target_base64,omitempty"` // of a link
	Size   int64       `json:"size,omitempty"`
	Pieces []piece     `json:"pieces,omitempty"`
	// Damaged is a pack that is not what its checksum says: it is read again the
	// next time, when it may have been repaired.
	Damaged bool `json:"damaged,omitempty"`
}

// piece is a run of a file's bytes.
type piece struct {
	Sum  sum   `json:"sha256"`
	Size int64 `json:"size"`
}

type sum [sha256.Size]byte

func (s sum) String() string { return hex.EncodeToString(s[:]) }

// name is the piece's path in the backup.
func (s sum) name() string { return objectsDir + "/" + s.String()[:2] + "/" + s.String() }

func (s sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *sum) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(s[:], text); err != nil || n != len(s) {
		return errors.New("no SHA-256")
	}
	return nil
}

func (e *entry) setPath(p string) {
	if utf8.ValidString(p) {
		e.Path = p
	} else {
		e.Raw = []byte(p)
	}
}

func (e *entry) path() string {
	if len(e.Raw) > 0 {
		return string(e.Raw)
	}
	return e.Path
}

// manifest is what a complete backup holds.
type manifest struct {
	Header
	entries []entry
}

// write replaces the backup's manifest, durably and atomically.
func (m *manifest) write(to vfs.FS) error {
	const temp = manifestFile + ".new"
	f, err := to.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	buf := bufio.NewWriterSize(f, 256<<10)
	w := json.NewEncoder(io.MultiWriter(buf, h))
	err = w.Encode(m.Header)
	for i := range m.entries {
		if err == nil {
			err = w.Encode(&m.entries[i])
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(buf, "{\"sha256\":\"%x\"}\n", h.Sum(nil))
	}
	if err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := to.Rename(temp, manifestFile); err != nil {
		return err
	}
	return to.SyncDir(".")
}

// errDamaged is a manifest that is not as it was written.
func errDamaged(why string) error {
	return errs.New(errs.Conflict, "backup_damaged", "The backup is damaged: %s.", why)
}

// readManifest reads the manifest; found is false where no backup was ever
// complete.
func readManifest(from vfs.FS) (m *manifest, found bool, err error) {
	data, err := vfs.ReadFile(from, manifestFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, errs.Wrap(err, "")
	}
	body, last, ok := cutLastLine(data)
	var end struct {
		Sum sum `json:"sha256"`
	}
	if !ok || json.Unmarshal(last, &end) != nil || sha256.Sum256(body) != end.Sum {
		return nil, false, errDamaged("its manifest is not as it was written")
	}
	m = &manifest{}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&m.Header); err != nil {
		return nil, false, errDamaged("its manifest has no head")
	}
	if m.Version != 1 {
		return nil, false, errs.New(errs.Conflict, "backup_newer", "The backup has version %d, this program knows version 1.", m.Version)
	}
	for {
		var e entry
		err := d.Decode(&e)
		if err == io.EOF {
			return m, true, nil
		}
		if err != nil || !fs.ValidPath(e.path()) {
			return nil, false, errDamaged("its manifest cannot be read")
		}
		m.entries = append(m.entries, e)
	}
}

func cutLastLine(data []byte) (body, last []byte, ok bool) {
	text, ok := bytes.CutSuffix(data, []byte("\n"))
	if !ok {
		return nil, nil, false
	}
	i := bytes.LastIndexByte(text, '\n')
	return data[:i+1], text[i+1:], true
}

// isBackup reports whether a folder is one, by its mark; empty, whether nothing
// is in it.
func isBackup(f vfs.FS) (is, empty bool, err error) {
	list, err := f.ReadDir(".")
	if err != nil {
		return false, false, errs.Wrap(err, "")
	}
	if len(list) == 0 {
		return false, true, nil
	}
	text, err := vfs.ReadFile(f, markFile)
	if errors.Is(err, fs.ErrNotExist) {
		// The very first thing may have been cut off.
		return false, len(list) == 1 && list[0].Name == markFile+".new", nil
	}
	return string(text) == markText, false, errs.Wrap(err, "")
}
