package wspath

import "strings"

// MaxTarget is the longest target of a symbolic link, in bytes (PATH_MAX less
// its NUL, symlink(2)).
const MaxTarget = 4095

// CheckTarget judges what a symbolic link would point at: nil, or an
// errs.BadPath with the code "bad_path". It refuses targets that name git's own
// folder in any spelling, and links that git refuses by their own name. Whether
// the target lies inside the root is for the kernel to say when it is followed.
func CheckTarget(link Path, target string) error {
	switch {
	case target == "":
		return bad(string(link), "The link's target is empty.")
	case len(target) > MaxTarget:
		return bad(string(link), "The link's target is longer than 4095 bytes.")
	case strings.IndexByte(target, 0) >= 0:
		return bad(string(link), "The link's target contains a NUL byte.")
	case IsModulesName(link.Base()):
		return bad(string(link), "Git refuses a symbolic link named \".gitmodules\".")
	}
	for name := range strings.SplitSeq(target, "/") {
		if IsGitName(name) {
			return bad(string(link), "The link's target has a component that git reads as \".git\".")
		}
	}
	return nil
}
