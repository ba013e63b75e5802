// Package bubble runs tests in virtual time.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Test is [synctest.Test] for tests that may be skipped: if f skips its test, t is skipped. With synctest.Test t passes
// then.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	skipped := false
	synctest.Test(t, func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		f(t)
	})
	if skipped {
		t.SkipNow() // the reason is in the log of the test
	}
}
