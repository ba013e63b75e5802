package kubeletkit_test

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

// What a pod costs in its start, in a quarter of an hour in which nothing happens, and in its
// end does not grow with the number of pods. Bytes allocated stand for work, because the time of
// a loaded machine says nothing; the log has the CPU time, the runtime in memory included.
//
//	KUBELETKIT_GROWTH=100,300,500,1000 go test -run TestCostGrowsLinearly -v .
func TestCostGrowsLinearly(t *testing.T) {
	sizes := os.Getenv("KUBELETKIT_GROWTH")
	if sizes == "" {
		sizes = "40,200"
	}
	var first [3]float64
	for i, size := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(size)
		require.NoError(t, err)
		bytes, times := costOfPods(t, n)
		t.Logf("%4d pods, for each pod: start %.0f kB, %.2f ms; 15 idle minutes %.1f kB, %.2f ms; end %.0f kB, %.2f ms",
			n, bytes[0]/1e3, times[0], bytes[1]/1e3, times[1], bytes[2]/1e3, times[2])
		if i == 0 {
			first = bytes
		}
		for step, name := range []string{"start", "idle", "end"} {
			assert.LessOrEqual(t, bytes[step], 1.3*first[step], "%s of %d pods, bytes for each pod", name, n)
		}
	}
}

// costOfPods returns the bytes that are allocated and the CPU time in milliseconds for each of n
// pods in their start, in 15 minutes, and in their end.
func costOfPods(t *testing.T, n int) (bytes, times [3]float64) {
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
			if step < 2 {
				require.Len(t, rt.Running(fake.Target{}), n)
			}
		}
		require.Zero(t, rt.ReadySandboxes(fake.Target{})+len(rt.Instances(fake.Target{})))
	})
	return bytes, times
}
