package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// MaxSize is the maximum size of a manifest in bytes, as in kubelet. It limits the text,
// and also the text as JSON with all YAML aliases expanded.
const MaxSize = 10 << 20

// ErrTooLarge means that a manifest is larger than [MaxSize].
var ErrTooLarge = fmt.Errorf("manifest is larger than %d MiB", MaxSize>>20)

// PodKind is the kind of pods, beside objects.SecretKind and objects.ConfigMapKind.
const PodKind = "Pod"

// Item is one pod, secret or config map of a manifest, as its author wrote it, without
// defaults.
type Item struct {
	// Pod is nil for a secret or config map.
	Pod *v1.Pod
	// Object is a *v1.Secret or a *v1.ConfigMap. It is nil for a pod.
	Object metav1.Object

	// content is the pod's JSON as written, with sorted keys and without its status. The
	// UID is derived from it. It does not depend on the Go types, so a new field of the
	// API does not change it.
	content []byte
	// path of the item in its document: nil, or items[i].
	path *field.Path
	// place is a prefix for errors, as in "document 2 (line 14): ". It is empty if there
	// is only one document.
	place string
}

// Decode parses a manifest: a v1 Pod, PodList or List of Pods (as kubectl writes it) in
// JSON, or any number of these as YAML documents. It returns all items or an error. The
// error names the field as kubectl does, and the document if there are several. It wraps
// [ErrTooLarge] if the manifest is too large. With [Options.Warn] it reads what kubelet reads.
//
// Text that begins with { is JSON. YAML is parsed as by kubectl and the API server: version 1.1,
// with aliases and merge keys.
func Decode(data []byte, opts Options) ([]Item, error) {
	if len(data) > MaxSize {
		return nil, ErrTooLarge
	}
	kinds := opts.Kinds
	if len(kinds) == 0 {
		kinds = []string{PodKind}
	}
	docs := splitDocuments(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if len(docs) == 0 {
		// A half written file is empty, too. So this is an error, not a list of no pods.
		return nil, fmt.Errorf("no %s in it: the manifest is empty", strings.ToLower(kinds[0]))
	}
	d := &decoder{kinds: kinds, documentKinds: slices.Clone(kinds), warn: opts.Warn, budget: MaxSize}
	if d.warn != nil && hasObjects(docs[0], kinds) {
		d.kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == PodKind })
		kinds, d.documentKinds = d.kinds, slices.Clone(d.kinds)
	} else if d.asKubelet = d.warn != nil; d.asKubelet {
		if opts.Source == SourceHTTP {
			d.documentKinds = append(d.documentKinds, PodKind+"List")
		}
		if err := d.document(document{data, 1}); err != nil {
			return nil, err
		}
		if d.more {
			d.warn(fmt.Errorf("only the first document is used, as by kubelet, not %s", namesOf(docs[1:])))
		}
		return d.items, nil
	}
	for _, kind := range kinds {
		d.documentKinds = append(d.documentKinds, kind+"List")
	}
	d.documentKinds = append(d.documentKinds, listOfAny)
	for i, doc := range docs {
		if len(docs) > 1 {
			d.place = fmt.Sprintf("document %d (line %d): ", i+1, doc.line)
		}
		if err := d.document(doc); err != nil {
			return nil, fmt.Errorf("%s%w", d.place, err)
		}
	}
	return d.items, nil
}

// hasObjects reports whether a document has secrets or config maps, if these are accepted. Kubelet refuses it.
func hasObjects(doc document, kinds []string) bool {
	if len(kinds) == 1 {
		return false
	}
	tree, _, err := (&decoder{warn: func(error) {}}).parse(doc)
	kind := strings.TrimSuffix(kindOf(tree), listOfAny)
	return err == nil && kind != PodKind && (slices.Contains(kinds, kind) || kindOf(tree) == listOfAny)
}

// document is one YAML document, with its marker, and its first line in the file.
type document struct {
	text []byte
	line int
}

