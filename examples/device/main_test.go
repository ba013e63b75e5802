package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/plugin"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-" + types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Image: "image", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{"example.com/modbus": resource.MustParse("1")}},
		}}},
	}
}

func TestAgent(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		source := podconfigfake.NewSource("test")
		agent, err := newAgent(fake.New(fake.Options{}), source, root, []string{"/dev/ttyUSB0"}, logr.Discard())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- agent.Run(ctx) }()
		source.Set(pod("a"))
		time.Sleep(10 * time.Second)
		source.Set(pod("a"), pod("b"))
		time.Sleep(10 * time.Second)
		for _, p := range agent.Pods() {
			switch p.Name {
			case "a":
				assert.Equal(t, v1.PodRunning, p.Status.Phase)
				assert.Equal(t,
					[]v1.ResourceStatus{{Name: "example.com/modbus",
						Resources: []v1.ResourceHealth{{ResourceID: "ttyUSB0",
							Health: v1.ResourceHealthStatusHealthy}}}},
					p.Status.ContainerStatuses[0].AllocatedResourcesStatus)
			case "b":
				assert.Equal(t, "UnexpectedAdmissionError", p.Status.Reason, "there is one line")
			}
		}
		cancel()
		require.NoError(t, <-done)
	})
}

// The plugin registers with an agent, and again after the agent was restarted.
func TestPlugin(t *testing.T) {
	dir, err := os.MkdirTemp("", "device") // short: it has sockets
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	line := filepath.Join(dir, "ttyUSB0")
	require.NoError(t, os.WriteFile(line, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"-plugin", dir, line}) }()
	for range 2 {
		manager, err := devices.New("", devices.Options{})
		require.NoError(t, err)
		server, err := plugin.New(dir, manager)
		require.NoError(t, err)
		agentCtx, stop := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		go func() { stopped <- server.Run(agentCtx) }()
		require.Eventually(t, func() bool { return len(manager.Allocatable()) == 1 }, time.Minute, 10*time.Millisecond)
		p := pod("a")
		_, err = manager.Admit(lifecycle.AdmitRequest{Pod: p})
		require.NoError(t, err)
		_, err = manager.Prepare(ctx, lifecycle.PrepareRequest{Pod: p})
		require.NoError(t, err)
		edits, err := manager.EditContainer(ctx, p, &p.Spec.Containers[0])
		require.NoError(t, err)
		assert.Equal(t, []runtime.Device{{HostPath: line, ContainerPath: "/dev/modbus", Permissions: "rw"}},
			edits.Devices)
		stop()
		require.NoError(t, <-stopped)
	}
	cancel()
	require.NoError(t, <-done)
}
