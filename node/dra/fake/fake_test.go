package fake_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/node/dra/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func podNamed(name string) *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	pod.Namespace, pod.Name, pod.UID = "default", name, types.UID(name)
	return pod
}

func TestDriver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		pod := podNamed("web")
		fake.Use(pod, "gpu")
		claims, d := fake.NewClaims(), fake.NewDriver("gpu.example.com")
		m, err := dra.New(dir, claims, dra.Options{})
		require.NoError(t, err)
		m.Add(d.Name(), d).SetConnected(true)
		prepare := func() error {
			_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
			return err
		}
		assert.ErrorContains(t, prepare(), `resourceclaims.resource.k8s.io "gpu" not found`)
		claims.Set(fake.Allocated("default", "gpu", d.Name(), pod))
		fails := errors.New("it is hot")
		d.Fail(fails)
		assert.ErrorIs(t, prepare(), fails)
		assert.Empty(t, d.Prepared())
		d.Fail(nil)

		release := d.Hold()
		began := time.Now()
		assert.ErrorIs(t, prepare(), context.DeadlineExceeded)
		assert.Equal(t, 45*time.Second, time.Since(began))
		time.AfterFunc(time.Second, release)
		assert.NoError(t, prepare())
		assert.Equal(t, 46*time.Second, time.Since(began))
		assert.Equal(t, []dra.Claim{{Namespace: "default", Name: "gpu", UID: "default/gpu"}}, d.Prepared())

		d.OnUnprepare = func(_ context.Context, claims []dra.Claim) (map[types.UID]error, error) {
			return map[types.UID]error{claims[0].UID: fails}, nil
		}
		assert.ErrorIs(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: pod}), fails)
		assert.Len(t, d.Prepared(), 1)
		d.OnUnprepare = nil
		claims.Remove("default", "gpu")
		assert.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: pod}))
		assert.Empty(t, d.Prepared())
		assert.Len(t, d.Calls(), 5)
		require.NoError(t, claims.RemoveSlices(t.Context(), "d"))
		assert.Equal(t, []string{"d"}, claims.RemovedSlices())
	})
}

// A claim that two pods share is prepared once.
func Example() {
	dir, err := os.MkdirTemp("", "dra")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	a, b := podNamed("a"), podNamed("b")
	fake.Use(a, "gpu")
	fake.Use(b, "gpu")
	driver := fake.NewDriver("gpu.example.com")
	manager, err := dra.New(dir, fake.NewClaims(fake.Allocated("default", "gpu", driver.Name(), a, b)), dra.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager.Add(driver.Name(), driver).SetConnected(true)
	ctx := context.Background()
	for _, pod := range []*v1.Pod{a, b} { // the agent does this
		_, err := manager.Prepare(ctx, lifecycle.PrepareRequest{Pod: pod})
		edits, _ := manager.EditContainer(ctx, pod, &pod.Spec.Containers[0])
		fmt.Println(pod.Name, edits.CDIDevices, err)
	}
	for _, pod := range []*v1.Pod{a, b} {
		fmt.Println(manager.Ended(ctx, lifecycle.EndedRequest{Pod: pod}), driver.Calls())
	}
	// Output:
	// a [gpu.example.com/device=gpu] <nil>
	// b [gpu.example.com/device=gpu] <nil>
	// <nil> [Prepare default/gpu]
	// <nil> [Prepare default/gpu Unprepare default/gpu]
}
