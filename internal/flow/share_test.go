package flow_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// TestPanicEndsASharedRun shows that who recovers from a panic finds no run that never
// ends.
func TestPanicEndsASharedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s flow.Shares[struct{}]
		do := func(f func() error) error {
			_, err := s.Do(t.Context(), "pod p", "key", func(func() int) (struct{}, error) { return struct{}{}, f() })
			return err
		}
		leads, followed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer func() { recover() }()
			_ = do(func() error { <-leads; panic("oops") })
		}()
		synctest.Wait()
		go func() { followed <- do(func() error { return nil }) }()
		synctest.Wait()
		close(leads)
		assert.NoError(t, <-followed)
		assert.NoError(t, do(func() error { return nil }))
	})
}
