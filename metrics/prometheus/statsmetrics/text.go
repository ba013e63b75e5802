package statsmetrics

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// contentType is that of Prometheus' text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// The types of metrics.
const (
	counter = "counter"
	gauge   = "gauge"
)

// text writes Prometheus' text format. The samples of a family are written together; a family
// without samples is left out.
type text struct {
	buf []byte
	// head is the head of the current family, empty if it was written.
	head string
	name string
}

// family begins a family.
func (t *text) family(name, kind, help string) {
	t.name, t.head = name, "# HELP "+name+" "+escapeHelp(help)+"\n# TYPE "+name+" "+kind+"\n"
}

// label is a name and a value.
type label struct{ name, value string }

// sample writes a sample of the current family. The names of labels must be valid. A zero time
// means none.
func (t *text) sample(value float64, at time.Time, labels ...[]label) {
	t.buf = append(append(t.buf, t.head...), t.name...)
	t.head = ""
	first := true
	for _, list := range labels {
		for _, l := range list {
			if first {
				t.buf = append(t.buf, '{')
			} else {
				t.buf = append(t.buf, ',')
			}
			first = false
			t.buf = append(append(t.buf, l.name...), '=', '"')
			t.buf = append(appendValue(t.buf, l.value), '"')
		}
	}
	if !first {
		t.buf = append(t.buf, '}')
	}
	t.buf = strconv.AppendFloat(append(t.buf, ' '), value, 'g', -1, 64)
	if !at.IsZero() {
		t.buf = strconv.AppendInt(append(t.buf, ' '), at.UnixMilli(), 10)
	}
	t.buf = append(t.buf, '\n')
}

// number writes a sample of a number; nil writes none.
func (t *text) number(value *uint64, unit float64, at time.Time, labels ...[]label) {
	if value != nil {
		t.sample(float64(*value)/unit, at, labels...)
	}
}

// appendValue appends the value of a label. Nothing in it can end the value.
func appendValue(buf []byte, value string) []byte {
	if !strings.ContainsAny(value, "\\\"\n") && utf8.ValidString(value) {
		return append(buf, value...)
	}
	for _, r := range value {
		switch r {
		case '\\':
			buf = append(buf, '\\', '\\')
		case '"':
			buf = append(buf, '\\', '"')
		case '\n':
			buf = append(buf, '\\', 'n')
		default: // what is not UTF-8 becomes the replacement character
			buf = utf8.AppendRune(buf, r)
		}
	}
	return buf
}

func escapeHelp(help string) string {
	return strings.ToValidUTF8(strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help), "�")
}
