package podconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxManifestSize is the greatest size of a manifest in bytes, that of kubelet.
const MaxManifestSize = 10 << 20

// ErrManifestTooLarge says that a manifest is larger than [MaxManifestSize].
var ErrManifestTooLarge = fmt.Errorf("manifest is larger than %d MiB", MaxManifestSize>>20)

// errNoManifest says that there is nothing in a file, which is also what half
// written files look like.
var errNoManifest = errors.New("no pod in it: the manifest is empty")

// DecodeOptions are the settings of [Decode].
type DecodeOptions struct {
	// Warn, if not nil, is told of unknown and duplicated fields, which then are no
	// errors.
	Warn func(error)
}

// Manifest is a pod as its author wrote it down, without defaults.
type Manifest struct {
	Pod *v1.Pod
	// Content is the pod's JSON as written, less its status, with sorted keys: what
	// decides its UID. It does not depend on the Go types, so no field that a new
	// version of the API brings can change it.
	Content []byte

	// path of the pod in its document: nil, or items[i].
	path *field.Path
	// place names the document among several, as in "document 2 (line 14): ".
	place string
}

// Decode reads manifests: a v1 Pod or PodList in JSON, or any number of them as
// YAML documents. All are read or none. Errors name the field as kubectl does,
// and wrap [ErrManifestTooLarge] where that is what is wrong.
func Decode(data []byte, opts DecodeOptions) ([]Manifest, error) {
	if len(data) > MaxManifestSize {
		return nil, ErrManifestTooLarge
	}
	docs := splitDocuments(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	var all []Manifest
	for i, doc := range docs {
		place := ""
		if len(docs) > 1 {
			place = fmt.Sprintf("document %d (line %d): ", i+1, doc.line)
		}
		manifests, err := decodeDocument(doc.text, place, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, manifests...)
	}
	if len(docs) == 0 {
		return nil, errNoManifest
	}
	return all, nil
}

// document is one YAML document and the line of the file that it starts on.
type document struct {
	text []byte
	line int
}

// splitDocuments cuts YAML at its document markers and leaves out the documents
// that hold nothing but comments.
func splitDocuments(data []byte) []document {
	var docs []document
	current, start, line := []byte(nil), 1, 0
	blank := true
	flush := func() {
		if !blank {
			docs = append(docs, document{current, start})
		}
		current, blank = nil, true
	}
	for rest := data; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		text := rest[:end]
		rest = rest[end:]
		line++
		if marker := markerOf(text); marker != "" {
			flush()
			start = line
			if marker == "..." {
				start = line + 1
				continue
			}
			// What follows a marker on its line belongs to the document; three blanks
			// keep its column.
			text = append([]byte("   "), text[len(marker):]...)
		}
		trimmed := bytes.TrimSpace(text)
		blank = blank && (len(trimmed) == 0 || trimmed[0] == '#')
		current = append(current, text...)
	}
	flush()
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

// decodeDocument reads one document.
func decodeDocument(doc []byte, place string, opts DecodeOptions) ([]Manifest, error) {
	fail := func(err error) ([]Manifest, error) { return nil, fmt.Errorf("%s%w", place, err) }
	content, err := canonicalJSON(doc, func(err error) error {
		if opts.Warn == nil {
			return err
		}
		opts.Warn(fmt.Errorf("%s%w", place, err))
		return nil
	})
	if err != nil {
		return fail(err)
	}
	var meta struct {
		metav1.TypeMeta `json:",inline"`
		Items           []json.RawMessage `json:"items"`
	}
	switch err := json.Unmarshal(content, &meta); {
	case err != nil && meta.Kind == "":
		return fail(errors.New("not a manifest: want an object with apiVersion and kind"))
	case err != nil && meta.Kind == "PodList":
		return fail(fmt.Errorf("items: %w", err))
	case meta.Kind == "":
		return fail(field.Required(field.NewPath("kind"), "want Pod or PodList"))
	case meta.Kind != "Pod" && meta.Kind != "PodList":
		return fail(field.NotSupported(field.NewPath("kind"), clip(meta.Kind), []string{"Pod", "PodList"}))
	case meta.APIVersion != "v1":
		return fail(field.NotSupported(field.NewPath("apiVersion"), clip(meta.APIVersion), []string{"v1"}))
	}
	if meta.Kind == "Pod" {
		m, err := decodePod(content, nil, place, opts)
		if err != nil {
			return fail(err)
		}
		return []Manifest{m}, nil
	}
	if err := decodeStrict(content, &podListShell{}, nil, place, opts); err != nil {
		return fail(err)
	}
	var all []Manifest
	for i, item := range meta.Items {
		m, err := decodePod(item, field.NewPath("items").Index(i), place, opts)
		if err != nil {
			return fail(err)
		}
		all = append(all, m)
	}
	return all, nil
}

// podListShell is a PodList whose items are read on their own.
type podListShell struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// decodePod reads a pod that stands at the path of its document.
func decodePod(content []byte, path *field.Path, place string, opts DecodeOptions) (Manifest, error) {
	pod := &v1.Pod{}
	if err := decodeStrict(content, pod, path, place, opts); err != nil {
		return Manifest{}, err
	}
	// An item of a list need not say what it is; but it must not say otherwise.
	if path != nil && (pod.Kind != "" && pod.Kind != "Pod" || pod.APIVersion != "" && pod.APIVersion != "v1") {
		return Manifest{}, field.Invalid(path.Child("kind"), clip(pod.Kind), "want a v1 Pod")
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return Manifest{Pod: pod, Content: withoutStatus(content), path: path, place: place}, nil
}

// decodeStrict decodes JSON and names the field of every problem.
func decodeStrict(content []byte, into any, path *field.Path, place string, opts DecodeOptions) error {
	strict, err := kjson.UnmarshalStrict(content, into)
	if err != nil {
		if found := locate(content, into, path); found != nil {
			return found
		}
		return at(path, err)
	}
	if len(strict) == 0 {
		return nil
	}
	if opts.Warn == nil {
		return at(path, joinShort(strict))
	}
	for _, err := range strict {
		opts.Warn(fmt.Errorf("%s%w", place, at(path, err)))
	}
	return nil
}

// at puts the path in front of an error that does not say where it is.
func at(path *field.Path, err error) error {
	if path == nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// canonicalJSON turns a document into JSON with sorted keys. onDuplicate decides
// what becomes of a field that is given twice; nil lets the last one count.
func canonicalJSON(doc []byte, onDuplicate func(error) error) ([]byte, error) {
	var jsonErr error
	if trimmed := bytes.TrimSpace(doc); len(trimmed) > 0 && trimmed[0] == '{' {
		var generic any
		var duplicates []error
		if duplicates, jsonErr = kjson.UnmarshalStrict(doc, &generic); jsonErr == nil {
			if len(duplicates) > 0 {
				if err := onDuplicate(joinShort(duplicates)); err != nil {
					return nil, err
				}
			}
			return json.Marshal(generic)
		}
	}
	// What begins like JSON may still be YAML in flow style.
	content, err := yaml.YAMLToJSONStrict(doc)
	if err == nil {
		return content, nil
	}
	lenient, lerr := yaml.YAMLToJSON(doc)
	switch {
	case lerr != nil && jsonErr != nil:
		return nil, describeSyntax(doc, jsonErr)
	case lerr != nil:
		return nil, yamlError(lerr)
	}
	if err := onDuplicate(yamlError(err)); err != nil {
		return nil, err
	}
	return lenient, nil
}

// yamlError puts an error of the YAML library on one line.
func yamlError(err error) error {
	text := strings.ReplaceAll(err.Error(), "unmarshal errors:\n  ", "")
	return errors.New(clip(strings.ReplaceAll(text, "\n  ", "; ")))
}

// describeSyntax tells the line of a JSON syntax error.
func describeSyntax(doc []byte, err error) error {
	if is, offset := kjson.SyntaxErrorOffset(err); is {
		line := 1 + bytes.Count(doc[:min(max(offset, 0), int64(len(doc)))], []byte("\n"))
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

// withoutStatus drops what is no part of what is desired.
func withoutStatus(content []byte) []byte {
	var top map[string]json.RawMessage
	if json.Unmarshal(content, &top) != nil {
		return content
	}
	if _, ok := top["status"]; !ok {
		return content
	}
	delete(top, "status")
	content, _ = json.Marshal(top)
	return content
}
