package client

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
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

// asJSONPath has a template behind it, as kubectl's. There is no go-template: text/template makes the program 19 MB
// larger, since the linker then keeps all exported methods.
const asJSONPath = "jsonpath="

func outputs() []string {
	return []string{string(asJSON), string(asYAML), string(asWide), string(asName), asJSONPath}
}

// forms returns the outputs as text.
func forms() string { return strings.Join(outputs(), ", ") + "TEMPLATE" }

// template returns the template of the form, nil if it has none.
func (o output) template() (*jsonpath.JSONPath, error) {
	text, ok := strings.CutPrefix(string(o), asJSONPath)
	if !ok {
		return nil, nil
	}
	t := jsonpath.New("output").AllowMissingKeys(true)
	return t, t.Parse(text)
}

// String implements [pflag.Value].
func (o *output) String() string { return string(*o) }

// Type implements [pflag.Value].
func (*output) Type() string { return "form" }

// Set implements [pflag.Value].
func (o *output) Set(text string) error {
	switch t, err := output(text).template(); {
	case err != nil:
		return err
	case t == nil && !slices.Contains(outputs(), text):
		return fmt.Errorf("want %s", forms())
	}
	*o = output(text)
	return nil
}

func (c *call) outputFlag(fs *pflag.FlagSet) {
	fs.VarP(&c.output, "output", "o", "form of the output: "+forms())
}

// structured reports whether values are printed in place of a table.
func (o output) structured() bool {
	return o == asJSON || o == asYAML || strings.HasPrefix(string(o), asJSONPath)
}

// column is a column of a table.
type column struct {
	name string
	// wide means that the column is printed only with --output wide.
	wide bool
	// spare means that the column is left out if a terminal is too narrow for the table.
	spare bool
	// color returns the color of a cell, as a parameter of the escape sequence SGR; nil, or "" for none.
	color func(cell string) string
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
	// width is that of the terminal; 0 if there is none, so that lines are as long as they get.
	width int
	// colors means that cells may have colors.
	colors bool

	rows   [][]string // not printed yet
	widths []int      // of the columns, of all rows until now
	begun  bool
}

// gap is between columns.
const gap = 3

// printer returns a printer for the form that was requested.
func (c *call) printer(columns []column) *printer {
	return &printer{out: c.Out, form: c.output, columns: columns, width: c.lineWidth(), colors: c.colors()}
}

// lineWidth returns the width of the terminal, 0 if the output is none.
func (e *Env) lineWidth() int {
	if e.width > 0 {
		return e.width
	}
	if file, ok := e.Out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return max(width, 40)
		}
	}
	return 0
}

// colors reports whether the output is a terminal that may have colors.
func (e *Env) colors() bool {
	if e.colored {
		return true
	}
	file, ok := e.Out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && terminal.WantsColor(e.Program.Env)
}

// row adds an item. It has a cell for each column, without control characters.
func (p *printer) row(name string, cells ...string) error {
	switch {
	case p.form.structured():
		return nil
	case p.form == asName:
		_, err := fmt.Fprintln(p.out, name)
		return err
	}
	p.rows = append(p.rows, cells)
	return nil
}

// flush prints the rows that are not printed yet, and the header before the first one.
func (p *printer) flush() error {
	if len(p.rows) == 0 {
		return nil
	}
	if !p.begun {
		var names []string
		for _, column := range p.columns {
			names = append(names, column.name)
		}
		p.widths = make([]int, len(names))
		p.rows = slices.Insert(p.rows, 0, names)
	}
	for _, cells := range p.rows {
		for i, cell := range cells {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell))
		}
	}
	shown := p.shown()
	var b strings.Builder
	for i, cells := range p.rows {
		p.line(&b, shown, cells, i == 0 && !p.begun)
	}
	p.rows, p.begun = nil, true
	_, err := io.WriteString(p.out, b.String())
	return err
}

// shown returns the indexes of the columns that are printed.
func (p *printer) shown() (shown []int) {
	total := -gap
	for i, column := range p.columns {
		if !column.wide || p.form == asWide {
			shown = append(shown, i)
			total += p.widths[i] + gap
		}
	}
	if p.form == asWide || p.width == 0 {
		return shown
	}
	last := p.widths[shown[len(shown)-1]]
	total -= last - min(last, 2*narrowest) // it is wrapped
	for at := len(shown) - 1; at >= 0 && total > p.width; at-- {
		if i := shown[at]; p.columns[i].spare {
			total -= p.widths[i] + gap
			shown = slices.Delete(shown, at, at+1)
		}
	}
	return shown
}

// narrowest is the least number of columns in which the last cell of a row is wrapped.
const narrowest = 20

// line writes a row. Its last cell is wrapped on a terminal.
func (p *printer) line(b *strings.Builder, shown []int, cells []string, header bool) {
	at := 0
	var line strings.Builder
	for n, i := range shown {
		cell, color := cells[i], ""
		if p.colors && !header && p.columns[i].color != nil {
			color = p.columns[i].color(cell)
		}
		width := utf8.RuneCountInString(cell)
		if n == len(shown)-1 {
			switch room := p.width - at; {
			case p.width == 0 || width <= room:
			case room >= narrowest || n == 0:
				cell = strings.TrimSpace(wrap(cell, p.width, at))
			default: // on lines of its own
				cell = "\n" + strings.TrimRight(wrap(cell, p.width, 4), "\n")
			}
			width = p.widths[i]
		}
		if color != "" {
			line.WriteString("\x1b[" + color + "m" + cell + "\x1b[0m")
		} else {
			line.WriteString(cell)
		}
		if n < len(shown)-1 {
			line.WriteString(strings.Repeat(" ", p.widths[i]-width+gap))
			at += p.widths[i] + gap
		}
	}
	text := strings.TrimRight(line.String(), " ")
	if before, after, found := strings.Cut(text, "\n"); found {
		text = strings.TrimRight(before, " ") + "\n" + after
	}
	b.WriteString(text + "\n")
}

// end prints what is left, or the values of all items.
func (p *printer) end(values any) error {
	if p.form.structured() {
		return p.value(values)
	}
	return p.flush()
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

// PrintValue prints a value in the form json or yaml, or by a template, which gets the value of its JSON.
func PrintValue(out io.Writer, form string, value any) error {
	t, err := output(form).template()
	if err != nil {
		return err
	}
	var data []byte
	if output(form) == asYAML {
		data, err = yaml.Marshal(value)
	} else if data, err = json.MarshalIndent(value, "", "    "); err == nil && t == nil {
		data = append(data, '\n')
	}
	if err != nil {
		return err
	}
	if t == nil {
		_, err = out.Write(data)
		return err
	}
	var fields any
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	return t.Execute(out, fields)
}

// items are the values of a list that has no type of its own.
type items[T any] struct {
	Items []T `json:"items"`
}
