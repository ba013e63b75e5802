package kubeletkit

import (
	"runtime/debug"
	gometrics "runtime/metrics"

	"github.com/kubeletkit/kubeletkit/internal/machine"
)

// worthReleasing is the number of bytes for which a collection, of about 5 ms of CPU time with 300 pods, is worth its
// cost.
const worthReleasing = 2 << 20

// ReleaseMemory returns memory of the process to the system: free memory and garbage, if there is enough of both, and
// on Linux the pages of the program, which is most of what an agent needs at its start only. The system keeps these as
// a cache of the file, and maps those that are used again. A program that is only an agent calls it when a rush is
// over, as the starts of many pods.
func ReleaseMemory() {
	samples := []gometrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, // neither used nor returned
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, // of objects, by the last collection
	}
	gometrics.Read(samples)
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	if free+objects >= live+worthReleasing {
		debug.FreeOSMemory()
	}
	machine.ReleaseProgram()
}
