package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It is written as a plain integer or with a unit:
// B, kB, MB, GB, TB by thousands, KiB, MiB, GiB, TiB by 1024.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// Floor is a number of bytes that is kept free, or FloorAuto.
type Floor int64

// FloorAuto, "auto" in a file, is a share of the file system.
const FloorAuto Floor = -1

// ParseSize reads a size.
func ParseSize(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if n := len(number) - len(u.name); n > 0 && strings.EqualFold(number[n:], u.name) {
			number, factor = strings.TrimSpace(number[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is not a size such as 1048576, 100MB or 256MiB", s)
	}
	return Size(n * factor), nil
}

// String writes the size with the largest binary unit that it is a multiple of.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
