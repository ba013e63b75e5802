package kubeletkit

import (
	"runtime"
	"runtime/debug"
	gometrics "runtime/metrics"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What was garbage or free is returned to the system.
func TestReleaseMemory(t *testing.T) {
	held := func() uint64 {
		samples := []gometrics.Sample{{Name: "/memory/classes/heap/free:bytes"},
			{Name: "/memory/classes/heap/objects:bytes"}}
		gometrics.Read(samples)
		return samples[0].Value.Uint64() + samples[1].Value.Uint64()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection that begins now would count it as live
	runtime.GC()
	garbage := make([]byte, 64<<20)
	runtime.KeepAlive(garbage)
	before := held()
	ReleaseMemory()
	assert.Less(t, held()+32<<20, before)
}
