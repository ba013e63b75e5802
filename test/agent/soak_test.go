package agent_test

import (
	"cmp"
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// In hours in which 210 pods live each, neither the heap nor the number of goroutines grows: what is kept of pods that
// are gone is bounded. The first quarter fills what is kept. TestChurn in test/e2e is the same in real time. A day of
// 5,040 lives takes a minute:
//
//	KUBELETKIT_SOAK=24 go test -run TestHoursOfLives -v .
func TestHoursOfLives(t *testing.T) {
	const pods, perHour = 35, 6
	hours, err := strconv.Atoi(cmp.Or(os.Getenv("KUBELETKIT_SOAK"), "6"))
	require.NoError(t, err)
	var heap, goroutines []float64 // the heap in kB
	runAgent(t, func(rt *fake.Runtime, source *podconfigfake.Source) {
		lives := 0
		for range hours {
			for range perHour {
				running := make([]*v1.Pod, pods)
				for i := range running {
					lives++
					running[i] = onePod(fmt.Sprintf("web-%d", lives))
				}
				source.Set(running...)
				time.Sleep(time.Hour / perHour)
				require.Len(t, rt.Running(fake.Target{}), pods)
				rt.ForgetCalls()
			}
			var m goruntime.MemStats
			for range 2 { // pools are emptied by the second collection
				goruntime.GC()
			}
			goruntime.ReadMemStats(&m)
			heap, goroutines = append(heap, float64(m.HeapAlloc)/1e3), append(goroutines, float64(goruntime.NumGoroutine()))
		}
	})
	t.Logf("heap at each hour: %.0f kB", heap)
	t.Logf("goroutines at each hour: %.0f", goroutines)
	// A hundred bytes of each life, and 60 kB of noise.
	assert.Less(t, slope(heap[hours/4:]), 0.1*pods*perHour+60/float64(hours), "kB of the heap in an hour")
	assert.Less(t, slope(goroutines[hours/4:]), 0.1, "goroutines in an hour")
}

// slope returns how much the values grow from one to the next, by least squares.
func slope(values []float64) float64 {
	n := float64(len(values))
	var x, y, xy, xx float64
	for i, v := range values {
		at := float64(i)
		x, y, xy, xx = x+at, y+v, xy+at*v, xx+at*at
	}
	return (n*xy - x*y) / (n*xx - x*x)
}
