package cri

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// TestPanicEndsASharedRun shows that who recovers from a panic finds no run that never
// ends.
func TestPanicEndsASharedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shares
		leads, followed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer func() { recover() }()
			_ = s.do(t.Context(), "pod p", "key", func() error { <-leads; panic("oops") })
		}()
		synctest.Wait()
		go func() { followed <- s.do(t.Context(), "pod p", "key", func() error { return nil }) }()
		synctest.Wait()
		close(leads)
		assert.NoError(t, <-followed)
		assert.NoError(t, s.do(t.Context(), "pod p", "key", func() error { return nil }))
	})
}
