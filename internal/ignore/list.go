package ignore

import "strings"

// list is the rules of one file, which hold from the file's folder down. The
// last one that matches decides.
//
// Most rules of most files are plain names and "*.ext": those are found by a
// map, whatever their number, and only the others are tried one by one.
type list struct {
	prefix int // length of the folder's path with its slash: what to cut off
	rules  []Rule
	byName map[string][]int // rules that are a plain name, the last first
	byExt  map[string][]int // rules that are "*.ext", by ".ext", the last first
	others []int            // all other rules, the last first
}

func newList(prefix int, rules []Rule) *list {
	l := &list{prefix: prefix, rules: rules, byName: map[string][]int{}, byExt: map[string][]int{}}
	for i := len(rules) - 1; i >= 0; i-- {
		switch r := &rules[i]; {
		case r.base && r.literal == len(r.text):
			l.byName[r.text] = append(l.byName[r.text], i)
		case r.suffix && strings.LastIndexByte(r.text, '.') == 1:
			l.byExt[r.text[1:]] = append(l.byExt[r.text[1:]], i)
		default:
			l.others = append(l.others, i)
		}
	}
	return l
}

// match gives the rule that decides on a path, nil if none matches.
func (l *list) match(path, name string, isDir bool) *Rule {
	best := l.first(l.byName[name], isDir)
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		best = max(best, l.first(l.byExt[name[dot:]], isDir))
	}
	rel := path[l.prefix:]
	for _, i := range l.others {
		if i < best {
			break
		}
		if l.rules[i].matches(rel, name, isDir) {
			return &l.rules[i]
		}
	}
	if best < 0 {
		return nil
	}
	return &l.rules[best]
}

// first gives the first of some rules of the right name that holds, or -1.
func (l *list) first(rules []int, isDir bool) int {
	for _, i := range rules {
		if isDir || !l.rules[i].dirOnly {
			return i
		}
	}
	return -1
}
