package status_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/status"
)

// While many statuses wait for a slow sink, changes of readiness and final phases come first.
func TestUrgentStatusesComeFirst(t *testing.T) {
	managed(t, status.Options{Concurrency: 1}, func(m *status.Manager, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error {
			time.Sleep(time.Second)
			return nil
		}
		for i := range 20 {
			m.Set(named(types.UID(fmt.Sprint("p", i))), phased(v1.PodPending, ""))
		}
		m.Set(named("x"), phased(v1.PodPending, ""))
		m.Set(named("y"), phased(v1.PodPending, ""))
		m.Set(named("z"), phased(v1.PodRunning, "")) // waits like the others
		synctest.Wait()
		m.Set(named("x"), phased(v1.PodFailed, "over"))
		m.Set(named("y"), ready())
		time.Sleep(3 * time.Second)
		var order []string
		for _, line := range strings.Split(strings.TrimSpace(k.deliveries()), "\n") {
			order = append(order, strings.Fields(line)[1])
		}
		assert.Equal(t, []string{"p0", "x", "y"}, order[:3])
	})
}

func ready() v1.PodStatus {
	s := phased(v1.PodRunning, "")
	s.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	return s
}
