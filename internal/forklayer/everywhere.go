package forklayer

import (
	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// HeldFile is a file of a layer with a content that a purge is about. With a Blob it may have
// been placed from history: then it is no file of the fork's own.
type HeldFile struct {
	Path []byte
	Blob string
}

// ContentsOf returns contents of these IDs.
func ContentsOf(blobs []string) (Contents, error) {
	c := Contents{}
	for _, hex := range blobs {
		id, err := object.ParseID(hex)
		if err != nil {
			return nil, errs.Wrap(err, "")
		}
		c[id] = -1
	}
	return c, nil
}

// HeldFiles lists the files with contents of these IDs that no history has, or may not have:
// which ones history had is not known here.
func (m Mounted) HeldFiles(blobs []string) (list []HeldFile, err error) {
	c, err := ContentsOf(blobs)
	if err != nil {
		return nil, err
	}
	names, err := m.Holding(c, func(p string, id object.ID) (bool, error) {
		list = append(list, HeldFile{[]byte(p), id.String()})
		return true, nil
	})
	for _, name := range names {
		list = append(list, HeldFile{Path: []byte(name)})
	}
	return list, err
}

// Everywhere is a layer with its files at all servers. Others lists those of the servers that
// had it before (HeldFiles).
type Everywhere struct {
	Mounted
	Others func(id string, blobs []string) ([]HeldFile, error)
}

// Holding is Mounted's, of all servers.
func (e Everywhere) Holding(c Contents, had Had) ([]string, error) {
	names, err := e.Mounted.Holding(c, had)
	if err != nil {
		return nil, err
	}
	blobs := make([]string, 0, len(c))
	for id := range c {
		blobs = append(blobs, id.String())
	}
	list, err := e.Others(e.ID, blobs)
	for _, f := range list {
		placed := false
		if id, bad := object.ParseID(f.Blob); err == nil && bad == nil {
			placed, err = had(string(f.Path), id)
		}
		if !placed {
			names = append(names, string(f.Path))
		}
	}
	return names, err
}
