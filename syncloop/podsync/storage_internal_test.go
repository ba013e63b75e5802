package podsync

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestCriticalPodsAreNotEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		source      string
		class       string
		priority    *int32
		spareStatic bool
		want        bool
	}{
		"static":                                 {source: "file"},
		"static, class of its own":               {source: "file", class: "high"},
		"static, node critical":                  {source: "file", class: "system-node-critical", want: true},
		"static, cluster critical":               {source: "http", class: "system-cluster-critical", want: true},
		"static, critical priority":              {source: "file", priority: new(int32(2_000_000_000)), want: true},
		"static, in a cluster":                   {source: "file", spareStatic: true, want: true},
		"API server, no critical priority":       {source: "api", priority: new(int32(1_999_999_999)), spareStatic: true},
		"API server, class without its priority": {source: "api", class: "system-node-critical", priority: new(int32(0)), spareStatic: true},
		"API server, critical priority":          {source: "api", priority: new(int32(2_000_001_000)), want: true},
		"no source":                              {spareStatic: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testpod.New("web", testpod.Container(v1.Container{
				Name: "main", Resources: v1.ResourceRequirements{
					Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}},
			}))
			if tc.source != "" {
				testpod.Source(tc.source)(pod)
			}
			pod.Spec.PriorityClassName, pod.Spec.Priority = tc.class, tc.priority
			assert.Equal(t, !tc.want, measuredPod(pod, tc.spareStatic))
		})
	}
}

func TestStorageExceeded(t *testing.T) {
	limited := func(name, limit string) v1.Container {
		c := v1.Container{Name: name}
		if limit != "" {
			c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
		}
		return c
	}
	const mi = 1 << 20
	for name, tc := range map[string]struct {
		a, b string
		use  storage
		want string
	}{
		"no limit":             {use: storage{map[string]int64{"a": 100 * mi}, 100 * mi}},
		"at the limit":         {a: "3Mi", use: storage{map[string]int64{"a": 3 * mi}, 0}},
		"a container":          {a: "3Mi", b: "9Mi", use: storage{map[string]int64{"a": 4 * mi}, 0}, want: `Container a exceeded its local ephemeral storage limit "3Mi". `},
		"all together":         {a: "3Mi", b: "3Mi", use: storage{map[string]int64{"a": 2 * mi, "b": 2 * mi}, 3 * mi}, want: `Pod ephemeral local storage usage exceeds the total limit of containers 6Mi. `},
		"one has no limit":     {a: "3Mi", use: storage{map[string]int64{"b": 4 * mi}, 0}, want: `Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. `},
		"a hidden volume":      {a: "3Mi", use: storage{map[string]int64{"a": 2 * mi, "b": 2 * mi}, math.MaxInt64}, want: `Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. `},
		"a layer without end":  {a: "3Mi", use: storage{map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64}, 0}, want: `Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. `},
		"volumes of the other": {a: "3Mi", b: "3Mi", use: storage{map[string]int64{}, 6 * mi}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testpod.New("web", testpod.Container(limited("a", tc.a), limited("b", tc.b)))
			assert.Equal(t, tc.want, tc.use.exceeded(pod))
			assert.Equal(t, tc.a+tc.b != "", hasStorageLimit(pod))
		})
	}
}

// The limit of an init container counts if it is a sidecar, as in kubelet since 1.37.
func TestStorageOfSidecars(t *testing.T) {
	limits := v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("3Mi")}}
	pod := testpod.New("web", testpod.Container(v1.Container{Name: "main", Resources: v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("9Mi")}}}))
	pod.Spec.InitContainers = []v1.Container{{Name: "proxy", Resources: limits}}
	use := storage{map[string]int64{"proxy": 4 << 20}, 0}
	assert.Empty(t, use.exceeded(pod))
	pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	assert.Equal(t, `Container proxy exceeded its local ephemeral storage limit "3Mi". `, use.exceeded(pod))
}

