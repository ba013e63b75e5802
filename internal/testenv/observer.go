package testenv

import "testing"

// BrokenObserver returns a function for an observer that panics or, in the bubble of the test, blocks until the test
// ends.
func BrokenObserver(t testing.TB, panics bool) func() {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	return func() {
		if panics {
			panic("broken")
		}
		<-release
	}
}
