package disk

import (
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/scan"
	"umbra/internal/vfs"
)

// Rules reads what is left out of the workspace.
func (d *Disk) Rules() (*ignore.Dir, *ignore.Index, error) {
	s, err := d.IgnoreOptions()
	if err != nil {
		return nil, nil, err
	}
	rules, err := ignore.NewRoot(s.Options)
	return rules, s.Index, errs.Wrap(err, "")
}

// IgnoreSources are what decides which paths are not recorded: files of rules,
// and the index of the project's own git, whose files are never left out by its
// rules.
type IgnoreSources struct {
	Options ignore.Options
	Index   *ignore.Index
}

// IgnoreOptions reads the sources of the rules, for package ignore.
func (d *Disk) IgnoreOptions() (IgnoreSources, error) {
	exclude, index, err := d.GitRules()
	if err != nil {
		return IgnoreSources{}, err
	}
	own, err := vfs.ReadFile(d.Files, ExcludeFile)
	if err != nil && !IsAbsent(err) {
		return IgnoreSources{}, errs.Wrap(err, "")
	}
	return IgnoreSources{ignore.Options{ReadFile: scan.RuleReader(d.FS), InfoExclude: exclude, UmbraExclude: own}, index}, nil
}

// ExcludeFile is the workspace's own list of what is left out, next to its
// repository.
const ExcludeFile = "exclude"
