package cluster

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// grown is a machine with resources that change.
type grown struct {
	facts
	huge atomic.Int64
}

func (g *grown) NodeResources(ctx context.Context) (capacity, allocatable v1.ResourceList, err error) {
	capacity, _, _ = g.facts.NodeResources(ctx)
	capacity[v1.ResourceHugePagesPrefix+"2Mi"] = *resource.NewQuantity(g.huge.Load(), resource.BinarySI)
	return capacity, nil, nil
}

// The default of a limit in the downward API is what is allocatable on the node object when it is used: without huge
// pages and reserved resources, and not what Host has.
func TestDefaultLimitsAreThoseOfTheNodeObject(t *testing.T) {
	onNode(t, func(r *rig) {
		machine := &grown{}
		machine.huge.Store(1 << 30)
		r.stop()
		r.rt.Close()
		var args []string
		r.rt = fake.New(fake.Options{Name: "containerd", Dir: r.root, Behavior: func(c fake.Container) fake.Behavior {
			args = append(args, c.Args...)
			return fake.Behavior{}
		}})
		r.change = func(c *Config, o *kubeletkit.Options) {
			c.Node.Info, c.Node.Reserved = machine, v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"),
				v1.ResourceMemory: resource.MustParse("1Gi")}
			o.Host.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"),
				v1.ResourceMemory: resource.MustParse("64Gi")}
		}
		r.start()
		pod := bound("web")
		c := &pod.Spec.Containers[0]
		c.Args = []string{"$(CPU) $(MEMORY)"}
		for name, field := range map[string]string{"CPU": "limits.cpu", "MEMORY": "limits.memory"} {
			c.Env = append(c.Env,
				v1.EnvVar{Name: name,
					ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: field}}})
		}
		pod.Spec.Volumes = []v1.Volume{{Name: "info",
			VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
				{Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory"}},
			}}}}}
		c.VolumeMounts = []v1.VolumeMount{{Name: "info", MountPath: "/info"}}
		uid := r.api.Create(pod).UID
		file := func() string {
			content, err := os.ReadFile(filepath.Join(r.root, "pods", string(uid),
				"volumes/kubernetes.io~downward-api/info/memory"))
			require.NoError(r, err)
			return string(content)
		}
		r.after(time.Minute)
		assert.Equal(r, []string{"3 6442450944"}, args)
		assert.Equal(r, "6442450944", file())
		machine.huge.Store(2 << 30)
		r.after(3 * time.Minute)
		assert.Equal(r, "5368709120", file())
		r.rt.Exit(fake.Target{Pod: "web"}, 1)
		r.after(time.Minute)
		assert.Equal(r, []string{"3 6442450944", "3 5368709120"}, args)
		r.api.Delete("default", "web", nil) // its volume is a mount
		r.after(time.Minute)
	})
}

// The allocatable resources of a machine that is detected are without those that are reserved, also before the node
// object exists.
func TestReservedResourcesOfADetectedHost(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		defer r.start()
		host, err := kubeletkit.DetectHost(r.root)
		require.NoError(r, err)
		r.change = func(c *Config, o *kubeletkit.Options) {
			c.Node.Reserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
			o.Host = nil
		}
		r.start()
		r.stop()
		got := r.agent.Parts().Host.Allocatable
		assert.Equal(r, host.Allocatable.Memory().Value()-1<<20, got.Memory().Value())
		assert.Equal(r, host.Allocatable.Cpu().Value(), got.Cpu().Value())
		r.change = nil
	})
}
