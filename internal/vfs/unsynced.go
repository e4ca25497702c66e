package vfs

import "io/fs"

// Unsynced returns f without its syncs: SyncDir, Sync, Datasync and StartWriteout
// do nothing. It is for a directory that is only a cache. Both share what is open;
// closing one closes the other.
func Unsynced(f FS) FS { return unsynced{f} }

type unsynced struct{ FS }

type unsyncedFile struct{ File }

func (unsyncedFile) Sync() error          { return nil }
func (unsyncedFile) Datasync() error      { return nil }
func (unsyncedFile) StartWriteout() error { return nil }

func (u unsynced) SyncDir(string) error { return nil }

func (u unsynced) Open(name string) (File, error) { return noSync(u.FS.Open(name)) }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	return noSync(u.FS.OpenFile(name, flag, perm))
}

func (u unsynced) CreateUnlinked(dir string, perm fs.FileMode) (File, error) {
	return noSync(u.FS.CreateUnlinked(dir, perm))
}

func (u unsynced) LinkFile(f File, name string) error {
	if file, ok := f.(unsyncedFile); ok {
		f = file.File
	}
	return u.FS.LinkFile(f, name)
}

func (u unsynced) Sub(dir string) (FS, error) {
	sub, err := u.FS.Sub(dir)
	if err != nil {
		return nil, err
	}
	return unsynced{sub}, nil
}

func noSync(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}
