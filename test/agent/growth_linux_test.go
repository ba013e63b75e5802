package agent_test

import (
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// The cost of a pod at its start, in a quarter of an hour in which nothing happens, and at its end
// does not grow with the number of pods. The test compares allocated bytes, because times on a
// loaded machine are noise. The log has the CPU time, with that of the runtime in memory.
//
// Large objects have a wider bound: grpc takes a buffer of 1 MiB from a
// sync.Pool for a list of about 50 pods or more, and a pool under -race drops a quarter of what is
// put back, by chance.
//
//	KUBELETKIT_GROWTH=100,300,500,1000 go test -run TestCostGrowsLinearly -v .
func TestCostGrowsLinearly(t *testing.T) {
	sizes := os.Getenv("KUBELETKIT_GROWTH")
	if sizes == "" {
		sizes = "40,200"
	}
	steps := []string{"start", "15 idle minutes", "end"}
	var first, firstSmall [3]float64
	for i, size := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(size)
		require.NoError(t, err)
		bytes, small, times := costOfPods(t, n)
		for step, name := range steps {
			t.Logf("%4d pods, for each pod: %-15s %.0f kB, %.0f kB of it in small objects, %.2f ms", n, name,
				bytes[step]/1e3, small[step]/1e3, times[step])
		}
		if i == 0 {
			first, firstSmall = bytes, small
		}
		for step, name := range steps {
			assert.LessOrEqual(t, small[step], 1.3*firstSmall[step],
				"%s of %d pods, bytes of small objects for each pod", name, n)
			assert.LessOrEqual(t, bytes[step], 2*first[step], "%s of %d pods, bytes for each pod", name, n)
		}
	}
}

// costOfPods returns the bytes that are allocated, those of small objects (runtime.MemStats.BySize) among them, and
// the CPU time in milliseconds for each of n pods in their start, in 15 minutes, and in their end.
func costOfPods(t *testing.T, n int) (bytes, small, times [3]float64) {
	t.Helper()
	runAgent(t, func(rt *fake.Runtime, source *podconfigfake.Source) {
		pods := make([]*v1.Pod, n)
		for i := range pods {
			pods[i] = onePod(fmt.Sprintf("web-%d", i))
		}
		for step, do := range []func(){
			func() { source.Set(pods...); time.Sleep(time.Minute) },
			func() { time.Sleep(15 * time.Minute) },
			func() { source.Set(); time.Sleep(2 * time.Minute) },
		} {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			began := cpu(t)
			do()
			times[step] = float64((cpu(t) - began).Microseconds()) / 1000 / float64(n)
			goruntime.ReadMemStats(&after)
			bytes[step] = float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
			for class, was := range before.BySize { // only small objects have a size class
				small[step] += float64(after.BySize[class].Mallocs-was.Mallocs) * float64(was.Size) / float64(n)
			}
			if step < 2 {
				require.Len(t, rt.Running(fake.Target{}), n)
			}
		}
		require.Zero(t, rt.ReadySandboxes(fake.Target{})+len(rt.Instances(fake.Target{})))
	})
	return bytes, small, times
}
