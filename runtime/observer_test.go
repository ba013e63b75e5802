package runtime_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// count is a measurement.
type count int

func (count) IsMeasurement() {}

// Nothing waits for a function that blocks, and what is queued arrives in order.
func TestQueuedObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []runtime.Measurement
		free := make(chan struct{})
		o, wait := runtime.Observer{
			Logger:  funcr.New(func(string, string) {}, funcr.Options{}),
			Measure: func(m runtime.Measurement) { <-free; got = append(got, m) },
		}.Queued()
		assert.Nil(t, o.Event)
		assert.Nil(t, o.Record)
		o.Measure.Emit(count(1))
		o.Measure.Emit(count(2))
		began := time.Now()
		wait()
		assert.Equal(t, 3*time.Second, time.Since(began))
		close(free)
		wait()
		assert.Equal(t, []runtime.Measurement{count(1), count(2)}, got)
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestNonBlockingObserver(t *testing.T) {
	n := 0
	o, wait := runtime.Observer{Event: func(runtime.Event) { n++ }, NonBlocking: true}.Queued()
	o.Event.Emit(runtime.Event{})
	assert.Equal(t, 1, n, "it is called directly")
	wait()
	o.Measure.Emit(count(1)) // nobody receives it
}

// One observer serves several parts, each under a name of its own.
func ExampleObserver() {
	observer := runtime.Observer{
		Logger: funcr.New(func(prefix, args string) { fmt.Println(prefix, args) }, funcr.Options{}),
		Measure: func(m runtime.Measurement) {
			if n, ok := m.(count); ok { // others are ignored
				fmt.Println("count", n)
			}
		},
		NonBlocking: true,
	}
	part := observer.Named("part") // such as pleg.Options{Observer: observer.Named("pleg")}
	part.Logger.Info("began")
	part.Measure.Emit(count(3))
	// Output:
	// part "level"=0 "msg"="began"
	// count 3
}
