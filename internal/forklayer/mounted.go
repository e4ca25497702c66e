package forklayer

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/layer"
)

// Mounted is the layer of a fork that is mounted at a path of its own.
type Mounted struct {
	ID     string // of the fork
	Dir    string // of the layer, in the data directory
	Point  string // where it is mounted
	Origin string // the parent's directory
	// Whole is set since the layer shows nothing of Origin any more. Below is the directory
	// that it shows in its place, or empty.
	Whole bool
	Below string
}

// Overlay returns what is to be mounted.
func (m Mounted) Overlay() layer.Mount {
	l := m.shown()
	if m.Whole {
		l.Name, l.Root = l.Name+"-whole", m.Below
	}
	return l
}

// shown returns the overlay of a layer that is not whole yet.
func (m Mounted) shown() layer.Mount {
	return layer.Mount{Name: "umbra-" + m.ID, Point: m.Point, Root: m.Origin, Over: filepath.Join(m.Dir, "files"), Upper: filepath.Join(m.Dir, "upper"), Work: filepath.Join(m.Dir, "work")}
}

// Mount mounts the overlay unless it is mounted; the errors are those of layer.Mount.
func (m Mounted) Mount() error {
	if m.Whole { // what a crash left mounted shows a directory that is not the fork's
		if err := m.shown().Unmount(true); err != nil {
			return err
		}
	}
	l := m.Overlay()
	for _, dir := range []string{m.Below, l.Over, l.Upper, l.Work} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return l.Mount()
}

// Unmount is layer.Mount.Unmount, whichever of its overlays is mounted.
func (m Mounted) Unmount(force bool) error {
	if err := m.Overlay().Unmount(force); err != nil || !m.Whole {
		return err
	}
	return m.shown().Unmount(force)
}

// seenFile has the number of the parent's commit up to which what changed below is put back.
// One that a crash leaves older has more put back.
const seenFile = "seen"

// SetSeen notes a number for seenFile.
func (m Mounted) SetSeen(seq uint64) error {
	name := filepath.Join(m.Dir, seenFile)
	err := os.WriteFile(name+".new", []byte(strconv.FormatUint(seq, 10)+"\n"), 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	return errs.Wrap(err, "")
}

// Seen returns what SetSeen wrote; false where nothing, or nothing whole, is there.
func (m Mounted) Seen() (seq uint64, ok bool) {
	raw, err := os.ReadFile(filepath.Join(m.Dir, seenFile))
	number, whole := strings.CutSuffix(string(raw), "\n")
	if err != nil || !whole {
		return 0, false
	}
	seq, err = strconv.ParseUint(number, 10, 64)
	return seq, err == nil
}
