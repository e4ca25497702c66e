// Package disk is where the benchmarks write: a directory whose file system is
// known by name, since every figure with an fsync in it belongs to one.
package disk

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// Disk is a folder to work in, and what lies below it.
type Disk struct {
	Name string // as chosen: "here", "ext4", "xfs", "tmpfs"
	Dir  string
	// FS names the file system for people: "ext4 without a journal",
	// "xfs on a loop device".
	FS string
	// Journaled is set for an ext4 or xfs with its journal, which some targets
	// are for.
	Journaled bool
}

// Of describes the file system of an existing directory.
func Of(name, dir string) (Disk, error) {
	m, err := mountOf(dir)
	if err != nil {
		return Disk{}, err
	}
	d := Disk{Name: name, Dir: dir, FS: m.kind}
	switch m.kind {
	case "xfs":
		d.Journaled = true
	case "ext4":
		switch journal, known := ext4Journal(m.device); {
		case !known:
			d.FS += " (its journal is not known)"
		case journal:
			d.Journaled = true
		default:
			d.FS += " without a journal"
		}
	}
	if strings.HasPrefix(m.source, "/dev/loop") {
		d.FS += " on a loop device"
	}
	return d, nil
}

type mount struct {
	device, source, kind string // device is the kernel's name: "vda", "loop3"
}

// mountOf finds the mount that a folder lies on, by its device number in
// /proc/self/mountinfo (proc_pid_mountinfo(5)): the longest mount point above
// the folder.
func mountOf(dir string) (mount, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return mount{}, err
	}
	if real, err = filepath.Abs(real); err != nil {
		return mount{}, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return statfsOnly(real)
	}
	defer f.Close()
	var best mount
	longest := -1
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// 36 35 98:0 /root /mount/point options [tags] - kind source super
		left, right, ok := strings.Cut(lines.Text(), " - ")
		place, origin := strings.Fields(left), strings.Fields(right)
		if !ok || len(place) < 6 || len(origin) < 2 {
			continue
		}
		point := unescape.Replace(place[4])
		// A later mount on the same point hides the one before.
		if len(point) >= longest && (real == point || strings.HasPrefix(real, strings.TrimSuffix(point, "/")+"/")) {
			longest = len(point)
			best = mount{kind: origin[0], source: unescape.Replace(origin[1])}
			if link, err := os.Readlink("/sys/dev/block/" + place[2]); err == nil {
				best.device = filepath.Base(link)
			}
		}
	}
	if longest < 0 {
		return statfsOnly(real)
	}
	return best, nil
}

// unescape undoes mountinfo's octal escapes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// ext4Journal reports whether an ext4 has a journal: the kernel makes its journal
// thread's directory in /proc only then.
func ext4Journal(device string) (journal, known bool) {
	if device == "" {
		return false, false
	}
	if _, err := os.Stat("/proc/fs/ext4/" + device); err != nil {
		return false, false
	}
	found, err := filepath.Glob("/proc/fs/jbd2/" + device + "-*")
	return len(found) > 0, err == nil
}
