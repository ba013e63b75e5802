// Package quantity bounds the time for quantities in manifests and in names. apimachinery takes minutes
// for some of them.
package quantity

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxLength is the maximum length of a quantity in bytes. The time to parse one grows with the square of
// its length: 4 MiB take 42 s.
const MaxLength = 100

var (
	// ErrTooLong is returned for a text of more than MaxLength bytes.
	ErrTooLong = fmt.Errorf("must not have more than %d bytes", MaxLength)
	// ErrExponent is returned for a text with an exponent of three digits or more. To parse, compare or
	// add a quantity, apimachinery computes the power of ten with all its digits.
	ErrExponent = errors.New("must not have an exponent of more than two digits")
)

// Check returns [ErrTooLong] or [ErrExponent] if the text may be a quantity that takes long.
func Check(text string) error {
	if len(text) > MaxLength {
		return ErrTooLong
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent := strings.TrimLeft(text[i+1:], "+-0")
		if len(exponent)-len(strings.TrimLeft(exponent, "0123456789")) > 2 {
			return ErrExponent
		}
	}
	return nil
}

// Parse returns the quantity. The error is one of Check or of [resource.ParseQuantity].
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}
