package eviction_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/node/eviction"
)

func TestParse(t *testing.T) {
	quantity := func(s string) eviction.Value { return eviction.Value{Quantity: resource.MustParse(s)} }
	for _, tc := range []struct {
		name string
		give eviction.Config
		want []eviction.Threshold
		errs []string
	}{
		{name: "nothing"},
		{
			name: "kubelet's defaults", give: eviction.Config{Hard: eviction.DefaultHard(), Allocatable: true},
			want: []eviction.Threshold{
				{Signal: eviction.AllocatableMemoryAvailable, Value: quantity("100Mi")},
				{Signal: eviction.MemoryAvailable, Value: quantity("100Mi")},
				{Signal: eviction.ImageFsAvailable, Value: eviction.Value{Part: 0.15}},
				{Signal: eviction.ImageFsInodesFree, Value: eviction.Value{Part: 0.05}},
				{Signal: eviction.NodeFsAvailable, Value: eviction.Value{Part: 0.1}},
				{Signal: eviction.NodeFsInodesFree, Value: eviction.Value{Part: 0.05}},
			},
		},
		{
			name: "soft", give: eviction.Config{
				Hard: map[string]string{"pid.available": "100", "memory.available": "0%", "nodefs.available": "100%"},
				Soft: map[string]string{"memory.available": "1Gi"}, SoftGracePeriod: map[string]string{
					"memory.available": "1m30s", "imagefs.available": "1s"},
				MinimumReclaim: map[string]string{"memory.available": "5%", "pid.available": "0"},
			},
			want: []eviction.Threshold{
				{Signal: eviction.MemoryAvailable, Value: quantity("1Gi"), GracePeriod: 90 * time.Second, MinReclaim: eviction.Value{Part: 0.05}},
				{Signal: eviction.PIDAvailable, Value: quantity("100"), MinReclaim: quantity("0")},
			},
		},
		{
			name: "containerfs is that of nodefs or imagefs", give: eviction.Config{
				Hard: map[string]string{"containerfs.available": "10%"}},
		},
		{
			name: "all that is wrong", give: eviction.Config{
				Hard: map[string]string{"memory.free": "1Mi", "memory.available": "x",
					"nodefs.available": "0", "nodefs.inodesFree": "-5%", "imagefs.available": "101%", "imagefs.inodesFree": "NaN%", "pid.available": "-1"},
				Soft:            map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"},
				SoftGracePeriod: map[string]string{"memory.available": "-1s", "disk": "1s"},
				MinimumReclaim: map[string]string{"memory.available": "-1", "nodefs.available": "0%",
					"pid.available": "Inf%"},
			},
			errs: []string{
				`evictionHard "memory.free": there is no such signal`, `evictionHard memory.available: "x"`,
				`evictionHard nodefs.available: "0": must be above 0`,
				`evictionHard nodefs.inodesFree: "-5%": must be between`, `evictionHard imagefs.available: "101%"`,
				`evictionHard imagefs.inodesFree: "NaN%"`, `evictionHard pid.available: "-1": must be above 0`,
				`evictionSoft nodefs.available: evictionSoftGracePeriod must have it`,
				`evictionSoftGracePeriod memory.available: "-1s"`, `evictionSoftGracePeriod "disk"`,
				`evictionMinimumReclaim memory.available`, `evictionMinimumReclaim nodefs.available`,
				`evictionMinimumReclaim pid.available`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := eviction.Parse(tc.give)
			if len(tc.errs) == 0 {
				require.NoError(t, err)
			}
			for _, e := range tc.errs {
				assert.ErrorContains(t, err, e)
			}
			require.Len(t, got, len(tc.want))
			for i := range got {
				assert.Equal(t, tc.want[i].String(), got[i].String())
				assert.Equal(t, tc.want[i].GracePeriod, got[i].GracePeriod)
				assert.Equal(t, tc.want[i].MinReclaim.Of(1000), got[i].MinReclaim.Of(1000))
				assert.Equal(t, tc.want[i].Value.Of(1<<40), got[i].Value.Of(1<<40))
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available", "100Mi", "1m", "5%")
	f.Add("nodefs.inodesFree", "1e3", "0", "1e-9")
	f.Fuzz(func(t *testing.T, signal, value, grace, reclaim string) {
		m := func(v string) map[string]string { return map[string]string{signal: v} }
		list, err := eviction.Parse(eviction.Config{Hard: m(value), Soft: m(value), SoftGracePeriod: m(grace),
			MinimumReclaim: m(reclaim), Allocatable: true})
		if err != nil {
			return
		}
		for _, th := range list {
			if th.Value.Of(1<<40) < 0 || th.MinReclaim.Of(1<<40) < 0 || th.GracePeriod < 0 || !th.Signal.Valid() {
				t.Fatalf("%+v", th)
			}
		}
	})
}
