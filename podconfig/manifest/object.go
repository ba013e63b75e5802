package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// MaxObjectSize is the maximum total size in bytes of the values of a secret or config
// map, as in the API.
const MaxObjectSize = v1.MaxSecretSize

// NormalizeObject changes a *v1.Secret or *v1.ConfigMap in place, as the API server does
// when it is created. The default namespace is "default". A secret gets its default type,
// and its stringData becomes data.
func NormalizeObject(object metav1.Object) {
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	s, ok := object.(*v1.Secret)
	if !ok {
		return
	}
	if s.Type == "" {
		s.Type = v1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, text := range s.StringData {
		s.Data[key] = []byte(text)
	}
	s.StringData = nil
}

// ValidateObject checks a normalized *v1.Secret or *v1.ConfigMap, as the API server does:
// metadata, keys and size. It checks the content only of image pull secrets, because a
// node reads no other. No error repeats a value of a secret.
func ValidateObject(object metav1.Object) field.ErrorList {
	return validateObject(object, nil)
}

func validateObject(object metav1.Object, root *field.Path) field.ErrorList {
	errs := validateObjectMeta(object, root.Child("metadata"))
	switch o := object.(type) {
	case *v1.Secret:
		errs = append(errs, validateSecret(o, root)...)
	case *v1.ConfigMap:
		errs = append(errs, validateConfigMap(o, root)...)
	}
	return errs
}

func validateObjectMeta(object metav1.Object, path *field.Path) field.ErrorList {
	if object.GetName() == "" { // generateName works only in an API server
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return apivalidation.ValidateObjectMetaAccessor(object, true, apivalidation.NameIsDNSSubdomain, path)
}

func validateSecret(s *v1.Secret, root *field.Path) field.ErrorList {
	path := root.Child("data")
	errs, size := validateData(s.Data, path)
	if size > MaxObjectSize {
		errs = append(errs, field.TooLong(path, "", MaxObjectSize))
	}
	if key := pullSecretKey(s.Type); key != "" {
		var content map[string]any
		if value, ok := s.Data[key]; !ok {
			errs = append(errs, field.Required(path.Key(key), fmt.Sprintf("secrets of type %s have it", s.Type)))
		} else if json.Unmarshal(value, &content) != nil {
			errs = append(errs, field.Invalid(path.Key(key), field.OmitValueType{},
				"must be a docker configuration in JSON"))
		}
	}
	return errs
}

// pullSecretKey returns the key of the content of an image pull secret. It is empty for
// other types of secrets.
func pullSecretKey(t v1.SecretType) string {
	switch t {
	case v1.SecretTypeDockerConfigJson:
		return v1.DockerConfigJsonKey
	case v1.SecretTypeDockercfg:
		return v1.DockerConfigKey
	default:
		return ""
	}
}

func validateConfigMap(m *v1.ConfigMap, root *field.Path) field.ErrorList {
	errs, size := validateData(m.Data, root.Child("data"))
	binaryErrs, binarySize := validateData(m.BinaryData, root.Child("binaryData"))
	errs = append(errs, binaryErrs...)
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		if _, ok := m.BinaryData[key]; ok {
			errs = append(errs, field.Invalid(root.Child("data").Key(key), key,
				"duplicate of key present in binaryData"))
		}
	}
	if size+binarySize > MaxObjectSize {
		errs = append(errs, field.TooLong(root.Child("data"), "", MaxObjectSize))
	}
	return errs
}

// validateData checks the keys. It also returns the total size of the values in bytes.
func validateData[V string | []byte](data map[string]V, path *field.Path) (errs field.ErrorList, size int) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(path.Key(short(key)), short(key), msg))
		}
		size += len(data[key])
	}
	return errs, size
}

// ValidateObjectUpdate checks that an object may replace the object old of the same kind
// and name. An immutable object must not be replaced by a different one; it has to be
// removed first.
func ValidateObjectUpdate(object, old metav1.Object) field.ErrorList {
	var errs field.ErrorList
	frozen := func(name string, now, before any) {
		if !reflect.DeepEqual(now, before) {
			errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set; "+
				"remove the object before you add it anew"))
		}
	}
	switch was := old.(type) {
	case *v1.Secret:
		if is, ok := object.(*v1.Secret); ok && ptr.Deref(was.Immutable, false) {
			frozen("immutable", ptr.Deref(is.Immutable, false), true)
			frozen("data", is.Data, was.Data)
			frozen("type", is.Type, was.Type)
		}
	case *v1.ConfigMap:
		if is, ok := object.(*v1.ConfigMap); ok && ptr.Deref(was.Immutable, false) {
			frozen("immutable", ptr.Deref(is.Immutable, false), true)
			frozen("data", is.Data, was.Data)
			frozen("binaryData", is.BinaryData, was.BinaryData)
		}
	}
	return errs
}
