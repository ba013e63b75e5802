package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// parse parses a document into maps, lists and scalars, of the types that the JSON or the YAML library uses. For JSON
// it also returns the text that the objects of the document are decoded from, so that a number keeps its form.
func (d *decoder) parse(doc document) (tree any, raw []byte, err error) {
	text, marked := bytes.CutPrefix(doc.text, []byte("---"))
	if object := bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")); object && (!marked || !d.asKubelet) {
		if err := checkJSON(text); err != nil {
			return nil, nil, err
		}
		duplicates, err := kjson.UnmarshalStrict(text, &tree)
		switch {
		case err == nil && len(duplicates) == 0:
			return tree, text, nil
		case err == nil && d.warn != nil && len(text) <= smallDocument:
			// each object that is decoded has its duplicates, of which kubelet merges the objects
			return tree, text, nil
		case err == nil:
			return tree, nil, d.tolerate(joinShort(duplicates))
		case d.asKubelet || !marked && isQuoted(text):
			return nil, nil, jsonSyntax(document{text, doc.line}, err)
		}
		tree = nil // it may be YAML in flow style, which kubelet refuses
	}
	tree, err = d.parseYAML(doc)
	return tree, nil, err
}

// isQuoted reports whether the first key of an object, or its end, is as in JSON.
func isQuoted(text []byte) bool {
	first := bytes.TrimSpace(bytes.TrimSpace(text)[1:])
	return len(first) > 0 && (first[0] == '"' || first[0] == '}')
}

func (d *decoder) parseYAML(doc document) (tree any, err error) {
	repeated, err := checkYAML(doc.text)
	if err != nil {
		return nil, err
	}
	var problem error
	if repeated > maxDuplicates {
		problem = fmt.Errorf("more than %d fields are given twice", maxDuplicates)
	}
	more, err := unmarshal(doc.text, problem == nil, &tree)
	if duplicates := (*yaml.TypeError)(nil); errors.As(err, &duplicates) && problem == nil {
		problem = duplicateKeys(doc, duplicates.Errors)
		tree = nil
		more, err = unmarshal(doc.text, false, &tree)
	}
	if problem != nil {
		if err := d.tolerate(problem); err != nil {
			return nil, err
		}
	}
	switch {
	case err != nil:
		return nil, errors.New(short(doc.inFile(err.Error())))
	case more && !d.asKubelet:
		return nil, errors.New("text follows that does not belong to the document")
	}
	d.more = more
	return tree, nil
}

// unmarshal decodes the first YAML document of a text. It returns whether anything follows.
func unmarshal(text []byte, strict bool, into any) (more bool, err error) {
	y := yaml.NewDecoder(bytes.NewReader(text))
	y.SetStrict(strict)
	if err := y.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil // it is empty
		}
		return false, err
	}
	for {
		var rest any
		if err := y.Decode(&rest); err != nil || rest != nil {
			return !errors.Is(err, io.EOF), nil
		}
	}
}

