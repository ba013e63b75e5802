package agent_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// manifests is a source of one manifest.
type manifests string

func (manifests) Name() string { return "file" }

func (m manifests) Run(ctx context.Context, sink podconfig.Sink) error {
	pods, err := manifest.Load([]byte(m), manifest.Options{
		NodeName: sink.NodeName(),
		UID: func(pod *v1.Pod, hash string) types.UID {
			return sink.StaticUID(ctx, podconfig.StaticPod{Pod: pod, Manifest: hash})
		},
	})
	if err == nil {
		sink.Set(pods)
		<-ctx.Done()
	}
	return err
}

// A static pod without metadata.uid runs on when the agent takes the node over from a kubelet, also if it had started
// it itself before, and if the manifest has not changed.
func TestStaticPodsOfAKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: " +
			"'image:1'}]}\n"
		root, rt := t.TempDir(), fake.New(fake.Options{})
		life := func(text string) (uids []types.UID) {
			store, err := checkpoint.New(filepath.Join(root, "kept"), checkpoint.Options{})
			require.NoError(t, err)
			agent, err := kubeletkit.New(kubeletkit.Options{
				NodeName: "node", RootDir: root, Runtime: rt, Sources: []podconfig.Source{manifests(text)},
				Checkpoint: store, Host: &runtime.Host{PodLogsDir: filepath.Join(root, "logs")},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1) // one value, of the one goroutine
			go func() { done <- agent.Run(ctx) }()
			time.Sleep(time.Minute)
			cancel()
			require.NoError(t, <-done)
			for _, c := range rt.Running(fake.Target{}) {
				uids = append(uids, c.Pod.UID)
			}
			return uids
		}
		kubelet := func(uid types.UID) {
			rt = fake.New(fake.Options{})
			require.NoError(t,
				rt.Seed(testpod.New("web-node", testpod.UID(uid), testpod.Static, testpod.Containers("c"))))
		}
		stops := func() (stops int) {
			for _, c := range rt.Calls(fake.Target{}) {
				if c.Method == "StopContainer" || c.Method == "StopPodSandbox" || c.Method == "RunPodSandbox" {
					stops++
				}
			}
			return stops
		}
		kubelet("kubelets")
		assert.Equal(t, []types.UID{"kubelets"}, life(text))
		assert.Equal(t, []types.UID{"kubelets"}, life(text))
		assert.Zero(t, stops())

		rt = fake.New(fake.Options{}) // a new machine
		assert.Equal(t, []types.UID{"kubelets"}, life(text), "as it was kept")
		kubelet("again") // while the checkpoint has the pod with another UID
		assert.Equal(t, []types.UID{"again"}, life(text))
		assert.Zero(t, stops())

		assert.Equal(t, []types.UID{"again"}, life(text+"# a comment\n"))
		assert.Zero(t, stops())
		changed := life("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: " +
			"'image:1', args: [x]}]}\n")
		require.Len(t, changed, 1)
		assert.Len(t, changed[0], 32, "derived")
	})
}
