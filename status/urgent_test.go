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
	managed(t, status.Options{Concurrency: 1}, func(m *status.Store, k *sink) {
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

// The readiness of a pod changes each time before its status is delivered. Others have their turn nevertheless.
func TestFlappingReadinessDelaysNoOther(t *testing.T) {
	managed(t, status.Options{Concurrency: 1}, func(m *status.Store, k *sink) {
		k.answer = func(context.Context, types.UID, v1.PodStatus) error {
			time.Sleep(time.Second)
			return nil
		}
		flap := func(i int) {
			for _, uid := range []types.UID{"x", "y"} {
				if i%2 == 0 {
					m.Set(named(uid), ready())
				} else {
					m.Set(named(uid), phased(v1.PodRunning, ""))
				}
			}
		}
		flap(1)
		time.Sleep(5 * time.Second)
		k.deliveries()
		for i := range 40 {
			flap(i)
			if i == 5 {
				m.Set(named("other"), phased(v1.PodPending, ""))
			}
			time.Sleep(time.Second / 2)
		}
		assert.Contains(t, k.deliveries(), " other ")
		m.Set(named("x"), phased(v1.PodRunning, ""))
		time.Sleep(time.Minute)
		m.Set(named("x"), ready())
	})
}

func ready() v1.PodStatus {
	s := phased(v1.PodRunning, "")
	s.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	return s
}
