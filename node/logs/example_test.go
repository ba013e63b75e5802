package logs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/node/logs"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// writer is a container runtime that has opened a log.
type writer struct{ path string }

func (w writer) ReopenContainerLog(context.Context, runtime.ContainerID) error {
	return os.WriteFile(w.path, nil, 0o640)
}

// A manager without an agent: what runs is reported to it, and it rotates a log that has reached its limit.
func Example() {
	dir, err := os.MkdirTemp("", "logs")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}}
	path := filepath.Join(dir, runtime.RefOf(pod).LogDirName(), "main", "0.log")
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, make([]byte, 2000), 0o640)

	manager, err := logs.New(writer{path}, logs.Options{Dir: dir, MaxSize: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- manager.Run(ctx) }()
	_ = manager.Running(ctx, pod, &runtime.PodStatus{Containers: []runtime.ContainerStatus{{
		Container: runtime.Container{ID: runtime.ContainerID{Type: "example", ID: "main"}, Name: "main",
			State: runtime.ContainerRunning}, LogPath: path,
	}}})
	for {
		if rotated, _ := filepath.Glob(path + ".*"); len(rotated) == 1 {
			break
		}
	}
	cancel()
	fmt.Println("rotated,", <-done)
	// Output: rotated, <nil>
}
