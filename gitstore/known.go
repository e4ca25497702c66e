package gitstore

// KnownBlob stands for a blob that history has, without reading it: for edits
// that change a mode or bring back what stood there. Its size and hash are not
// set; ExistingBlob has them.
func KnownBlob(id ID) Blob { return Blob{id: id} }
