package podworkerstest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/podworkers/internal/podworkerstest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newWorkers(t *testing.T, syncer podworkers.Syncer, cache runtime.StatusCache) podworkers.Workers {
	w, err := podworkers.New(syncer, cache, podworkers.Options{})
	require.NoError(t, err)
	return w
}

func TestWorkers(t *testing.T) {
	podworkerstest.Suite(t, podworkerstest.Factory{New: newWorkers})
}

// The suite is called in a test of the package that has the implementation.
func Example() {
	factory := podworkerstest.Factory{
		New: func(t *testing.T, syncer podworkers.Syncer, cache runtime.StatusCache) podworkers.Workers {
			w, err := podworkers.New(syncer, cache, podworkers.Options{}) // your own
			if err != nil {
				t.Fatal(err)
			}
			return w
		},
	}
	testConformance := func(t *testing.T) { podworkerstest.Suite(t, factory) }

	fmt.Printf("%T\n", testConformance)
	// Output: func(*testing.T)
}