// lineAtStart matches the line in a message of the YAML library, which counts from 1 at
// the beginning of its input.
var lineAtStart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(yaml: )?line ([0-9]+)`) })

// inFile replaces the line in a message of the YAML library by the line of the file.
func (d document) inFile(msg string) string {
	m := lineAtStart().FindStringSubmatch(msg)
	if m == nil {
		return msg
	}
	n, _ := strconv.Atoi(m[2])
	return fmt.Sprintf("%sline %d%s", m[1], n+d.line-1, msg[len(m[0]):])
}

// duplicateKeys returns the error for the YAML library's messages about duplicated keys, nil if each of the keys
// overrides one of a merge (<<). The messages have the lines. The paths are found by parsing the document again with
// all keys.
func duplicateKeys(doc document, msgs []string) error {
	var tree yaml.MapSlice
	if _, err := unmarshal(doc.text, false, &tree); err != nil {
		return errors.New(short(doc.inFile(msgs[0])))
	}
	paths := repeated(nil, tree, nil)
	if len(paths) == 0 {
		return nil
	}
	errs := make([]error, len(paths))
	for i, path := range paths {
		errs[i] = fmt.Errorf("duplicate field %q", path)
		// Otherwise some messages are about merges.
		if line, _, ok := strings.Cut(doc.inFile(msgs[i%len(msgs)]), ": "); ok && len(paths) == len(msgs) {
			errs[i] = fmt.Errorf("%s: %w", line, errs[i])
		}
	}
	return joinShort(errs)
}

// repeated appends the paths of duplicated keys, in the order of the YAML library's
// messages.
func repeated(paths []*field.Path, value any, at *field.Path) []*field.Path {
	switch v := value.(type) {
	case yaml.MapSlice:
		seen := map[string]bool{}
		for _, item := range v {
			key := fmt.Sprint(item.Key)
			path := at.Child(key)
			paths = repeated(paths, item.Value, path)
			if seen[key] {
				paths = append(paths, path)
			}
			seen[key] = true
		}
	case []any:
		for i, item := range v {
			paths = repeated(paths, item, at.Index(i))
		}
	}
	return paths
}

// jsonSyntax adds the line to a JSON syntax error.
func jsonSyntax(doc document, err error) error {
	if is, offset := kjson.SyntaxErrorOffset(err); is {
		line := doc.line + bytes.Count(doc.text[:min(max(offset, 0), int64(len(doc.text)))], []byte("\n"))
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

// member returns the member of an object, nil if there is none.
func member(tree any, name string) any {
	switch object := tree.(type) {
	case map[string]any:
		return object[name]
	case map[any]any:
		return object[name]
	default:
		return nil
	}
}

func isObject(tree any) bool {
	switch tree.(type) {
	case map[string]any, map[any]any:
		return true
	default:
		return false
	}
}

// write appends a tree as JSON with sorted keys, byte for byte as encoding/json
// writes it, because UIDs are derived from it. It omits the member named without of the
// object at the top. If the buffer would exceed limit bytes, it returns [ErrTooLarge]: a
// few YAML aliases can stand for much text.
func (w *jsonWriter) write(tree any, without string) error {
	if err := w.value(tree, without); err != nil {
		return err
	}
	return w.fits(0)
}

type jsonWriter struct {
	buf   []byte
	limit int
	// longNumber means that a string may be a quantity that takes long, see podspec.CheckQuantity.
	longNumber bool
	// items is the number of elements of lists so far.
	items int
}

// fits returns an error if that many more bytes exceed the limit.
func (w *jsonWriter) fits(bytes int) error {
	if len(w.buf)+bytes > w.limit {
		return fmt.Errorf("%w, with each YAML alias written out", ErrTooLarge)
	}
	return nil
}

func (w *jsonWriter) value(v any, without string) error {
	if err := w.fits(1); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		w.buf = append(w.buf, "null"...)
	case bool:
		w.buf = strconv.AppendBool(w.buf, v)
	case int:
		w.buf = strconv.AppendInt(w.buf, int64(v), 10)
	case int64:
		w.buf = strconv.AppendInt(w.buf, v, 10)
	case string:
		return w.string(v)
	case []any:
		return w.list(v)
	case map[string]any:
		members := make([]jsonMember, 0, len(v))
		for name, value := range v {
			members = append(members, jsonMember{name, value})
		}
		return w.object(members, without)
	case map[any]any:
		members := make([]jsonMember, 0, len(v))
		for key, value := range v {
			name, err := keyText(key)
			if err != nil {
				return err
			}
			members = append(members, jsonMember{name, value})
		}
		return w.object(members, without)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		w.buf = append(w.buf, text...)
	}
	return nil
}

func (w *jsonWriter) string(s string) error {
	if err := w.fits(len(s)); err != nil {
		return err
	}
	w.longNumber = w.longNumber || isNumeric(s) && podspec.CheckQuantity(s) != nil
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(s) // for the escapes
			w.buf = append(w.buf, text...)
			return err
		}
	}
	w.buf = append(w.buf, '"')
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '"')
	return nil
}

func (w *jsonWriter) list(items []any) error {
	if w.items += len(items); w.items > maxItems {
		return errTooMany()
	}
	w.buf = append(w.buf, '[')
	for i, item := range items {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		if err := w.value(item, ""); err != nil {
			return err
		}
	}
	w.buf = append(w.buf, ']')
	return nil
}

type jsonMember struct {
	name  string
	value any
}

// maxName is the maximum length of the name of a field, or of a key of a map, in bytes. The
// longest ones that the API accepts are those of labels and annotations, with 317 bytes.
const maxName = 1024

func (w *jsonWriter) object(members []jsonMember, without string) error {
	slices.SortFunc(members, func(a, b jsonMember) int { return cmp.Compare(a.name, b.name) })
	w.buf = append(w.buf, '{')
	first := true
	for i, m := range members {
		if len(m.name) > maxName {
			return errLongName(m.name, len(m.name))
		}
		if i > 0 && m.name == members[i-1].name {
			return fmt.Errorf("field %q is given twice, as a string and as a number or boolean; write it once",
				short(m.name))
		}
		if without != "" && m.name == without {
			continue
		}
		if !first {
			w.buf = append(w.buf, ',')
		}
		first = false
		if err := w.string(m.name); err != nil {
			return err
		}
		w.buf = append(w.buf, ':')
		if err := w.value(m.value, ""); err != nil {
			return err
		}
	}
	w.buf = append(w.buf, '}')
	return nil
}

// keyText returns a YAML key as a string, as JSON requires. It converts like
// sigs.k8s.io/yaml, which kubectl and the API server use.
func keyText(key any) (string, error) {
	switch k := key.(type) {
	case string:
		return k, nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case bool:
		return strconv.FormatBool(k), nil
	case float64:
		switch {
		case math.IsInf(k, 1):
			return ".inf", nil
		case math.IsInf(k, -1):
			return "-.inf", nil
		case math.IsNaN(k):
			return ".nan", nil
		}
		return strconv.FormatFloat(k, 'g', -1, 32), nil
	default:
		return "", fmt.Errorf("a key must be a string, not %v", key)
	}
}
