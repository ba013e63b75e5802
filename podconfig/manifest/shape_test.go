package manifest_test

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
)

// A text of 10 MiB at most, whatever it describes, takes a bounded amount of memory, and its error is short.
func TestManifestsThatAreLargeInMemory(t *testing.T) {
	many := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	distinct := func(text string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(text, i))
		}
		return strings.Join(all, ",")
	}
	pod := func(spec string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {` + spec + `}}`
	}
	nested := func(depth int, open, inner, end string) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
	}
	long := strings.Repeat("k", 1<<20)
	for name, test := range map[string]struct{ text, want string }{
		"empty containers":                       {pod(`"containers": [` + many("{}", 3_000_000) + `]`), "values"},
		"empty containers, not too many":         {pod(`"containers": [` + many("{}", 400_000) + `]`), "its lists have more than 200000 elements"},
		"null containers":                        {pod(`"containers": [` + many("null", 900_000) + `]`), "its lists have more than 200000 elements"},
		"empty containers in YAML":               {"---\n" + pod(`containers: [`+many("{}", 200_001)+`]`), "its lists have more than 200000 elements"},
		"empty pods":                             {`{"apiVersion": "v1", "kind": "PodList", "items": [` + many("{}", 200_001) + `]}`, "its lists have more than 200000 elements"},
		"tolerations":                            {pod(`"containers": [{}], "tolerations": [` + many("{}", 199_000) + `]`), "and 198992 more"},
		"a long duplicated name":                 {pod(`"` + long + `": {` + distinct(`"a%d": 1, "a%[1]d": 1`, 100) + `}`), "the name of a field has 1048576 bytes, more than 1024: kkk"},
		"a long duplicated name in YAML":         {`{a: &k ` + long + `, b: {` + many("*k : 1", 2000) + `}}`, "the name of a field has 1048576 bytes"},
		"many duplicates in YAML":                {`{a: {` + many("bb: 1", 300_000) + `}}`, "more than 100 fields are given twice"},
		"many duplicates in YAML, deep":          {nested(5000, "{a: ", `{`+many("bb: 1", 100_000)+`}`, "}"), "nested"},
		"many duplicates in JSON, deep":          {nested(5000, `{"`+long[:1000]+`": `, `{`+distinct(`"a%d": 1, "a%[1]d": 1`, 100)+`}`, "}"), "nested"},
		"names that are merged, again and again": {`{m: &m {` + distinct("k%d: 1", 1000) + `}, a: {<<: [` + many("*m", 1000) + `]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(test.text), manifest.MaxSize)
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			_, err := manifest.Load([]byte(test.text), manifest.Options{NodeName: "n"})
			goruntime.ReadMemStats(&after)
			t.Logf("%d bytes of text, %d MiB of memory, %.300s", len(test.text),
				(after.TotalAlloc-before.TotalAlloc)>>20, fmt.Sprint(err))
			require.ErrorContains(t, err, test.want)
			assert.Less(t, len(err.Error()), 10_000)
			assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(2500), "MiB, most of which is free again")
		})
	}
}

// What real manifests have is far from the bounds.
func TestManifestsWithinTheBounds(t *testing.T) {
	args := strings.TrimSuffix(strings.Repeat(`"a,b:{[\"",`, 100_000), ",")
	text := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "args": [` + args + `]}]}}`
	for _, text := range []string{text, "---\n" + text} {
		pods, err := manifest.Load([]byte(text), manifest.Options{NodeName: "n"})
		require.NoError(t, err)
		assert.Len(t, pods[0].Spec.Containers[0].Args, 100_000)
		var warnings []string
		_, err = manifest.Load([]byte(strings.Replace(text, `"image"`, `"image": "x", "image"`, 1)),
			manifest.Options{NodeName: "n", Warn: func(err error) { warnings = append(warnings, err.Error()) }})
		require.NoError(t, err)
		require.Len(t, warnings, 1)
		assert.Contains(t, warnings[0], "image")
	}
	_, err := manifest.Load([]byte(`{`+strings.Repeat("[", 200)), manifest.Options{NodeName: "n"})
	require.Error(t, err, "no JSON")
	assert.False(t, errors.Is(err, manifest.ErrTooLarge))
}
