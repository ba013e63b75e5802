package flow_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWait(t *testing.T) {
	for takes, want := range map[time.Duration]int{0: 0, time.Second: 0, time.Minute: 1} {
		synctest.Test(t, func(t *testing.T) {
			var wg sync.WaitGroup
			ended, late := false, 0
			wg.Go(func() { time.Sleep(takes); ended = true })
			flow.Wait(&wg, flow.Late, func() { late++ })
			assert.True(t, ended)
			assert.Equal(t, want, late, "%v", takes)
		})
	}
}
