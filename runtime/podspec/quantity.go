package podspec

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxQuantityLength is the maximum length of a quantity in bytes. The time to parse one grows with the square of
// its length: 4 MiB take 42 s.
const MaxQuantityLength = 100

var (
	// ErrQuantityTooLong is returned for a text of more than MaxQuantityLength bytes.
	ErrQuantityTooLong = fmt.Errorf("must not have more than %d bytes", MaxQuantityLength)
	// ErrQuantityExponent is returned for a text with an exponent of three digits or more. To parse, compare or
	// add a quantity, apimachinery computes the power of ten with all its digits.
	ErrQuantityExponent = errors.New("must not have an exponent of more than two digits")
)

// CheckQuantity returns [ErrQuantityTooLong] or [ErrQuantityExponent] if the text may be a quantity that takes long.
func CheckQuantity(text string) error {
	if len(text) > MaxQuantityLength {
		return ErrQuantityTooLong
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent := strings.TrimLeft(text[i+1:], "+-0")
		if len(exponent)-len(strings.TrimLeft(exponent, "0123456789")) > 2 {
			return ErrQuantityExponent
		}
	}
	return nil
}

// ParseQuantity returns the quantity. The error is one of [CheckQuantity] or of [resource.ParseQuantity].
func ParseQuantity(text string) (resource.Quantity, error) {
	if err := CheckQuantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}
