package agent_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/status"
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
		PodConfig: podconfig.NopMetrics{}, PLEG: pleg.NopMetrics{}, PodWorkers: podworkers.NopMetrics{},
		Status: status.NopMetrics{},
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
		assert.NotEqual(t, reflect.ValueOf(nop).Field(i).Elem().Type(), field.Elem().Type(),
			joined.Type().Field(i).Name)
	}
	assert.Equal(t, kubeletkit.Metrics{}, kubeletkit.JoinMetrics(kubeletkit.Metrics{}, kubeletkit.Metrics{}))
}
