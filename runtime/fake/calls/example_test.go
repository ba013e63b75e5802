package calls_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// mounter is a fake of a small interface.
type mounter struct {
	calls.Log
	mounted []string
}

// Mount mounts a volume for a pod.
func (m *mounter) Mount(ctx context.Context, pod runtime.PodRef, volume string) error {
	return m.Do(ctx, calls.Call{Method: "Mount", Pods: []runtime.PodRef{pod}, Detail: volume}, func() error {
		m.mounted = append(m.mounted, volume)
		return nil
	})
}

// The first call for a pod fails, and all calls are recorded.
func ExampleLog() {
	var m mounter
	pod := runtime.PodRef{UID: "1234", Namespace: "default", Name: "web"}
	m.Fail("Mount", pod.UID, 1, errors.New("device is busy"))

	ctx := context.Background()
	fmt.Println(m.Mount(ctx, pod, "data"))
	fmt.Println(m.Mount(ctx, pod, "cache"))
	fmt.Println(m.mounted, m.Transcript(pod.UID))
	// Output:
	// device is busy
	// <nil>
	// [cache] [Mount default/web data Mount default/web cache]
}
