package podspec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestParseQuantity(t *testing.T) {
	for text, want := range map[string]error{
		"1": nil, "2Mi": nil, "1E": nil, "1Ei": nil, "1.5e3": nil, "1e+03": nil, "1E-0009": nil, "1e99": nil,
		"1e100": podspec.ErrQuantityExponent, "1e-1000000000": podspec.ErrQuantityExponent, "1.5E+0001000000000": podspec.ErrQuantityExponent,
		strings.Repeat("9", podspec.MaxQuantityLength): nil, strings.Repeat("9",
			podspec.MaxQuantityLength+1): podspec.ErrQuantityTooLong,
	} {
		q, err := podspec.ParseQuantity(text)
		require.ErrorIs(t, err, want, text)
		assert.Equal(t, want == nil, q.Sign() > 0, text)
	}
	for _, text := range []string{"", "e", "seven", "1e", "1e1e1000000000", "1e12x4"} {
		_, err := podspec.ParseQuantity(text)
		require.Error(t, err, text)
	}
}

// What takes long is refused, in any order of signs, digits and letters.
func FuzzParseQuantity(f *testing.F) {
	f.Add("1e99")
	f.Add("-0.00E-099")
	f.Add("1e+0000000000000000000000000000000000000000000000000000000099")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := podspec.ParseQuantity(text)
		if err != nil {
			return
		}
		one, err := podspec.ParseQuantity("1")
		require.NoError(t, err)
		q.Cmp(one)
		q.Add(one)
		assert.Less(t, len(q.String()), 3*podspec.MaxQuantityLength)
	})
}
