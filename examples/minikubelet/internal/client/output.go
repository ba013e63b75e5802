package client

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// output is the value of the flag --output.
type output string

const (
	asTable output = ""
	asWide  output = "wide"
	asJSON  output = "json"
	asYAML  output = "yaml"
	asName  output = "name"
)

func outputs() []string {
	return []string{string(asJSON), string(asYAML), string(asWide), string(asName)}
}

// String implements [pflag.Value].
func (o *output) String() string { return string(*o) }

// Type implements [pflag.Value].
func (*output) Type() string { return "form" }

// Set implements [pflag.Value].
func (o *output) Set(text string) error {
	if !slices.Contains(outputs(), text) {
		return fmt.Errorf("want %s", strings.Join(outputs(), ", "))
	}
	*o = output(text)
	return nil
}

func (c *call) outputFlag(fs *pflag.FlagSet) {
	fs.VarP(&c.output, "output", "o", "form of the output: "+strings.Join(outputs(), ", "))
}

// structured reports whether values are printed in place of a table.
func (o output) structured() bool { return o == asJSON || o == asYAML }

// column is a column of a table.
type column struct {
	name string
	// wide means that the column is printed only with --output wide.
	wide bool
	// width is that of a table whose rows are printed one by one; 0 in other tables.
	width int
}

// columns returns columns from their names. Those after "|" are wide.
func columns(names ...string) (all []column) {
	wide := false
	for _, name := range names {
		if name == "|" {
			wide = true
			continue
		}
		all = append(all, column{name: name, wide: wide})
	}
	return all
}

// printer prints a list: a table, the names of its items, or values.
type printer struct {
	out     io.Writer
	form    output
	columns []column
	table   *tabwriter.Writer // nil if rows are printed one by one
	begun   bool
}

// printer returns a printer for the form that was requested.
func (c *call) printer(columns []column) *printer {
	p := &printer{out: c.Out, form: c.output, columns: columns}
	if columns[0].width == 0 {
		p.table = tabwriter.NewWriter(c.Out, 0, 8, 3, ' ', 0)
	}
	return p
}

// row prints an item. It has a cell for each column, without control characters.
func (p *printer) row(name string, cells ...string) error {
	switch {
	case p.form.structured():
		return nil
	case p.form == asName:
		_, err := fmt.Fprintln(p.out, name)
		return err
	}
	if !p.begun {
		p.begun = true
		var names []string
		for _, column := range p.columns {
			names = append(names, column.name)
		}
		if err := p.line(names); err != nil {
			return err
		}
	}
	return p.line(cells)
}

func (p *printer) line(cells []string) error {
	var shown []string
	for i, column := range p.columns {
		if !column.wide || p.form == asWide {
			shown = append(shown, fmt.Sprintf("%-*s", column.width, cells[i]))
		}
	}
	if p.table != nil {
		_, err := fmt.Fprintln(p.table, strings.Join(shown, "\t"))
		return err
	}
	_, err := fmt.Fprintln(p.out, strings.TrimRight(strings.Join(shown, "  "), " "))
	return err
}

// end prints what is left, or the values of all items.
func (p *printer) end(values any) error {
	if p.form.structured() {
		return p.value(values)
	}
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
}

// document prints one of several values.
func (p *printer) document(value any) error {
	if p.form == asYAML {
		if _, err := io.WriteString(p.out, "---\n"); err != nil {
			return err
		}
	}
	return p.value(value)
}

// value prints a value.
func (p *printer) value(value any) error { return PrintValue(p.out, string(p.form), value) }

// PrintValue prints a value in the form json or yaml.
func PrintValue(out io.Writer, form string, value any) error {
	var data []byte
	var err error
	if output(form) == asYAML {
		data, err = yaml.Marshal(value)
	} else if data, err = json.MarshalIndent(value, "", "    "); err == nil {
		data = append(data, '\n')
	}
	if err == nil {
		_, err = out.Write(data)
	}
	return err
}

// items are the values of a list that has no type of its own.
type items[T any] struct {
	Items []T `json:"items"`
}
