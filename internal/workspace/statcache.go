package workspace

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"umbra/internal/errs"
)

// statMagic begins the file of the index; statEvery is how often it is written.
const (
	statMagic = "USTA\x02"
	statEvery = 5 * time.Minute
)

// statHeader ties the file to the directory and the mounts it was written for.
func (w *Workspace) statHeader() []byte {
	h := sha256.Sum256([]byte(w.progress.epoch))
	b := append([]byte(statMagic), h[:]...)
	b = binary.BigEndian.AppendUint64(b, w.dev)
	return binary.BigEndian.AppendUint64(b, w.ino)
}

// saveIndex writes the index if it has changed since it was last written.
func (w *Workspace) saveIndex() error {
	if w.virtual != nil || w.standIn {
		return nil
	}
	return w.index.Save(w.files, w.statHeader())
}

// loadIndex reads what the last run knew.
func (w *Workspace) loadIndex() error {
	if w.virtual != nil || w.standIn {
		return nil
	}
	return w.index.Load(w.files, w.statHeader())
}

func ignoreAbsent(err error) error {
	if err == nil || isAbsent(err) {
		return nil
	}
	return errs.Wrap(err, "")
}
