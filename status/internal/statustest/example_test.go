package statustest_test

import (
	"fmt"
	"testing"

	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/internal/statustest"
)

// The suite is called in a test of the package that has the implementation.
func Example() {
	factory := statustest.Factory{New: func(t *testing.T, opts status.Options) status.Manager {
		m, err := status.New(opts) // your own
		if err != nil {
			t.Fatal(err)
		}
		return m
	}}
	testConformance := func(t *testing.T) { statustest.Suite(t, factory) }

	fmt.Printf("%T tests %T\n", testConformance, factory.New(nil, status.Options{}))
	// Output: func(*testing.T) tests *status.Store
}
