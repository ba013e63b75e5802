package manifest

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

var quantityType = reflect.TypeFor[resource.Quantity]()

// isNumeric reports whether the string has only characters of quantities. Parsing of other
// strings fails before their digits are converted.
func isNumeric(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && strings.IndexByte("+-.eEinumkKMGTP \t\r\n", c) < 0 {
			return false
		}
	}
	return true
}
