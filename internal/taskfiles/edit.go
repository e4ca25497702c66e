package taskfiles

import (
	"bytes"
	"context"
	"io"
	"unicode/utf8"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/textlines"
	"umbra/internal/workspace"
)

// Edit replaces a text by another in a file.
type Edit struct {
	Old, New string
	All      bool // every occurrence; else there must be exactly one
	// Occurrences is how many there were the last time Apply ran.
	Occurrences int
}

// Check judges the edit without its file: errs.Unprocessable empty_old_string.
func (e *Edit) Check() error {
	if e.Old == "" {
		return errs.New(errs.Unprocessable, "empty_old_string", "old_string must not be empty.").With("field", "old_string")
	}
	return nil
}

// Apply is a function for workspace.Op.Edit.
//
// errs.Unprocessable not_text, no_match, many_matches with the field
// "occurrences".
func (e *Edit) Apply(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		return nil, textlines.NotText()
	}
	e.Occurrences = bytes.Count(data, []byte(e.Old))
	switch {
	case e.Old == e.New:
		return data, nil
	case e.Occurrences == 0:
		return nil, errs.New(errs.Unprocessable, "no_match", "old_string is not in the file.").With("occurrences", 0)
	case e.Occurrences > 1 && !e.All:
		return nil, errs.New(errs.Unprocessable, "many_matches", "old_string appears %d times in the file; give more of the text around it, or set replace_all.", e.Occurrences).
			With("occurrences", e.Occurrences)
	}
	return bytes.ReplaceAll(data, []byte(e.Old), []byte(e.New)), nil
}

// Recount sets Occurrences for a result that an earlier run of the same request
// made, from the bytes that it found.
func (e *Edit) Recount(ctx context.Context, st *gitstore.Store, res *workspace.Result) error {
	before := object.Zero
	for i := range res.Entries {
		before = res.Entries[i].Before
	}
	if before.IsZero() {
		return nil
	}
	r, _, err := st.OpenBlob(ctx, before)
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return errs.Wrap(err, "")
	}
	e.Occurrences = bytes.Count(data, []byte(e.Old))
	return nil
}
