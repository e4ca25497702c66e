package mounts

import (
	"slices"
	"strings"
	"testing"
)

const table = `21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
22 21 0:5 / /dev rw - devtmpfs udev rw
23 21 8:2 / /home rw - ext4 /dev/sda2 rw
24 21 8:2 /me/data /mnt/bind rw - ext4 /dev/sda2 rw
25 21 8:2 /me/data/workspaces/a\040b /mnt/deep rw - ext4 /dev/sda2 rw
26 21 8:2 /me /srv/project/home rw - ext4 /dev/sda2 rw
27 21 8:1 /other /mnt/bind/over rw - ext4 /dev/sda1 rw
short line
`

func TestTable(t *testing.T) {
	mounts, err := Parse(strings.NewReader(table))
	if err != nil || len(mounts) != 7 {
		t.Fatalf("%d mounts, %v", len(mounts), err)
	}
	data, ok := mounts.Locate("/home/me/data")
	if !ok || data != (Place{"8:2", "/me/data"}) {
		t.Fatalf("%v, %v", data, ok)
	}
	for path, inside := range map[string]bool{
		"/home/me/data": true, "/home/me/data/x": true, "/home/me/database": false, "/home/me": false,
		"/mnt/bind": true, "/mnt/bind/tasks": true, "/mnt/deep": true, "/mnt/deep/x": true,
		"/srv/project/home/data/x": true, "/srv/project/home": false, "/srv/project": false,
		"/mnt/bind/over": false, "/me/data": false, "/": false,
	} {
		p, ok := mounts.Locate(path)
		if !ok || p.In(data) != inside {
			t.Errorf("%s is %v, %v", path, p, ok)
		}
	}
	for dir, want := range map[string][]string{
		"/srv/project": {"/srv/project/home/data"},
		"/mnt":         {"/mnt/bind", "/mnt/deep"},
		"/home":        {"/home/me/data"},
		"/var":         nil,
	} {
		if got := mounts.Below(dir, data); !slices.Equal(got, want) {
			t.Errorf("below %s: %v", dir, got)
		}
	}
	if _, ok := (Table{}).Locate("/x"); ok {
		t.Error("an empty table knows a place")
	}
}

func TestRead(t *testing.T) {
	if _, err := Read(); err != nil {
		t.Error(err)
	}
}
