package podvalidation

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// invalidText returns the path of a string of the pod that is not UTF-8, which JSON would change. It is empty if there
// is none.
func invalidText(pod *v1.Pod) string {
	parts, found := findInvalid(reflect.ValueOf(pod))
	if !found {
		return ""
	}
	slices.Reverse(parts)
	return strings.TrimPrefix(strings.Join(parts, ""), ".")
}

// Types without strings of their own.
var (
	timeType     = reflect.TypeFor[metav1.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

// findInvalid returns the parts of the path of a string that is not UTF-8, the last one first.
func findInvalid(v reflect.Value) (parts []string, found bool) {
	switch v.Kind() {
	case reflect.String:
		return nil, !utf8.ValidString(v.String())
	case reflect.Pointer:
		if v.IsNil() {
			return nil, false
		}
		return findInvalid(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil, false
		}
		for i := range v.Len() {
			if parts, found = findInvalid(v.Index(i)); found {
				return append(parts, "["+strconv.Itoa(i)+"]"), true
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			_, found = findInvalid(entries.Key())
			if !found {
				parts, found = findInvalid(entries.Value())
			}
			if found {
				return append(parts, "["+strconv.Quote(entries.Key().String())+"]"), true
			}
		}
	case reflect.Struct:
		if t := v.Type(); t == timeType || t == quantityType {
			return nil, false
		}
		for i := range v.NumField() {
			if parts, found = findInvalid(v.Field(i)); found {
				if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); name != "" {
					parts = append(parts, "."+name)
				}
				return parts, true
			}
		}
	}
	return nil, false
}
