package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// locate finds the field because of which JSON does not decode into a value. The errors
// of the decoder lack the field for types that decode themselves, such as quantities.
// locate returns nil if it finds no such field.
func locate(content []byte, into any, path *field.Path) *field.Error {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	var generic any
	if d.Decode(&generic) != nil {
		return nil
	}
	return misfit(reflect.TypeOf(into), generic, path)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// misfit returns the first field of the value that does not fit the type.
func misfit(t reflect.Type, value any, path *field.Path) *field.Error {
	if value == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return leaf(t, value, path, "")
	}
	switch t.Kind() {
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			return field.Invalid(path, brief(value), "must be an object")
		}
		return misfitStruct(t, object, path)
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			return field.Invalid(path, brief(value), "must be an object")
		}
		for _, k := range slices.Sorted(maps.Keys(object)) {
			if err := misfit(t.Elem(), object[k], path.Key(k)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return leaf(t, value, path, "must be base64")
		}
		list, ok := value.([]any)
		if !ok {
			return field.Invalid(path, brief(value), "must be a list")
		}
		for i, v := range list {
			if err := misfit(t.Elem(), v, path.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.String:
		if _, ok := value.(bool); ok {
			return leaf(t, value, path, "must be a string; y, yes, on, n, no and off are booleans without quotes")
		}
		return leaf(t, value, path, "must be a string")
	case reflect.Bool:
		return leaf(t, value, path, "must be true or false")
	case reflect.Int, reflect.Int32, reflect.Int64:
		return leaf(t, value, path, fmt.Sprintf("must be an integer of %d bits", t.Bits()))
	default:
		return leaf(t, value, path, "")
	}
}

// misfitStruct checks the fields in the order of the type, so that the result does not
// depend on the order of a map.
func misfitStruct(t reflect.Type, object map[string]any, path *field.Path) *field.Error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		var err *field.Error
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			err = misfit(f.Type, object, path)
		case name != "":
			err = misfit(f.Type, object[name], path.Child(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaf decodes the value into the type. If that fails, the error has the detail, or the
// text of the failure if detail is empty.
func leaf(t reflect.Type, value any, path *field.Path, detail string) *field.Error {
	if text, is := value.(string); is && t == quantityType {
		switch err := podspec.CheckQuantity(text); {
		case errors.Is(err, podspec.ErrQuantityTooLong):
			return field.TooLong(path, field.OmitValueType{}, podspec.MaxQuantityLength)
		case err != nil:
			return field.Invalid(path, text, err.Error())
		}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	if err = json.Unmarshal(raw, reflect.New(t).Interface()); err == nil {
		return nil
	}
	if detail == "" {
		detail = short(err.Error())
		if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
			detail = "must not be " + e.Value
		}
	}
	return field.Invalid(path, brief(value), detail)
}
