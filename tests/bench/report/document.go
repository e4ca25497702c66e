package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The generated part of a document is between begin and end; each result in it is
// under a mark with its key.
const (
	begin    = "<!-- bench:begin (made by make bench; what is written here by hand is lost) -->\n"
	end      = "<!-- bench:end -->\n"
	markOpen = "<!-- bench:row "
	markEnd  = " -->\n"
)

var errNoPlace = errors.New("the document has no place for the results (bench:begin, bench:end)")

// section is one result in the document.
type section struct{ key, text string }

// Merge puts results into a document: those of a key that it has replace
// the earlier ones, others stay as they were measured, and all are in the order
// that less gives for keys.
func Merge(document string, results []*Result, less func(a, b string) int) (string, error) {
	head, rest, ok := strings.Cut(document, begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", errNoPlace
	}
	sections := parse(old)
	for _, r := range results {
		fresh := section{r.Key(), r.Markdown()}
		if i := slices.IndexFunc(sections, func(s section) bool { return s.key == fresh.key }); i >= 0 {
			sections[i] = fresh
		} else {
			sections = append(sections, fresh)
		}
	}
	slices.SortStableFunc(sections, func(a, b section) int { return less(a.key, b.key) })
	var b strings.Builder
	b.WriteString(head + begin)
	for _, s := range sections {
		b.WriteString(markOpen + s.key + markEnd + s.text)
	}
	b.WriteString(end + tail)
	return b.String(), nil
}

func parse(generated string) []section {
	var list []section
	parts := strings.Split(generated, markOpen)
	for _, p := range parts[1:] {
		if key, text, ok := strings.Cut(p, markEnd); ok {
			list = append(list, section{key, text})
		}
	}
	return list
}

// Update merges results into a file.
func Update(name string, results []*Result, less func(a, b string) int) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := Merge(string(old), results, less)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".bench-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(text)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}
