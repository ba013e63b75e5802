package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// A node that waits for its runtime after the start of the machine writes its status a few times,
// not each time that it looks.
func TestFewReportsWhileTheRuntimeIsAbsent(t *testing.T) {
	for name, call := range map[string]string{"all calls fail": "", "lists fail": "ListPodSandbox"} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(r *rig) {
				r.stop()
				r.api = apitest.New()
				r.rt.Inject(fake.Fault{Call: call, Err: runtime.ErrUnavailable})
				r.start()
				r.after(29 * time.Second)
				reports := 0
				for _, request := range r.api.Requests() {
					if request == "patch nodes/node status" {
						reports++
					}
				}
				assert.LessOrEqual(r, reports, 4)
			})
		})
	}
}
