package kubeletkit_test

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/images"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/volume"
)

// disconnects counts the ends of the event stream, and nothing else.
type disconnects struct {
	pleg.NopMetrics
	n int
}

func (d *disconnects) Connected(err error) {
	if err != nil {
		d.n++
	}
}

func TestJoinMetrics(t *testing.T) {
	nop := kubeletkit.Metrics{
		PodConfig: podconfig.NopMetrics{}, PLEG: pleg.NopMetrics{}, PodWorkers: podworkers.NopMetrics{}, Status: status.NopMetrics{},
		Prober: prober.NopMetrics{}, Volumes: volume.NopMetrics{}, Images: images.NopMetrics{}, GC: gc.NopMetrics{},
	}
	a, b := &disconnects{}, &disconnects{}
	m := kubeletkit.JoinMetrics(nop, kubeletkit.JoinMetrics(kubeletkit.Metrics{PLEG: a}, kubeletkit.Metrics{PLEG: b}))
	m.PLEG.Connected(errors.New("EOF"))
	m.PLEG.Connected(nil)
	assert.Equal(t, []int{1, 1}, []int{a.n, b.n})
	assert.Equal(t, status.NopMetrics{}, m.Status, "the only one is not wrapped")

	// Each field is joined, and each method reaches both.
	joined := reflect.ValueOf(kubeletkit.JoinMetrics(nop, nop))
	for i := range joined.NumField() {
		field := joined.Field(i)
		for j := range field.NumMethod() {
			var args []reflect.Value
			for k := range field.Method(j).Type().NumIn() {
				args = append(args, reflect.Zero(field.Method(j).Type().In(k)))
			}
			field.Method(j).Call(args)
		}
		assert.NotEqual(t, reflect.ValueOf(nop).Field(i).Elem().Type(), field.Elem().Type(), joined.Type().Field(i).Name)
	}
	assert.Equal(t, kubeletkit.Metrics{}, kubeletkit.JoinMetrics(kubeletkit.Metrics{}, kubeletkit.Metrics{}))
}

// Metrics of which each method panics harm no pod.
func TestMetricsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNodeWith(t, t.TempDir(), fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Observe.Metrics = kubeletkit.Metrics{
				PodConfig: struct{ podconfig.Metrics }{}, PLEG: struct{ pleg.Metrics }{}, PodWorkers: struct{ podworkers.Metrics }{},
				Status: struct{ status.Metrics }{}, Prober: struct{ prober.Metrics }{}, Volumes: struct{ volume.Metrics }{}, Images: struct{ images.Metrics }{}, GC: struct{ gc.Metrics }{},
			}
		})
		defer n.stop(t)
		web := testpod.With(makePod("web"), testpod.Volumes(v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}))
		web.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
		n.source.Set(web)
		status := n.after(time.Minute)["web"].Status
		assert.Equal(t, v1.PodRunning, status.Phase)
		assert.True(t, status.ContainerStatuses[0].Ready)
		n.source.Set()
		assert.Empty(t, n.after(2*time.Minute))
		assert.Empty(t, held(t, n.runtime))
	})
}

// A program counts something by itself, beside the metrics of another package.
func ExampleJoinMetrics() {
	var opts kubeletkit.Options
	others := kubeletkit.Metrics{PLEG: pleg.NopMetrics{}} // such as those of metrics/prometheus
	opts.Observe.Metrics = kubeletkit.JoinMetrics(others, kubeletkit.Metrics{PLEG: &disconnects{}})
	// Output:
}
