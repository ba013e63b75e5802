package flow

import (
	"sync"
	"time"
)

// Late is how long goroutines may take to end after their context has ended, before a log
// line names what they do: calls that obey their context return within milliseconds.
const Late = 3 * time.Second

// Wait waits for the group. If that takes longer than the duration, Wait calls late once
// and waits on.
func Wait(wg *sync.WaitGroup, d time.Duration, late func()) {
	joined := make(chan struct{})
	go func() {
		wg.Wait()
		close(joined)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-joined:
		return
	case <-timer.C:
	}
	late()
	<-joined
}
