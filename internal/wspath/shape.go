package wspath

import "strings"

// IsRepoName reports whether a name is one of the four that make a folder a
// repository in git's eyes: HEAD, config, objects, refs. Case is folded: on a
// file system that folds case, "head" is the same file.
func IsRepoName(name string) bool {
	return repoIndex(name) >= 0
}

func repoNames() [4]string { return [...]string{"HEAD", "config", "objects", "refs"} }

func repoIndex(name string) int {
	for i, n := range repoNames() {
		if strings.EqualFold(n, name) {
			return i
		}
	}
	return -1
}

// CompletesRepo reports whether a directory would become a bare repository by one
// more name: git would take its config for its own and run what it names.
// existing reports whether the directory has a name already, now or by another
// part of the same change; it is asked as the file system decides, for the names
// in git's spelling. A directory that has all four already is completed by none,
// so that files in it can still be replaced.
func CompletesRepo(existing func(name string) bool, adding string) bool {
	added := repoIndex(adding)
	if added < 0 {
		return false
	}
	for i, n := range repoNames() {
		if (i == added) == existing(n) {
			return false
		}
	}
	return true
}
