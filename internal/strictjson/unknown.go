package strictjson

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// UnknownError reports a name that the struct being filled does not have.
type UnknownError struct {
	Field string   // where it is: "operations[3].pth"
	Name  string   // as it was written
	Near  string   // the known name that was probably meant; empty if none is close
	Known []string // all names that are allowed there, sorted
}

// Error names the field, and what was probably meant or what is allowed.
func (e *UnknownError) Error() string {
	text := "unknown field " + strconv.Quote(e.Field)
	switch {
	case e.Near != "":
		return text + "; did you mean " + strconv.Quote(e.Near) + "?"
	case len(e.Known) > 0:
		return text + "; allowed: " + strings.Join(e.Known, ", ")
	}
	return text + "; no field is allowed here"
}

// Strict is like Unmarshal, but returns an *UnknownError for the first name
// that its struct does not have. A *SyntaxError has precedence over it, and it
// over a *TypeError.
func Strict(data []byte, dst any) error { return unmarshal(data, dst, true) }

// Names returns the names that an object may have that is read into dst, a pointer
// to a struct, sorted.
func Names(dst any) []string {
	t := reflect.TypeOf(dst)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil
	}
	return slices.Sorted(maps.Keys(fieldsOf(t.Elem())))
}

func (d *decoder) unknownName(at *path, fields map[string][]int) {
	if !d.strict || d.unknown != nil {
		return
	}
	known := slices.Sorted(maps.Keys(fields))
	d.unknown = &UnknownError{Field: at.String(), Name: at.name, Near: Nearest(at.name, known), Known: known}
}

// Nearest returns the name of the list that is closest to a misspelled one:
// another case or other separators (dryRun, dry-run), one that contains it or is
// contained in it (force for on_force), or one of few edits. Empty if none is
// close. Among equals it is the first of the list.
func Nearest(name string, list []string) string {
	plain := fold(name)
	best, least := "", 0
	for _, known := range list {
		k := fold(known)
		far := 2 * distance(plain, k)
		if len(plain) >= 3 && len(k) >= 3 && (strings.Contains(k, plain) || strings.Contains(plain, k)) {
			far = min(far, 3) // after those of one edit
		}
		if far <= 2*max(1, min(len(plain), len(k))/3)+1 && (best == "" || far < least) {
			best, least = known, far
		}
	}
	return best
}

// fold removes the differences between spellings of one name.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// maxCompared bounds the names whose distance is computed, in bytes.
const maxCompared = 64

// distance is the number of inserted, deleted, replaced or exchanged bytes
// between two strings (optimal string alignment); of long ones it is their
// length.
func distance(a, b string) int {
	if len(a) > maxCompared || len(b) > maxCompared {
		return max(len(a), len(b))
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	last2, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], last2[j-2]+1)
			}
		}
		last2, last, row = last, row, last2
	}
	return last[len(b)]
}
