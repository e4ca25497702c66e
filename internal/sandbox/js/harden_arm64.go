//go:build linux

package js

// amd64Only is empty here.
var amd64Only []uintptr
