package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"umbra/internal/cli"
	"umbra/internal/exitcode"
	"umbra/internal/licenses"
	"umbra/internal/term"
)

func licensesCommand(stdout io.Writer) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "licenses [NAME]",
		Short: "Print the licenses of everything in the program",
		Long: `Print the license texts of everything that is compiled into the program: umbra,
Go's standard library (std), Go modules, and the npm packages in the web page and
the Luau interpreter. With NAME, only the texts of that component.

With --json: [{"components":[{"name","version"}],"text"}].`,
		Example: `  umbra licenses
  umbra licenses github.com/spf13/cobra`,
		Args: cli.Args(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			list := licenses.All()
			if len(args) > 0 {
				if list = licenses.Of(args[0]); len(list) == 0 {
					return exitcode.Usage(fmt.Errorf("%s is not in this program; 'umbra licenses' lists what is", term.Name(args[0])))
				}
			}
			if asJSON {
				e := json.NewEncoder(stdout)
				e.SetEscapeHTML(false)
				return e.Encode(list)
			}
			o := term.Open(stdout, term.Options{Color: term.Auto, Page: true})
			for i, l := range list {
				if i > 0 {
					o.Printf("\n%s\n\n", strings.Repeat("-", 78))
				}
				for _, c := range l.Components {
					o.Printf("%s\n", o.Paint(term.Meta, strings.TrimSpace(c.Name+" "+c.Version)))
				}
				o.Printf("\n%s", l.Text)
			}
			if err := o.Close(); !term.Closed(err) {
				return err
			}
			return nil // the reader has read enough
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
