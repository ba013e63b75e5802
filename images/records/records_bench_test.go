package records

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkMayUse is a decision by a record in memory, on a node with 2000 images.
func BenchmarkMayUse(b *testing.B) {
	n := newNode(b)
	r := n.records()
	refs := make([]string, 2000)
	own := []Credential{secret("1", "a", "h1")}
	for i := range refs {
		refs[i] = fmt.Sprintf("sha256:%064d", i)
		require.NoError(b, r.record(image, refs[i], own[0].allows()))
	}
	creds := func() ([]Credential, error) { return own, nil }
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if ok, err := r.MayUse(image, refs[i%len(refs)], creds); !ok || err != nil {
			b.Fatal(ok, err)
		}
		i++
	}
}
