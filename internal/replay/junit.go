package replay

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The JUnit form, as CI systems read it.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
	Out      string      `xml:"system-out,omitempty"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Skipped *struct{}     `xml:"skipped,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func seconds(ms int64) string { return fmt.Sprintf("%d.%03d", ms/1000, ms%1000) }

// WriteJUnit writes the report in JUnit's XML.
func (r *Report) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: "umbra replay " + r.Task, Tests: len(r.Steps), Out: r.Detail}
	var total int64
	for i := range r.Steps {
		st := &r.Steps[i]
		total += st.Millis
		class := st.Subtask
		if class == "" {
			class = r.Task
		}
		c := junitCase{Class: class, Name: fmt.Sprintf("%d %s", st.Number, st.Title), Time: seconds(st.Millis)}
		if st.Exec != nil {
			c.Out = st.Exec.Output
		}
		switch st.Outcome {
		case OK:
		case Skipped:
			s.Skipped++
			c.Skipped = &struct{}{}
		default:
			s.Failures++
			c.Failure = &junitFailure{Type: string(st.Outcome), Message: st.Problem(), Text: "commit " + st.Commit + "\n" + st.Problem()}
		}
		s.Cases = append(s.Cases, c)
	}
	if r.Detail != "" {
		s.Tests++
		s.Failures++
		s.Cases = append(s.Cases, junitCase{Class: r.Task, Name: "others' commits", Time: "0.000", Failure: &junitFailure{Type: string(Differs), Message: r.Detail}})
	}
	s.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// Problem says in one line what is wrong with a step.
func (s *Step) Problem() string {
	switch s.Outcome {
	case Conflicted:
		text := "conflicts:"
		for _, c := range s.Conflicts {
			text += " " + c.Path + " (" + c.Reason + ")"
		}
		return text
	case ExecFailed:
		return fmt.Sprintf("the command ended with status %d", s.Exec.Status)
	}
	return s.Detail
}
