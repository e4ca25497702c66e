package refs

import "umbra/internal/vfs"

// config is the repository's. Format 0 without extensions, so that go-git and
// libgit2 open it; no maintenance that a person did not ask for; the server's
// refs cannot be pushed to, by a path either; partial clones by path work
// (git-config(1)).
const config = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
	logAllRefUpdates = false
[gc]
	auto = 0
	reflogExpire = never
	reflogExpireUnreachable = never
[maintenance]
	auto = false
[receive]
	autogc = false
	hideRefs = refs/umbra
	hideRefs = refs/foreign
	hideRefs = refs/heads/shadow
[uploadpack]
	allowFilter = true
`

// Init makes a bare repository without history, durable when it returns: HEAD
// points at ShadowRef. HeadRef is made with ShadowRef's first value. Existing
// files are left as they are, so that the next Init finishes an interrupted one.
func Init(f vfs.FS, repo string) error {
	for _, dir := range []string{"", "/objects", "/objects/pack", "/objects/info", "/refs", "/refs/heads", "/refs/tags",
		"/refs/umbra", "/refs/umbra/tasks", "/info", "/" + ownDir} {
		if err := mkdirDurable(f, repo+dir); err != nil {
			return err
		}
	}
	s := &Store{fs: f, repo: repo}
	if err := s.clearTemps(); err != nil {
		return err
	}
	// HEAD last: without it the folder is no repository yet.
	for _, file := range []struct{ name, data string }{
		{"description", "The history of one workspace. Its refs/heads/shadow and refs/umbra are the server's.\n"},
		{"config", config},
		{HEAD, "ref: " + ShadowRef + "\n"},
	} {
		if _, err := f.Lstat(s.path(file.name)); err == nil {
			continue
		} else if !notExist(err) {
			return err
		}
		temp, err := s.writeTemp([]byte(file.data))
		if err != nil {
			return err
		}
		if err := f.Rename(temp, s.path(file.name)); err != nil {
			return err
		}
	}
	return f.SyncDir(repo)
}
