package cri_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestListUsage(t *testing.T) {
	for name, without := range map[string][]string{
		"streamed":        nil,
		"in one reply":    fake.ListStreams(),
		"containers only": append(fake.ListStreams(), "ListPodSandboxStats"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{Without: without, Behavior: func(fake.Container) fake.Behavior {
					return fake.Behavior{Uses: fake.Usage{MilliCPU: 500, Memory: 10 << 20, Disk: 7, Processes: 3}}
				}})
				defer rt.Close()
				require.NoError(t, rt.Seed(fake.Pods(2, 2)...))
				time.Sleep(10 * time.Second)
				rs, is := rt.Clients()
				usage, err := cri.New(rs, is, cri.Options{}).ListUsage(t.Context())
				require.NoError(t, err)
				require.Len(t, usage.Containers, 4)
				c := usage.Containers[0]
				assert.EqualValues(t, 5*time.Second, *c.CPU.UsageCoreNanoSeconds)
				assert.EqualValues(t, 5e8, *c.CPU.UsageNanoCores)
				assert.Equal(t, time.Now().UnixNano(), c.CPU.Time.UnixNano())
				assert.EqualValues(t, 10<<20, *c.Memory.WorkingSetBytes)
				assert.Nil(t, c.Memory.AvailableBytes, "it has no limit")
				assert.EqualValues(t, 7, *c.WritableLayer.UsedBytes)
				assert.Equal(t, "/fake", c.Mountpoint)
				if name == "containers only" {
					assert.Empty(t, usage.Sandboxes)
					return
				}
				require.Len(t, usage.Sandboxes, 2)
				assert.EqualValues(t, 10*time.Second, *usage.Sandboxes[0].CPU.UsageCoreNanoSeconds)
				assert.EqualValues(t, 6, *usage.Sandboxes[0].Processes)
				assert.Nil(t, usage.Sandboxes[0].Network)
			})
		})
	}
}

func TestARuntimeWithoutUsage(t *testing.T) {
	rt := fake.New(fake.Options{Without: append(fake.ListStreams(), "ListPodSandboxStats", "ListContainerStats",
		"ListMetricDescriptors")})
	defer rt.Close()
	rs, is := rt.Clients()
	client := cri.New(rs, is, cri.Options{})
	_, err := client.ListUsage(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = client.ListMetrics(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestListMetrics(t *testing.T) {
	for _, without := range [][]string{nil, fake.ListStreams()} {
		rt := fake.New(fake.Options{Without: without})
		pods := fake.Pods(2, 2)
		require.NoError(t, rt.Seed(pods...))
		rs, is := rt.Clients()
		families, err := cri.New(rs, is, cri.Options{}).ListMetrics(t.Context())
		require.NoError(t, err)
		var names []string
		for _, f := range families {
			names = append(names, f.Name)
			assert.Len(t, f.Samples, 4)
			assert.Equal(t, f.Name == "container_cpu_usage_seconds_total", f.Counter, f.Name)
			for _, s := range f.Samples {
				assert.Len(t, s.LabelValues, len(f.Labels))
				assert.NotEmpty(t, s.ContainerID)
			}
		}
		assert.Contains(t, names, "container_memory_working_set_bytes")
		rt.Close()
	}
}