// splitDocuments splits YAML at its document markers. It omits documents that are empty
// or hold only comments. A directive, as in "%YAML 1.1", belongs to the document after its marker.
func splitDocuments(data []byte) []document {
	var docs []document
	start, startLine, blank, directive := 0, 1, true, false
	flush := func(end int) {
		if !blank {
			docs = append(docs, document{data[start:end], startLine})
		}
		start, blank = end, true
	}
	for at, line := 0, 1; at < len(data); line++ {
		end := len(data)
		if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		marker := markerOf(data[at:end])
		if marker != "" && !directive {
			flush(at)
			startLine = line
		}
		if marker == "..." {
			start, startLine = end, line+1
		} else if text := bytes.TrimSpace(data[at+len(marker) : end]); len(text) > 0 && text[0] != '#' {
			directive = blank && data[at] == '%'
			blank = directive
		}
		directive = directive && marker == ""
		at = end
	}
	flush(len(data))
	return docs
}

// namesOf names documents for a message, the first of them by kind and name.
func namesOf(docs []document) string {
	const most = 5
	var names []string
	for i, doc := range docs {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(docs)-most))
			break
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		name := "the text"
		if _, err := unmarshal(doc.text, false, &head); err == nil && head.Kind != "" {
			name = head.Kind + " " + head.Metadata.Name
		}
		names = append(names, fmt.Sprintf("%s in line %d", short(name), doc.line))
	}
	return cmp.Or(strings.Join(names, ", "), "the text after it")
}

// markerOf returns "---" or "..." if the line begins with it as a document marker.
func markerOf(line []byte) string {
	for _, m := range [...]string{"---", "..."} {
		if after, ok := bytes.CutPrefix(line, []byte(m)); ok &&
			(len(after) == 0 || bytes.IndexByte([]byte(" \t\r\n"), after[0]) >= 0) {
			return m
		}
	}
	return ""
}

// decoder decodes one document after the other.
type decoder struct {
	// kinds are the accepted kinds. documentKinds are these and the kinds of their lists.
	kinds         []string
	documentKinds []string
	items         []Item
	// asKubelet has the first document read as by kubelet. more is set if text follows it.
	asKubelet, more bool
	warn            func(error)
	// place of the current document, see Item.
	place string
	// budget is the maximum size in bytes of the rest of the manifest as JSON, and count the number of
	// objects and elements of lists so far.
	budget, count int
	// buf is reused for the JSON of each object. longNumber and written, the number of elements of its
	// lists, belong to it, see jsonWriter.
	buf        []byte
	longNumber bool
	written    int
}

// write returns an object as JSON without one of its members. The result is valid until
// the next call.
func (d *decoder) write(tree any, without string) (content []byte, err error) {
	if d.count >= maxItems {
		return nil, errTooMany()
	}
	w := &jsonWriter{buf: d.buf[:0], limit: d.budget, items: d.count}
	err = w.write(tree, without)
	d.buf, d.longNumber, d.written = w.buf, w.longNumber, w.items-d.count
	return d.buf, err
}

// tolerate returns an error that is none in lenient decoding, or passes it to warn.
func (d *decoder) tolerate(err error) error {
	if d.warn == nil {
		return err
	}
	d.warn(fmt.Errorf("%s%w", d.place, err))
	return nil
}

// listOfAny is the kind of lists whose items have kinds of their own.
const listOfAny = "List"

func (d *decoder) document(doc document) error {
	tree, raw, err := d.parse(doc)
	if err != nil {
		return err
	}
	if !isObject(tree) {
		return errors.New("not a manifest: want an object with apiVersion and kind")
	}
	if err := checkWord(tree, "kind", nil, d.documentKinds...); err != nil {
		return err
	}
	if err := checkWord(tree, "apiVersion", nil, "v1", "/v1"); err != nil {
		return err
	}
	if slices.Contains(d.kinds, kindOf(tree)) {
		return d.item(tree, raw, kindOf(tree), nil)
	}
	return d.list(tree, raw)
}

func kindOf(tree any) string {
	kind, _ := member(tree, "kind").(string)
	return kind
}

// item decodes the object of the kind at the path of its document. raw is its text in JSON, or nil.
func (d *decoder) item(tree any, raw []byte, kind string, path *field.Path) error {
	if kind == PodKind {
		return d.pod(tree, raw, path)
	}
	return d.object(tree, raw, kind, path)
}

// checkWord checks that a member of an object is one of the words.
func checkWord(tree any, name string, path *field.Path, words ...string) error {
	path = path.Child(name)
	switch word := member(tree, name).(type) {
	case nil:
		return field.Required(path, "want "+words[0])
	case string:
		if !slices.Contains(words, word) {
			return field.NotSupported(path, short(word), words)
		}
		return nil
	default:
		return field.Invalid(path, brief(word), "must be a string")
	}
}

