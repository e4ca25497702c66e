// Package licenses holds the license texts of everything that is compiled into
// the program: umbra itself, Go modules, and the npm packages in the web page and
// the Luau interpreter. `make licenses` writes the list.
package licenses

import (
	_ "embed"
	"slices"
	"strings"
)

// texts has one section for each text. A section begins with a line for each
// component under that text ("== name version"), then an empty line.
//
//go:embed texts.txt
var texts string

// mark begins the line of a component.
const mark = "== "

// License is a license text and the components that are under it.
type License struct {
	Components []Component `json:"components"`
	Text       string      `json:"text"`
}

// Component is a module or package in the program. Version is empty for umbra
// and Go's standard library.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// All returns the licenses, sorted by their first component.
func All() []License {
	var list []License
	inHead := false
	var text strings.Builder
	flush := func() {
		if len(list) > 0 {
			list[len(list)-1].Text = strings.Trim(text.String(), "\n") + "\n"
		}
		text.Reset()
	}
	for line := range strings.Lines(texts) {
		head, ok := strings.CutPrefix(line, mark)
		if !ok {
			inHead = false
			text.WriteString(line)
			continue
		}
		if !inHead {
			flush()
			list = append(list, License{})
			inHead = true
		}
		name, version, _ := strings.Cut(strings.TrimSpace(head), " ")
		l := &list[len(list)-1]
		l.Components = append(l.Components, Component{Name: name, Version: version})
	}
	flush()
	return list
}

// Of returns the licenses of a component.
func Of(name string) []License {
	return slices.DeleteFunc(All(), func(l License) bool {
		return !slices.ContainsFunc(l.Components, func(c Component) bool { return c.Name == name })
	})
}
