package cluster

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestConfigure(t *testing.T) {
	rt := fake.New(fake.Options{Dir: t.TempDir()})
	defer rt.Close()
	n, err := New(Config{NodeName: "n", REST: &rest.Config{Host: "https://127.0.0.1:1"},
		Budgets: Budgets{Status: Budget{QPS: -1}}})
	require.NoError(t, err, "no limit is a limit, too")
	assert.Nil(t, n.Object())
	opts := kubeletkit.Options{
		NodeName: "other", RootDir: filepath.Join(t.TempDir(), "root"), Runtime: rt, Host: rt.Host(),
		Admission: kubeletkit.Admission{Limits: syncloop.Limits{MaxPods: 7,
			Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}},
	}
	require.ErrorContains(t, n.Configure(&opts), `Options.NodeName is "other", and Config.NodeName is "n"`)
	opts.NodeName = "n"
	require.NoError(t, n.Configure(&opts))
	require.ErrorContains(t, n.Configure(&opts), "Configure was called before")
	assert.Zero(t, opts.Admission.Limits.MaxPods, "the node object has the limits")
	assert.NotNil(t, opts.API.Claims)
	assert.NotNil(t, opts.API.TrustBundles)
	assert.NotNil(t, opts.API.PodCertificates)
	assert.Equal(t, "7", n.local.Status.Allocatable.Pods().String())
	assert.Equal(t, "3", n.local.Status.Allocatable.Cpu().String())
	assert.Nil(t, n.Object())

	assert.False(t, n.ended("u"), "nothing is known before there is an agent")
	agent, err := kubeletkit.New(opts)
	require.NoError(t, err)
	require.Error(t, n.runtimeReady(), "the agent does not run")
	assert.False(t, n.ended("u"), "an earlier agent may have started it")
	assert.False(t, n.orphaned("ns", "static-n"), "not all sources have delivered")
	assert.Equal(t, types.UID("u"), agent.TranslateUID("u"), "no mirror pod has it")
	assert.Equal(t, []string{podspec.SourceAPI}, []string{opts.Sources[0].Name()})
}

// What the options of the agent make allocatable is in the node object, before and after the
// API server has it.
func TestAllocatable(t *testing.T) {
	onNode(t, func(r *rig) {
		r.stop()
		r.change = func(_ *Config, opts *kubeletkit.Options) {
			opts.Admission.Limits.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
		}
		r.start()
		r.after(time.Minute)
		object := r.api.Object("nodes", "", "node").(*v1.Node)
		assert.Equal(t, "4", object.Status.Capacity.Cpu().String())
		assert.Equal(t, "3", object.Status.Allocatable.Cpu().String())
		assert.Equal(t, "8Gi", object.Status.Allocatable.Memory().String())
	})
}
