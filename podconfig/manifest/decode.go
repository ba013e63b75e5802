package manifest

import (
	"bytes"
	"cmp"
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

// MaxSize is the greatest size of a manifest in bytes, that of kubelet. It
// holds for what is read, and again for all of it written out as JSON, where a YAML
// alias counts as what it stands for.
const MaxSize = 10 << 20

// ErrTooLarge says that a manifest is larger than [MaxSize].
var ErrTooLarge = fmt.Errorf("manifest is larger than %d MiB", MaxSize>>20)

// PodKind is the kind of pods, beside objects.SecretKind and objects.ConfigMapKind.
const PodKind = "Pod"

// Item is a pod as its author wrote it down, without defaults; or, where
// [Options.Kinds] asks for them, a secret or config map.
type Item struct {
	Pod *v1.Pod
	// Object is a *v1.Secret or a *v1.ConfigMap; Pod is nil then.
	Object metav1.Object

	// content is the pod's JSON as written, less its status, with sorted keys: what
	// decides its UID. It does not depend on the Go types, so no field that a new
	// version of the API brings can change it.
	content []byte
	// path of the item in its document: nil, or items[i].
	path *field.Path
	// place names the document among several, as in "document 2 (line 14): ".
	place string
}

// Decode reads manifests: a v1 Pod, PodList or List of Pods (as kubectl writes
// them) in JSON, or any number of these as YAML documents. All are read or none.
// Errors name the field as kubectl does and, among several documents, the one that
// it is in; they wrap [ErrTooLarge] where that is what is wrong.
//
// YAML is read as kubectl and the API server read it: version 1.1, with aliases and
// merge keys. A key that overrides one of a merge counts as a duplicated field.
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
		// Half written files look like this, too.
		return nil, fmt.Errorf("no %s in it: the manifest is empty", strings.ToLower(kinds[0]))
	}
	d := &decoder{kinds: kinds, documentKinds: slices.Clone(kinds), warn: opts.Warn, room: MaxSize}
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

// document is one YAML document, with the marker that it begins with, and the line
// of the file that it starts on.
type document struct {
	text []byte
	line int
}

// splitDocuments cuts YAML at its document markers and leaves out the documents
// that hold nothing but comments.
func splitDocuments(data []byte) []document {
	var docs []document
	start, startLine, blank := 0, 1, true
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
		if marker != "" {
			flush(at)
			startLine = line
		}
		if marker == "..." {
			start, startLine = end, line+1
		} else if text := bytes.TrimSpace(data[at+len(marker) : end]); len(text) > 0 && text[0] != '#' {
			blank = false
		}
		at = end
	}
	flush(len(data))
	return docs
}

// markerOf returns "---" or "..." if the line begins with it as a document marker.
func markerOf(line []byte) string {
	for _, m := range [...]string{"---", "..."} {
		if after, ok := bytes.CutPrefix(line, []byte(m)); ok && (len(after) == 0 || bytes.IndexByte([]byte(" \t\r\n"), after[0]) >= 0) {
			return m
		}
	}
	return ""
}

// decoder reads documents one after the other.
type decoder struct {
	// kinds that are wanted, and with those of their lists what a document may be.
	kinds         []string
	documentKinds []string
	items         []Item
	warn          func(error)
	// place of the document that is read.
	place string
	// room is how many bytes the rest may have when written out.
	room int
	// buf is for one object written out after the other.
	buf []byte
}

// write writes an object as JSON, less one member. The result is good until the
// next call.
func (d *decoder) write(tree any, without string) (content []byte, err error) {
	d.buf, err = canonicalJSON(d.buf[:0], tree, without, d.room)
	return d.buf, err
}

// tolerate returns a problem that only strictness finds, or warns of it.
func (d *decoder) tolerate(err error) error {
	if d.warn == nil {
		return err
	}
	d.warn(fmt.Errorf("%s%w", d.place, err))
	return nil
}

// listOfAny is the kind of lists whose items say what they are.
const listOfAny = "List"

func (d *decoder) document(doc document) error {
	tree, err := parse(doc, d.tolerate)
	if err != nil {
		return err
	}
	if !isObject(tree) {
		return errors.New("not a manifest: want an object with apiVersion and kind")
	}
	if err := checkWord(tree, "kind", nil, d.documentKinds...); err != nil {
		return err
	}
	if err := checkWord(tree, "apiVersion", nil, "v1"); err != nil {
		return err
	}
	if slices.Contains(d.kinds, kindOf(tree)) {
		return d.item(tree, kindOf(tree), nil)
	}
	return d.list(tree)
}

func kindOf(tree any) string {
	kind, _ := member(tree, "kind").(string)
	return kind
}

// item reads a manifest of the kind that stands at the path of its document.
func (d *decoder) item(tree any, kind string, path *field.Path) error {
	if kind == PodKind {
		return d.pod(tree, path)
	}
	return d.object(tree, kind, path)
}

// checkWord checks that a member of an object is one of the words.
func checkWord(tree any, name string, path *field.Path, words ...string) error {
	path = path.Child(name)
	switch word := member(tree, name).(type) {
	case nil:
		return field.Required(path, "want "+words[0])
	case string:
		if !slices.Contains(words, word) {
			return field.NotSupported(path, clip(word), words)
		}
		return nil
	default:
		return field.Invalid(path, brief(word), "must be a string")
	}
}

// list reads the items of a list of one kind, which need not say what they are, or
// of a List, which must.
func (d *decoder) list(tree any) error {
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
	for i, item := range items {
		path := path.Index(i)
		if !isObject(item) {
			return field.Invalid(path, brief(item), "must be an object")
		}
		for _, w := range [...]struct {
			name string
			want []string
		}{{"kind", want}, {"apiVersion", []string{"v1"}}} {
			if said := member(item, w.name); shell.Kind != listOfAny && (said == nil || said == "") {
				continue
			}
			if err := checkWord(item, w.name, path, w.want...); err != nil {
				return err
			}
		}
		if err := d.item(item, cmp.Or(kindOf(item), want[0]), path); err != nil {
			return err
		}
	}
	return nil
}

// pod reads a pod that stands at the path of its document.
func (d *decoder) pod(tree any, path *field.Path) error {
	content, err := d.write(tree, "")
	if err != nil {
		return at(path, err)
	}
	pod := &v1.Pod{}
	if err := d.strict(content, pod, path); err != nil {
		return err
	}
	size := len(content)
	if bytes.Contains(content, []byte(`"status":`)) {
		if content, err = d.write(tree, "status"); err != nil {
			return at(path, err)
		}
	}
	d.room -= size
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	d.items = append(d.items, Item{Pod: pod, content: bytes.Clone(content), path: path, place: d.place})
	return nil
}

// object reads a secret or config map that stands at the path of its document.
func (d *decoder) object(tree any, kind string, path *field.Path) error {
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
	d.room -= len(content)
	if err := d.strict(content, object, path); err != nil {
		return err
	}
	*meta = metav1.TypeMeta{APIVersion: "v1", Kind: kind}
	d.items = append(d.items, Item{Object: object, path: path, place: d.place})
	return nil
}

// strict decodes JSON and names the field of every problem.
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

// at puts the path in front of an error that does not say where it is.
func at(path *field.Path, err error) error {
	if path == nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
