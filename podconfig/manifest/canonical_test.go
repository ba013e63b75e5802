package manifest

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestBombTakesNoMemory does not run in parallel, because it measures allocations.
func TestBombTakesNoMemory(t *testing.T) {
	in := []byte("a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 10_000) + "]\n")
	tree, _, err := (&decoder{}).parse(document{in, 1})
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = canonicalJSON(tree)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrTooLarge)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10*MaxSize))
}

// FuzzCanonicalJSON compares with the conversion that kubectl and kubelet use: UIDs depend on it.
func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: main\n    image: busybox\n",
		"a: <b> & \"c\\u2028\\u00ff\"", "1: a\ntrue: b\n1.5: c\n.inf: d\n2001-01-01: e\n",
		"- [1, -1, 0x10, 1e3, 1.5, 18446744073709551615, ~, yes, {}]",
		"a: &a {b: 1}\nc:\n  <<: *a\n", "a: !!binary /w==\nb: !!str 1\nc: !x y\n", "a: .nan", "[{a: 1}]",
		"a: |\n  x\n   y\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
			return // parsed as JSON, where 1e3 is another number
		}
		want, wantErr := yaml.YAMLToJSON(data)
		tree, _, err := (&decoder{warn: func(error) {}, asKubelet: true}).parse(document{data, 1})
		if err == nil {
			var got []byte
			if got, err = canonicalJSON(tree); err == nil {
				require.NoError(t, wantErr)
				require.Equal(t, string(want), string(got))
				return
			}
		}
		if wantErr == nil && !strings.Contains(err.Error(), "is given twice") {
			require.ErrorIs(t, err, ErrTooLarge)
		}
	})
}

func canonicalJSON(tree any) ([]byte, error) {
	w := &jsonWriter{limit: MaxSize}
	err := w.write(tree, "")
	return w.buf, err
}