// list decodes the items of a list. In a list of one kind, items may omit their kind. In
// a List they must have it.
func (d *decoder) list(tree any, raw []byte) error {
	content, err := d.write(tree, "items")
	if err != nil {
		return err
	}
	var shell struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
	}
	if err := d.strict(content, &shell, nil); err != nil {
		return err
	}
	path := field.NewPath("items")
	items, ok := member(tree, "items").([]any)
	if !ok && member(tree, "items") != nil {
		return field.Invalid(path, field.OmitValueType{}, "must be a list")
	}
	want := d.kinds
	if shell.Kind != listOfAny {
		want = []string{strings.TrimSuffix(shell.Kind, "List")}
	}
	var texts struct {
		Items []json.RawMessage `json:"items"`
	}
	if raw != nil {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &texts); err != nil {
			return err
		}
	}
	for i, item := range items {
		path := path.Index(i)
		if !isObject(item) {
			return field.Invalid(path, brief(item), "must be an object")
		}
		for _, w := range [...]struct {
			name string
			want []string
		}{{"kind", want}, {"apiVersion", []string{"v1", "/v1"}}} {
			value := member(item, w.name)
			if shell.Kind != listOfAny && (value == nil || value == "" || d.asKubelet) {
				continue // kubelet does not look at it
			}
			if err := checkWord(item, w.name, path, w.want...); err != nil {
				return err
			}
		}
		var text []byte
		if len(texts.Items) == len(items) {
			text = texts.Items[i]
		}
		kind := want[0]
		if shell.Kind == listOfAny {
			kind = kindOf(item)
		}
		if err := d.item(item, text, kind, path); err != nil {
			return err
		}
	}
	return nil
}

// pod decodes the pod at the path of its document.
func (d *decoder) pod(tree any, raw []byte, path *field.Path) error {
	content, err := d.write(tree, "")
	if err != nil {
		return at(path, err)
	}
	pod := &v1.Pod{}
	if d.longNumber {
		if found := locate(content, pod, path); found != nil {
			return found
		}
	}
	text := raw
	if raw == nil {
		text = content
	}
	if err := d.strict(text, pod, path); err != nil {
		return err
	}
	size, count := len(content), d.written+1
	if bytes.Contains(content, []byte(`"status":`)) {
		if content, err = d.write(tree, "status"); err != nil {
			return at(path, err)
		}
	}
	d.budget -= size
	d.count += count
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	d.items = append(d.items, Item{Pod: pod, content: bytes.Clone(content), path: path, place: d.place})
	return nil
}

// object decodes the secret or config map at the path of its document.
func (d *decoder) object(tree any, raw []byte, kind string, path *field.Path) error {
	var object metav1.Object
	var meta *metav1.TypeMeta
	if kind == objects.SecretKind {
		secret := &v1.Secret{}
		object, meta = secret, &secret.TypeMeta
	} else {
		configMap := &v1.ConfigMap{}
		object, meta = configMap, &configMap.TypeMeta
	}
	content, err := d.write(tree, "")
	if err != nil {
		return at(path, err)
	}
	d.budget -= len(content)
	d.count += d.written + 1
	if raw != nil {
		content = raw
	}
	if err := d.strict(content, object, path); err != nil {
		return err
	}
	*meta = metav1.TypeMeta{APIVersion: "v1", Kind: kind}
	d.items = append(d.items, Item{Object: object, path: path, place: d.place})
	return nil
}

// strict decodes JSON. Its errors name the fields.
func (d *decoder) strict(content []byte, into any, path *field.Path) error {
	problems, err := kjson.UnmarshalStrict(content, into)
	if err != nil {
		if found := locate(content, into, path); found != nil {
			if _, secret := into.(*v1.Secret); secret {
				found.BadValue = field.OmitValueType{}
			}
			return found
		}
		return at(path, err)
	}
	if len(problems) == 0 {
		return nil
	}
	for _, p := range problems {
		if f, ok := p.(kjson.FieldError); ok && path != nil {
			f.SetFieldPath(path.String() + "." + f.FieldPath())
		}
	}
	return d.tolerate(joinShort(problems))
}

// at adds the path to an error without one.
func at(path *field.Path, err error) error {
	if path == nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
