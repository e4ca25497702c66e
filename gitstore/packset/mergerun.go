package packset

const (
	// MergeWidth is how many packs of about one size are merged into one: the
	// number of packs stays below MergeWidth for each factor of mergeFactor in
	// the number of objects.
	MergeWidth  = 6
	mergeFactor = 4
	// BusyWidth takes MergeWidth's place while there are writers: merging has the
	// same processors, and the wider it is the less often an object is copied.
	BusyWidth = 32
	// maxPlain is how many bytes of packs with objects that are only stored may
	// stay while nothing is written.
	maxPlain = 256 << 10
)

// ToMerge returns the packs, smallest first, that are to be merged; nil for none.
// Those in a sink's store are not merged with others: that would put them again.
func ToMerge(packs []*File, width int) []*File {
	var own, put []*File
	for _, f := range packs {
		if f.Stored() == "" {
			own = append(own, f)
		} else {
			put = append(put, f)
		}
	}
	if n := mergeRun(own, width); n > 0 {
		return own[:n]
	}
	if n := mergeRun(put, MergeWidth); n > 0 {
		return put[:n]
	}
	if width > MergeWidth {
		return nil
	}
	return plainPacks(own)
}

// plainPacks returns the packs whose objects are only stored, if it is time to
// compress them.
func plainPacks(packs []*File) []*File {
	var list []*File
	size := int64(0)
	for _, f := range packs {
		if f.Keep.Plain {
			list = append(list, f)
			size += f.Pack.PackBytes()
		}
	}
	if size <= maxPlain {
		return nil
	}
	return list
}

// mergeRun gives how many of the packs, smallest first, are to be merged: up
// to the end of the first run of width or more in which each is no larger
// than mergeFactor times those before it together. Packs smaller than the
// run are merged with it: they cost little.
func mergeRun(packs []*File, width int) int {
	sum, run := 0, 0
	for i, f := range packs {
		if run >= width && f.Count*2 > sum {
			return i
		}
		if run > 0 && f.Count > mergeFactor*sum {
			sum, run = 0, 0
		}
		sum += f.Count
		run++
	}
	if run < width {
		return 0
	}
	return len(packs)
}