// layers is a runtime that reports any size of a container.
type layers struct {
	runtime.Runtime
	size int64
}

func (l layers) ContainerDiskUsage(context.Context, runtime.ContainerID) (int64, error) {
	return l.size, nil
}

// The size of a writable layer is from the runtime, and is added to that of the logs.
func TestSizeOfALayerDoesNotOverflow(t *testing.T) {
	pod := testpod.New("web", testpod.Container(v1.Container{
		Name: "a", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}},
	}))
	host := &runtime.Host{PodLogsDir: t.TempDir()}
	logs := filepath.Join(host.PodLogsDir, runtime.RefOf(pod).LogDirName(), "a")
	require.NoError(t, os.MkdirAll(logs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(logs, "0.log"), make([]byte, 64<<10), 0o600))
	observed := &runtime.PodStatus{Containers: []runtime.ContainerStatus{{Container: runtime.Container{Name: "a",
		State: runtime.ContainerRunning}}}}
	for size, exceeded := range map[int64]bool{0: false, 1 << 31: true, math.MaxInt64: true, -1 << 40: false} {
		s := &Syncer{deps: Deps{Runtime: layers{size: size}, Volumes: volume.Base{}}, opts: Options{Host: host}}
		message, err := s.storageExceeded(t.Context(), pod, t.TempDir(), observed)
		require.NoError(t, err)
		assert.Equal(t, exceeded, message != "", size)
	}
}

// Files of earlier rotations count, compressed or not.
func TestRotatedLogsCount(t *testing.T) {
	pod := testpod.New("web", testpod.Container(v1.Container{
		Name: "a", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}},
	}))
	host := &runtime.Host{PodLogsDir: t.TempDir()}
	logs := filepath.Join(host.PodLogsDir, runtime.RefOf(pod).LogDirName(), "a")
	require.NoError(t, os.MkdirAll(logs, 0o755))
	s := &Syncer{deps: Deps{Volumes: volume.Base{}}, opts: Options{Host: host}}
	observed := &runtime.PodStatus{Containers: []runtime.ContainerStatus{{Container: runtime.Container{Name: "a",
		State: runtime.ContainerRunning}}}}
	for _, name := range []string{"0.log", "0.log.20260102-030405", "0.log.20260102-030404.gz"} {
		message, err := s.storageExceeded(t.Context(), pod, t.TempDir(), observed)
		require.NoError(t, err)
		assert.Empty(t, message)
		require.NoError(t, os.WriteFile(filepath.Join(logs, name), make([]byte, 400<<10), 0o600))
	}
	message, err := s.storageExceeded(t.Context(), pod, t.TempDir(), observed)
	require.NoError(t, err)
	assert.Equal(t, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ", message)
}

// A container writes to the hosts file and to its termination log what it may not write to its layer and its volumes.
func TestFilesOfThePodCount(t *testing.T) {
	pod := testpod.New("web", testpod.Container(v1.Container{
		Name: "main", Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}},
	}))
	for _, name := range []string{"etc-hosts", "termination-log.main.0badcafe"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &Syncer{deps: Deps{Volumes: volume.Base{}}, opts: Options{Host: &runtime.Host{}}}
			file := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(file, make([]byte, 1000), 0o600))
			message, err := s.storageExceeded(t.Context(), pod, dir, nil)
			require.NoError(t, err)
			assert.Empty(t, message)
			require.NoError(t, os.WriteFile(file, make([]byte, 2<<20), 0o600))
			message, err = s.storageExceeded(t.Context(), pod, dir, nil)
			require.NoError(t, err)
			assert.Equal(t, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ", message)
			require.NoError(t, os.Truncate(file, 0))
			require.NoError(t, os.Truncate(file, 1<<40))
			message, err = s.storageExceeded(t.Context(), pod, dir, nil)
			require.NoError(t, err)
			assert.Empty(t, message, "it takes no disk")
		})
	}
}
