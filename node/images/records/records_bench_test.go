package records

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkDecide is a decision by a record in memory, on a node with 2000 images.
func BenchmarkDecide(b *testing.B) {
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
		if d, err := r.Decide(image, refs[i%len(refs)], creds); d != AllowedByRecord || err != nil {
			b.Fatal(d, err)
		}
		i++
	}
}
