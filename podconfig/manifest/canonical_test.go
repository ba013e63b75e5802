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

// TestAliasesAreBounded has what a few bytes of YAML can stand for.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	// Each is 10 of the one before.
	laughs := "a0: &a0 " + strings.Repeat("ha ", 10) + "\n"
	for i := range 9 {
		laughs += "a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.Repeat("*a"+string(rune('0'+i))+", ", 10) + "]\n"
	}
	long := "metadata:\n  annotations:\n    a: &a " + strings.Repeat("x", 1<<20) + "\n    b: [" + strings.Repeat("*a, ", 10_000) + "]\n"
	half := strings.Replace(long, strings.Repeat("*a, ", 10_000), strings.Repeat("*a, ", 6), 1)
	pod := "apiVersion: v1\nkind: Pod\n"
	for name, tc := range map[string]struct{ in, err string }{
		"laughs":         {pod + laughs, "document contains excessive aliasing"},
		"a long text":    {pod + long, "manifest is larger than 10 MiB, with each YAML alias written out"},
		"two documents":  {strings.Repeat("---\n"+pod+strings.Replace(half, "b: [", "b: x\n  finalizers: [", 1), 2), "document 2 (line 9): manifest is larger than 10 MiB"},
		"itself":         {pod + "a: &a [*a]\n", "anchor 'a' value contains itself"},
		"no such anchor": {pod + "a: *b\n", "unknown anchor 'b' referenced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Decode([]byte(tc.in), Options{})
			require.ErrorContains(t, err, tc.err)
			if strings.Contains(tc.err, "10 MiB") {
				require.ErrorIs(t, err, ErrTooLarge)
			}
		})
	}
}

// TestBombTakesNoMemory is alone, so that what it measures is its own.
func TestBombTakesNoMemory(t *testing.T) {
	in := []byte("a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 10_000) + "]\n")
	tree, err := parse(document{in, 1}, nil)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = canonicalJSON(nil, tree, "", MaxSize)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrTooLarge)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(10*MaxSize))
}

// FuzzCanonicalJSON compares with what kubectl makes of YAML: UIDs hang on it.
func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{
		minimal, "a: <b> & \"c\\u2028\\u00ff\"", "1: a\ntrue: b\n1.5: c\n.inf: d\n2001-01-01: e\n", "- [1, -1, 0x10, 1e3, 1.5, 18446744073709551615, ~, yes, {}]",
		"a: &a {b: 1}\nc:\n  <<: *a\n", "a: !!binary /w==\nb: !!str 1\nc: !x y\n", "a: .nan", "[{a: 1}]", "a: |\n  x\n   y\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
			return // read as JSON, where 1e3 is another number
		}
		want, wantErr := yaml.YAMLToJSONStrict(data)
		tree, err := parse(document{data, 1}, func(err error) error { return err })
		if err == nil {
			var got []byte
			if got, err = canonicalJSON(nil, tree, "", MaxSize); err == nil {
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
