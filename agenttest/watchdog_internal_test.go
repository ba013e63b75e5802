package agenttest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A goroutine that waits on a channel from outside the bubble is named; one that waits in the bubble is not.
func TestWatchdog(t *testing.T) {
	outside, barked := make(chan struct{}), make(chan string, 1)
	w := startWatchdog(50*time.Millisecond, func(message string) {
		barked <- message
		close(outside)
	})
	defer w.close()
	synctest.Test(t, func(*testing.T) {
		w.enter()
		time.Sleep(time.Hour) // passes at once
		<-outside
	})
	message := <-barked
	assert.Contains(t, message, "time does not pass")
	assert.Contains(t, message, "agenttest.TestWatchdog.func2")
}
